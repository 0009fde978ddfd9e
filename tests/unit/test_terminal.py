"""Tables and progress: plain lines for a file or a pipe; on a terminal coloured, wrapped and rewritten."""

import io
import sys

import pytest

from floodmark.harness.report import terminal
from floodmark.harness.report.terminal import WIDTH, Screen, table

CLEAR, ERASE_LINE, UP, RED, SHOW_CURSOR = "\x1b[2J", "\x1b[2K", "\x1b[1A", "\x1b[31m", "\x1b[?25h"
HOSTILE = f"{CLEAR}\u202e[bold]\nfake"
LONG = "a word " * 40


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def put_on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Both streams are one terminal of 60 columns. No fixture: pytest sets the streams after those."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


@pytest.fixture
def clock_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(terminal, "monotonic_s", lambda: now[0])
    return now


def test_a_pipe_gets_a_line_for_each_row_whatever_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.setenv(name, "1")
    lines = table(("name", "text"), [("a", LONG), ("bcdefg", "漢字")], {"a": "red"}).splitlines()
    assert [line.split() for line in lines] == [
        ["name", "text"], ["-------", "-" * (WIDTH - 8)], ["a", *LONG.split()], ["bcdefg", "漢字"]]
    assert {line.index(word) for line, word in zip(lines, ("text", "---- ", "a word", "漢字"), strict=True)
            if word != "---- "} == {8}


def test_a_cell_is_shown_as_it_is_or_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal = put_on_terminal(monkeypatch)
    for shown in (table(("[red]x",), [(HOSTILE,)]), table((HOSTILE,), [("a",)])):
        assert CLEAR not in shown
        assert "\u202e" not in shown
        assert "[bold]" in shown
        assert "\nfake" not in shown
    assert on_terminal.getvalue() == ""


def test_a_terminal_wraps_cells_and_has_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_terminal(monkeypatch)
    shown = table(("name", "text"), [("bad", LONG)], {"bad": "red"})
    assert f"{RED}bad" in shown
    assert len(shown.splitlines()) > 6
    monkeypatch.setenv("NO_COLOR", "1")
    assert RED not in table(("name", "text"), [("bad", LONG)], {"bad": "red"})


def test_without_a_terminal_a_line_comes_at_each_stage_and_every_few_seconds(
        clock_s: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Screen(total=10) as screen:
        screen.advance(0)
        for done in range(1, 11):
            clock_s[0] += 2.0
            screen.advance(done)
            screen.show(f"{done} of 10{screen.left}", stage="late" if done > 8 else "early")
    assert capsys.readouterr().err.splitlines() == [
        "1 of 10, 18 s left", "4 of 10, 12 s left", "7 of 10, 6.0 s left", "9 of 10, 2.0 s left"]


def test_the_time_left_is_reckoned_from_where_the_work_began(clock_s: list[float]) -> None:
    """A campaign that is resumed has done some of it before."""
    screen = Screen(total=100)
    screen.advance(50)
    clock_s[0] += 10.0
    screen.advance(60)
    assert screen.left == ", 40 s left"
    screen.advance(100)
    assert screen.left == ""


def test_on_a_terminal_one_line_is_rewritten_below_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal = put_on_terminal(monkeypatch)
    with Screen(total=2) as screen:
        screen.advance(1)
        screen.show(f"half{CLEAR}", stage="a")
        print("said", file=sys.stderr)
        screen.show("half", stage="a")
    shown = on_terminal.getvalue()
    assert "half\\x1b[2J" in shown
    assert f"{ERASE_LINE}said" in shown
    assert SHOW_CURSOR in shown.rpartition("half")[2]
    assert shown.endswith(UP + ERASE_LINE), "the bar is gone"
    assert sys.stderr is on_terminal


def test_a_terminal_that_cannot_rewrite_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal = put_on_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with Screen() as screen:
        screen.show("main", stage="main")
    assert on_terminal.getvalue() == "main\n"
