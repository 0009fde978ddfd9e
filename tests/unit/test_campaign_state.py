"""A campaign's state: it has what has happened, whatever ended the process."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from disk import files_no_larger_than
from nights import CRASH, LOST, at, empty_state

from floodmark.harness.campaign.plan import case_to_json
from floodmark.harness.campaign.state import (
    DATABASE,
    JOURNAL,
    State,
    alone,
    judged_by_system,
    smallest,
    state_of,
    writable_state,
)
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.spec import RunSpec

KIP_320 = RunSpec(rules="kip-320")
# A journal of before, with an event of each kind.
LINES: list[dict[str, Any]] = [
    {"event": "opened", "time_s": 100},
    *({"event": "began", "time_s": 100 + number, "run": number, "case": case_to_json(KIP_320),
       "seed": number, "folder": f"runs/{number}"} for number in (1, 2, 3, 4)),
    {"event": "recorded", "time_s": 110, "run": 1, "took_s": 9.5, "cpu_s": 2.0, "resident_bytes": 1 << 20},
    {"event": "recorded", "time_s": 110, "run": 2},
    {"event": "failed", "time_s": 111, "run": 3, "why": "no port"},
    {"event": "judged", "time_s": 120, "run": 1, "kind": "valid", "signatures": [], "judge_s": 1.5},
    {"event": "reproduced", "time_s": 130, "signature": "ab12", "folder": "again/ab12/1", "shown": True},
]


def filled(state: State) -> State:
    """The same by the methods of today."""
    at(state, 100).open_session()
    for number in (1, 2, 3, 4):
        at(state, 100 + number).begin(number, number, KIP_320, f"runs/{number}")
    at(state, 110).end_run(1, {"took_s": 9.5, "cpu_s": 2.0, "resident_bytes": 1 << 20})
    state.end_run(2, {})
    at(state, 111).end_run(3, {"why": "no port"})
    at(state, 120).judge(1, {"kind": "valid", "signatures": []}, 1.5)
    at(state, 130).add("reproductions", signature="ab12", folder="again/ab12/1", shown=True)
    return state


def written_journal(folder: Path, lines: list[dict[str, Any]] = LINES) -> Path:
    (folder / JOURNAL).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return folder


def content(state: State) -> dict[str, Any]:
    rows = {table: state.select(f"SELECT * FROM {table}") for table in ("runs", "reproductions", "sessions")}
    return {"read": state.runs(), **rows}


def test_the_state_has_what_was_written(tmp_path: Path) -> None:
    state = filled(writable_state(tmp_path, float))
    assert [run.status for run in state.runs()] == ["judged", "recorded", "failed", "begun"]
    assert (state.runs()[2].why, state.runs()[0].kind) == ("no port", "valid")
    assert state.reproductions("ab12") == [True]
    assert (state.spent_s, state.end) == (30, (None, False))
    assert content(state_of(tmp_path)) == content(state)


def test_time_between_sessions_is_not_spent() -> None:
    state = filled(empty_state())
    at(state, 10_000).open_session()
    assert at(state, 10_003).spent_until_now_s == 33
    at(state, 10_005).end_session("the time is over", early=False)
    assert (state.spent_s, state.end) == (35, ("the time is over", False))


def test_a_journal_of_before_is_read_and_carried_over_when_the_campaign_goes_on(tmp_path: Path) -> None:
    before = content(state_of(written_journal(tmp_path)))
    assert before == content(filled(empty_state()))
    assert not (tmp_path / DATABASE).exists()  # reading writes nothing
    state = writable_state(tmp_path, lambda: 200)
    assert content(state) == before
    state.open_session()
    state.end_session("the time is over", early=True)
    (tmp_path / JOURNAL).write_bytes(b"it is not read again\n")
    assert (state_of(tmp_path).spent_s, state_of(tmp_path).end) == (30, ("the time is over", True))


def test_a_journal_cut_off_anywhere_keeps_its_complete_lines(tmp_path: Path) -> None:
    data = (written_journal(tmp_path) / JOURNAL).read_bytes()
    for end in range(0, len(data), 23):
        (tmp_path / JOURNAL).write_bytes(data[:end])
        lines = data[:end].count(b"\n")
        assert len(state_of(tmp_path).runs()) == min(4, max(0, lines - 1))


WRITER = """
import sys, time
from pathlib import Path
from floodmark.harness.campaign.state import writable_state
from floodmark.harness.spec import RunSpec
state = writable_state(Path(sys.argv[1]), time.time)
state.open_session()
for number in range(1, 100_000):
    state.begin(number, number, RunSpec(rules="kip-320"), f"runs/{number}")
    state.end_run(number, {"took_s": 1.0})
    print(number, flush=True)
"""


@pytest.mark.parametrize("lines", [1, 40])
def test_killed_at_any_instant_the_state_has_all_that_was_written(tmp_path: Path, lines: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        seen = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.kill()
        seen += map(int, writer.stdout.read().split())
    runs = writable_state(tmp_path, float).runs()
    assert [run.number for run in runs] == [*range(1, len(runs) + 1)]
    assert len(runs) - len(seen) in (0, 1)
    assert all(run.status == "recorded" for run in runs[:len(seen)])


def test_on_a_full_disk_a_write_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    """And the next one is made once there is room."""
    state = filled(writable_state(tmp_path, float))
    before = content(state)
    with files_no_larger_than(1 << 10), pytest.raises(FloodmarkError, match=r"cannot write .*campaign\.db: "):
        state.end_run(4, {"why": "no room"})
    assert content(state) == content(state_of(tmp_path)) == before
    state.end_run(4, {"took_s": 1.0})
    assert state_of(tmp_path).runs()[3].status == "recorded"


def test_the_smallest_run_is_the_one_with_the_fewest_bytes() -> None:
    state = filled(empty_state())
    state.judge(2, {"kind": "invalid", "size_bytes": 7}, None)
    state.judge(4, {"kind": "invalid", "size_bytes": 5}, None)
    assert smallest(state.runs("number IN (2, 4)")).number == 4


def test_a_run_that_failed_in_the_harness_is_not_counted_for_its_system() -> None:
    """Unless it shows a bug all the same."""
    state = filled(empty_state())
    state.judge(2, {"harness": True, "signatures": []}, None)
    assert judged_by_system(state.runs()) == {"kip-320": 1}
    state.judge(2, {"harness": True, "signatures": [dict.fromkeys(LOST.__slots__, "")]}, None)
    assert judged_by_system(state.runs()) == {"kip-320": 2}


def test_a_database_that_is_none_or_of_another_version_is_an_error(tmp_path: Path) -> None:
    state = writable_state(tmp_path, float)
    state.begin(1, 1, CRASH, "runs/1")
    state.database.execute("UPDATE runs SET spec = '{}'")
    state.database.commit()
    with pytest.raises(FloodmarkError, match=r"campaign\.db is not a state of this version: KeyError"):
        state_of(tmp_path).runs()
    (tmp_path / DATABASE).write_bytes(b"no database" * 100)
    with pytest.raises(FloodmarkError, match=r"cannot read .*campaign\.db: file is not a database"):
        state_of(tmp_path).runs()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    another = pytest.raises(FloodmarkError, match="another process is running the campaign")
    with alone(tmp_path), another, alone(tmp_path):
        raise AssertionError("two at once")
    with alone(tmp_path):
        pass
