"""Reads the big files of a run: lines by their order, number or contents, an op by its index, an event by its
line, a record by its offset.

Rules
1. A file is mapped into memory and never read completely for a look-up. Lines in the order of a key are found
   by binary search; in a file that is not in order a line may not be found, but a line that is found is a
   right one. Line numbers count from 1.
2. Searches by contents share one budget of bytes a run.
3. Lines that are missing, torn, or not in format 1 count as absent: the judge reports them. A file that is
   missing or cannot be read has no lines, and its `trouble` says why.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from mmap import ACCESS_READ, mmap
from typing import Any, TypeVar

import orjson

from floodmark.harness import history
from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.report.model import Json, Record, TraceLine
from floodmark.harness.report.safe_text import harmless_data, harmless_op, is_plain
from floodmark.harness.run import Run
from floodmark.harness.run_location import Place, is_safe_name, open_inside

BLOCK_BYTES = 1 << 18  # in which line feeds are counted
KEYLESS = 8  # lines in a row without the key, after which a search gives up at this place
SEARCH_BYTES = 1 << 29  # of one run, for all searches together
WINDOW_BYTES = 1 << 23  # of a trace, around one moment
BACK_BYTES = 1 << 20  # of a history, before one line
ROWS_BYTES = 1 << 24  # a replicas.jsonl above that is not read
PAGE_BYTES, LINE_BYTES = 1 << 30, 1 << 24  # of a file and of a line, for a page
CHANGES = ("truncate", "elect", "isr", "become_leader")
MANY = 2_000  # of these lines
OF_NEMESIS = re.compile(rb'"process": ?-1\b')
_INDEX = re.compile(rb'"index": ?(\d+)')
_TIME = re.compile(rb'"time": ?(-?\d+)')
_PARTITION = re.compile(rb'"partition": ?(\d+)')
_OFFSET = re.compile(rb'"offset": ?(\d+)')

Key = TypeVar("Key", int, tuple[int, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A line and the byte it begins at."""

    begin: int
    line: bytes

    @property
    def end(self) -> int:
        return self.begin + len(self.line)


@dataclass(slots=True, kw_only=True)
class Budget:
    """How many bytes searches may still read."""

    left: int


@dataclass(slots=True)
class LineFile:
    """A file of lines."""

    path: Place
    folder: Place  # it may be untrusted: the file must be inside it
    trouble: OSError | None = None  # why it could not be read last time
    _feeds: list[int] = field(default_factory=lambda: [0])  # line feeds before each block counted so far

    def data(self) -> bytes | mmap:
        self.trouble = None
        try:
            with open_inside(self.path, self.folder) as file:
                return mmap(file.fileno(), 0, access=ACCESS_READ)
        except OSError as error:
            self.trouble = error
        except ValueError:  # an empty file
            pass
        return b""

    def size(self) -> int:
        return len(self.data())

    def lines(self, begin: int = 0, end: int | None = None) -> Iterator[Found]:
        """Yields the lines that begin at bytes `begin` to `end`; a line must begin at `begin`."""
        data = self.data()
        while begin < (len(data) if end is None else min(end, len(data))):
            found = line_at(data, begin)
            yield found
            begin = found.end

    def first_at_or_above(self, key_of: Callable[[bytes], Key | None], wanted: Key) -> Found | None:
        """The first line whose key is `wanted` or higher, if the lines are in the order of the key."""
        data = self.data()
        low, high = 0, len(data)
        while low < high:
            middle = (low + high) // 2
            found = keyed(data, middle, high, key_of)
            if found is None or found[1] >= wanted:
                high = middle
            else:
                low = found[0].end
        last = keyed(data, low, len(data), key_of)
        return last[0] if last is not None and last[1] >= wanted else None

    def numbered(self, number: int) -> Found | None:
        """The line with that number."""
        data, feeds = self.data(), number - 1
        self._count(data, len(data) // BLOCK_BYTES)
        block = max(0, bisect_left(self._feeds, feeds) - 1)
        begin = block * BLOCK_BYTES
        for _ in range(feeds - self._feeds[block]):
            begin = data.find(b"\n", begin) + 1
            if not begin:
                return None
        return line_at(data, begin) if feeds >= 0 and begin < len(data) else None

    def number_of(self, begin: int) -> int | None:
        """The number of the line that begins there."""
        data, block = self.data(), begin // BLOCK_BYTES
        self._count(data, block)
        if begin >= len(data):
            return None
        return self._feeds[block] + data[block * BLOCK_BYTES:begin].count(b"\n") + 1

    def _count(self, data: bytes | mmap, blocks: int) -> None:
        """Counts the line feeds of the first blocks, as far as they are whole: the file may grow."""
        while len(self._feeds) <= blocks and (end := len(self._feeds) * BLOCK_BYTES) <= len(data):
            self._feeds.append(self._feeds[-1] + data[end - BLOCK_BYTES:end].count(b"\n"))

    def containing(
        self, wanted: bytes | re.Pattern[bytes], budget: Budget | None = None, begin: int = 0
    ) -> Iterator[Found]:
        """Yields the lines from `begin` on (the begin of a line) that contain these bytes or have a match,
        within the budget."""
        data = self.data()
        budget = budget or Budget(left=len(data))
        while budget.left > 0 and begin < len(data):
            end = min(begin + budget.left, len(data))
            if isinstance(wanted, bytes):
                at = data.find(wanted, begin, end)
            else:
                at = match.start() if (match := wanted.search(data, begin, end)) is not None else -1
            found = line_at(data, start_of(data, at)) if at >= 0 else None
            budget.left -= (end if found is None else found.end) - begin
            if found is None:
                return
            yield found
            begin = found.end

    def with_field(self, name: str, value: object, budget: Budget, begin: int = 0) -> Iterator[Found]:
        """Yields the lines from `begin` on that contain the field, written with the first line's spaces."""
        gap = b" " if any(b'": ' in first.line for first in self.lines(0, 1)) else b""
        return self.containing(b'"%b":%b%b' % (name.encode(), gap, orjson.dumps(value)), budget, begin)

    def objects(
        self, problems: list[str], wanted: Callable[[bytes], bool]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields (number, fields) of the lines that are `wanted` and JSON objects; what is wrong with the
        file goes to `problems`, a sentence each."""
        broken, name = 0, self.path.name
        for number, found in enumerate(self.lines(), 1):
            if found.end > PAGE_BYTES:
                problems.append(f"{name} is longer than {PAGE_BYTES >> 20} MB: what comes after line "
                                f"{number} is not on this page")
                break
            if len(found.line) > LINE_BYTES or not wanted(found.line):
                broken += len(found.line) > LINE_BYTES
                continue
            fields = fields_of(found.line)
            if fields is not None:
                yield number, fields
            else:
                broken += found.line.endswith(b"\n") and bool(found.line.strip())
        if isinstance(self.trouble, FileNotFoundError):
            problems.append(f"there is no {name}")
        elif self.trouble is not None:
            problems.append(f"{name} cannot be read: {self.trouble.strerror or self.trouble}")
        if broken:
            problems.append(f"{name}: {broken} line(s) are no JSON objects and were skipped")


def line_at(data: bytes | mmap, begin: int) -> Found:
    return Found(begin=begin, line=data[begin:data.find(b"\n", begin) + 1 or len(data)])


def start_of(data: bytes | mmap, at: int) -> int:
    """Where the line begins that this byte belongs to."""
    return data.rfind(b"\n", 0, at) + 1


def next_start(data: bytes | mmap, at: int) -> int:
    """Where the first line at or after this byte begins."""
    return 0 if at <= 0 else data.find(b"\n", at - 1) + 1 or len(data)


def keyed(
    data: bytes | mmap, at: int, end: int, key_of: Callable[[bytes], Key | None]
) -> tuple[Found, Key] | None:
    """The first line with a key that begins between two bytes, and the key."""
    begin = next_start(data, at)
    for _ in range(KEYLESS):
        if begin >= end:
            return None
        found = line_at(data, begin)
        key = key_of(found.line)
        if key is not None:
            return found, key
        begin = found.end
    return None


@dataclass
class RunFiles:
    """A run folder's big files. Use one object for all questions about a run."""

    run: Run
    budget: Budget = field(default_factory=lambda: Budget(left=SEARCH_BYTES))
    sends: dict[tuple[int, int], tuple[Op, ...]] = field(default_factory=dict)
    dumps: dict[str, LineFile] = field(default_factory=dict)

    @cached_property
    def history(self) -> LineFile:
        return LineFile(self.run.history_path, self.run.folder)

    @cached_property
    def trace(self) -> LineFile:
        return LineFile(self.run.trace_path, self.run.folder)

    @cached_property
    def replicas_file(self) -> LineFile:
        return LineFile(self.run.replicas_path, self.run.folder)

    # -- the history ----------------------------------------------------------------------------------------

    def op(self, index: int) -> Op | None:
        """The op with that index."""
        op = op_in(self.history.first_at_or_above(number_by(_INDEX), index))
        return op if op is not None and op.index == index else None

    def invocation(self, op: Op) -> Op | None:
        """The invocation that this op completes: the last one of its process before it."""
        if op.type is Type.INVOKE:
            return op
        found = self.history.first_at_or_above(number_by(_INDEX), op.index)
        if found is None:
            return None
        last: Op | None = None
        begin = next_start(self.history.data(), found.begin - BACK_BYTES)
        for each in self.history.lines(begin, found.begin):
            if b'"invoke"' in each.line and str(op.process).encode() in each.line:
                invoked = op_in(each)
                last = invoked if invoked is not None and invoked.process == op.process else last
        return last

    def send_of(self, partition: int, value: int) -> tuple[Op, ...]:
        """The first invocation that sends the value to the partition, and its completion."""
        key = partition, value
        if key not in self.sends:
            self.sends[key] = self._send_of(partition, value)
        return self.sends[key]

    def _send_of(self, partition: int, value: int) -> tuple[Op, ...]:
        invoked: Op | None = None
        for found in self.history.with_field("value", value, self.budget):
            op = op_in(found)
            if op is None or not any((s.partition, s.value) == (partition, value) for s in op.sends or ()):
                continue
            if op.type is not Type.INVOKE:
                return (op,) if invoked is None else (invoked, op)
            invoked = invoked or op
        return () if invoked is None else (invoked,)

    @cached_property
    def nemesis(self) -> list[Op]:
        """All ops of the nemesis, in order; they are few and quickly found, so this has no budget."""
        ops = map(op_in, self.history.containing(OF_NEMESIS))
        return [op for op in ops if op is not None and op.process == NEMESIS]

    # -- the trace ------------------------------------------------------------------------------------------

    def event(self, number: int) -> TraceLine | None:
        """The trace's line with that number."""
        found = self.trace.numbered(number)
        fields = None if found is None else fields_of(found.line)
        return None if found is None or fields is None else (
            TraceLine(number=number, fields=fields, begin=found.begin))

    def numbered(self, line: TraceLine) -> TraceLine:
        return replace(line, number=self.trace.number_of(line.begin))

    def between(self, first_ns: int, last_ns: int, partition: int, *words: str) -> list[TraceLine]:
        """The trace's lines with these events about a partition between two times; none if not all up to the
        second time could be read."""
        begin = self.trace.first_at_or_above(number_by(_TIME), first_ns)
        if begin is None:
            return []
        lines: list[TraceLine] = []
        for found in self.trace.lines(begin.begin, begin.begin + WINDOW_BYTES):
            time = _TIME.search(found.line)
            if time is not None and int(time[1]) > last_ns:
                return lines
            lines += matching(found, partition, words)
        return lines if begin.begin + WINDOW_BYTES >= self.trace.size() else []

    def before(self, line: TraceLine, partition: int, *words: str) -> list[TraceLine]:
        """All lines of the trace with these events about a partition before a line; none if they are too
        many."""
        earlier = self.trace.lines(0, line.begin) if line.begin <= WINDOW_BYTES else ()
        return [match for each in earlier for match in matching(each, partition, words)]

    def after(self, begin: int, partition: int | None, word: str) -> Iterator[TraceLine]:
        """Yields the events of this name (of a partition; None: of any) from byte `begin` on, within the
        budget."""
        for found in self.trace.with_field("event", word, self.budget, begin):
            yield from matching(found, partition, (word,))

    def changes(self, first_ns: int, last_ns: int | None, partition: int | None) -> list[TraceLine]:
        """Truncations, elections, new leaders and ISR changes of a partition (None: of any) between two times
        (None: to the end), in order. ISR changes are the controller's; a new leader's line has its LEO. Of
        very many the first."""
        begin = self.trace.first_at_or_above(number_by(_TIME), first_ns)
        found: list[TraceLine] = []
        for word in CHANGES if begin is not None else ():
            for line in self.after(begin.begin if begin is not None else 0, partition, word):
                time = line.whole_number("time")
                if time is None or (last_ns is not None and time > last_ns) or len(found) == MANY:
                    break  # the lines are in the order of time
                if word != "isr" or "leo" not in line.fields:
                    found.append(line)
        return [self.numbered(line) for line in sorted(found, key=lambda one: one.begin)]

    # -- the logs -------------------------------------------------------------------------------------------

    def readable(self, node: str) -> bool:
        """Whether there is a dump of the node's final log."""
        return is_safe_name(node) and any(
            self.run.has(self.run.logs_folder / f"{node}{suffix}") for suffix in (".jsonl", ".parquet"))

    def dump(self, node: str) -> LineFile:
        """The final dump as lines."""
        return self.dumps.setdefault(node, LineFile(self.run.logs_folder / f"{node}.jsonl", self.run.folder))

    def record(self, node: str, partition: int, offset: int, *, expected: bool = True) -> Record | None:
        """The entry of the node's final log at the offset. expected: search also a dump that is not in
        order."""
        if not is_safe_name(node):
            return None
        dump, place = self.dump(node), f"{self.run.logs_folder.name}/{node}"
        if not self.run.has(self.run.logs_folder / f"{node}.jsonl"):
            rows = [row for row in self.parquet_rows(node, [offset]) if is_at(row, partition, offset)]
            return record_of(rows[0], f"{place}.parquet") if rows else None
        found = dump.first_at_or_above(place_of, (partition, offset))
        if found is None or not is_at(fields_of(found.line), partition, offset):
            found = next((each for each in dump.with_field("offset", offset, self.budget)
                          if is_at(fields_of(each.line), partition, offset)), None) if expected else None
        row = None if found is None else fields_of(found.line)
        if found is None or row is None:
            return None
        number = dump.number_of(found.begin)
        return record_of(row, f"{place}.jsonl" + ("" if number is None else f":{number}"))

    def parquet_rows(
        self, node: str, offsets: Collection[int], complain: Callable[[Exception], None] = lambda _: None
    ) -> list[Json]:
        """The rows of a node's Parquet dump at these offsets; empty if it cannot be read."""
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import read_table

        try:
            with self.run.open(self.run.logs_folder / f"{node}.parquet") as file:
                rows = read_table(file, filters=[("offset", "in", set(offsets))]).to_pylist()
                return [harmless_data(row) for row in rows]
        except (OSError, ArrowInvalid) as error:
            complain(error)
            return []

    @cached_property
    def replicas(self) -> Mapping[tuple[str, int], Json]:
        """The rows of replicas.jsonl by node and partition: what each replica believed at the end."""
        lines = self.replicas_file.lines() if self.replicas_file.size() <= ROWS_BYTES else ()
        rows = (fields_of(each.line) for each in lines)
        return {(str(row.get("node")), row["partition"]): row
                for row in rows if row is not None and type(row.get("partition")) is int}


def op_in(found: Found | None) -> Op | None:
    try:
        return None if found is None else harmless_op(found.line, history.decode_op(found.line))
    except ValueError:
        return None


def fields_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line, its texts safe to print; None if it is none."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict):
        return None
    return fields if is_plain(line) else harmless_data(fields)


def matching(found: Found, partition: int | None, words: Collection[str]) -> list[TraceLine]:
    """The line, if it is one of these events, and of the partition (None: of any)."""
    if not any(b'"%b"' % word.encode() in found.line for word in words):
        return []
    fields = fields_of(found.line)
    if fields is None or fields.get("event") not in words or partition not in (None, fields.get("partition")):
        return []
    return [TraceLine(number=None, fields=fields, begin=found.begin)]


def is_at(row: Json | None, partition: int, offset: int) -> bool:
    return row is not None and (row.get("partition"), row.get("offset")) == (partition, offset)


def record_of(row: Json, place: str) -> Record:
    numbers = {name: row[name] for name in ("epoch", "value", "crc") if type(row.get(name)) is int}
    flaws = [flaw for flaw, is_so in (("its bytes do not fit their CRC", row.get("crc_ok") is False),
                                      ("aborted", row.get("aborted") is True)) if is_so]
    return Record(epoch=numbers.get("epoch"), value=numbers.get("value"), crc=numbers.get("crc"),
                  flaw=", ".join(flaws) or None, place=place)


def number_by(pattern: re.Pattern[bytes]) -> Callable[[bytes], int | None]:
    def key_of(line: bytes) -> int | None:
        found = pattern.search(line)
        return None if found is None else int(found[1])

    return key_of


def place_of(line: bytes) -> tuple[int, int] | None:
    partition, offset = _PARTITION.search(line), _OFFSET.search(line)
    return None if partition is None or offset is None else (int(partition[1]), int(offset[1]))
