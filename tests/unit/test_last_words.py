"""The report of a process that exited by itself."""

import time
from pathlib import Path

import pytest

from floodmark.harness.cluster.processes import LINE_CHARS, LINES, Start, exit_report, machine_failure


def begun(log: Path, log_bytes: int = 0) -> Start:
    """63 s ago."""
    return Start(log=log, log_bytes=log_bytes, time_s=time.monotonic() - 63)


def test_the_end_of_the_log_is_kept_and_long_lines_are_cut(tmp_path: Path) -> None:
    """A line may contain a batch; blank lines are dropped."""
    log = tmp_path / "n1.log"
    lines = "\n\n".join(f"line {number}" for number in range(50))
    log.write_text(f"{lines}\n{'x' * 5000}\nAssertionError: 3\n")
    first, *lines = exit_report(begun(log), 70).splitlines()
    assert first == "it ended with exit code 70, 63.0 s after its start"
    assert len(lines) == LINES
    assert lines[-1] == "AssertionError: 3"
    assert lines[-2] == "x" * LINE_CHARS + "... (5000 characters)"
    assert lines[-3] == "line 49"


def test_the_report_has_signal_or_missing_log(tmp_path: Path) -> None:
    assert exit_report(begun(tmp_path / "none.log"), -9).splitlines() == [
        "SIGKILL ended it, which floodmark did not send, 63.0 s after its start", "it left no log"]
    assert exit_report(begun(tmp_path / "none.log"), -64 - 60).startswith("signal 124 ended it")


def test_a_signal_from_outside_is_not_the_process_own_failure(tmp_path: Path) -> None:
    """Whatever its last log line is; an abort or a segmentation fault is its own."""
    log = tmp_path / "n1.log"
    log.write_text("error AssertionError: 3\n")
    assert "for lack of memory" in (machine_failure(exit_report(begun(log), -9)) or "")
    assert "another process" in (machine_failure(exit_report(begun(log), -15)) or "")
    assert [machine_failure(exit_report(begun(log), code)) for code in (-6, -11, -4, 1, 70)] == [None] * 5


TAKEN = 'error cannot-go-on why="OSError: [Errno 98] Address already in use"'


@pytest.mark.parametrize(("end", "failure"), [
    (TAKEN, "Address already in use"),
    ('error high-watermarks-not-written error="OSError: [Errno 27] File too large"', "File too large"),
    ('error cannot-go-on why="FileNotFoundError: [Errno 2] No such file or directory"', None),
    (f"{TAKEN}\nerror AssertionError: leo 3", None),
])
def test_a_machine_failure_is_read_from_the_last_line_alone(end: str, failure: str | None) -> None:
    """Not if an invariant broke after such a line."""
    assert machine_failure(f"exit code 70\n{end}") == failure


GAVE_UP = "[01:02:03] ERROR Shutting down because we were unable to register with the controller quorum."


@pytest.mark.parametrize(("log_lines", "tells"), [
    ([GAVE_UP, *["INFO stopping"] * 300], True),
    ([*["INFO stopping"] * 300, GAVE_UP], False),  # it is shown anyway
    (["INFO stopping"] * 300, False),
])
def test_the_last_error_is_told_though_many_lines_follow(
        tmp_path: Path, log_lines: list[str], tells: bool) -> None:
    """Kafka writes hundreds about its stop. An error of an earlier start is not this one's."""
    log = tmp_path / "n1.log"
    log.write_text(earlier := "ERROR of an earlier start\n" * 3)
    with log.open("a") as more:
        more.write("\n".join(log_lines))
    first, *_ = exit_report(begun(log, len(earlier)), 1).splitlines()
    assert first == "it ended with exit code 1, 63.0 s after its start" + (
        f"; its last errors: {GAVE_UP}" if tells else "")
