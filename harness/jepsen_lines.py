"""The lines of an imported history, written as they come; an invocation's f can be put right afterwards."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from harness.errors import FloodmarkError

_POLL, _TXN = b'"f":"poll"', b'"f":"txn" '  # of one length: JSON does not mind the blank


class HistoryLines:
    """history.jsonl of format 1: index without gaps, and time that does not fall."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self.clamped = 0  # lines whose time was earlier than that of the line before
        self._path, self._bytes, self._time = path, 0, 0
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

    def write(self, time: int | None, process: int, kind: str, f: str, rest: Mapping[str, Any]) -> int:
        """One line more; where in the file its f stands."""
        if time is not None and time < self._time:
            self.clamped += 1
        self._time = max(self._time, time or 0)
        told = {"index": self.count, "time": self._time, "process": process, "type": kind, "f": f, **rest}
        line = orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)
        place = self._bytes + line.index(b'"f":')
        self._file.write(line)
        self._bytes += len(line)
        self.count += 1
        return place

    def make_txn(self, place: int) -> None:
        """The poll whose f stands there is a txn: its reads keep no order among one another."""
        self._file.flush()
        assert len(_POLL) == len(_TXN)
        os.pwrite(self._file.fileno(), _TXN, place)
