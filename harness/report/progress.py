"""Shows a run's progress on stderr: on a terminal one line that is rewritten, else a line every few
seconds."""

import sys
from types import TracebackType
from typing import TextIO

from floodmark.harness.runner import Progress

PLAIN_EVERY_S = 5.0


class ProgressLine:
    """Writes progress to a stream. A context manager: at its end the cursor is on a new line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._rewrites = self._stream.isatty()
        self._width = 0
        self._phase = ""
        self._shown_s = 0.0

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rewrites and self._width:
            self._stream.write("\n")
            self._stream.flush()

    def show(self, progress: Progress) -> None:
        """Shows the progress; without a terminal only at each new phase and every few seconds."""
        line = line_of(progress)
        if self._rewrites:
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        elif progress.phase != self._phase or progress.elapsed_s - self._shown_s >= PLAIN_EVERY_S:
            self._stream.write(line + "\n")
            self._shown_s = progress.elapsed_s
        self._phase = progress.phase
        self._stream.flush()


def line_of(progress: Progress) -> str:
    """The progress line: phase, seconds, counts, speed, faults in force."""
    faults = f"  in force: {', '.join(progress.in_force)}" if progress.in_force else ""
    reading = f"  {progress.reading}" if progress.reading else ""
    return (
        f"{progress.phase:<8}{progress.elapsed_s:7.1f} s  ok {progress.ok}  fail {progress.fail}  "
        f"info {progress.info}  {progress.ops_per_s:.0f} op/s{faults}{reading}"
    )
