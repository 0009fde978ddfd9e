"""The lines of an imported history, written as they come."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from harness.errors import FloodmarkError


class HistoryLines:
    """history.jsonl of format 1: index without gaps, and time that does not fall."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self.clamped = 0  # lines whose time was earlier than that of the line before
        self._time = 0
        try:
            self._file = path.open("xb")
        except OSError as error:
            raise FloodmarkError(f"cannot begin the history {path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, time: int | None, process: int, kind: str, f: str, rest: Mapping[str, Any]) -> None:
        """One line more."""
        if time is not None and time < self._time:
            self.clamped += 1
        self._time = max(self._time, time or 0)
        told = {"index": self.count, "time": self._time, "process": process, "type": kind, "f": f, **rest}
        self._file.write(orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE))
        self.count += 1
