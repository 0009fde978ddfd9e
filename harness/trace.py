"""The trace: the brokers' raw files, merged into trace.jsonl on the run's clock, or followed during a run.

Rules
1. Within a node nothing is reordered: `seq` is the order in which it happened there. Between nodes time
   orders: on one host all stamps are of one CLOCK_MONOTONIC. What came before the run has times below 0.
2. A raw line that a node's death tore is no line. A line that is missing elsewhere stays visible as a gap in
   `seq`; lines of partitions that are not the run's are left out, and leave no gap.
3. A merge holds one line a node in memory, however long the trace is.
"""

import heapq
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness.errors import FloodmarkError

Line = dict[str, Any]

# What a line has besides time, node, seq and event. Lines of a replica have `partition` and its state too,
# but `isr` as the controller tells it, which has neither LEO nor HW.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "append": ("role", "offset", "count", "epochs"),
    "truncate": ("from", "to", "why"),
    "hw": ("role",),
    "become_leader": ("isr", "start"),
    "become_follower": ("leader",),
    "fetch": ("follower", "offset", "follower_epoch"),
    "ack": ("offset", "acks", "isr"),
    "isr_proposed": ("isr", "partition_epoch"),
    "isr": ("leader", "epoch", "isr", "partition_epoch", "cause"),
    "elect": ("leader", "epoch", "isr", "partition_epoch", "clean"),
    "register": ("broker", "broker_epoch", "clean"),
    "fence": ("broker", "broker_epoch"),
    "unfence": ("broker", "broker_epoch"),
    "checkpoint": ("what", "value"),
    "crash": (),
    "start": ("clean",),
    "failpoint": ("name", "action"),
}
STATE = ("epoch", "leo", "hw")
_ONE = ("leader", "follower", "broker", "peer")  # fields that name a node; null: nobody
_OURS = "version"  # of the raw files only: how far a controller has told its journal
_LINES_A_PIECE = 5_000
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """What the processes of a cluster write, and how to read it."""

    files: Mapping[str, Path]  # node -> its file, which may not be there yet
    names: Mapping[int, str]  # node id -> node
    keys: Mapping[tuple[str, int], int]  # topic and partition -> the history's key


class Merge:
    """The raw files as trace.jsonl. `problems` is complete when `pieces` has ended."""

    def __init__(self, raw: Raw, origin_ns: int) -> None:
        """origin_ns: the monotonic instant at which the run began."""
        self.lines = 0
        self.problems: list[str] = []
        self._raw = raw
        self._origin_ns = origin_ns

    def pieces(self) -> Iterator[bytes]:
        """The whole file, piece by piece. FloodmarkError where a raw file cannot be read."""
        merged = heapq.merge(*map(self._of_node, self._raw.files), key=_time)
        while piece := list(islice(merged, _LINES_A_PIECE)):
            self.lines += len(piece)
            yield b"".join([orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in piece])

    def _of_node(self, node: str) -> Iterator[Line]:
        """The node's lines in their order, those left out closed up in seq."""
        left_out, expected = 0, 0
        for line in self._read(node):
            seq = line["seq"]
            if seq != expected:
                self.problems.append(f"the trace of {node} lacks lines between seq {expected} and {seq}")
            expected = seq + 1
            told = _translated(line, self._raw, self._origin_ns)
            if told is None:
                left_out += 1
                continue
            told["seq"] = seq - left_out
            yield told
        if not expected:
            self.problems.append(f"the trace of {node} has no line: {self._raw.files[node]}")

    def _read(self, node: str) -> Iterator[Line]:
        path = self._raw.files[node]
        try:
            with path.open("rb", buffering=_READ_BYTES) as file:
                for number, line in enumerate(file, start=1):
                    if not line.endswith(b"\n"):
                        return  # torn by the end of the node: never more than the last line
                    try:
                        fields = orjson.loads(line)
                    except orjson.JSONDecodeError as error:
                        self.problems.append(f"{path}:{number}: no line of a trace: {error}")
                        continue
                    if isinstance(fields, dict) and {"time", "node", "seq"} <= fields.keys():
                        yield fields
                    else:
                        self.problems.append(f"{path}:{number}: no line of a trace: no time, node, seq")
        except FileNotFoundError:
            return
        except OSError as error:
            raise FloodmarkError(f"cannot read the trace {path}: {error.strerror}") from error


class Feed:
    """Follows the raw files while a run goes. `events`: only these are looked at; None: all."""

    def __init__(self, raw: Raw, origin_ns: int, events: Collection[str] | None = None) -> None:
        self._raw = raw
        self._origin_ns = origin_ns
        self._marks = None if events is None else tuple(b'"event":"%b"' % each.encode() for each in events)
        self._files: dict[str, int] = {}
        self._read_bytes = dict.fromkeys(raw.files, 0)

    def new(self) -> list[Line]:
        """The lines that have become whole since the last look, as trace.jsonl will have them (but for `seq`,
        which counts what is left out too); by time, and within a node as they happened."""
        found = [self._of_node(node) for node in self._raw.files]
        return list(heapq.merge(*found, key=_time))

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _of_node(self, node: str) -> list[Line]:
        file = self._open(node)
        lines: list[Line] = []
        while file is not None:
            data = os.pread(file, _READ_BYTES, self._read_bytes[node])
            whole = data.rfind(b"\n") + 1
            if not whole:
                break
            self._read_bytes[node] += whole
            for raw in data[: whole - 1].split(b"\n"):
                told = self._told(raw)
                if told is not None:
                    lines.append(told)
        return lines

    def _told(self, raw: bytes) -> Line | None:
        if self._marks is not None and not any(mark in raw for mark in self._marks):
            return None
        try:
            line = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return None  # the merge tells of it
        return _translated(line, self._raw, self._origin_ns)

    def _open(self, node: str) -> int | None:
        if node not in self._files:
            try:
                self._files[node] = os.open(self._raw.files[node], os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None  # it has not begun yet
        return self._files[node]


def _translated(line: Line, raw: Raw, origin_ns: int) -> Line | None:
    """A raw line in the words of format 1; None: of a partition that is not the run's."""
    topic = line.pop("topic", None)
    if topic is not None:
        key = raw.keys.get((topic, line["partition"]))
        if key is None:
            return None
        line["partition"] = key
    names = raw.names
    line["time"] -= origin_ns
    line["node"] = names[line["node"]]
    for field in _ONE:
        if field in line:
            line[field] = names.get(line[field])
    if "isr" in line:
        line["isr"] = [names[each] for each in line["isr"]]
    line.pop(_OURS, None)
    return line


def _time(line: Line) -> int:
    time_ns: int = line["time"]
    return time_ns


# -- reading back -------------------------------------------------------------------------------------------


def read(path: Path) -> Iterator[Line]:
    """The lines of a trace.jsonl; a torn last one is passed over, any other that is no line of a trace is a
    FloodmarkError with file and line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    fields = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    if not line.endswith(b"\n"):
                        return
                    raise FloodmarkError(f"{path}:{number}: {error}") from error
                if not isinstance(fields, dict):
                    raise FloodmarkError(f"{path}:{number}: not a JSON object")
                yield fields
    except OSError as error:
        raise FloodmarkError(f"cannot read the trace {path}: {error.strerror}") from error
