"""A campaign's journal: it records what has happened, wherever it was cut off."""

from pathlib import Path

import pytest
from disk import files_no_larger_than

from floodmark.harness.campaign.cases import case_to_json
from floodmark.harness.campaign.journal import (
    BEGAN,
    ENDED,
    FAILED,
    JUDGED,
    OPENED,
    RECORDED,
    REPRODUCED,
    CampaignAt,
    Journal,
    alone,
    read_lines,
    smallest,
    state_of,
)
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.spec import RunSpec

CASE = case_to_json(RunSpec(rules="kip-320"))


def write_journal(path: Path) -> Path:
    journal = Journal(path)
    journal.append(OPENED, time_s=100)
    for number in (1, 2, 3, 4):
        journal.append(BEGAN, time_s=100 + number, run=number, case=CASE, seed=number,
                       folder=f"runs/{number}")
    journal.append(RECORDED, time_s=110, run=1)
    journal.append(RECORDED, time_s=110, run=2)
    journal.append(FAILED, time_s=111, run=3, why="no port")
    journal.append(JUDGED, time_s=120, run=1, kind="valid", signatures=[])
    journal.append(REPRODUCED, time_s=130, signature="ab12", folder="again/ab12/1", shown=True)
    journal.close()
    return path


def test_the_state_is_what_the_journal_records(tmp_path: Path) -> None:
    state = state_of(list(read_lines(write_journal(tmp_path / "journal.jsonl"))))
    assert [run.number for run in state.unjudged] == [2]
    assert [run.number for run in state.unfinished] == [4]
    assert state.runs[3].why == "no port"
    assert state.runs[1].judged is not None
    assert [line["shown"] for line in state.reproductions["ab12"]] == [True]
    assert state.spent_s == 30


def test_time_between_sessions_is_not_spent(tmp_path: Path) -> None:
    journal = Journal(write_journal(tmp_path / "journal.jsonl"))
    journal.append(OPENED, time_s=10_000)
    journal.append(ENDED, time_s=10_005, why="the time is over")
    journal.close()
    state = state_of(list(read_lines(tmp_path / "journal.jsonl")))
    assert (state.spent_s, state.why_ended) == (35, "the time is over")


def test_a_journal_cut_off_anywhere_keeps_its_complete_lines(tmp_path: Path) -> None:
    data = write_journal(tmp_path / "whole").read_bytes()
    torn = tmp_path / "torn"
    for end in range(0, len(data), 7):
        torn.write_bytes(data[:end])
        lines = list(read_lines(torn))
        assert len(lines) == data[:end].count(b"\n")
        state_of(lines)
        journal = Journal(torn)
        journal.append(ENDED, time_s=200, why="cut")
        journal.close()
        assert list(read_lines(torn)) == [*lines, {"event": ENDED, "time_s": 200, "why": "cut"}]


def test_on_a_full_disk_a_line_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Also if a part was written, and another worker appends a line once there is room."""
    path = write_journal(tmp_path / "journal.jsonl")
    before = path.read_bytes()
    journal = Journal(path)
    refused = pytest.raises(FloodmarkError, match=r"cannot write .*journal\.jsonl: File too large")
    with files_no_larger_than(len(before) + 10), refused:
        journal.append(FAILED, time_s=140, run=4, why="no room")
    assert path.read_bytes() == before
    journal.append(RECORDED, time_s=150, run=4)
    journal.close()
    assert [line["event"] for line in read_lines(path)][-2:] == [REPRODUCED, RECORDED]


def test_the_smallest_run_is_the_one_with_the_fewest_bytes(tmp_path: Path) -> None:
    state = state_of(read_lines(write_journal(tmp_path / "journal.jsonl")))
    state.apply_line({"event": JUDGED, "time_s": 140, "run": 2, "kind": "invalid", "size_bytes": 7})
    state.apply_line({"event": JUDGED, "time_s": 140, "run": 4, "kind": "invalid", "size_bytes": 5})
    assert smallest([state.runs[2], state.runs[4]]).number == 4


def test_a_run_that_failed_in_the_harness_is_not_counted_for_its_system(tmp_path: Path) -> None:
    """Unless it shows a bug all the same."""
    state = state_of(read_lines(write_journal(tmp_path / "journal.jsonl")))
    state.apply_line({"event": JUDGED, "time_s": 140, "run": 2, "harness": True, "signatures": []})
    assert state.judged_by_system() == {"kip-320": 1}
    state.apply_line({"event": JUDGED, "time_s": 140, "run": 2, "harness": True,
                      "signatures": [{"system": "x"}]})
    assert state.judged_by_system() == {"kip-320": 2}


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"event":"opened","time_s":1}\n{oops\n')
    with pytest.raises(FloodmarkError, match=r"journal.jsonl:2: is not a line of a journal"):
        list(read_lines(path))


def test_a_line_of_another_version_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"event":"judged","time_s":1,"run":7}\n')
    with pytest.raises(FloodmarkError, match="is not a journal of this version"):
        CampaignAt(folder=tmp_path).state()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    another = pytest.raises(FloodmarkError, match="another process is running the campaign")
    with alone(tmp_path), another, alone(tmp_path):
        raise AssertionError("two at once")
    with alone(tmp_path):
        pass


def test_a_folder_that_is_no_campaign_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        CampaignAt(folder=tmp_path / "none").about()
    with pytest.raises(FloodmarkError, match=r"it has no campaign\.json"):
        CampaignAt(folder=tmp_path).about()
    (tmp_path / "campaign.json").write_text('{"format": 2}')
    with pytest.raises(FloodmarkError, match="not of format 1"):
        CampaignAt(folder=tmp_path).about()
