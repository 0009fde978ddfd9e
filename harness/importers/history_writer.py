"""Writes the lines of an imported history."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from floodmark.harness.errors import FloodmarkError

LINES_PER_WRITE = 4096


class HistoryLines:
    """Writes history.jsonl in format 1: indexes without gaps, times that never fall."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self.clamped = 0  # lines whose time was earlier than that of the line before
        self._time = 0
        self._buffered: list[bytes] = []  # lines to be written together
        try:
            self._file = path.open("xb")
        except OSError as error:
            raise FloodmarkError(f"cannot create the history {path}: {error.strerror}") from error

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
        """Writes a line."""
        fields = {"process": process, "type": kind, "f": f, **rest}
        line = orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        self.append(self._time if time is None else time, b"," + line[1:])

    def append(self, time: int, rest: bytes) -> None:
        """Writes a line whose rest, from the comma after the time to the end of the line, is given."""
        if time < self._time:
            self.clamped += 1
        else:
            self._time = time
        self._buffered.append(b'{"index":%d,"time":%d%b' % (self.count, self._time, rest))
        self.count += 1
        if len(self._buffered) == LINES_PER_WRITE:
            self._flush()

    def _flush(self) -> None:
        self._file.write(b"".join(self._buffered))
        self._buffered.clear()
