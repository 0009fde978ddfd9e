"""Writes the lines of an imported history as they come."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from floodmark.harness.errors import FloodmarkError

TOGETHER = 4096  # lines


class HistoryLines:
    """history.jsonl of format 1: index without gaps, and time that does not fall."""

    def __init__(self, path: Path, tell: Callable[[int], None] = lambda _: None) -> None:
        """`tell` hears now and then of how many lines there are."""
        self.count = 0
        self.clamped = 0  # lines whose time was earlier than that of the line before
        self._time = 0
        self._tell = tell
        self._held: list[bytes] = []  # lines that go out together
        try:
            self._file = path.open("xb")
        except OSError as error:
            raise FloodmarkError(f"cannot begin the history {path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._flush()
        finally:
            self._file.close()

    def write(self, time: int | None, process: int, kind: str, f: str, rest: Mapping[str, Any]) -> None:
        """One line more."""
        told = {"process": process, "type": kind, "f": f, **rest}
        line = orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)
        self.append(self._time if time is None else time, b"," + line[1:])

    def append(self, time: int, rest: bytes) -> None:
        """One line more, whose rest, from the comma behind the time to the end of the line, is there."""
        if time < self._time:
            self.clamped += 1
        else:
            self._time = time
        self._held.append(b'{"index":%d,"time":%d%b' % (self.count, self._time, rest))
        self.count += 1
        if len(self._held) == TOGETHER:
            self._flush()

    def _flush(self) -> None:
        self._file.write(b"".join(self._held))
        self._held.clear()
        self._tell(self.count)
