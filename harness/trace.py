"""Merges the brokers' raw trace files into trace.jsonl on the run's clock, or follows them during a run.

Rules
1. The lines of one node stay in their order, `seq`. Lines of several nodes are ordered by time: on one host
   all times are of one CLOCK_MONOTONIC. Events before the run have times below 0.
2. A last raw line that a dying node wrote only in part is ignored. Any other missing line is visible as a gap
   in `seq`. Lines of partitions that are not the run's are left out without a gap.
3. A merge holds in memory one line of each node, and the piece that it yields.
"""

import heapq
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness.errors import FloodmarkError

Line = dict[str, Any]

_NODE_FIELDS = ("leader", "follower", "broker", "peer")  # fields that name a node; null: nobody
_LINES_PER_PIECE = 5_000
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """The raw trace files of a cluster, and the names for their ids."""

    files: Mapping[str, Path]  # node -> its file, which may not be there yet
    names: Mapping[int, str]  # node id -> node
    keys: Mapping[tuple[str, int], int]  # topic and partition -> the history's key
    clock_error_ns: int = 0  # for run.json: how far apart the stamps of two nodes can be


def merge(raw: Raw, origin_ns: int, problems: list[str]) -> Iterator[bytes]:
    """Yield trace.jsonl piece by piece; what is missing in it is added to `problems`. FloodmarkError where a
    raw file cannot be read. origin_ns: the time at which the run began, by the monotonic clock."""
    nodes = [_translated_lines(raw, node, origin_ns, problems) for node in raw.files]
    merged = heapq.merge(*nodes, key=itemgetter("time"))
    while piece := list(islice(merged, _LINES_PER_PIECE)):
        yield b"".join([orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in piece])


def _translated_lines(raw: Raw, node: str, origin_ns: int, problems: list[str]) -> Iterator[Line]:
    """Yield the node's lines in their order; `seq` skips those left out."""
    left_out, expected = 0, 0
    for line in _raw_lines(raw.files[node], problems):
        seq = line["seq"]
        if seq != expected:
            problems.append(f"the trace of {node} lacks lines between seq {expected} and {seq}")
        expected = seq + 1
        if (translated := _translate_line(line, raw, origin_ns)) is None:
            left_out += 1
            continue
        translated["seq"] = seq - left_out
        yield translated
    if not expected:
        problems.append(f"the trace of {node} has no line: {raw.files[node]}")


def _raw_lines(path: Path, problems: list[str]) -> Iterator[Line]:
    try:
        with path.open("rb", buffering=_READ_BYTES) as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return  # torn by the end of the node: never more than the last line
                try:
                    fields = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    problems.append(f"{path}:{number}: not a line of a trace: {error}")
                    continue
                if _is_line(fields):
                    yield fields
                else:
                    problems.append(f"{path}:{number}: not a line of a trace: no time, node, seq")
    except FileNotFoundError:
        return
    except OSError as error:
        raise FloodmarkError(f"cannot read the trace {path}: {error.strerror}") from error


def _is_line(fields: Any) -> bool:
    return isinstance(fields, dict) and {"time", "node", "seq"} <= fields.keys()


class Feed:
    """Follows the raw files during a run. `events`: only these are read; None: all."""

    def __init__(self, raw: Raw, origin_ns: int, events: Collection[str] | None = None) -> None:
        self._raw = raw
        self._origin_ns = origin_ns
        self._marks = None if events is None else tuple(b'"event":"%b"' % each.encode() for each in events)
        self._files: dict[str, int] = {}
        self._positions = dict.fromkeys(raw.files, 0)

    def read_new_lines(self) -> list[Line]:
        """Read the lines that were completed since the last call, as in trace.jsonl (except `seq`, which also
        counts the lines left out); by time, and those of one node in their order."""
        found = [self._read_node_lines(node) for node in self._raw.files]
        return list(heapq.merge(*found, key=itemgetter("time")))

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _read_node_lines(self, node: str) -> list[Line]:
        file = self._open(node)
        lines: list[Line] = []
        while file is not None:
            data = os.pread(file, _READ_BYTES, self._positions[node])
            if not (complete := data.rfind(b"\n") + 1):
                break
            self._positions[node] += complete
            lines += filter(None, map(self._parse_line, data[: complete - 1].split(b"\n")))
        return lines

    def _parse_line(self, line: bytes) -> Line | None:
        if self._marks is not None and not any(mark in line for mark in self._marks):
            return None
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None  # the merge reports it
        return _translate_line(fields, self._raw, self._origin_ns) if _is_line(fields) else None

    def _open(self, node: str) -> int | None:
        if node not in self._files:
            try:
                self._files[node] = os.open(self._raw.files[node], os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None  # the node has not started yet
        return self._files[node]


def _translate_line(line: Line, raw: Raw, origin_ns: int) -> Line | None:
    """Translate a raw line into one of trace.jsonl; None for a partition that is not the run's."""
    if (topic := line.pop("topic", None)) is not None:
        if (key := raw.keys.get((topic, line["partition"]))) is None:
            return None
        line["partition"] = key
    names = raw.names
    line["time"] -= origin_ns
    line["node"] = names[line["node"]]
    for field in _NODE_FIELDS:
        if field in line:
            line[field] = names.get(line[field])
    if "isr" in line:
        line["isr"] = [names[each] for each in line["isr"]]
    line.pop("version", None)  # of the metadata: for the controller's next start, not for trace.jsonl
    return line
