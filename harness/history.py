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
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import orjson

from floodmark.harness import runtime
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.op import NEMESIS, Intent, Op, Outcome, Type
from floodmark.harness.run_location import Place, open_inside

_WORDS = {"int": "an integer", "str": "a string", "object": "an object", "array": "a list",
          "enum": f"one of {', '.join(Type)}"}  # for msgspec's
_WITH_PARTITIONS = frozenset({"assign", "subscribe"})  # an op of these f has `partitions` in its line


class Recorder:
    """Numbers, times and writes all ops of a run, and counts them. The file must not exist yet."""

    def __init__(self, path: Path, clock_ns: Callable[[], int] | None = None) -> None:
        self.counts: Counter[Type] = Counter()  # completions of clients
        self.ops = 0  # invocations of clients
        self._acks: Counter[int] = Counter()
        self._clock_ns = clock_ns or runtime.current.monotonic_ns
        self.origin_ns = self._clock_ns()  # when the run began, by the monotonic clock
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
        self.origin_ns = self._clock_ns()

    def now_ns(self) -> int:
        return self._clock_ns() - self.origin_ns

    def acks(self, partition: int) -> int:
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
    def known_fields(value: Any) -> dict[str, Any]:
        return {name: known for name in value.__slots__ if (known := getattr(value, name)) is not None}

    return orjson.dumps(op, default=known_fields, option=(
        orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS))


# -- reading back -------------------------------------------------------------------------------------------


def read(path: Place, on_bad: Callable[[str], None] | None = None, *, folder: Place | None = None
         ) -> Iterator[Op]:
    """Read the ops of a history one by one. With `folder`, which may be anybody's, the history must be a
    regular file inside it. A torn last line, blank lines and unknown fields are ignored. Another line that is
    no op is a problem, "FILE:LINE: why": on_bad gets it, and reading goes on; without it: FloodmarkError."""
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
        return msgspec.convert(fields, Op)
    except msgspec.ValidationError as error:
        raise ValueError(_flaw(str(error).replace("`", ""), fields)) from error


def _flaw(text: str, value: Any) -> str:
    """What is wrong, from msgspec's text: `Expected int, got str - at $.sends[0].value`."""
    text, _, place = text.partition(" - at $.")
    words = text.split()
    if "missing" in words:
        return f"{words[-1]} is missing"
    for part in re.findall(r"\w+", place):
        value = value[int(part) if part.isdecimal() else part]
    return f"{place} is {value!r}, not {_WORDS[words[1].rstrip(',')]}"
