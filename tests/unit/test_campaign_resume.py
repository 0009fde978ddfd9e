"""A resumed campaign: what it remembers, what can be changed, what is judged again, what is synced when."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from command_line import floodmark
from nights import CRASH, CUT, LOST, night, written

from floodmark.checkers.judge.failures import Failure
from floodmark.checkers.judge.verdicts import failed
from floodmark.harness import catalog, pipeline
from floodmark.harness.campaign.ledger import Ledger, load, save
from floodmark.harness.campaign.state import about_of, state_of
from floodmark.harness.commands import campaign as campaign_commands
from floodmark.harness.commands.campaign_processes import JUDGE, answer
from floodmark.harness.pipeline import saved_verdict
from floodmark.harness.run import sync_run

PLAN = """
for = "1h"
duration = 10
reproduce = 0
[[system]]
rules = "kip-279"
[[nemesis]]
nemesis = "crash"
"""
ANSWER = {"kind": "valid", "why": "", "harness": False, "acked": 10, "faults": {}, "signatures": [],
          "size_bytes": 100, "measures": None, "unsaved": None, "judge_failed": False}
FAILED = {**ANSWER, "kind": "failed in the harness", "harness": True, "judge_failed": True,
          "why": "nothing was judged; the judge failed: MemoryError"}


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A judge that always answers ANSWER; the folders of each call, by name."""
    return judge_answering(monkeypatch, ANSWER)


def judge_answering(monkeypatch: pytest.MonkeyPatch, answered: dict[str, Any],
                    ended: str = "done") -> list[list[str]]:
    calls: list[list[str]] = []

    class FixedWorker:
        """A judge that answers so, and a player whose runs have a history."""

        def __init__(self, words: tuple[str, str], log: Path) -> None:
            self.words = words

        async def start(self) -> None:
            pass

        async def end(self) -> None:
            pass

        async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
            if self.words == JUDGE:
                calls.append([Path(folder).name for folder in request["folders"]])
                return {"answers": [dict(answered) for _ in request["folders"]]}
            Path(request["folder"]).mkdir(parents=True)
            (Path(request["folder"]) / "history.jsonl").touch()
            return {"why": None, "ended": ended}

    monkeypatch.setattr(campaign_commands, "Worker", FixedWorker)
    return calls


def test_of_two_campaigns_that_begin_in_one_folder_only_one_does(
    tmp_path: Path, judge: list[list[str]], monkeypatch: pytest.MonkeyPatch
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


# -- what is remembered, what can be changed ----------------------------------------------------------------


def test_the_ledger_of_the_run_is_remembered(tmp_path: Path, judge: list[list[str]]) -> None:
    folder = written(tmp_path / "night", night((CRASH, "invalid", (LOST,)), why=None), Ledger(),
                     plan=PLAN, runs=1)
    (folder / "campaign.json").write_bytes(orjson.dumps(
        {**about_of(folder), "ledger": str(tmp_path / "named.json")}))
    assert floodmark("campaign", "resume", folder).code == 1
    assert list(load(tmp_path / "named.json").entries) == [LOST.id]
    assert load(tmp_path / "ledger.json") == Ledger()  # the ledger beside the folder is not used


def test_a_command_to_type_is_quoted_for_a_shell(tmp_path: Path, judge: list[list[str]]) -> None:
    folder = written(tmp_path / "night of today", night(why=None), Ledger(), plan=PLAN)
    (tmp_path / "ledger.json").write_text("{}")
    answer = floodmark("campaign", "resume", folder)
    assert f"continue with: floodmark campaign resume '{folder}'" in answer.err, answer


def test_another_ledger_gets_all_findings_and_is_kept_for_the_campaign(
    tmp_path: Path, judge: list[list[str]]
) -> None:
    folder = written(tmp_path / "night", night((CRASH, "invalid", (LOST,)), why=None), Ledger(),
                     plan=PLAN, runs=1)
    other = tmp_path / "other" / "ledger.json"
    assert floodmark("campaign", "resume", folder, "--ledger", other).code == 1
    assert list(load(other).entries) == [LOST.id]
    assert load(tmp_path / "ledger.json") == Ledger()
    save(other, load(other).changed(LOST.id, known={"reason": "KAFKA-1", "since": "2026-03-02"}))
    again = floodmark("campaign", "resume", folder)
    assert (again.code, "known: KAFKA-1" in again.out) == (0, True), again


def test_new_limits_of_time_and_runs_are_kept(tmp_path: Path, judge: list[list[str]]) -> None:
    folder = written(tmp_path / "night", night((CRASH, "valid", ())), Ledger(), plan=PLAN)
    assert floodmark("campaign", "resume", folder, "--for", "2h", "--runs", 1).code == 0
    assert (about_of(folder)["budget_s"], about_of(folder)["runs"]) == (7200, 1)
    assert floodmark("campaign", "resume", folder).code == 0
    assert (about_of(folder)["budget_s"], about_of(folder)["runs"]) == (7200, 1)
    result = floodmark("campaign", "resume", folder, "--for", "soon")
    assert (result.code, "'soon' is not a time" in result.err) == (2, True), result


# -- a judge that failed ------------------------------------------------------------------------------------


def with_a_failed_judge(tmp_path: Path) -> Path:
    """The judge failed on the second of three runs."""
    state = night((CRASH, "valid", ()), (CUT, "valid", ()), (CUT, "valid", ()), why=None)
    state.judge(2, FAILED, None)
    return written(tmp_path / "night", state, Ledger(), plan=PLAN, runs=3)


def test_a_run_on_which_the_judge_failed_is_judged_once_more(tmp_path: Path, judge: list[list[str]]) -> None:
    folder = with_a_failed_judge(tmp_path)
    assert floodmark("campaign", "resume", folder).code == 0
    assert judge == [["2"]]
    assert [run.kind for run in state_of(folder).runs()] == ["valid"] * 3
    assert floodmark("campaign", "resume", folder).code == 0
    assert judge == [["2"]]


def test_a_run_on_which_the_judge_fails_again_stays_a_failure_of_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = judge_answering(monkeypatch, FAILED)
    folder = with_a_failed_judge(tmp_path)
    for _ in range(3):
        result = floodmark("campaign", "resume", folder)
        assert (result.code, "the judge failed: MemoryError" in result.out) == (4, True), result
    assert calls == [["2"]]


@pytest.mark.parametrize("judge_failed", [True, False])
def test_a_reproduction_in_which_the_harness_or_the_judge_failed_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge_failed: bool
) -> None:
    """Neither as reproduced nor as not reproduced; its folder is kept whole."""
    judge_answering(monkeypatch, {**FAILED, "judge_failed": judge_failed})

    folder = written(tmp_path / "night", night((CRASH, "invalid", (LOST,)), why=None), Ledger(),
                     plan=PLAN.replace("reproduce = 0", "reproduce = 1"), runs=1)
    assert floodmark("campaign", "resume", folder).code == 1
    ((shown, why, again),) = state_of(folder).select("SELECT shown, why, folder FROM reproductions")
    assert (shown, why) == (None, FAILED["why"])
    assert load(tmp_path / "ledger.json").entries[LOST.id].reproduced == (0, 0)
    assert (folder / again / "history.jsonl").exists()


def test_a_failed_judge_reports_its_failure(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    reply = answer(saved_verdict(tmp_path, failed(Failure(words="MemoryError", traceback="at line 1"), {})))
    assert (reply["judge_failed"], reply["kind"], "the judge failed: MemoryError" in reply["why"]) == (
        True, "failed in the harness", True)


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


def test_a_verdict_is_synced_before_the_state_has_it(
    tmp_path: Path, disk: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because the history of a valid run is deleted then."""
    (tmp_path / "run.json").write_text("{}")
    answer(saved_verdict(tmp_path, failed(Failure(words="MemoryError", traceback="at line 1"), {})))
    verdict = str(tmp_path / "verdict.json")
    assert disk.index(("rename", verdict)) < disk.index(("sync", verdict)) < disk.index(
        ("sync", str(tmp_path)))


def test_a_disk_error_is_reported_as_an_unsaved_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.json").write_text("{}")

    def fails(number: int) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(pipeline, "written", lambda *_: None)
    monkeypatch.setattr(os, "fsync", fails)
    reply = answer(saved_verdict(tmp_path, failed(Failure(words="MemoryError", traceback="at line 1"), {})))
    assert reply["unsaved"] == f"cannot write {tmp_path} to disk: Input/output error"


def test_campaign_json_is_synced_before_the_campaign_begins(
    tmp_path: Path, disk: list[tuple[str, str]], judge: list[list[str]]
) -> None:
    folder = written(tmp_path / "night", night((CRASH, "valid", ())), Ledger(), plan=PLAN, runs=1)
    disk.clear()
    assert floodmark("campaign", "resume", folder, "--for", "2h").code == 0
    paths = [name for operation, name in disk if operation == "rename"]
    assert paths[0] == str(folder / "campaign.json")
    assert disk[disk.index(("rename", paths[0])) + 1] == ("sync", str(folder))
    assert orjson.loads((folder / "campaign.json").read_bytes())["budget_s"] == 7200
