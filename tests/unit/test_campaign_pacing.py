"""A campaign keeps to its time by measuring, also on a machine that slows down; in simulated time."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from jumping_clock import JumpingLoop, run_with_jumps
from nights import ABOUT, CRASH, CUT, LOST

from floodmark.harness.campaign.cases import case_to_json
from floodmark.harness.campaign.journal import (
    BEGAN,
    JUDGED,
    OPENED,
    RECORDED,
    REPRODUCED,
    CampaignAt,
    Journal,
    State,
    state_of,
)
from floodmark.harness.campaign.pacing import (
    AFTER_S,
    ENDING_S,
    JUDGE_S,
    SETTLING_S,
    Batch,
    Pace,
    pace_of,
)
from floodmark.harness.campaign.plan import read
from floodmark.harness.commands import campaign_run
from floodmark.harness.commands.campaign_run import Bounds, Conductor
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


def state_of_lines(*lines: tuple[float, str, dict[str, Any]]) -> State:
    return state_of([{"event": OPENED, "time_s": 0},
                     *({"event": event, "time_s": time_s, **more} for time_s, event, more in lines)])


def begun(run: int, case: RunSpec = CRASH) -> dict[str, Any]:
    return {"run": run, "case": case_to_json(case), "seed": run, "folder": f"runs/{run}"}


def test_without_measurements_the_pace_is_the_default() -> None:
    pace = pace_of(State(), [], [])
    assert pace == Pace(judge_s=JUDGE_S, after_s=AFTER_S, besides_s=SETTLING_S)
    assert pace.of_run(CRASH) == CRASH.duration + SETTLING_S


def test_measurements_replace_the_defaults() -> None:
    pace = pace_of(state_of_lines(
        (4, BEGAN, begun(1)), (54, RECORDED, {"run": 1, "took_s": 50}),
        (58, JUDGED, {"run": 1, "kind": "valid", "judge_s": 4}),
        (61, BEGAN, begun(2)), (106, RECORDED, {"run": 2, "took_s": 45}),
        (108, JUDGED, {"run": 2, "kind": "invalid", "judge_s": 2}),
        (150, REPRODUCED, {"signature": "ab", "shown": True, "judge_s": 3}),
    ), [1], [9, 2, 1, 3, 1, 1])
    assert pace == Pace(judge_s=3, after_s=3, besides_s=50 - CRASH.duration, by_case={CRASH: 50},
                        new_per_run=0.5, has_run=True)
    assert pace.of_run(CUT) == CUT.duration + 50 - CRASH.duration  # never run: the overhead of others


def test_causes_found_again_do_not_count_as_new() -> None:
    state = state_of_lines((4, BEGAN, begun(1)), (8, JUDGED, {"run": 1, "kind": "invalid"}))
    assert [pace_of(state, shown, []).new_per_run for shown in ([], [2, 3], [1, 2], [1, 1])] == [0, 0, 1, 2]


def test_a_batch_needs_time_for_judging_and_for_what_follows() -> None:
    """Two at once: the third run starts when the first one ends."""
    def batch(left_s: float) -> Batch:
        pace = Pace(judge_s=2, after_s=7, has_run=True)
        made = Batch(pace=pace, at_once=2, left_s=left_s, reproduce=5)
        made.add(30)
        made.add(10)
        return made

    least_s = 10 + 25 + 3 * 2 + 7 + ENDING_S
    assert batch(least_s).has_time_for(25)
    assert not batch(least_s - 0.1).has_time_for(25)
    assert batch(30 + 3 * 2 + 7 + ENDING_S).has_time_for(20)  # beside the longer one


def test_time_is_reserved_for_reproducing_new_findings() -> None:
    pace = Pace(judge_s=2, after_s=0, new_per_run=0.1, has_run=True)
    reserve_s = 0.1 * 5 * (20 / 2 + 2)

    def second_round(left_s: float) -> Batch:
        made = Batch(pace=pace, at_once=2, left_s=left_s, reproduce=5)
        for _ in range(2):
            assert made.has_time_for(20)
            made.add(20)
        return made

    least_s = 40 + 3 * 2 + ENDING_S
    assert second_round(least_s + 3 * reserve_s).has_time_for(20)
    assert not second_round(least_s + 2.9 * reserve_s).has_time_for(20)
    assert second_round(least_s + 2 * reserve_s).has_time_for(20, draw=False)  # finds nothing new
    assert second_round(40 + 2 * 2 + ENDING_S - 20).runs == 2  # idle clusters find nothing at all


def test_the_first_run_needs_only_its_own_time() -> None:
    first = Batch(pace=Pace(), at_once=1, left_s=20)
    assert first.has_time_for(20)
    assert not first.has_time_for(21)


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

    async def play(self, options: Mapping[str, Any]) -> dict[str, Any]:
        took_s = self.duration_of(30.0 + self.besides_s)
        await asyncio.sleep(took_s)
        Path(options["folder"]).mkdir(parents=True)
        self.run_times.append(took_s)
        return {"why": None, "cpu_s": took_s, "resident_bytes": 1 << 28}

    async def start(self) -> None:
        await asyncio.sleep(self.duration_of(self.cold_s))

    async def end(self) -> None:
        await asyncio.sleep(self.duration_of(1.0))

    async def judge(self, folders: Sequence[Path]) -> list[dict[str, Any]]:
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
        return answers

    def look(self, state: State) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        loop.now_s += self.duration_of(self.pages_s)


def time_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: SimulatedMachine, budget_s: float
) -> float:
    """Seconds that a campaign on this machine takes."""
    plan = read(PLAN, "plan")
    journal, loop = Journal(tmp_path / "journal.jsonl"), JumpingLoop(now_s=1_000_000.0)
    conductor = Conductor(
        at=CampaignAt(folder=tmp_path), plan=plan, bounds=Bounds(budget_s=budget_s),
        about={**ABOUT, "seed": 1, "bank": []}, ledger_path=tmp_path / "ledger.json", journal=journal,
        state=State(), judge=machine, look=machine.look,  # type: ignore[arg-type]
        player=SimpleNamespace(play=machine.play, end=machine.end))  # type: ignore[arg-type]
    clock = SimpleNamespace(time=loop.time, monotonic=loop.time)
    monkeypatch.setattr(campaign_run, "time", clock)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no waiting for the disk
    machine.began_s = loop.now_s
    state = run_with_jumps(conductor.conduct(), loop)
    journal.close()
    assert state.why_ended == "the time is over"
    return state.spent_s


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(SimulatedMachine(), id="as usual"),
        pytest.param(SimulatedMachine(judge_s=6.0, pages_s=10.0), id="a slow judge"),
        pytest.param(SimulatedMachine(besides_s=25.0, cold_s=20.0, noise=0.3), id="under load"),
        pytest.param(SimulatedMachine(slower=0.5), id="slowing down"),
        pytest.param(SimulatedMachine(finds=lambda number: number % 9 == 0), id="finds regularly"),
        pytest.param(SimulatedMachine(judge_s=4.0, finds=lambda number: number < 6), id="finds at first"),
    ],
)
@pytest.mark.parametrize("budget_s", [300.0, 1200.0, 3600.0])
def test_a_campaign_keeps_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: SimulatedMachine, budget_s: float
) -> None:
    """Within 5 %, or the length of a run: it begins no run that it cannot judge, and is not idle."""
    machine = SimulatedMachine(**{
        name: getattr(machine, name) for name in machine.__dataclass_fields__
        if name not in ("rng", "run_times", "began_s")})
    took_s = time_spent(tmp_path, monkeypatch, machine, budget_s)
    tolerance_s = max(0.05 * budget_s, *machine.run_times)
    assert budget_s - tolerance_s <= took_s <= budget_s + tolerance_s, (took_s, budget_s)
