"""A campaign's session: how it keeps to its time, what a resumed one remembers and judges again, what is
synced when, how much memory a run has; without clusters and Spark."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from command_line import floodmark
from docker.errors import APIError
from jumping_clock import JumpingLoop, run_with_jumps
from nights import ABOUT, CRASH, CUT, LOST, empty_state, night, written

from floodmark.checkers.judge.failures import Failure
from floodmark.checkers.judge.verdicts import failed
from floodmark.harness import catalog, pipeline
from floodmark.harness.campaign.ledger import Ledger, load, save
from floodmark.harness.campaign.plan import read
from floodmark.harness.campaign.state import about_of, state_of, writable_state
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.place import MemoryLimits
from floodmark.harness.commands import campaign as campaign_commands
from floodmark.harness.commands import campaign_run
from floodmark.harness.commands.campaign_processes import (
    JUDGE,
    Worker,
    answer,
    resident_bytes,
    with_memory_watched,
)
from floodmark.harness.commands.campaign_run import ENDING_S, SETTLING_S, Batch, CampaignRunner
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.pipeline import saved_verdict
from floodmark.harness.protocols import Cluster
from floodmark.harness.run import sync_run
from floodmark.harness.spec import RunSpec

PLAN = """
for = "1h"
duration = 30
reproduce = 5
[[system]]
rules = "kip-320"
[[nemesis]]
nemesis = "crash"
[[nemesis]]
nemesis = "cut"
"""
ANSWER = {"kind": "valid", "why": "", "harness": False, "acked": 10, "faults": {}, "signatures": [],
          "size_bytes": 100, "measures": None, "unsaved": None, "judge_failed": False}
FAILED = {**ANSWER, "kind": "failed in the harness", "harness": True, "judge_failed": True,
          "why": "nothing was judged; the judge failed: MemoryError"}

# -- time ---------------------------------------------------------------------------------------------------


def test_a_case_takes_as_long_as_the_longest_of_its_latest_five_runs() -> None:
    """One that never ran as the slowest; a scenario's time says nothing of others."""
    state = empty_state()
    for number, took_s in enumerate((99, 50, 45, 44, 43, 42), 1):
        state.begin(number, number, CRASH, f"runs/{number}")
        state.end_run(number, {"took_s": took_s})
    measured = Batch(state=state, at_once=2, left_s=100)
    assert [measured.expected_s(case) for case in (CRASH, CUT)] == [50, CUT.duration + 50 - CRASH.duration]
    of_scenario = empty_state()
    of_scenario.begin(1, 1, RunSpec(scenario="double-failover"), "runs/1")
    of_scenario.end_run(1, {"took_s": 3})
    assert Batch(state=of_scenario, at_once=2, left_s=100).expected_s(CUT) == CUT.duration + SETTLING_S


@pytest.mark.parametrize(("more_s", "begins"), [(0, True), (-1, False)])
def test_the_first_run_needs_only_its_own_time(more_s: float, begins: bool) -> None:
    first = Batch(state=empty_state(), at_once=1, left_s=CRASH.duration + SETTLING_S + more_s)
    assert first.has_time_for(CRASH) == begins


@pytest.mark.parametrize(("reproduce", "again_s"), [(0, 0), (5, 3 * 0.1 * 5 * (40 / 2 + 2))])
def test_a_batch_leaves_time_for_judging_and_for_reproducing_what_it_may_find(
    reproduce: int, again_s: float
) -> None:
    """Two at once, one bug in ten runs until now: the third run starts when the first one ends."""
    state = empty_state()
    for number in range(1, 11):
        state.begin(number, number, CRASH, f"runs/{number}")
        state.end_run(number, {"took_s": 40})
        state.judge(number, {"signatures": [asdict(LOST)] if number == 1 else []}, 2.0)
    least_s = 2 * 40 + 3 * 2 + 7 + ENDING_S + again_s
    for left_s in (least_s, least_s - 0.1):
        made = Batch(state=state, at_once=2, left_s=left_s, reproduce=reproduce, after_s=7)
        for _ in range(2):
            assert made.has_time_for(CRASH)  # clusters that idle find nothing at all
            made.add(CRASH)
        assert made.has_time_for(CRASH) == (left_s == least_s)
        assert made.has_time_for(CRASH, draw=False) or not reproduce  # which finds nothing new


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
            again = folder.parent.parent.name == "again"
            shown = [asdict(LOST) | {"step": f"of run {number}"}] if self.finds(number) and not again else []
            answers.append({**ANSWER, "kind": "invalid" if shown else "valid", "signatures": shown})
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


# -- a session that goes on ---------------------------------------------------------------------------------


def judge_answering(monkeypatch: pytest.MonkeyPatch, answered: dict[str, Any],
                    ended: str = "done") -> list[list[str]]:
    """From now on a judge answers so, and runs have a history; the folders of each call, by name."""
    calls: list[list[str]] = []

    class FixedWorker:
        def __init__(self, words: tuple[str, str], log: Path) -> None:
            self.words = words

        async def start(self) -> None:
            pass

        end = start

        async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
            if self.words == JUDGE:
                calls.append([Path(folder).name for folder in request["folders"]])
                return {"answers": [dict(answered) for _ in request["folders"]]}
            Path(request["folder"]).mkdir(parents=True)
            (Path(request["folder"]) / "history.jsonl").touch()
            return {"why": None, "ended": ended}

    monkeypatch.setattr(campaign_commands, "Worker", FixedWorker)
    return calls


def lost(tmp_path: Path) -> Path:
    """A campaign whose only run has shown a bug; the bug is not reproduced yet."""
    state = night((CRASH, "invalid", (LOST,)), why=None)
    return written(tmp_path / "night", state, Ledger(), plan=PLAN, runs=1)


def test_of_two_campaigns_that_begin_in_one_folder_only_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that it is empty; the other has been faster."""
    (tmp_path / "plan.toml").write_text(PLAN)
    folder = tmp_path / "night"

    def other_begins() -> None:
        folder.mkdir()
        (folder / "campaign.json").write_text("the other's")

    monkeypatch.setattr(catalog, "can_judge", other_begins)
    answer = floodmark("campaign", "run", tmp_path / "plan.toml", "--out", folder, "--runs", 1)
    assert (answer.code, f"cannot write the folder {folder}: Directory not empty" in answer.err) == (4, True)
    assert (folder / "campaign.json").read_text() == "the other's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["night", "plan.toml"]


def test_a_full_disk_that_ends_a_run_early_ends_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run counts as not made."""
    calls = judge_answering(monkeypatch, ANSWER, ended="n1: No space left on device")
    free = iter((1 << 40, 1))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=next(free)))
    folder = written(tmp_path / "night", night(why=None), Ledger(), plan=PLAN)
    answer = floodmark("campaign", "resume", folder)
    assert (answer.code, "was running: n1: No space left on device)" in answer.err) == (4, True), answer
    assert ([run.status for run in state_of(folder).runs()], calls) == (["begun"], [])


def test_a_run_that_ended_early_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = judge_answering(monkeypatch, {**FAILED, "judge_failed": False}, ended="no answer")
    folder = written(tmp_path / "night", night(why=None), Ledger(), plan=PLAN, runs=1)
    assert floodmark("campaign", "resume", folder).code == 4
    assert [[run.status for run in state_of(folder).runs()], len(calls)] == [["judged"], 1]


def test_a_run_whose_verdict_could_not_be_written_is_kept_to_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_answering(monkeypatch, {**ANSWER, "unsaved": "cannot write x: No space left on device"})
    folder = written(tmp_path / "night", night(why=None), Ledger(), plan=PLAN, runs=1)
    answer = floodmark("campaign", "resume", folder)
    assert (answer.code, "1 verdict could not be written: cannot write x" in answer.err) == (4, True), answer
    (run,) = state_of(folder).runs()
    assert (run.status, (folder / run.folder / "history.jsonl").exists()) == ("recorded", True)


def test_a_ledger_of_a_newer_version_stops_a_campaign_and_spoils_nothing(tmp_path: Path) -> None:
    """The command to type is quoted for a shell."""
    state = night((CRASH, "valid", ()), why=None)
    folder = written(tmp_path / "night of today", state, Ledger(), plan=PLAN)
    (tmp_path / "ledger.json").write_text('{"format": 2}')
    answer = floodmark("campaign", "resume", folder)
    assert answer.code == 4, answer
    for words in ("a newer version of floodmark wrote it", f"with: floodmark campaign resume '{folder}'",
                  "1 run: 1 valid"):
        assert words in answer.err + answer.out
    assert (tmp_path / "ledger.json").read_text() == '{"format": 2}'
    assert state_of(folder).runs() == state.runs()


def test_another_ledger_gets_all_findings_and_is_kept_for_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are new limits. What it marks as known passes, and is not reproduced."""
    judge_answering(monkeypatch, ANSWER)
    folder, other = lost(tmp_path), tmp_path / "other" / "ledger.json"
    assert floodmark("campaign", "resume", folder, "--ledger", other, "--for", "2h", "--runs", 1).code == 1
    assert list(load(other).entries) == [LOST.id]
    assert load(tmp_path / "ledger.json") == Ledger()
    assert (about_of(folder)["budget_s"], about_of(folder)["runs"]) == (7200, 1)
    known_now = {"reason": "KAFKA-1", "since": "2026-03-02"}
    save(other, load(other).changed(LOST.id, known=known_now, reproduced=(0, 0)))
    state_of(folder).database.execute("DELETE FROM reproductions").connection.commit()
    again = floodmark("campaign", "resume", folder)
    assert (again.code, "known: KAFKA-1" in again.out) == (0, True), again
    assert state_of(folder).reproductions(LOST.id) == []


@pytest.mark.parametrize(("now", "code", "kind"), [(ANSWER, 0, "valid"), (FAILED, 4, FAILED["kind"])])
def test_a_run_on_which_the_judge_failed_is_judged_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: dict[str, Any], code: int, kind: str
) -> None:
    """The second of three. Fails the judge again, it stays a failure of the harness."""
    calls = judge_answering(monkeypatch, now)
    state = night((CRASH, "valid", ()), (CUT, "valid", ()), (CUT, "valid", ()), why=None)
    state.judge(2, FAILED, None)
    folder = written(tmp_path / "night", state, Ledger(), plan=PLAN, runs=3)
    for _ in range(2):
        answer = floodmark("campaign", "resume", folder)
        assert (answer.code, "the judge failed: MemoryError" in answer.out) == (code, code == 4), answer
    assert calls == [["2"]]
    assert [run.kind for run in state_of(folder).runs()] == ["valid", kind, "valid"]


@pytest.mark.parametrize("judge_failed", [True, False])
def test_a_reproduction_in_which_the_harness_or_the_judge_failed_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge_failed: bool
) -> None:
    """Neither as reproduced nor as not reproduced; its folder is kept whole."""
    judge_answering(monkeypatch, {**FAILED, "judge_failed": judge_failed})
    folder = lost(tmp_path)
    assert floodmark("campaign", "resume", folder).code == 1
    made = state_of(folder).select("SELECT shown, why, folder FROM reproductions")
    assert [(shown, why) for shown, why, _ in made] == [(None, FAILED["why"])] * 5
    assert load(tmp_path / "ledger.json").entries[LOST.id].reproduced == (0, 0)
    assert (folder / made[0][2] / "history.jsonl").exists()


# -- on disk ------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Syncs and renames in order: (operation, name)."""
    operations: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def synced(number: int) -> None:
        operations.append(("sync", os.readlink(f"/proc/self/fd/{number}")))
        sync(number)

    def replaced(fresh: os.PathLike[str], path: os.PathLike[str]) -> None:
        operations.append(("rename", os.fspath(path)))
        replace(fresh, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return operations


def test_a_ledger_is_synced_before_it_replaces_the_old_one(
    tmp_path: Path, disk: list[tuple[str, str]]
) -> None:
    save(tmp_path / "ledger.json", Ledger())
    (data, name), renamed, folder = disk
    assert (data, name.startswith(f"{tmp_path}/.ledger.json.")) == ("sync", True)
    assert (renamed, folder) == (("rename", str(tmp_path / "ledger.json")), ("sync", str(tmp_path)))


def test_a_run_is_synced_before_it_is_recorded(tmp_path: Path, disk: list[tuple[str, str]]) -> None:
    """All files that a judge reads, and its folder's entry in the campaign."""
    run = tmp_path / "runs" / "1"
    (run / "logs").mkdir(parents=True)
    (run / "work").mkdir()
    (run / "work" / "n1.log").touch()
    for name in ("run.json", "history.jsonl", "logs/n1.jsonl"):
        (run / name).touch()
    (run / "latest").symlink_to(tmp_path / "elsewhere")
    sync_run(run)
    assert disk == [("sync", str(path)) for path in (
        run / "logs" / "n1.jsonl", run / "logs", run / "history.jsonl", run / "run.json", run, run.parent)]


def reply_of_failed_judge(folder: Path) -> dict[str, Any]:
    (folder / "run.json").write_text("{}")
    return answer(saved_verdict(folder, failed(Failure(words="MemoryError", traceback="at line 1"), {})))


def test_a_verdict_is_synced_before_the_state_has_it(tmp_path: Path, disk: list[tuple[str, str]]) -> None:
    """Because the history of a valid run is deleted then. The answer says that the judge failed."""
    reply = reply_of_failed_judge(tmp_path)
    verdict = str(tmp_path / "verdict.json")
    assert disk.index(("rename", verdict)) < disk.index(("sync", verdict)) < disk.index(
        ("sync", str(tmp_path)))
    assert (reply["judge_failed"], reply["kind"], "the judge failed: MemoryError" in reply["why"]) == (
        True, "failed in the harness", True)


def test_a_disk_error_is_reported_as_an_unsaved_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(number: int) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(pipeline, "written", lambda *_: None)
    monkeypatch.setattr(os, "fsync", fails)
    unsaved = reply_of_failed_judge(tmp_path)["unsaved"]
    assert unsaved == f"cannot write {tmp_path} to disk: Input/output error"


def test_campaign_json_is_synced_before_the_campaign_begins(
    tmp_path: Path, disk: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_answering(monkeypatch, ANSWER)
    folder = written(tmp_path / "night", night((CRASH, "valid", ())), Ledger(), plan=PLAN, runs=1)
    disk.clear()
    assert floodmark("campaign", "resume", folder, "--for", "2h").code == 0
    renamed = next(at for at, (operation, _) in enumerate(disk) if operation == "rename")
    assert disk[renamed:renamed + 2] == [("rename", str(folder / "campaign.json")), ("sync", str(folder))]


# -- memory -------------------------------------------------------------------------------------------------

MB = 1 << 20
GROUP = """
import subprocess, sys
child = "data = bytearray(b'x' * (40 << 20)); print(flush=True); input()"
pipe = subprocess.PIPE
children = [subprocess.Popen([sys.executable, "-c", child], stdin=pipe, stdout=pipe) for _ in range(3)]
for child in children:
    child.stdout.readline()
print(flush=True)
input()
"""


def test_a_process_counts_with_all_its_descendants() -> None:
    """Three grandchildren of 40 MB each: the largest alone would be 40."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", GROUP], stdin=pipe, stdout=pipe) as group:
        assert group.stdout is not None
        group.stdout.readline()
        assert 120 * MB < resident_bytes(group.pid) < 300 * MB
        group.kill()


def test_the_most_is_kept_with_what_the_cluster_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of processes that are no descendants; the first question comes before they are up."""
    monkeypatch.setattr("floodmark.harness.commands.campaign_processes.SAMPLE_S", 0.0)
    asked, answers = asyncio.Event(), iter([None, 7 << 40])

    async def elsewhere() -> int:
        found = next(answers, 0)
        if found is None:
            raise FloodmarkError("the cluster was not started")
        asked.set()
        return found

    async def most() -> int:
        cluster, found = SimpleNamespace(lacks={}, abilities=(), resident_bytes=elsewhere), [0]
        assert await with_memory_watched(cast(Cluster, cluster), asked.wait(), found)
        return found[0]

    assert asyncio.run(most()) >= 7 << 40


def test_containers_count_without_files_that_the_kernel_could_drop() -> None:
    """One that does not run has nothing."""
    def stats(name: str, **_: Any) -> Mapping[str, Any]:
        if name == "c-n2":
            raise APIError("no such container")
        return {"memory_stats": {"usage": 900 * MB, "stats": {"inactive_file": 400 * MB}}}

    async def call(_: str, fn: Any, *args: Any) -> Any:
        return fn(*args)

    lab = SimpleNamespace(names=("n1", "n2", "controller"), call=call, broker=lambda name: f"c-{name}",
                          client=SimpleNamespace(api=SimpleNamespace(stats=stats)))
    assert asyncio.run(MemoryLimits(cast(EngineResources, lab)).resident_bytes()) == 1000 * MB
