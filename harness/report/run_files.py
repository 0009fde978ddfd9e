"""Reads the files of a run for its reports: of the big ones lines by their order, number or contents, an op
by its index, an event by its line, a record by its offset; run.json and verdict.json as mappings that have
the shape that reports need; and what the folder says besides: lines that break format 1, the last words of
brokers that ended by themselves. The folder may be untrusted: every text goes through safe_text.py here.

Rules
1. A file is mapped into memory when it is first asked for. Lines in the order of a key are found by binary
   search; in a file that is not in order a line may not be found, but a line that is found is a right one.
   Line numbers count from 1.
2. Searches by contents share one budget of bytes a run.
3. Lines that are missing, torn, or not in format 1 count as absent: the judge reports them. A file that is
   missing or cannot be read has no lines, and its `trouble` says why.
"""

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from mmap import ACCESS_READ, mmap
from typing import Any

import orjson

from floodmark.checkers.laws.finding_names import BROKER_DIED
from floodmark.checkers.text.blame_words import with_blame_apart
from floodmark.harness import history
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.registered import NAME
from floodmark.harness.report.model import Json, Line, Record, TraceLine, items, mapping, text
from floodmark.harness.report.phrases import command_line
from floodmark.harness.report.safe_text import escape_controls, escaped_data, escaped_op, is_plain
from floodmark.harness.run import FORMAT, SHRUNK, VERDICT_BYTES_AT_MOST, P, Run, RunAt
from floodmark.harness.run_location import Place, is_named, is_safe_name, open_inside

KEYLESS = 8  # lines in a row without the key, after which a search gives up at this place
SEARCH_BYTES = 1 << 29  # of one run, for all searches together
WINDOW_LINES = 60_000  # of a trace, around one moment
BACK_LINES = 10_000  # of a history, before one line
MANY = 2_000  # changes of a partition
ROWS_BYTES = 1 << 24  # a replicas.jsonl above that is not read
PAGE_BYTES, LINE_BYTES = 1 << 30, 1 << 24  # of a file and of a line, for a page
CHANGES = ("truncate", "elect", "isr", "become_leader")
OF_NEMESIS = re.compile(rb'"process": ?-1\b')
INDEX, TIME, PARTITION, OFFSET = (
    re.compile(rb'"%b": ?(-?\d{1,19})(?!\d)' % name) for name in (b"index", b"time", b"partition", b"offset"))

Numbered = tuple[int, bytes]  # a line and its number


@dataclass(slots=True, kw_only=True)
class Budget:
    """How many bytes searches may still read."""

    left: int


@dataclass
class LineFile:
    """A file of lines."""

    path: Place
    folder: Place  # it may be untrusted: the file must be inside it
    trouble: OSError | None = None  # why it cannot be read; known once it was asked for

    @cached_property
    def data(self) -> bytes | mmap:
        try:
            with open_inside(self.path, self.folder) as file:
                return mmap(file.fileno(), 0, access=ACCESS_READ)
        except OSError as error:
            self.trouble = error
        except ValueError:  # an empty file
            pass
        return b""

    @cached_property
    def begins(self) -> "array[int]":
        """The byte at which each line begins."""
        found = array("q", [0])
        found.extend(feed.end() for feed in re.finditer(b"\n", self.data))
        if found[-1] == len(self.data):
            found.pop()
        return found

    def line(self, number: int) -> bytes | None:
        """The line with that number."""
        if not 0 < number <= len(self.begins):
            return None
        return self.data[self.begins[number - 1]:self.begins[number] if number < len(self.begins) else None]

    def lines(self, first: int = 1, behind: int | None = None) -> Iterator[Numbered]:
        """Yields the lines from one number to before another."""
        for number in range(first, len(self.begins) + 1)[:None if behind is None else max(0, behind - first)]:
            yield number, self.line(number) or b""

    def first_at_or_above(self, fields: Sequence[re.Pattern[bytes]], *wanted: int) -> int | None:
        """The first line whose fields are `wanted` or higher, of lines in the order of these fields."""

        def keyed(number: int) -> tuple[int, tuple[int, ...]] | None:
            """The first line from there on that has the fields."""
            near = ((at, [one.search(line) for one in fields])
                    for at, line in self.lines(number, number + KEYLESS))
            return next(((at, tuple(int(one[1]) for one in found if one)) for at, found in near
                         if all(found)), None)

        numbers = range(1, len(self.begins) + 1)
        above = bisect_left(numbers, True, key=lambda at: (one := keyed(at)) is None or one[1] >= wanted)
        found = keyed(above + 1)
        return found[0] if found is not None and found[1] >= wanted else None

    def containing(
        self, wanted: bytes | re.Pattern[bytes], budget: Budget | None = None, first: int = 1
    ) -> Iterator[Numbered]:
        """Yields the lines from a number on that contain these bytes or have a match, within the budget."""
        data = self.data
        begin = self.begins[first - 1] if first <= len(self.begins) else len(data)
        budget = budget or Budget(left=len(data))
        while budget.left > 0 and begin < len(data):
            end = min(begin + budget.left, len(data))
            if isinstance(wanted, bytes):
                at = data.find(wanted, begin, end)
            else:
                at = match.start() if (match := wanted.search(data, begin, end)) is not None else -1
            number = bisect_right(self.begins, at)
            line = self.line(number)
            behind = end if line is None else self.begins[number - 1] + len(line)
            budget.left -= behind - begin
            if line is None:
                return
            yield number, line
            begin = behind

    def with_field(self, name: str, value: object, budget: Budget, first: int = 1) -> Iterator[Numbered]:
        """Yields the lines from a number on that contain the field, written with the first line's spaces."""
        gap = b" " if b'": ' in (self.line(1) or b"") else b""
        return self.containing(b'"%b":%b%b' % (name.encode(), gap, orjson.dumps(value)), budget, first)

    def objects(
        self, problems: list[str], wanted: Callable[[bytes], bool]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields (number, fields) of the lines that are `wanted` and JSON objects; what is wrong with the
        file goes to `problems`, a sentence each."""
        broken, read, name = 0, 0, self.path.name
        try:
            with open_inside(self.path, self.folder) as file:
                for number, line in enumerate(file, start=1):
                    read += len(line)
                    if read > PAGE_BYTES:
                        problems.append(f"{name} is longer than {PAGE_BYTES >> 20} MB: what comes after line "
                                        f"{number} is not on this page")
                        break
                    if len(line) > LINE_BYTES or not wanted(line):
                        broken += len(line) > LINE_BYTES
                    elif (fields := fields_of(line)) is not None:
                        yield number, fields
                    else:
                        broken += line.endswith(b"\n") and bool(line.strip())
        except OSError as error:
            self.trouble = error
        if isinstance(self.trouble, FileNotFoundError):
            problems.append(f"there is no {name}")
        elif self.trouble is not None:
            problems.append(f"{name} cannot be read: {self.trouble.strerror or self.trouble}")
        if broken:
            problems.append(f"{name}: {broken} line(s) are no JSON objects and were skipped")


@dataclass
class RunFiles:
    """A run folder's big files. Use one object for all questions about a run."""

    run: Run
    budget: Budget = field(default_factory=lambda: Budget(left=SEARCH_BYTES))
    sends: dict[tuple[int, int], tuple[Op, ...]] = field(default_factory=dict)
    dumps: dict[str, LineFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history, self.trace, self.replicas_file = (LineFile(path, self.run.folder) for path in (
            self.run.history_path, self.run.trace_path, self.run.replicas_path))

    # -- the history ----------------------------------------------------------------------------------------

    def op(self, index: int) -> Op | None:
        """The op with that index."""
        number = self.history.first_at_or_above([INDEX], index)
        op = None if number is None else op_in(self.history.line(number))
        return op if op is not None and op.index == index else None

    def invocation(self, op: Op) -> Op | None:
        """The invocation that this op completes: the last one of its process before it."""
        if op.type is Type.INVOKE:
            return op
        number = self.history.first_at_or_above([INDEX], op.index) or 0
        for at in range(number - 1, max(0, number - BACK_LINES), -1):
            line = self.history.line(at) or b""
            if b'"invoke"' in line and b"%d" % op.process in line:
                invoked = op_in(line)
                if invoked is not None and invoked.process == op.process:
                    return invoked
        return None

    def send_of(self, partition: int, value: int) -> tuple[Op, ...]:
        """The first invocation that sends the value to the partition, and its completion."""
        key, found = (partition, value), list[Op]()
        for _, line in () if key in self.sends else self.history.with_field("value", value, self.budget):
            op = op_in(line)
            if op is not None and any((s.partition, s.value) == key for s in op.sends or ()):
                found += [op] if not found or op.type is not Type.INVOKE else []
                if op.type is not Type.INVOKE:
                    break
        return self.sends.setdefault(key, tuple(found))

    @cached_property
    def nemesis(self) -> list[Op]:
        """All ops of the nemesis, in order; they are few and quickly found, so this has no budget."""
        ops = (op_in(line) for _, line in self.history.containing(OF_NEMESIS))
        return [op for op in ops if op is not None and op.process == NEMESIS]

    # -- the trace ------------------------------------------------------------------------------------------

    def event(self, number: int) -> TraceLine | None:
        """The trace's line with that number."""
        line = self.trace.line(number)
        fields = None if line is None else fields_of(line)
        return None if fields is None else TraceLine(number=number, fields=fields)

    def between(self, first_ns: int, last_ns: int, partition: int, *words: str) -> list[TraceLine]:
        """A partition's events between two times; none if not all up to the second time could be read."""
        first, found = self.trace.first_at_or_above([TIME], first_ns), list[TraceLine]()
        if first is None:
            return []
        for one in self.trace.lines(first, first + WINDOW_LINES):
            time = TIME.search(one[1])
            if time is not None and int(time[1]) > last_ns:
                return found
            found += matching(one, partition, words)
        return found if first + WINDOW_LINES > len(self.trace.begins) else []

    def before(self, line: TraceLine, partition: int, *words: str) -> list[TraceLine]:
        """All of a partition's events before a line; none if these are too many lines."""
        earlier = self.trace.lines(1, line.number) if line.number <= WINDOW_LINES else ()
        return [match for each in earlier for match in matching(each, partition, words)]

    def after(self, first: int, partition: int | None, word: str) -> Iterator[TraceLine]:
        """Yields the events of this name (of a partition; None: of any) from a line on, within the budget."""
        for one in self.trace.with_field("event", word, self.budget, first):
            yield from matching(one, partition, (word,))

    def changes(self, first_ns: int, last_ns: int | None, partition: int | None) -> list[TraceLine]:
        """Truncations, elections, new leaders and ISR changes of a partition (None: of any) between two times
        (None: to the end), in order. ISR changes are the controller's; a new leader's line has its LEO. Of
        very many the first."""
        first = self.trace.first_at_or_above([TIME], first_ns)
        found: list[TraceLine] = []
        for word in CHANGES if first is not None else ():
            for line in self.after(first or 1, partition, word):
                time = line.whole_number("time")
                if time is None or (last_ns is not None and time > last_ns) or len(found) == MANY:
                    break  # the lines are in the order of time
                if word != "isr" or "leo" not in line.fields:
                    found.append(line)
        return sorted(found, key=lambda one: one.number)

    # -- the logs -------------------------------------------------------------------------------------------

    def readable(self, node: str) -> bool:
        """Whether there is a dump of the node's final log."""
        return is_safe_name(node) and any(
            self.run.has(self.run.logs_folder / f"{node}{suffix}") for suffix in (".jsonl", ".parquet"))

    def dump(self, node: str) -> LineFile:
        """The final dump as lines."""
        return self.dumps.setdefault(node, LineFile(self.run.logs_folder / f"{node}.jsonl", self.run.folder))

    def record(self, node: str, partition: int, offset: int, *, expected: bool = True) -> Record | None:
        """The final log's entry at the offset. expected: search also a dump that is not in order."""
        place = node, partition, range(offset, offset + 1)
        with suppress(FloodmarkError):
            found = self.entries(*place) or (self.entries(*place, everywhere=True) if expected else ())
            return next((record_of(row, where) for where, row in found), None)
        return None

    def entries(
        self, node: str, partition: int, wanted: range, *, everywhere: bool = False
    ) -> list[tuple[str, Line]]:
        """The entries of a node's final log at these offsets, each with its place: `logs/n1.jsonl:4`.
        everywhere: also those of a dump that is not in order. FloodmarkError if no dump can be read."""
        if not is_safe_name(node):
            raise FloodmarkError(f"no file can be named for the replica {node[:60]!a}")
        folder, dump = self.run.logs_folder, self.dump(node)
        parquet = folder / f"{node}.parquet"
        if is_named(parquet) and not is_named(dump.path):
            from pyarrow import ArrowInvalid
            from pyarrow.parquet import read_table

            try:
                with self.run.open(parquet) as file:
                    rows = read_table(file, filters=[("offset", "in", set(wanted))]).to_pylist()
            except (OSError, ArrowInvalid) as error:
                raise FloodmarkError(f"cannot read {parquet}: {error}") from error
            return [(f"{folder.name}/{node}.parquet", escaped_data(row)) for row in rows
                    if row.get("partition") == partition]
        first = dump.first_at_or_above([PARTITION, OFFSET], partition, wanted.start)
        if isinstance(dump.trouble, FileNotFoundError):
            raise FloodmarkError(f"{dump.path} is missing")
        if dump.trouble is not None:
            raise FloodmarkError(f"cannot read {dump.path}: {dump.trouble.strerror}")
        any_of = re.compile(rb'"offset": ?(?:%b)\b' % b"|".join(b"%d" % each for each in wanted))
        found = dict[int, Line]()
        for in_order, lines in ((True, dump.lines(len(dump.begins) + 1 if first is None else first)),
                                (False, dump.containing(any_of, self.budget) if everywhere else ())):
            for number, line in lines:
                row = fields_of(line)
                if row is not None and row.get("partition") == partition and row.get("offset") in wanted:
                    found[number] = row
                elif row is not None and in_order:
                    break
        return [(f"{folder.name}/{node}.jsonl:{number}", found[number]) for number in sorted(found)]

    @cached_property
    def replicas(self) -> Mapping[tuple[str, int], Json]:
        """The rows of replicas.jsonl by node and partition: what each replica believed at the end."""
        lines = self.replicas_file.lines() if len(self.replicas_file.data) <= ROWS_BYTES else ()
        rows = (fields_of(line) for _, line in lines)
        return {(str(row.get("node")), row["partition"]): row
                for row in rows if row is not None and type(row.get("partition")) is int}


def op_in(line: bytes | None) -> Op | None:
    try:
        return None if line is None else escaped_op(line, history.decode_op(line))
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
    return fields if is_plain(line) else escaped_data(fields)


def matching(one: Numbered, partition: int | None, words: Collection[str]) -> list[TraceLine]:
    """The line, if it is one of these events, and of the partition (None: of any)."""
    number, line = one
    if not any(b'"%b"' % word.encode() in line for word in words):
        return []
    fields = fields_of(line)
    if fields is None or fields.get("event") not in words or partition not in (None, fields.get("partition")):
        return []
    return [TraceLine(number=number, fields=fields)]


def record_of(row: Json, place: str) -> Record:
    numbers = {name: row[name] for name in ("epoch", "value", "crc") if type(row.get(name)) is int}
    flaws = [flaw for flaw, is_so in (("its bytes do not fit their CRC", row.get("crc_ok") is False),
                                      ("aborted", row.get("aborted") is True)) if is_so]
    return Record(epoch=numbers.get("epoch"), value=numbers.get("value"), crc=numbers.get("crc"),
                  flaw=", ".join(flaws) or None, place=place)


# -- run.json and verdict.json ------------------------------------------------------------------------------

LEFT_OF_SHRUNK = "only run.json, the verdict and the measures are left: this verdict is the campaign's"


def read_about(run: Run) -> Mapping[str, Any]:
    """run.json; FloodmarkError if the keys that reports show have the wrong type."""
    about = escaped_data(run.about())
    for name in ("partitions", "guarantees", "settle", "leaders", "final_reads", "config"):
        if not isinstance(about.get(name) or {}, dict):
            raise FloodmarkError(f"{run.about_path}: `{name}` is no object")
    return about


def read_verdict(run: RunAt[P]) -> Mapping[str, Any]:
    """The saved verdict; FloodmarkError if there is none, or it cannot be read."""
    judge = command_line("check", run.folder)
    try:
        verdict = orjson.loads(run.read(run.verdict_path, at_most=VERDICT_BYTES_AT_MOST))
    except FileNotFoundError as error:
        raise FloodmarkError(f"{run.folder} was not judged yet: {judge}") from error
    except (OSError, orjson.JSONDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else error
        raise FloodmarkError(f"cannot read {run.verdict_path}: {why}; judge again: {judge}") from error
    if not is_verdict(verdict):
        raise FloodmarkError(f"{run.verdict_path} is no verdict of format {FORMAT}; judge again: {judge}")
    return escaped_data({**verdict, "findings": [
        {**found, "examples": [with_blame_apart(example) for example in found.get("examples") or ()]}
        for found in verdict["findings"]]})


def kept_verdict(run: RunAt[P]) -> Mapping[str, Any] | None:
    """The verdict of a run that a campaign has shrunk, which none can judge again; None for other runs."""
    try:
        return read_verdict(run) if run.about().get(SHRUNK) is True else None
    except FloodmarkError:
        return None


def is_verdict(value: Any) -> bool:
    """Whether the value has the keys of a verdict that reports show."""
    if not isinstance(value, dict) or value.get("format") != FORMAT or "valid" not in value:
        return False
    findings, unknown, not_made = value.get("findings"), value.get("unknown", []), value.get("not_made", [])
    return (isinstance(findings, list) and isinstance(unknown, list) and isinstance(not_made, list)
            and isinstance(value.get("counts") or {}, dict)
            and all(isinstance(found, dict) and is_group(found) for found in findings)
            and all(isinstance(entry, dict) and {"names", "reason"} <= entry.keys()
                    and are_texts(entry["names"]) for entry in (*unknown, *not_made)))


def is_group(found: Mapping[str, Any]) -> bool:
    """Whether the value is a group of findings: an entry of `findings`."""
    examples = found.get("examples") or []
    return ({"name", "class", "permitted_by", "count"} <= found.keys()
            and isinstance(found["name"], str) and NAME.fullmatch(found["name"]) is not None
            and isinstance(found["class"], str) and isinstance(found["permitted_by"], str | None)
            and type(found["count"]) is int and isinstance(examples, list)
            and all(isinstance(example, dict) and isinstance(example.get("ops") or [], list)
                    and are_texts(example.get("nodes") or []) for example in examples)
            and all(isinstance(blame, dict) and isinstance(blame.get("text"), str)
                    and isinstance(blame.get("known"), bool)
                    and isinstance(shown_by := blame.get("shown_by", {"node": "", "seq": 0}), dict)
                    and {"node", "seq"} <= shown_by.keys()
                    for example in examples if (blame := example.get("blame")) is not None))


def are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


# -- bad lines, and the ends of brokers ---------------------------------------------------------------------

MOST_LINES = 5  # named of one file
SCAN_LINES = 100_000  # lines read from the first bad one on
_COMPLAINT = re.compile(r"^(history\.jsonl|logs/[^/]+\.jsonl):(\d{1,18}): (\d{1,18}) lines? ")
_ENTRY = {"partition": int, "offset": int, "epoch": int, "crc": int}


def bad_lines(run: RunAt[Place], verdict: Json) -> Iterator[str]:
    """Yields `FILE:LINE: what is wrong`, the first few of each file that the verdict complains about."""
    for entry in verdict.get("unknown") or ():
        if (complaint := _COMPLAINT.match(str(entry["reason"]))) is not None:
            name, first, count = complaint[1], int(complaint[2]), int(complaint[3])
            wrong = flaw_of_op if name == "history.jsonl" else flaw_of_log_entry
            with suppress(OSError), run.open(run.folder / name) as file:
                found = islice(enumerate(file, 1), first - 1, first - 1 + SCAN_LINES)
                flaws = ((number, wrong(line)) for number, line in found if not line.isspace())
                bad = (f"{name}:{number}: {flaw}" for number, flaw in flaws if flaw is not None)
                yield from islice(bad, min(MOST_LINES, count))


def flaw_of_op(line: bytes) -> str | None:
    """What is wrong with a line of the history; None: nothing, or it is a torn last line."""
    try:
        history.decode_op(line)
    except ValueError as error:
        return str(error) if line.endswith(b"\n") else None
    return None


def flaw_of_log_entry(line: bytes) -> str | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error}"
    if not isinstance(row, dict):
        return "not a JSON object"
    for name, kind in _ENTRY.items():
        if type(row.get(name)) is not kind:
            return f"{name} is {'missing' if row.get(name) is None else f'{row[name]!r}, not an integer'}"
    value = row.get("value")
    return None if value is None or type(value) is int else f"value is {value!r}, not an integer"


TAIL_BYTES = 2000
LINES = 3


def died_unquoted(run: RunAt[P], about: Json, verdict: Json) -> Iterator[str]:
    """Yields a sentence for each node that died, unless a finding broker-died quotes its lines."""
    found = any(found["name"] == BROKER_DIED for found in verdict.get("findings") or ())
    for node in (escape_controls(str(node)) for node in items(about, "died")):
        saved = [line.strip() for line in saved_log_lines(about, node)]
        shown = saved if len(saved) <= LINES + 1 else [saved[0], "...", *saved[-LINES:]]
        if not (found and saved):
            yield f"{node} ended by itself; its last words: {' | '.join(shown) or log_tail(run, node)}"


def saved_log_lines(about: Json, node: str) -> list[str]:
    """What run.json has of the node's end: how it ended, then the end of its log. Empty: nothing."""
    words = text(mapping(about, "died_words"), node)
    return [line.rstrip() for line in words.splitlines() if line.strip()]


def log_tail(run: RunAt[P], node: str) -> str:
    """The last lines of the node's log, and the log."""
    if not is_safe_name(node):
        return "none (no broker has such a name)"
    log = run.work_folder / f"{node}.log"
    try:
        with run.open(log) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return f"none ({log} is not there)"
    except OSError as error:
        return f"none ({log} cannot be read: {error.strerror or error})"
    return escape_controls(f"{' | '.join(line.strip() for line in lines[-LINES:]) or 'none'} ({log})")
