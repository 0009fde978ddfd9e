"""Whatever is wrong with a run, the work of the laws, and of reading, grows linearly with its records.

Work is counted, not timed: rows that DuckDB's operators pass on, by statement (a join that compares each
row with each costs their product, whatever it lets through), and lines of Python that run, by family. Each
shape is a run like a real one (real_like) with one change to all of its lines, so the change is there once
for each record; the findings do not matter here. Several shapes are judged in one unit: quadratic growth of
one shows in the sum, for the others grow linearly.
"""

import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import here
import pyarrow as pa
import pytest
import real_like
from folders import NODES, Line, RunFolder

from floodmark import checkers
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.read.folder import open_folder
from floodmark.checkers.read.ranges import Range
from floodmark.checkers.read.tables import read_bytes

FEW, MANY = 60, 240  # ops of each run
TIMES, FLOOR = 1.4 * MANY / FEW, 40 * MANY  # work below the floor does not count
UNITS = 2
PARTITIONS = 2  # few: growth with the square of a partition's records must be seen
FAULTS = 4  # however many records there are
ONE_PROCESS = 0  # that moves, and asks for ends
Shape = Callable[[RunFolder], None]
Lines = Callable[[RunFolder], Iterable[Line]]
EACH_WITH_EACH = ("NESTED_LOOP_JOIN", "BLOCKWISE_NL_JOIN", "CROSS_PRODUCT")
HOME = str(Path(checkers.__file__).parent)


# -- shapes -------------------------------------------------------------------------------------------------

def tables(*names: str, ops: int, root: Path) -> dict[str, pa.Table]:
    """The tables of one unit with a run of each of these shapes; the runs are written into root."""
    return here.tables_of([open_folder(write_run(name, ops, root / name)) for name in names])


def write_run(name: str, ops: int, root: Path) -> Path:
    """Writes a run of this shape into the folder root; returns its own folder."""
    made = real_like.write(root / "made", ops=ops, partitions=PARTITIONS, trace=True, faults=FAULTS)
    run = RunFolder.read(made)
    for line in run.trace or ():
        del line["time"]
    SHAPES[name](run)
    number(run)
    return run.write(root / "run")


def number(run: RunFolder) -> None:
    """Gives the lines indexes and times. A line of the trace keeps the time that a shape gave it."""
    run.run["history_lines"] = len(run.lines)
    for index, line in enumerate(run.lines):
        line |= {"index": index, "time": index * 10_000}
    seqs: dict[str, Iterator[int]] = {}
    for at, line in enumerate(run.trace or ()):
        line["seq"] = next(seqs.setdefault(line["node"], itertools.count()))
        line.setdefault("time", at * 1_000)


# -- which lines ------------------------------------------------------------------------------------------

def dumped(run: RunFolder) -> Iterable[Line]:
    return itertools.chain(*run.dumps.values())


def sends(run: RunFolder) -> Iterable[Line]:
    """All micro-sends, of invocations too."""
    return (send for line in run.lines for send in line.get("sends", ()))


def acks(run: RunFolder) -> list[Line]:
    return [send for line in completed(run, "send") for send in line["sends"]]


def reads(run: RunFolder) -> list[Line]:
    return [read for line in run.lines for read in line.get("reads", ())]


def completed(run: RunFolder, f: str) -> list[Line]:
    return [line for line in run.lines if (line["f"], line["type"]) == (f, "ok")]


def traced(run: RunFolder) -> list[Line]:
    assert run.trace is not None
    return run.trace


# -- changes ----------------------------------------------------------------------------------------------

def each(lines: Lines, **fields: object) -> Shape:
    """These fields in every one of them; what can be called is asked for the field's value."""
    def change(run: RunFolder) -> None:
        for line in lines(run):
            line |= {name: value(line) if callable(value) else value for name, value in fields.items()}

    return change


def backwards(lines: Lines, *names: str) -> Shape:
    """The values of these fields, the last one first."""
    def change(run: RunFolder) -> None:
        values = [{name: one[name] for name in names} for one in lines(run)]
        for one, other in zip(lines(run), reversed(values), strict=True):
            one |= other

    return change


def polls(changed: Callable[[list[Line]], list[list[Line]]]) -> Shape:
    """Each poll's records, dealt to so many polls of its process."""
    def change(run: RunFolder) -> None:
        lines, run.lines = run.lines, []
        for line in lines:
            run.lines.append(line)
            if line.get("reads"):
                line["reads"], *others = changed(line["reads"])
                asked = {"process": line["process"], "f": "poll", "type": "invoke"}
                run.lines += [one for reads in others for one in (asked, line | {"reads": reads})]

    return change


def without(field: str, value: str) -> Shape:
    def change(run: RunFolder) -> None:
        run.trace = [line for line in traced(run) if line.get(field) != value]

    return change


def at_each_append(make: Callable[[Line, int], list[Line]], role: str = "leader", at: int = 1) -> Shape:
    """More lines after (at 0: before) each append in this role, made of the append and its number."""
    def change(run: RunFolder) -> None:
        trace, numbers, run.trace = traced(run), itertools.count(), []
        for line in trace:
            run.trace.append(line)
            if line["event"] == "append" and line["role"] == role:
                place = len(run.trace) - 1 + at
                run.trace[place:place] = make(line, next(numbers))

    return change


def in_turn(*shapes: Shape) -> Shape:
    def change(run: RunFolder) -> None:
        for shape in shapes:
            shape(run)

    return change


def all_replicas_differ(run: RunFolder) -> None:
    for number, entries in enumerate(run.dumps.values()):
        for entry in entries:
            entry |= {"value": (entry["value"] or 0) * 10 + number, "crc": number}


def nobody_leads(run: RunFolder) -> None:
    """No partition has a leader, and there is no log."""
    run.run["leaders"] = {key: {"leader": None} for key in run.run["partitions"]}
    run.dumps = {node: [] for node in run.dumps}


def beside_each_line(*ops: Callable[[int, int], Line]) -> Shape:
    """One process makes these ops beside each line of the others, of the line's number and of how many there
    are."""
    def change(run: RunFolder) -> None:
        lines, run.lines = run.lines, []
        for at, line in enumerate(lines):
            made = [{"process": ONE_PROCESS, **op(at, len(lines))} for op in ops]
            run.lines += [line, *(one | {"type": kind} for one in made for kind in ("invoke", "ok"))]

    return change


def transactions(seen: Callable[[int], int]) -> Shape:
    """Every send becomes a transaction, which reads the record at offset `seen`(its own offset)."""
    def change(run: RunFolder) -> None:
        values = {(one["partition"], one["offset"]): one["value"] for one in acks(run)}
        for line in run.lines:
            if line["f"] == "send":
                line["f"] = "txn"
                if line["type"] == "ok":
                    places = [(one["partition"], seen(one["offset"])) for one in line["sends"]]
                    line["reads"] = [{"partition": key, "offset": offset, "value": values[key, offset]}
                                     for key, offset in places if (key, offset) in values]

    return change


def state_of(append: Line, *fields: str) -> Line:
    return {name: append[name] for name in ("node", "partition", *fields)}


def elected(append: Line, number: int, *, clean: bool) -> list[Line]:
    """An election of the leader that appends then; each has an epoch of its own."""
    word = {"partition": append["partition"], "epoch": number, "isr": NODES}
    return [{"node": "controller", "event": "elect", **word, "leader": append["node"],
             "partition_epoch": number, "clean": clean},
            {"node": append["node"], "event": "become_leader", **word, "leo": append["offset"],
             "hw": append["hw"], "start": append["offset"]}]


def in_epochs_of_elections(run: RunFolder) -> None:
    epochs: dict[int, int] = {}
    for line in traced(run):
        if line["event"] == "elect":
            epochs[line["partition"]] = line["epoch"]
        if "epoch" in line:
            line["epoch"] = epochs.get(line["partition"], 0)
        if line["event"] == "append":
            line["epochs"] = [[line["epoch"], line["offset"]]]


def an_election_a_record(*, clean: bool) -> Shape:
    made = at_each_append(lambda append, number: elected(append, number, clean=clean), at=0)
    return in_turn(without("event", "elect"), made, in_epochs_of_elections)


def isr_changes(append: Line, number: int) -> list[Line]:
    word = {"partition": append["partition"], "epoch": append["epoch"], "partition_epoch": number,
            "leader": append["node"], "isr": [append["node"]] if number % 2 else NODES}
    learnt = state_of(append, "leo", "hw") | word
    return [learnt | {"event": "isr_proposed"}, word | {"node": "controller", "event": "isr"},
            learnt | {"event": "isr"}]


SHAPES: Mapping[str, Shape] = {
    "healthy": lambda run: None,
    "polls of one record": polls(lambda reads: [[read] for read in reads]),
    # logs
    "all overwritten": each(dumped, value=None),
    "lost of the leader alone": lambda run: run.dumps[run.leader(0)].clear(),
    "all replicas differ": all_replicas_differ,
    "dumps backwards": backwards(dumped, "partition", "offset", "epoch", "value", "crc"),
    "all at one offset": each(dumped, offset=0),
    "one value everywhere": each(dumped, value=1),
    "an epoch a record": each(dumped, epoch=lambda entry: entry["offset"]),
    "nobody leads": nobody_leads,
    # sends
    "acks backwards": backwards(acks, "offset"),
    "acks at one offset": each(acks, offset=0),
    "acks without an offset": lambda run: [ack.pop("offset") for ack in acks(run)] and None,
    "sends fail": each(lambda run: completed(run, "send"), type="fail"),
    "sends unknown": each(lambda run: completed(run, "send"), type="info"),
    "sent twice": each(sends, value=lambda send: send["value"] // 2),
    "one value sent": each(sends, value=1),
    "one process": each(lambda run: run.lines, process=lambda line: min(line["process"], 0)),
    # polls
    "polls skip": polls(lambda reads: [reads[1::2]]),
    "all is read before it is sent": lambda run: run.lines.sort(key=lambda line: line["f"] == "send"),
    "polls backwards": backwards(reads, "partition", "offset", "value"),
    "polls fail": each(lambda run: completed(run, "poll"), type="fail"),
    "one record read again and again": each(reads, offset=0, value=1),
    "one value read everywhere": each(reads, value=1),
    "every value read at one offset": each(reads, offset=0),
    "ends fall": beside_each_line(lambda at, of: {
        "f": "list_offsets", "offsets": [{"partition": 0, "offset": of - at}]}),
    "consumers move": in_turn(backwards(reads, "partition", "offset", "value"), beside_each_line(
        lambda at, of: {"f": ("assign", "subscribe")[at % 3 == 0], "partitions": [0][:at % 2]})),
    # transactions
    "transactions": transactions(lambda offset: offset - 1),
    "transactions in pairs": transactions(lambda offset: offset ^ 1),
    "transactions in one ring": transactions(lambda offset: offset + 1),
    # the trace
    "clocks apart": lambda run: run.run.update(clock_error_ns=1 << 50),
    "all at once": each(traced, time=0),
    "acks before appends": lambda run: traced(run).sort(key=lambda line: line.get("role") == "follower"),
    "followers append nothing": without("role", "follower"),
    "an election a record": an_election_a_record(clean=True),
    "all lost with permission": in_turn(
        each(dumped, value=None), an_election_a_record(clean=False),
        lambda run: run.run["guarantees"].update(unclean_leader_election=True)),
    "the ISR changes with every record": at_each_append(isr_changes),
    "brokers come and go": at_each_append(lambda _, number: [{
        "node": "controller", "event": ("fence", "unfence", "register")[number % 3],
        "broker": NODES[number % 2], "broker_epoch": number, "clean": False}]),
    "followers truncate all the time": at_each_append(lambda append, _: [{
        **state_of(append, "epoch", "hw"), "event": "truncate", "from": append["leo"], "to": 0, "leo": 0,
        "cause": "diverged"}], "follower"),
    "the high watermark falls": each(
        lambda run: (line for line in traced(run) if "hw" in line), hw=lambda line: -line["hw"]),
    "nodes start again with an empty log": at_each_append(lambda append, _: [{
        **state_of(append, "epoch"), "event": "start", "clean": False, "leo": 0, "hw": 0, "log_start": 0}]),
}


# -- work ---------------------------------------------------------------------------------------------------

@dataclass(slots=True)
class Work:
    # statement, by its beginning -> rows; `lines of FAMILY` -> lines of Python
    amounts: Counter[str] = field(default_factory=Counter)
    statements: list[str] = field(default_factory=list)


class CountedUnit(Unit):
    """A unit that counts the rows its statements pass on."""

    def __init__(self, db: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table], work: Work) -> None:
        self.work = work
        super().__init__(db, tables)
        db.execute("pragma enable_profiling = 'no_output'")

    def rows(self, select: str) -> pa.Table:
        self.statements.append(select)
        self._db.execute(f"create or replace temp table counted as {select}")
        self.count(select)
        return self._db.sql("from counted").to_arrow_table()

    def _run(self, statement: str) -> None:
        super()._run(statement)
        self.count(statement)

    def count(self, statement: str) -> None:
        profile = json.loads(self._db.get_profiling_information("json"))
        operators = profile.get("operator", ())  # making a view takes none
        self.work.amounts[name_of(statement)] += sum(rows_of(one) for one in operators)


def name_of(statement: str) -> str:
    """The name of the table or of the finding that the statement makes, if any."""
    made = re.match(r"create temp table (\S+)|insert into found .*? select '(\S+)'", statement)
    return next(filter(None, made.groups())) if made else " ".join(statement.split())[:60]


def rows_of(operator: Mapping[str, Any]) -> int:
    below = operator.get("children", ())
    own = operator["intermediate_rows"]
    if operator["type"] in EACH_WITH_EACH:
        left, right = (one["intermediate_rows"] for one in below)
        own = max(own, left * right)
    return own + sum(rows_of(one) for one in below)


@contextmanager
def counted_lines(work: Work, name: str) -> Iterator[None]:
    """A context that counts the lines of the judge's modules that run in it."""

    def inside(frame: FrameType, event: str, arg: object) -> Any:
        work.amounts[name] += event == "line"
        return inside

    def called(frame: FrameType, event: str, arg: object) -> Any:
        return inside if frame.f_code.co_filename.startswith(HOME) else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)


def work_of(tables: Mapping[str, pa.Table]) -> Work:
    work = Work()
    with duckdb.connect(config={"threads": 1}) as db:
        unit = CountedUnit(db, tables, work)
        for family in FAMILIES:
            with counted_lines(work, f"lines of {family.__name__}"):
                family(unit)
        work.statements = unit.statements
    return work


# -- the law ------------------------------------------------------------------------------------------------

def grown(few: Work, many: Work, floor: int) -> dict[str, tuple[int, int]]:
    """What grows more than linearly."""
    return {name: (few.amounts[name], size) for name, size in many.amounts.items()
            if size > floor and size > TIMES * max(few.amounts[name], 1)}


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The statements executed for a healthy run."""
    return work_of(tables("healthy", ops=FEW, root=tmp_path_factory.mktemp("healthy"))).statements


@pytest.mark.parametrize("names", [tuple(SHAPES)[number::UNITS] for number in range(UNITS)],
                         ids=lambda names: f"{names[0]} and {len(names) - 1} more")
def test_the_work_grows_with_the_records(
        names: tuple[str, ...], statements: list[str], tmp_path: Path) -> None:
    """No statement is repeated because something was found; those of a healthy run are executed in their
    order."""
    few, many = (work_of(tables(*names, ops=ops, root=tmp_path / str(ops))) for ops in (FEW, MANY))

    assert grown(few, many, FLOOR) == {}
    assert few.statements == many.statements
    others = iter(many.statements)
    assert all(statement in others for statement in statements)


@pytest.mark.parametrize("line", [
    b"nonsense", b'{"index":1.5}', b'{"index":"x"}', b'{"time":1,"node":"n%d","seq":0,"event":"checkpoint"}'])
def test_reading_grows_with_the_lines(line: bytes) -> None:
    """All of them broken, or each of another node."""
    works = []
    for ops in (FEW, MANY):
        works.append(Work())
        one = Range(run=0, kind="trace", node=None, place=Path("x"), start=0, end=0, number=0)
        with counted_lines(works[-1], "lines"):
            read_bytes(one, b"".join((line % at if b"%d" in line else line) + b"\n" for at in range(ops)))
    assert grown(*works, floor=0) == {}
