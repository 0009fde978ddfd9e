"""A campaign keeps to its time by measuring, also on a machine that slows down; in simulated time."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jumping_clock import JumpingLoop, run_with_jumps
from nights import ABOUT, CRASH, CUT, GONE, LOST, empty_state

from floodmark.harness.campaign.plan import read
from floodmark.harness.campaign.state import State, writable_state
from floodmark.harness.commands import campaign_run
from floodmark.harness.commands.campaign_processes import Worker
from floodmark.harness.commands.campaign_run import (
    AFTER_S,
    ENDING_S,
    JUDGE_S,
    SETTLING_S,
    Batch,
    CampaignRunner,
)
from floodmark.harness.spec import RunSpec

PLAN = """
duration = 30
reproduce = 5
[[system]]
rules = "kip-320"
[[nemesis]]
nemesis = "crash"
[[nemesis]]
nemesis = "cut"
"""


# -- the estimates ------------------------------------------------------------------------------------------


def state_with(*took_s: float, case: RunSpec = CRASH, judge_s: float = 2.0, bugs: int = 0) -> State:
    """A campaign with runs that took so long, the first of which have shown a bug each."""
    state = empty_state()
    for number, each_s in enumerate(took_s, 1):
        state.begin(number, number, case, f"runs/{number}")
        state.end_run(number, {"took_s": each_s})
        shown = [asdict((LOST, GONE)[number - 1])] if number <= bugs else []
        state.judge(number, {"kind": "invalid", "signatures": shown}, judge_s)
    return state


def batch(state: State, left_s: float, *, at_once: int = 2, after_s: float = 7.0) -> Batch:
    return Batch(state=state, at_once=at_once, left_s=left_s, reproduce=5, after_s=after_s)


def test_without_measurements_the_estimates_are_the_default() -> None:
    first = batch(empty_state(), 100)
    assert (first.judge_s, first.bugs_per_run) == (JUDGE_S, 0)
    assert first.expected_s(CRASH) == CRASH.duration + SETTLING_S


def test_measurements_replace_the_defaults() -> None:
    """A case takes as long as the longest of its latest five runs; one that never ran, as the slowest."""
    measured = batch(state_with(99, 50, 45, 44, 43, 42, judge_s=3, bugs=2), 100)
    assert (measured.judge_s, measured.bugs_per_run) == (3, 2 / 6)
    assert measured.expected_s(CRASH) == 50
    assert measured.expected_s(CUT) == CUT.duration + 50 - CRASH.duration
    scenario = RunSpec(scenario="double-failover")
    assert batch(state_with(3, case=scenario), 100).expected_s(CUT) == CUT.duration + SETTLING_S


def test_a_batch_needs_time_for_judging_and_for_what_follows() -> None:
    """Two at once: the third run starts when the first one ends."""
    def third(left_s: float) -> bool:
        made = batch(state_with(40), left_s)
        made.add(CRASH)
        made.add(CRASH)
        return made.has_time_for(CRASH)

    least_s = 2 * 40 + 3 * 2 + 7 + ENDING_S
    assert third(least_s)
    assert not third(least_s - 0.1)


def test_time_is_reserved_for_reproducing_new_bugs() -> None:
    def second_round(left_s: float) -> Batch:
        made = batch(state_with(*[40] * 10, bugs=1), left_s, after_s=0)
        for _ in range(2):
            assert made.has_time_for(CRASH)
            made.add(CRASH)
        return made

    least_s = 2 * 40 + 3 * 2 + ENDING_S
    reserve_s = 3 * 0.1 * 5 * (40 / 2 + 2)
    assert second_round(least_s + reserve_s).has_time_for(CRASH)
    assert not second_round(least_s + reserve_s - 0.1).has_time_for(CRASH)
    assert second_round(least_s + 2 / 3 * reserve_s).has_time_for(CRASH, draw=False)  # finds nothing new
    assert second_round(40 + 2 * 2 + ENDING_S).runs == 2  # clusters that idle find nothing at all


def test_the_first_run_needs_only_its_own_time() -> None:
    assert batch(empty_state(), 45, at_once=1, after_s=AFTER_S).has_time_for(CRASH)
    assert not batch(empty_state(), 44, at_once=1, after_s=AFTER_S).has_time_for(CRASH)


# -- a whole campaign ---------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class SimulatedMachine:
    """Durations on a simulated machine. slower: by how much per hour; finds: which runs show a new cause."""

    besides_s: float = 8.0
    judge_s: float = 1.0
    cold_s: float = 4.0
    pages_s: float = 3.0
    slower: float = 0.0
    noise: float = 0.1
    finds: Callable[[int], bool] = lambda _: False
    rng: Random = field(default_factory=lambda: Random(1))
    began_s: float = 0.0
    run_times: list[float] = field(default_factory=list)

    def duration_of(self, time_s: float) -> float:
        now_s = asyncio.get_running_loop().time()
        spread = self.rng.uniform(1 - self.noise, 1 + self.noise)
        return time_s * spread * (1 + self.slower * (now_s - self.began_s) / 3600)

    async def play(self, request: Mapping[str, Any]) -> dict[str, Any]:
        took_s = self.duration_of(30.0 + self.besides_s)
        await asyncio.sleep(took_s)
        Path(request["folder"]).mkdir(parents=True)
        self.run_times.append(took_s)
        return {"why": None, "cpu_s": took_s, "resident_bytes": 1 << 28}

    async def start(self) -> None:
        await asyncio.sleep(self.duration_of(self.cold_s))

    async def end(self) -> None:
        await asyncio.sleep(self.duration_of(1.0))

    async def judge(self, request: Mapping[str, Any]) -> dict[str, Any]:
        folders = list(map(Path, request["folders"]))
        await asyncio.sleep(self.duration_of(self.judge_s * len(folders)))
        answers = []
        for folder in folders:
            number = int(folder.name.partition("-")[0])
            again = folder.parent.name if folder.parent.parent.name == "again" else None
            shown = [asdict(LOST) | {"step": f"of run {number}"}] if self.finds(number) and not again else []
            answers.append({
                "kind": "invalid" if shown else "valid", "why": "", "harness": False, "acked": 1000,
                "faults": {}, "signatures": shown, "size_bytes": 1000, "measures": None, "unsaved": None,
                "judge_failed": False})
        return {"answers": answers}

    def look(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        loop.now_s += self.duration_of(self.pages_s)


def time_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: SimulatedMachine, budget_s: float
) -> float:
    """Seconds that a campaign on this machine takes."""
    loop = JumpingLoop(now_s=1_000_000.0)
    state = writable_state(tmp_path, loop.time)
    runner = CampaignRunner(
        folder=tmp_path, plan=read(PLAN, "plan"), state=state, look=machine.look,
        about={**ABOUT, "seed": 1, "bank": [], "budget_s": budget_s, "runs": None, "keep": False,
               "ledger": tmp_path / "ledger.json"},
        judge=cast(Worker, SimpleNamespace(start=machine.start, ask=machine.judge, end=machine.end)),
        player=cast(Worker, SimpleNamespace(ask=machine.play, end=machine.end)))
    monkeypatch.setattr(campaign_run, "time", SimpleNamespace(monotonic=loop.time))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no waiting for the disk
    state.database.execute("PRAGMA synchronous = OFF")
    machine.began_s = loop.now_s
    run_with_jumps(runner.run(), loop)
    assert state.end == ("the time is over", False)
    return state.spent_s


@pytest.mark.parametrize("given", [
    pytest.param({}, id="as usual"),
    pytest.param({"judge_s": 6.0, "pages_s": 10.0}, id="a slow judge"),
    pytest.param({"besides_s": 25.0, "cold_s": 20.0, "noise": 0.3}, id="under load"),
    pytest.param({"slower": 1.5}, id="slowing down"),
    pytest.param({"finds": lambda number: number % 9 == 0}, id="finds regularly"),
    pytest.param({"judge_s": 4.0, "finds": lambda number: number < 6}, id="finds at first"),
])
@pytest.mark.parametrize("budget_s", [300.0, 1200.0])
def test_a_campaign_keeps_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], budget_s: float
) -> None:
    """Within 5 %, or the length of a run: it begins no run that it cannot judge, and is not idle."""
    machine = SimulatedMachine(**given)
    took_s = time_spent(tmp_path, monkeypatch, machine, budget_s)
    tolerance_s = max(0.05 * budget_s, *machine.run_times)
    assert budget_s - tolerance_s <= took_s <= budget_s + tolerance_s, (took_s, budget_s)
