"""Reads single lines of a run's files: an op by its index, an event by its line, a record by its offset.

Rules
1. Large files are never read completely (line_search.py); searches through files share one budget a run.
2. Lines that are missing, torn, or not in format 1 count as absent: the judge reports them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness import history
from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.report.line_search import Budget, Found, LineFile
from floodmark.harness.report.model import Record, TraceLine
from floodmark.harness.report.safe_text import harmless_data, harmless_op, is_plain
from floodmark.harness.run import Run
from floodmark.harness.run_location import is_safe_name

SEARCH_BYTES = 1 << 29  # of one run, for all searches together
WINDOW_BYTES = 1 << 23  # of a trace, around one moment
BACK_BYTES = 1 << 20  # of a history, before one line
ROWS_BYTES = 1 << 24  # a replicas.jsonl above that is not read
CHANGES = ("truncate", "elect", "isr", "become_leader")
MANY = 2_000  # of these lines
ACTS = 1_000  # of the nemesis, of one kind
_INDEX = re.compile(rb'"index": ?(\d+)')
_TIME = re.compile(rb'"time": ?(-?\d+)')
_PARTITION = re.compile(rb'"partition": ?(\d+)')
_OFFSET = re.compile(rb'"offset": ?(\d+)')

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The lines of a trace between two times that are about one partition and have one of some events."""

    lines: tuple[tuple[Found, TraceLine], ...]
    complete: bool  # it has all lines up to the second time


@dataclass
class RunFiles:
    """A run folder's big files, opened on demand. Use one object for all questions about a run."""

    run: Run
    budget: Budget = field(default_factory=lambda: Budget(left=SEARCH_BYTES))

    @cached_property
    def history(self) -> LineFile:
        return LineFile(self.run.history_path, self.run.folder)

    @cached_property
    def trace(self) -> LineFile:
        return LineFile(self.run.trace_path, self.run.folder)

    @cached_property
    def sends(self) -> dict[tuple[int, int], tuple[Op, ...]]:
        return {}

    @cached_property
    def dumps(self) -> dict[str, LineFile]:
        return {}

    # -- the history ----------------------------------------------------------------------------------------

    def op(self, index: int) -> Op | None:
        """The op with that index."""
        found = self.history.first_at_or_above(number_by(_INDEX), index)
        op = op_in(found)
        return op if op is not None and op.index == index else None

    def invocation(self, op: Op) -> Op | None:
        """The invocation that this op completes: the last one of its process before it."""
        if op.type is Type.INVOKE:
            return op
        found = self.history.first_at_or_above(number_by(_INDEX), op.index)
        if found is None:
            return None
        begin = self.history.line_after(max(0, found.begin - BACK_BYTES))
        last: Op | None = None
        for each in self.history.lines_from(begin, found.begin):
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
        gap = b" " if self.history.spaced() else b""
        invoked: Op | None = None
        for found in self.history.containing(b'"value":%b%d' % (gap, value), self.budget):
            op = op_in(found)
            if op is None or not any((s.partition, s.value) == (partition, value) for s in op.sends or ()):
                continue
            if op.type is not Type.INVOKE:
                return (op,) if invoked is None else (invoked, op)
            invoked = invoked or op
        return () if invoked is None else (invoked,)

    def acts_with_key(self, word: str) -> list[Op]:
        """The nemesis's ops that have this key, in order."""
        found_acts: list[Op] = []
        for found in self.history.containing(b'"%b"' % word.encode(), self.budget):
            op = op_in(found)
            if op is not None and op.process == NEMESIS and op.fault is not None:
                found_acts.append(op)
            if len(found_acts) == ACTS:
                break
        return found_acts

    @cached_property
    def nemesis(self) -> list[Op]:
        """All ops of the nemesis, in order; they are few and quickly found, so this has no budget."""
        gap = b" " if self.history.spaced() else b""
        found = self.history.containing(b'"process":%b%d' % (gap, NEMESIS), Budget(left=self.history.size()))
        return [op for op in map(op_in, found) if op is not None and op.process == NEMESIS]

    @cached_property
    def losses(self) -> list[Op]:
        """The acts that lost written data."""
        return [op for op in self.acts_with_key("lost") if (op.fault or {}).get("lost") is True]

    @cached_property
    def unclean_asked(self) -> list[Op]:
        return [op for op in self.acts_with_key("unclean") if (op.fault or {}).get("unclean") is True]

    # -- the trace ------------------------------------------------------------------------------------------

    def event(self, number: int) -> tuple[Found, TraceLine] | None:
        """The trace's line with that number, from 1."""
        found = self.trace.numbered(number)
        fields = None if found is None else fields_of(found.line)
        return None if found is None or fields is None else (found, TraceLine(number=number, fields=fields))

    def numbered(self, found: Found, fields: Row) -> TraceLine:
        return TraceLine(number=self.trace.number_of(found.begin), fields=fields)

    def between(self, first_ns: int, last_ns: int, partition: int, *words: str) -> Window:
        """The trace's lines with these events about a partition between two times."""
        begin = self.trace.first_at_or_above(number_by(_TIME), first_ns)
        if begin is None:
            return Window(lines=(), complete=False)
        lines: list[tuple[Found, TraceLine]] = []
        for found in self.trace.lines_from(begin.begin, begin.begin + WINDOW_BYTES):
            time = _TIME.search(found.line)
            if time is not None and int(time[1]) > last_ns:
                return Window(lines=tuple(lines), complete=True)
            lines += self._matching(found, partition, words)
        return Window(lines=tuple(lines), complete=begin.begin + WINDOW_BYTES >= self.trace.size())

    def before(self, found: Found, partition: int, *words: str) -> Window:
        """The trace's lines with these events about a partition right before a line."""
        begin = self.trace.line_after(max(0, found.begin - WINDOW_BYTES))
        lines = [match for each in self.trace.lines_from(begin, found.begin)
                 for match in self._matching(each, partition, words)]
        return Window(lines=tuple(lines), complete=begin == 0)

    def after(self, begin: int, partition: int, word: str) -> Iterator[tuple[Found, TraceLine]]:
        """Yields the partition's events of this name from byte `begin` on, within the budget."""
        for found in self.trace.containing(b'"%b"' % word.encode(), self.budget, begin):
            yield from self._matching(found, partition, (word,))

    def changes(self, first_ns: int, last_ns: int | None, partition: int | None) -> list[TraceLine]:
        """Truncations, elections, new leaders and ISR changes of a partition (None: of any) between two times
        (None: to the end), in order. ISR changes are the controller's; a new leader's line has its LEO. Of
        very many the first."""
        begin = self.trace.first_at_or_above(number_by(_TIME), first_ns)
        if begin is None:
            return []
        gap, found = b" " if self.trace.spaced() else b"", list[tuple[Found, Row]]()
        for word in CHANGES:
            needle = b'"event":%b"%b"' % (gap, word.encode())
            for each in self.trace.containing(needle, self.budget, begin.begin):
                fields = fields_of(each.line)
                if fields is None or fields.get("event") != word or (
                        partition is not None and fields.get("partition") != partition):
                    continue
                time = fields.get("time")
                if type(time) is not int or (last_ns is not None and time > last_ns):
                    break  # the lines are in the order of time
                if len(found) == MANY:
                    break
                if word != "isr" or "leo" not in fields:
                    found.append((each, fields))
        return [self.numbered(each, fields) for each, fields in sorted(found, key=lambda one: one[0].begin)]

    def _matching(
        self, found: Found, partition: int, words: tuple[str, ...]
    ) -> list[tuple[Found, TraceLine]]:
        if not any(b'"%b"' % word.encode() in found.line for word in words):
            return []
        fields = fields_of(found.line)
        if fields is None or fields.get("partition") != partition or fields.get("event") not in words:
            return []
        return [(found, TraceLine(number=None, fields=fields))]

    # -- the logs -------------------------------------------------------------------------------------------

    def readable(self, node: str) -> bool:
        if not is_safe_name(node):
            return False
        parquet = self.run.logs_folder / f"{node}.parquet"
        return self.run.has(self._lines(node)) or self.run.has(parquet)

    def record(self, node: str, partition: int, offset: int, *, expected: bool = True) -> Record | None:
        """The entry of the node's final log at the offset. expected: search also a dump that is not in
        order."""
        if not is_safe_name(node):
            return None
        dump, place = self.dump(node), f"{self.run.logs_folder.name}/{node}"
        if not self.run.has(self._lines(node)):
            rows = parquet_rows(self.run, self.run.logs_folder / f"{node}.parquet", offset)
            row = next((row for row in rows if is_at(row, partition, offset)), None)
            return None if row is None else record_of(row, f"{place}.parquet")
        found = dump.first_at_or_above(place_of, (partition, offset))
        if found is None or not is_at(fields_of(found.line), partition, offset):
            gap = b" " if dump.spaced() else b""
            found = next((each for each in dump.containing(b'"offset":%b%d' % (gap, offset), self.budget)
                          if is_at(fields_of(each.line), partition, offset)), None) if expected else None
        row = None if found is None else fields_of(found.line)
        if found is None or row is None:
            return None
        number = dump.number_of(found.begin)
        return record_of(row, f"{place}.jsonl" + ("" if number is None else f":{number}"))

    def dump(self, node: str) -> LineFile:
        """The final dump as lines."""
        return self.dumps.setdefault(node, LineFile(self._lines(node), self.run.folder))

    def _lines(self, node: str) -> Path:
        return self.run.logs_folder / f"{node}.jsonl"

    @cached_property
    def replicas(self) -> Mapping[tuple[str, int], Row]:
        """The rows of replicas.jsonl by node and partition: what each replica believed at the end."""
        file = LineFile(self.run.replicas_path, self.run.folder)
        found = file.lines_from(0, file.size()) if file.size() <= ROWS_BYTES else ()
        rows = [row for each in found if (row := fields_of(each.line)) is not None]
        return {(str(row.get("node")), row["partition"]): row
                for row in rows if type(row.get("partition")) is int}


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


def parquet_rows(run: Run, path: Path, offset: int) -> list[Row]:
    """The rows of a Parquet dump at that offset; empty if it cannot be read."""
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import read_table

    try:
        with run.open(path) as file:
            return list(read_table(file, filters=[("offset", "==", offset)]).to_pylist())
    except (OSError, ArrowInvalid):
        return []


def is_at(row: Row | None, partition: int, offset: int) -> bool:
    return row is not None and (row.get("partition"), row.get("offset")) == (partition, offset)


def record_of(row: Row, place: str) -> Record:
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
