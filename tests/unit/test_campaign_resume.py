"""A campaign that is resumed: what it remembers, what can be changed, what is judged once more; what is on
disk before anybody builds on it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import floodmark
from nights import CRASH, CUT, LOST, night, written

from floodmark.checkers.judge.failures import Failure
from floodmark.checkers.judge.verdicts import failed
from floodmark.harness.campaign.journal import (
    JUDGED,
    RECORDED,
    CampaignAt,
    Journal,
    State,
)
from floodmark.harness.campaign.ledger import Ledger, load, save
from floodmark.harness.commands import campaign as campaign_commands
from floodmark.harness.commands import campaign_judge, campaign_run
from floodmark.harness.commands.campaign_judge import answer
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
    """One that says ANSWER to all; the folders of each call, by name."""
    return judge_saying(monkeypatch, ANSWER)


def judge_saying(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]) -> list[list[str]]:
    calls: list[list[str]] = []

    class Saying:
        def __init__(self, log: Path) -> None:
            pass

        async def start(self) -> None:
            pass

        async def end(self) -> None:
            pass

        async def judge(self, folders: Sequence[Path]) -> list[dict[str, Any]]:
            calls.append([folder.name for folder in folders])
            return [dict(said) for _ in folders]

    monkeypatch.setattr(campaign_commands, "JudgeProcess", Saying)
    return calls


def about(folder: Path) -> dict[str, Any]:
    return CampaignAt(folder=folder).about()


# -- what is remembered, what can be changed ----------------------------------------------------------------


def test_the_ledger_of_the_run_is_remembered(tmp_path: Path, judge: list[list[str]]) -> None:
    folder = written(tmp_path / "night", night((CRASH, "invalid", (LOST,)), why=None).lines, Ledger(),
                     plan=PLAN, runs=1)
    (folder / "campaign.json").write_bytes(orjson.dumps(
        {**about(folder), "ledger": str(tmp_path / "named.json")}))
    assert floodmark("campaign", "resume", folder).code == 1
    assert list(load(tmp_path / "named.json").entries) == [LOST.id]
    assert load(tmp_path / "ledger.json") == Ledger()  # the one beside the folder is another


def test_another_ledger_learns_all_and_is_the_campaigns_from_then_on(
    tmp_path: Path, judge: list[list[str]]
) -> None:
    folder = written(tmp_path / "night", night((CRASH, "invalid", (LOST,)), why=None).lines, Ledger(),
                     plan=PLAN, runs=1)
    other = tmp_path / "other" / "ledger.json"
    assert floodmark("campaign", "resume", folder, "--ledger", other).code == 1
    assert list(load(other).entries) == [LOST.id]
    assert load(tmp_path / "ledger.json") == Ledger()
    save(other, load(other).with_mark(LOST.id, reason="KAFKA-1", since="2026-03-02"))
    again = floodmark("campaign", "resume", folder)
    assert (again.code, "known: KAFKA-1" in again.out) == (0, True), again


def test_a_ledger_of_a_newer_version_is_not_taken(tmp_path: Path, judge: list[list[str]]) -> None:
    folder = written(tmp_path / "night", night((CRASH, "valid", ()), why=None).lines, Ledger(), plan=PLAN)
    before = about(folder)
    (tmp_path / "newer.json").write_text('{"format": 2}')
    answered = floodmark("campaign", "resume", folder, "--ledger", tmp_path / "newer.json")
    assert (answered.code, "a newer version of floodmark wrote it" in answered.err) == (4, True), answered
    assert about(folder) == before


def test_more_time_and_more_runs_from_now_on(tmp_path: Path, judge: list[list[str]]) -> None:
    folder = written(tmp_path / "night", night((CRASH, "valid", ())).lines, Ledger(), plan=PLAN)
    assert floodmark("campaign", "resume", folder, "--for", "2h", "--runs", 1).code == 0
    assert (about(folder)["budget_s"], about(folder)["runs"]) == (7200, 1)
    assert floodmark("campaign", "resume", folder).code == 0
    assert (about(folder)["budget_s"], about(folder)["runs"]) == (7200, 1)
    answered = floodmark("campaign", "resume", folder, "--for", "soon")
    assert (answered.code, "--for: 'soon' is not a time" in answered.err) == (2, True), answered


# -- a judge that failed ------------------------------------------------------------------------------------


def with_a_failed_judge(tmp_path: Path) -> Path:
    """The second of three runs."""
    lines = [{**line, **FAILED} if line["event"] == JUDGED and line["run"] == 2 else line
             for line in night((CRASH, "valid", ()), (CUT, "valid", ()), (CUT, "valid", ()), why=None).lines]
    return written(tmp_path / "night", lines, Ledger(), plan=PLAN, runs=3)


def test_a_run_on_which_the_judge_failed_is_judged_once_more(tmp_path: Path, judge: list[list[str]]) -> None:
    folder = with_a_failed_judge(tmp_path)
    assert floodmark("campaign", "resume", folder).code == 0
    assert judge == [["2"]]
    assert [run.judged and run.judged["kind"] for run in CampaignAt(folder=folder).state().runs.values()] == [
        "valid"] * 3
    assert floodmark("campaign", "resume", folder).code == 0
    assert judge == [["2"]]


def test_and_stays_a_failure_of_the_harness_if_it_fails_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = judge_saying(monkeypatch, FAILED)
    folder = with_a_failed_judge(tmp_path)
    for _ in range(3):
        answered = floodmark("campaign", "resume", folder)
        assert (answered.code, "the judge failed: MemoryError" in answered.out) == (4, True), answered
    assert calls == [["2"]]


def test_a_reproduction_on_which_the_judge_failed_shows_nothing_of_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that it comes again, nor that it does not; and it stays whole."""
    judge_saying(monkeypatch, FAILED)

    async def played(asked: dict[str, Any], log: Path) -> dict[str, Any]:
        Path(asked["folder"]).mkdir(parents=True)
        (Path(asked["folder"]) / "history.jsonl").touch()
        return {"why": None}

    monkeypatch.setattr(campaign_run, "play_run", played)
    folder = written(tmp_path / "night", night((CRASH, "invalid", (LOST,)), why=None).lines, Ledger(),
                     plan=PLAN.replace("reproduce = 0", "reproduce = 1"), runs=1)
    assert floodmark("campaign", "resume", folder).code == 1
    (line,) = CampaignAt(folder=folder).state().reproductions[LOST.id]
    assert (line["shown"], line["why"]) == (None, FAILED["why"])
    assert load(tmp_path / "ledger.json").entries[LOST.id].reproduced == (0, 0)
    assert (folder / line["folder"] / "history.jsonl").exists()


def test_a_judge_says_that_it_failed(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    said = answer(tmp_path, failed(Failure(words="MemoryError", traceback="at line 1"), {}))
    assert (said["judge_failed"], said["kind"], "the judge failed: MemoryError" in said["why"]) == (
        True, "failed in the harness", True)
    assert State().to_be_judged == []


# -- on disk ------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was put on disk, and what took another's place, in order: (what, name)."""
    done: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def synced(number: int) -> None:
        done.append(("sync", os.readlink(f"/proc/self/fd/{number}")))
        sync(number)

    def replaced(fresh: os.PathLike[str], path: os.PathLike[str]) -> None:
        done.append(("rename", os.fspath(path)))
        replace(fresh, path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return done


def test_a_ledger_is_on_disk_before_it_takes_the_place_of_the_last(
    tmp_path: Path, disk: list[tuple[str, str]]
) -> None:
    save(tmp_path / "ledger.json", Ledger())
    (data, name), renamed, folder = disk
    assert (data, name.startswith(f"{tmp_path}/.ledger.json.")) == ("sync", True)
    assert (renamed, folder) == (("rename", str(tmp_path / "ledger.json")), ("sync", str(tmp_path)))


def test_a_journal_has_its_name_before_its_first_line(tmp_path: Path, disk: list[tuple[str, str]]) -> None:
    Journal(tmp_path / "journal.jsonl").close()
    assert disk == [("sync", str(tmp_path))]


def test_a_run_is_on_disk_before_it_is_said_to_be(tmp_path: Path, disk: list[tuple[str, str]]) -> None:
    """All that a judge reads of it, and its place in the campaign."""
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


def test_a_verdict_is_on_disk_before_the_journal_says_so(
    tmp_path: Path, disk: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For of a valid run the history goes then."""
    (tmp_path / "run.json").write_text("{}")
    answer(tmp_path, failed(Failure(words="MemoryError", traceback="at line 1"), {}))
    verdict = str(tmp_path / "verdict.json")
    assert disk.index(("rename", verdict)) < disk.index(("sync", verdict)) < disk.index(
        ("sync", str(tmp_path)))


def test_a_disk_that_fails_keeps_the_verdict_from_being_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.json").write_text("{}")

    def fails(number: int) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(campaign_judge.report, "write", lambda *_: None)
    monkeypatch.setattr(os, "fsync", fails)
    said = answer(tmp_path, failed(Failure(words="MemoryError", traceback="at line 1"), {}))
    assert said["unsaved"] == f"cannot write {tmp_path} to disk: Input/output error"


def test_what_a_campaign_is_is_on_disk_before_it_begins(
    tmp_path: Path, disk: list[tuple[str, str]], judge: list[list[str]]
) -> None:
    folder = written(tmp_path / "night", night((CRASH, "valid", ())).lines, Ledger(), plan=PLAN, runs=1)
    disk.clear()
    assert floodmark("campaign", "resume", folder, "--for", "2h").code == 0
    paths = [name for what, name in disk if what == "rename"]
    assert paths[0] == str(folder / "campaign.json")
    assert disk[disk.index(("rename", paths[0])) + 1] == ("sync", str(folder))
    assert orjson.loads((folder / "campaign.json").read_bytes())["budget_s"] == 7200
    assert RECORDED in {line["event"] for line in CampaignAt(folder=folder).state().lines}
