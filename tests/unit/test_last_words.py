"""The report of a process that exited by itself."""

from pathlib import Path

from floodmark.harness.cluster.exit_reports import LINE_CHARS, LINES, exit_report, machine_failure


def test_the_end_of_the_log_is_kept_and_long_lines_are_cut(tmp_path: Path) -> None:
    """A line may contain a batch; blank lines are dropped."""
    log = tmp_path / "n1.log"
    lines = "\n\n".join(f"line {number}" for number in range(50))
    log.write_text(f"{lines}\n{'x' * 5000}\nAssertionError: 3\n")
    first, *lines = exit_report(log, 70).splitlines()
    assert first == "it ended with exit code 70"
    assert len(lines) == LINES
    assert lines[-1] == "AssertionError: 3"
    assert lines[-2] == "x" * LINE_CHARS + "... (5000 characters)"
    assert lines[-3] == "line 49"


def test_the_report_has_signal_or_missing_log(tmp_path: Path) -> None:
    assert exit_report(tmp_path / "none.log", -9).splitlines() == [
        "SIGKILL ended it, which floodmark did not send", "it left no log"]
    assert exit_report(tmp_path / "none.log", -64 - 60).startswith("signal 124 ended it")


def test_a_signal_from_outside_is_not_the_process_own_failure(tmp_path: Path) -> None:
    """Whatever its last log line is; an abort or a segmentation fault is its own."""
    log = tmp_path / "n1.log"
    log.write_text("error AssertionError: 3\n")
    assert "for lack of memory" in (machine_failure(exit_report(log, -9)) or "")
    assert "another process" in (machine_failure(exit_report(log, -15)) or "")
    assert [machine_failure(exit_report(log, code)) for code in (-6, -11, -4, 1, 70)] == [None] * 5


def test_a_machine_failure_is_read_from_the_last_line_alone() -> None:
    """An address in use, a file too large; not an invariant that broke after such a line."""
    taken = "exit code 70\nerror cannot-go-on why=\"OSError: [Errno 98] Address already in use\""
    assert machine_failure(taken) == "Address already in use"
    limit = 'exit code 70\nerror high-watermarks-not-written error="OSError: [Errno 27] File too large"'
    assert machine_failure(limit) == "File too large"
    missing = 'exit code 70\nerror cannot-go-on why="FileNotFoundError: [Errno 2] No such file or directory"'
    assert machine_failure(missing) is None
    assert machine_failure(f"{taken}\nerror AssertionError: leo 3") is None
