"""Records the history (history.jsonl: one op a line) during a run, and reads it.

Rules of the Recorder
1. The index has no gaps, times never decrease, and lines are complete: all lines of one turn of the event
   loop are written in one write(2).
2. `written()` returns when the kernel has every line so far. A request is sent only after that, so a harness
   that is killed has sent no request that is missing in its history.
3. A failed write raises FloodmarkError and ends the recording; the lines before it stay complete.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson

from floodmark.harness import runtime
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.op import NEMESIS, Intent, LogOffset, Op, Outcome, Read, Send, Type, Unreadable
from floodmark.harness.run_location import Place, open_inside

Item = TypeVar("Item")
_WITH_PARTITIONS = frozenset({"assign", "subscribe"})  # an op of these f has `partitions` in its line


class Recorder:
    """Implements protocols.Recording for one history file, which must not exist yet."""

    def __init__(self, path: Path, clock_ns: Callable[[], int] | None = None) -> None:
        self.counts: Counter[Type] = Counter()  # completions of clients
        self.ops = 0  # invocations of clients
        self._acks: Counter[int] = Counter()
        self._clock_ns = clock_ns or runtime.current.monotonic_ns
        self._origin_ns = self._clock_ns()
        self._last_ns = 0
        self._index = 0
        self._path = path
        self._lines: list[bytes] = []
        self._flushes: list[asyncio.Future[None]] = []
        self._ack_waiters: list[asyncio.Future[None]] = []
        self._failed: FloodmarkError | None = None
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as error:
            raise FloodmarkError(f"cannot begin the history {path}: {error.strerror}") from error

    def begin(self) -> None:
        """Begin the run: times count from now. Call it before the first line."""
        assert self._index == 0, f"{self._index} lines were stamped already"
        self._origin_ns = self._clock_ns()

    @property
    def origin_ns(self) -> int:
        """The time at which the run began, by the monotonic clock."""
        return self._origin_ns

    def now_ns(self) -> int:
        """Nanoseconds since the run began."""
        return self._clock_ns() - self._origin_ns

    def acks(self, partition: int) -> int:
        """The number of acked micro-sends of the partition so far."""
        return self._acks[partition]

    async def ack_or(self, timeout_s: float) -> None:
        """Wait for the next ack of any partition, at most timeout_s."""
        waiter = asyncio.get_running_loop().create_future()
        self._ack_waiters.append(waiter)
        await asyncio.wait([waiter], timeout=timeout_s)
        if waiter in self._ack_waiters:
            self._ack_waiters.remove(waiter)

    def invoke(self, process: int, intent: Intent) -> Op:
        self.ops += 1
        return self._record(
            process=process, type=Type.INVOKE, f=intent.f, sends=intent.sends or None,
            partitions=intent.partitions if intent.f in _WITH_PARTITIONS else None,
        )

    def complete(self, invoked: Op, outcome: Outcome) -> Op:
        """Record the completion of an invocation; for a send it has the same partitions and values."""
        sends = outcome.sends or invoked.sends
        answered = outcome.type is Type.OK  # an empty list is then a response too, and is written
        op = self._record(
            process=invoked.process, type=outcome.type, f=invoked.f, sends=sends,
            reads=outcome.reads if answered and invoked.f == "poll" else outcome.reads or None,
            partitions=(outcome.partitions or invoked.partitions) if invoked.f in _WITH_PARTITIONS else None,
            offsets=outcome.offsets if answered and invoked.f == "list_offsets" else outcome.offsets or None,
            starts=outcome.starts or None, corrupt=outcome.corrupt or None, error=outcome.error,
        )
        self.counts[outcome.type] += 1
        if outcome.type is Type.OK and sends:
            for send in sends:
                self._acks[send.partition] += 1
            for waiter in self._ack_waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._ack_waiters.clear()
        return op

    def strike(self, f: str, fault: Mapping[str, Any]) -> Op:
        return self._record(process=NEMESIS, type=Type.INFO, f=f, fault=fault)

    async def written(self) -> None:
        if self._failed:
            raise self._failed
        if self._lines:
            flush = asyncio.get_running_loop().create_future()
            self._flushes.append(flush)
            await flush

    def close(self) -> int:
        """Write the lines that are left, close the file, and return the number of lines."""
        if self._file >= 0:
            self._flush()
            os.close(self._file)
            self._file = -1
        if self._failed:
            raise self._failed
        return self._index

    def _record(self, **fields: Any) -> Op:
        if self._failed:
            raise self._failed
        self._last_ns = max(self._last_ns, self.now_ns())
        op = Op(index=self._index, time=self._last_ns, **fields)
        line = encode_op(op)
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(line)
        self._index += 1
        return op

    def _flush(self) -> None:
        data = b"".join(self._lines)
        self._lines.clear()
        flushes, self._flushes = self._flushes, []
        if data and not self._failed:
            try:
                written = os.write(self._file, data)
                while written < len(data):
                    written += os.write(self._file, data[written:])  # a short write: the disk is nearly full
            except OSError as error:
                self._failed = FloodmarkError(
                    f"cannot write the history {self._path}: {error.strerror}; the run ends here"
                )
        for flush in flushes:
            if flush.done():  # the waiting task was cancelled
                continue
            if self._failed:
                flush.set_exception(self._failed)
            else:
                flush.set_result(None)


def encode_op(op: Op) -> bytes:
    """Encode an op as a line of format 1, with its LF."""
    line: dict[str, Any] = {
        "index": op.index, "time": op.time, "process": op.process, "type": op.type.value, "f": op.f,
    }
    if op.sends is not None:
        line["sends"] = [_encode_send(send) for send in op.sends]
    if op.reads is not None:
        line["reads"] = [_encode_read(read) for read in op.reads]
    if op.corrupt is not None:
        line["corrupt"] = [
            {"partition": one.partition, "offset": one.offset, "why": one.why} for one in op.corrupt]
    if op.partitions is not None:
        line["partitions"] = list(op.partitions)
    if op.offsets is not None:
        line["offsets"] = list(map(_encode_offset, op.offsets))
    if op.starts is not None:
        line["starts"] = list(map(_encode_offset, op.starts))
    if op.error is not None:
        line["error"] = op.error
    if op.fault is not None:
        line["fault"] = op.fault
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def _encode_send(send: Send) -> dict[str, int]:
    fields = {"partition": send.partition, "value": send.value}
    if send.offset is not None:
        fields["offset"] = send.offset
    if send.epoch is not None:
        fields["epoch"] = send.epoch
    return fields


def _encode_read(read: Read) -> dict[str, int]:
    fields = {"partition": read.partition, "offset": read.offset, "value": read.value}
    if read.epoch is not None:
        fields["epoch"] = read.epoch
    return fields


def _encode_offset(place: LogOffset) -> dict[str, int]:
    fields = {"partition": place.partition, "offset": place.offset}
    if place.epoch is not None:
        fields["epoch"] = place.epoch
    return fields


# -- reading back -------------------------------------------------------------------------------------------

def read(
    path: Place, on_bad: Callable[[str], None] | None = None, *, folder: Place | None = None
) -> Iterator[Op]:
    """Read the ops of a history one by one, in the order of the file. With `folder`, which may come from an
    untrusted source, the history must be a regular file inside it.

    A torn last line, blank lines and unknown fields are ignored. Any other line that is not an op is a
    problem, "FILE:LINE: why": on_bad is called with it and reading continues; without on_bad it is a
    FloodmarkError.
    """
    try:
        with path.open("rb") if folder is None else open_inside(path, folder) as file:
            for number, line in enumerate(file, start=1):
                if line.isspace():
                    continue
                try:
                    yield decode_op(line)
                except ValueError as error:
                    if not line.endswith(b"\n"):
                        return  # torn by the end of the harness: never more than the last line
                    problem = f"{path}:{number}: {error}"
                    if on_bad is None:
                        raise FloodmarkError(problem) from error
                    on_bad(problem)
    except OSError as error:
        raise FloodmarkError(f"cannot read the history {path}: {error.strerror}") from error


def decode_op(line: bytes) -> Op:
    """Decode one line; ValueError names the field that is not valid in format 1."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    try:
        kind = Type(str(fields.get("type")))
    except ValueError as error:
        raise ValueError(f"type is {fields.get('type')!r}, not one of {', '.join(Type)}") from error
    f = fields.get("f")
    if not isinstance(f, str):
        raise ValueError(f"f is {f!r}, not a string")
    fault = fields.get("fault")
    error_name = fields.get("error")
    if fault is not None and not isinstance(fault, dict):
        raise ValueError("fault is not an object")
    if error_name is not None and not isinstance(error_name, str):
        raise ValueError("error is not a string")
    return Op(
        index=_integer(fields, "index"), time=_integer(fields, "time"), process=_integer(fields, "process"),
        type=kind, f=f, error=error_name, fault=fault,
        sends=_read_objects(fields, "sends", lambda item: Send(
            partition=_integer(item, "partition"), value=_integer(item, "value"),
            offset=_optional_integer(item, "offset"), epoch=_optional_integer(item, "epoch"))),
        reads=_read_objects(fields, "reads", lambda item: Read(
            partition=_integer(item, "partition"), offset=_integer(item, "offset"),
            value=_integer(item, "value"), epoch=_optional_integer(item, "epoch"))),
        corrupt=_read_objects(fields, "corrupt", lambda item: Unreadable(
            partition=_integer(item, "partition"), offset=_integer(item, "offset"),
            why=str(item.get("why")))),
        offsets=_read_objects(fields, "offsets", _log_offset),
        starts=_read_objects(fields, "starts", _log_offset),
        partitions=_integers(fields, "partitions"),
    )


def _log_offset(item: Mapping[str, Any]) -> LogOffset:
    return LogOffset(_integer(item, "partition"), _integer(item, "offset"), _optional_integer(item, "epoch"))


def _integer(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:  # a JSON true is not an integer
        raise ValueError(f"{name} is {'missing' if value is None else repr(value) + ', not an integer'}")
    return value


def _optional_integer(fields: Mapping[str, Any], name: str) -> int | None:
    return None if fields.get(name) is None else _integer(fields, name)


def _integers(fields: Mapping[str, Any], name: str) -> tuple[int, ...] | None:
    values = fields.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise ValueError(f"{name} is not a list of integers")
    return tuple(values)


def _read_objects(
    fields: Mapping[str, Any], name: str, read_item: Callable[[Mapping[str, Any]], Item]
) -> tuple[Item, ...] | None:
    items = fields.get(name)
    if items is None:
        return None
    if not isinstance(items, list) or any(not isinstance(item, dict) for item in items):
        raise ValueError(f"{name} is not a list of objects")
    return tuple(read_item(item) for item in items)
