"""Writes the raw trace of one process in memory, in the broker's own format.

Rules
1. The lines of a step are in the file before any effect of that step leaves the process.
2. `seq` counts from 0 and continues after restarts. Times are the cluster's monotonic clock, one for each
   write.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.trace_events import failpoint_line
from floodmark.harness.cluster.memory.clock import Clock

Line = Mapping[str, Any]
# (topic, partition) -> the replica's leader epoch, LEO, HW; None: there is no replica
ReadPosition = Callable[[str, int], tuple[int, int, int] | None]


class TraceFile:
    """The trace of one process over all its incarnations. Without a path nothing is written."""

    def __init__(self, path: Path | None, node: int, clock: Clock) -> None:
        self.path = path
        self.read_position: ReadPosition = lambda _topic, _partition: None
        self._node = node
        self._clock = clock
        self._seq = 0
        self._file = -1
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    @property
    def enabled(self) -> bool:
        return self._file >= 0

    def write_replica_lines(self, topic: str, partition: int, lines: Sequence[Line]) -> None:
        self._write(lines, {"topic": topic, "partition": partition})

    def write_process_lines(self, lines: Sequence[Line]) -> None:
        """Writes lines of the process; a line names its topic and partition, if any."""
        self._write(lines, {})

    def write_failpoint(self, site: FailpointSite, action: str) -> None:
        position = None if site.topic is None else self.read_position(site.topic, site.partition)
        self.write_process_lines([failpoint_line(site, action, position)])

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, lines: Sequence[Line], where: Line) -> None:
        if self._file < 0 or not lines:
            return
        stamp, data = self._clock.now_ns(), b""
        for line in lines:
            head = {"time": stamp, "node": self._node, "seq": self._seq, **where}
            data += orjson.dumps({**head, **line}, option=orjson.OPT_APPEND_NEWLINE)
            self._seq += 1
        os.write(self._file, data)
