"""Prints tables on standard output, and on stderr how far long work is: on a terminal in colour and as wide
as it is, else in plain lines.

Rules
1. What goes to a file or a pipe is never wrapped, coloured or rewritten, and nothing is drawn but the dashes
   under a table's heads.
2. Every cell is harmless: control characters are shown as escapes.
3. rich is imported when there is something to draw, and gets no thread of its own: a lock that a thread holds
   stays closed in the forked children that simulate runs.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TextIO

from floodmark.harness.report.phrases import time_text
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.runtime import monotonic_s

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

WIDTH = 120  # of the line under a table's heads
PLAIN_EVERY_S = 5.0  # between two lines about the same stage
ENDLESS = 1 << 16  # columns of a line that is never wrapped


def table(heads: Sequence[str], rows: Iterable[Sequence[str]],
          colours: Mapping[str, str] | None = None) -> str:
    """The rows in columns under their heads. colours: of cells with exactly this text."""
    from rich.box import Box
    from rich.table import Table
    from rich.text import Text

    dashes = Box("\n".join(["    ", "    ", " -  ", *["    "] * 5]), ascii=True)
    shown = Table(box=dashes, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        shown.add_column(escape_controls(head), overflow="fold")
    for row in rows:
        shown.add_row(*(Text(escape_controls(cell), style=(colours or {}).get(cell, "")) for cell in row))
    console = console_of(sys.stdout)
    with console.capture() as captured:
        console.print(shown)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    if len(lines) > 1:  # a single long text draws no long line
        lines[1] = lines[1][:max(WIDTH, lines[1].rfind(" ") + 1 + len(heads[-1]))]
    return "\n".join(lines)


def console_of(stream: TextIO) -> "Console":
    """rich's console, which takes text as it is, and does not guess whether there is a terminal."""
    from rich.console import Console

    is_terminal = stream.isatty()
    return Console(file=stream, force_terminal=is_terminal, width=None if is_terminal else ENDLESS,
                   markup=False, emoji=False, highlight=False)


class Screen:
    """Shows how far long work is. A context manager: at its end the cursor is on a new line.

    On a terminal one line is rewritten, below all that is printed on stderr meanwhile: words, and where
    `total` says how much there is to do, a bar, which is gone at the end. Elsewhere it is printed at each new
    stage, and every few seconds.
    """

    def __init__(self, total: float | None = None) -> None:
        self.left = ""  # `, 12 s left`; empty: unknown, or nothing
        self._total, self._done = total, 0.0
        self._stage = ""
        self._first: tuple[float, float] | None = None  # seconds, and what was done then
        self._shown_s = monotonic_s()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
            from rich.progress import BarColumn, Progress, TextColumn

            bars = [BarColumn()] if self._total else []
            self._bar = Progress(TextColumn("{task.description}", markup=False), *bars, auto_refresh=False,
                                 console=console_of(sys.stderr), redirect_stdout=False,
                                 transient=bool(bars))
            self._bar.add_task("", total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def drawn(self) -> bool:
        """Whether there is a terminal."""
        return self._bar is not None

    def advance(self, done: float) -> None:
        """Notes how much of the total is done."""
        now_s = monotonic_s()
        self._first = began_s, began = self._first or (now_s, done)
        if self._total is not None and done > max(began, self._done):
            left_s = (now_s - began_s) * (self._total - done) / (done - began)
            self.left = f", {time_text(left_s)} left" if left_s >= 0.5 else ""
        self._done = done

    def show(self, words: str, *, stage: str = "") -> None:
        """Shows the words. stage: what the work is at."""
        now_s, line = monotonic_s(), escape_controls(words)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=line, completed=self._done, refresh=True)
        elif stage != self._stage or now_s - self._shown_s >= PLAIN_EVERY_S:
            print(line, file=sys.stderr, flush=True)
            self._shown_s = now_s
        self._stage = stage
