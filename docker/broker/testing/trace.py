"""Writes the trace: one JSON line for each event of this process, before any effect of it leaves the process.

Rules
1. The lines of a step are written in one write(2) before any effect of that step leaves the process: a
   SIGKILL loses no line whose effect anybody has seen. The kernel keeps what was written; nothing is fsynced.
2. `seq` counts from 0 and continues over restarts; a last line torn by the end of a process is cut off first.
3. Times are CLOCK_MONOTONIC in nanoseconds, one for all lines of one write, and never fall.
4. A trace that cannot be written ends the process: a broker that cannot be checked must not go on.

Nodes are ids here, and partitions topic and number; the harness, which merges the files, knows the names.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from floodmark.broker import process_log, runtime
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.trace_events import failpoint_line

Line = Mapping[str, Any]
# (topic, partition) -> the replica's leader epoch, LEO and HW; None where there is no replica
ReadPosition = Callable[[str, int], tuple[int, int, int] | None]
_TAIL_BYTES = 65_536
_LINE = b'{"time":%d,"node":%d,"seq":%d,%b%b\n'


class Trace:
    """An open trace file; `enabled` is false where none was configured, and then nothing may be written."""

    def __init__(
        self,
        path: Path | None = None,
        node: int = -1,
        *,
        clock_ns: Callable[[], int] | None = None,
    ) -> None:
        """Open the file, or create it. Raises OSError."""
        self.enabled = path is not None
        self.seq = 0  # of the next line
        self.read_position: ReadPosition = _no_position
        self._node = node
        self._clock_ns = clock_ns or runtime.current.monotonic_ns
        self._file = -1
        self._heads: dict[tuple[str, int], bytes] = {}  # topic and partition as in a line
        if path is not None:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self.seq = _continue_file(self._file)
            runtime.current.call_before_halt(self._write_crash)

    def write_replica_lines(self, topic: str, partition: int, lines: Sequence[Line]) -> None:
        """Write the lines of one step of a replica."""
        head = self._heads.get((topic, partition))
        if head is None:
            head = b'"topic":%b,"partition":%d,' % (orjson.dumps(topic), partition)
            self._heads[topic, partition] = head
        self._write(head, lines)

    def write_process_lines(self, lines: Sequence[Line]) -> None:
        """Write lines of the process or of the controller: each names its topic and partition, if any."""
        self._write(b"", lines)

    def write_failpoint(self, site: FailpointSite, action: str) -> None:
        """Write the line of an armed point that was reached, and of its action."""
        if not self.enabled:
            return
        position = None if site.topic is None else self.read_position(site.topic, site.partition)
        self.write_process_lines([failpoint_line(site, action, position)])

    def _write(self, head: bytes, lines: Sequence[Line]) -> None:
        """Write the lines in one write(2). Every step of a replica comes here, so that it must be fast."""
        seq, now_ns, dumps = self.seq, self._clock_ns(), orjson.dumps
        data = b""
        for line in lines:
            data += _LINE % (now_ns, self._node, seq, head, dumps(line)[1:])
            seq += 1
        self.seq = seq
        runtime.current.before_effect("trace")
        try:
            written = os.write(self._file, data) if data else 0
            while written < len(data):  # short: the disk is filling
                written += os.write(self._file, data[written:])
        except OSError as error:
            self.enabled = False
            process_log.halt_process("trace-not-written", error)

    def _write_crash(self, why: str) -> None:
        if self.enabled:
            self.write_process_lines([{"event": "crash", "why": why}])


def _continue_file(file: int) -> int:
    """Cut off a torn last line; returns the sequence number after that of the last complete one."""
    end = os.fstat(file).st_size
    tail, begin = b"", end
    while begin and tail.count(b"\n") < 2:
        size = min(_TAIL_BYTES, begin)
        begin -= size
        tail = os.pread(file, size, begin) + tail
    complete, newline, torn = tail.rpartition(b"\n")
    if torn:
        os.ftruncate(file, end - len(torn))
    if not newline:
        return 0
    last = orjson.loads(complete.rpartition(b"\n")[2])
    return int(last["seq"]) + 1


def latest_metadata_version(path: Path) -> int:
    """Find the highest metadata version in a controller's trace; 0 if there is none."""
    try:
        with path.open("rb") as file:
            return max((orjson.loads(line)["version"] for line in file if b'"version":' in line), default=0)
    except FileNotFoundError:
        return 0


def _no_position(_topic: str, _partition: int) -> None:
    return None
