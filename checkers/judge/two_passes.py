"""Judges runs that are too big for one task: parses by ranges, judges by units of partitions, on all cores.

First pass: a task parses a range of a file. One shuffle sends the results to where they are needed: facts to
the driver, rows, packed as pieces (pieces.py), to tasks. Checks across partitions need the data distributed
by hash: lines by their process, to pair invocations with completions; values, which must be unique in the
run; and the seqs of a trace that is not in order. Then the driver knows what may be claimed, and broadcasts
it.

Second pass: a task judges a unit, which is some partitions of one run; the number of a run's units follows
from its bytes. For runs with transactions it also returns the dependencies between ops, and other tasks the
ops; those of a run go to one task, which looks for cycles.

The shuffle's partitions, and so the tasks that read it: first the driver's, then those for the checks across
partitions, then one for each unit. Spark keeps the shuffle on disk, so it can be read several times.
"""

import ctypes
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, Broadcast, SparkContext

from floodmark.checkers.judge.examples import worst
from floodmark.checkers.judge.failures import Failure, failure_of, of_one_run
from floodmark.checkers.judge.far_files import far_ranges
from floodmark.checkers.judge.pieces import EVERY, Piece, by_unit, dealt, joined
from floodmark.checkers.judge.preconditions import preconditions_of_run
from floodmark.checkers.judge.run_tables import tables_of_partitions, tables_of_runs
from floodmark.checkers.judge.runs import Run, for_units, part_of, read_lines_instead, run_of
from floodmark.checkers.judge.whole_runs import Judged, RunWork
from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.cycles import ops, unsearched
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.tables import SENT_ON
from floodmark.checkers.laws.transactions import dependencies, of_the_run, ops_sent_on, sent_on, transactions
from floodmark.checkers.laws.unit import Family, Unit, opened, run_families
from floodmark.checkers.read.arrays import concatenated
from floodmark.checkers.read.columns import Ints
from floodmark.checkers.read.folder import Special
from floodmark.checkers.read.pairing import answers, pairing
from floodmark.checkers.read.ranges import Range
from floodmark.checkers.read.repeats import repeats
from floodmark.checkers.read.replica_rows import REPLICA_ROWS, for_driver
from floodmark.checkers.read.seqs import SEQS, seq_facts
from floodmark.checkers.read.tables import read_range
from floodmark.checkers.spark.settings import own_cores, own_memory_mb
from floodmark.harness.verdict import Verdict

_LOG = logging.getLogger("floodmark.judge")

UNIT_BYTES = 160 << 20  # of files
ACROSS_BYTES = 384 << 20  # of files: with 460 MB the lines and values of a task took 0.3 GB
MEMORY_SHARE = 0.6  # of the machine's memory, for the databases of all its tasks together
# The most for one unit's database. A unit of 920 MB of files, 13 million rows, took 2.4 GB as Arrow tables,
# 1.5 GB in the database; with a limit of 600 MB it took a seventh more CPU time. A unit of 390 MB with
# transactions, 5.7 million rows, took 14 CPU seconds in the database and 10 as Arrow tables.
MOST_MEMORY_MB = 1280
ROW_BYTES = 190  # what a row of a unit took as an Arrow table while the laws ran
# Rows that are put into the database at once. A piece has some 30,000: inserting each piece alone took two
# milliseconds more, and DuckDB compressed some of them twice and some not at all.
BATCH_ROWS = 4 * 122_880
LINES, VALUES = "lines", "values"
# tables that are distributed by the hash of a column, as VALUES are
DEALT_BY = {LINES: "process", SEQS: "block"}
DRIVER = 0  # the partition of the shuffle for the driver
# A task returns pairs of a kind and a value: facts of a range, of processes, of values; a Piece; findings;
# names of checks and a reason; a run and its failure (that run is then unknown, and its neighbours are
# judged).
FACTS, PIECE, FOUND, REASON, FAILED = "facts", "piece", "found", "reason", "failed"
Given = tuple[str, Any]
Sent = tuple[int, Given]  # with the partition of the shuffle it goes to
PARTITION_FAMILIES: Sequence[Family] = tuple(
    dependencies if family is transactions else family for family in FAMILIES
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is in each partition of the shuffle: DRIVER, `across` ones by hash, and one for each unit."""

    across: int
    units: tuple[tuple[int, int], ...]  # unit -> run, and its number in the run
    first: Mapping[int, int]  # run -> its first unit; the others follow
    count: Mapping[int, int]  # run -> how many

    @staticmethod
    def of(works: Sequence[RunWork], cores: int) -> "Layout":
        """As many units as the bytes of a run require, work for all cores, and never more than partitions. It
        uses the bytes because the first pass, which could count rows, already cuts its pieces by unit."""
        least = -(-cores // max(1, len(works)))
        count = {
            work.run: max(1, min(len(work.folder.partitions), max(least, -(-work.size // UNIT_BYTES))))
            for work in works
        }
        units = tuple((run, number) for run, units in count.items() for number in range(units))
        return Layout(
            across=max(cores, sum(work.size for work in works) // ACROSS_BYTES),
            units=units,
            first={run: units.index((run, 0)) for run in count},
            count=count,
        )

    @property
    def size(self) -> int:
        return 1 + self.across + len(self.units)

    @property
    def of_units(self) -> range:
        return range(1 + self.across, self.size)

    def needing(self, run: int, number: int) -> range:
        """The shuffle's partitions of this unit of a run; EVERY: of all its units."""
        first = 1 + self.across + self.first[run]
        return (
            range(first, first + self.count[run])
            if number == EVERY
            else range(first + number, first + number + 1)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the tasks of the second pass receive."""

    layout: Layout
    runs: Mapping[int, Run]  # the runs to judge, as much of them as units need (runs.for_units)
    transactional: tuple[int, ...]  # those with transactions; their cycles are searched in this order
    of_driver: Mapping[str, pa.Table]  # the tables without partitions, of all runs
    memory_mb: int | None = None  # of a unit's database, if it is configured

    def tables_of(self, unit: int, rows: pa.Table | None) -> dict[str, pa.Table]:
        """The driver's tables about the unit's run and its partitions. rows: of replicas.jsonl, all of
        these."""
        run, number = self.layout.units[unit]
        keys = self.runs[run].folder.partitions.keys_there
        part = part_of(self.runs[run], keys % self.layout.count[run] == number, rows)
        return {**self.rows_of_run(run), **tables_of_partitions({run: part})}

    def rows_of_run(self, run: int, *names: str) -> dict[str, pa.Table]:
        """These tables of the driver, about this run."""
        of_driver = {name: self.of_driver[name] for name in names or self.of_driver}
        return {name: table.filter(pc.equal(table["run"], run)) for name, table in of_driver.items()}


@dataclass(slots=True, kw_only=True)
class Notes:
    """What the driver has received so far."""

    judged: dict[int, Judged]
    facts: list[Any] = field(default_factory=list)
    repeated: list[Piece] = field(default_factory=list)
    rows: list[Piece] = field(default_factory=list)  # REPLICA_ROWS, as much of them as the driver needs

    def good(self, works: Iterable[RunWork]) -> dict[int, RunWork]:
        """The runs without a failure so far."""
        return {work.run: work for work in works if self.judged[work.run].failure is None}

    def hear(self, given: Iterable[Given]) -> None:
        for kind, value in given:
            if kind == FACTS:
                self.facts.append(value)
            elif kind == PIECE:
                (self.rows if value.table == REPLICA_ROWS else self.repeated).append(value)
            elif kind == FOUND:
                self.judged[value[0]].rows.append(value[1])
            elif kind == REASON:
                self.judged[value[0]].reasons.append(value[1])
            elif kind == FAILED:
                self.judged[value[0]].failure = self.judged[value[0]].failure or value[1]

    def verdicts(self) -> dict[int, Verdict | Failure]:
        return {number: judged.verdict() for number, judged in self.judged.items()}


# -- at the driver ------------------------------------------------------------------------------------------


def judged_in_pieces(
    spark: SparkContext, works: Sequence[RunWork], memory_mb: int | None = None
) -> dict[int, Verdict | Failure]:
    """The verdict on each of these runs, by its position in the call. memory_mb: of a unit's database; None:
    as much as the worker's machine has for it. It raises if a task did not come back."""
    notes = Notes(judged={work.run: Judged(number=work.run) for work in works})
    near = [(one, None) for work in works if not work.far for one in work.ranges]
    far = [work for work in works if work.far]
    special = {work.run: work.folder.special for work in works}
    asked = {work.run: work.folder.partitions.keys_there[work.folder.partitions.asks_isr] for work in works}
    layout = Layout.of(works, spark.defaultParallelism)
    _LOG.info("reading %d MB, by ranges", sum(work.size for work in works) >> 20)
    cut_up: RDD[tuple[Range, bytes | None]] = spark.parallelize(near, max(1, len(near)))
    if far:
        cut_up = cut_up.union(far_ranges(spark, far))
    shuffled = cut_up.mapPartitions(partial(parsed, layout, special, asked)).partitionBy(layout.size, int)
    notes.hear(spark.runJob(shuffled, across_partitions, range(1 + layout.across)))
    made = {run: of_one_run(partial(derived, work, notes.facts, notes.rows))
            for run, work in notes.good(works).items()}  # fmt: skip
    if None in made.values():
        return judged_in_pieces(spark, [RunWork.of(work.run, work.folder) for work in works], memory_mb)
    for run, one in made.items():
        if isinstance(one, Failure):
            notes.judged[run].failure = one
        elif one is not None:
            notes.judged[run].run = one.run
    known = [one for one in made.values() if isinstance(one, Derived)]
    if not known:
        return notes.verdicts()
    plan = Plan(
        layout=layout,
        runs={run: one.for_units for run, one in made.items() if isinstance(one, Derived)},
        transactional=tuple(
            run for run, judged in notes.judged.items() if judged.run and judged.run.preconditions.txns
        ),
        of_driver=concatenated([*(one.tables for one in known), joined(notes.repeated)]),
        memory_mb=memory_mb,
    )
    _LOG.info("running the laws on %d units of partitions", len(layout.units))
    shared_plan = spark.broadcast(plan)
    second = shuffled.mapPartitionsWithIndex(partial(judge_unit, shared_plan))
    if plan.transactional:
        _LOG.info("looking for cycles as well, in each run of transactions")
        of_runs = second.partitionBy(1 + len(plan.transactional), int)
        notes.hear(of_runs.mapPartitions(partial(judge_run, shared_plan)).collect())
    else:
        notes.hear(given for _, given in spark.runJob(second, list, layout.of_units))
    return notes.verdicts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """What follows from the first pass of one run."""

    run: Run
    for_units: Run
    tables: Mapping[str, pa.Table]


def derived(work: RunWork, facts: Sequence[Any], rows: Sequence[Piece]) -> Derived | None:
    """None: the JSON lines of some dump must be read instead of its Parquet."""
    seen = preconditions_of_run(work.run, [one for one in facts if one.run == work.run])
    if read_lines_instead(work.folder, seen.flaws):
        return None
    mine = joined(one for one in rows if one.run == work.run)
    run = run_of(work.folder, seen, mine.get(REPLICA_ROWS))
    return Derived(run=run, for_units=for_units(run), tables=tables_of_runs({work.run: run}))


# -- in a worker, first pass --------------------------------------------------------------------------------


def parsed(
    layout: Layout,
    special: Mapping[int, Special],
    asked: Mapping[int, Ints],
    ranges: Iterable[tuple[Range, bytes | None]],
) -> Iterator[Sent]:
    """Facts and pieces of each range; asked: run -> partitions whose leader the driver must find in the
    replicas. A range of a file that only Spark can read comes with its bytes."""
    for one, data in ranges:
        try:
            read = read_range(one, special[one.run], data)
            yield DRIVER, (FACTS, read.facts)
            for name, table in read.tables.items():
                if name in DEALT_BY:
                    yield from sent_across(layout, one.run, name, dealt(table, DEALT_BY[name], layout.across))
                else:
                    yield from sent_to_units(layout, one.run, name, table)
            if REPLICA_ROWS in read.tables:
                known = for_driver(read.tables[REPLICA_ROWS], asked[one.run])
                yield DRIVER, (PIECE, Piece.of(one.run, REPLICA_ROWS, known))
            if "sends" in read.tables:
                values = read.tables["sends"].select(["run", "value", "index", "type"])
                yield from sent_across(layout, one.run, VALUES, dealt(values, "value", layout.across))
        except Exception as error:
            yield DRIVER, (FAILED, (one.run, failure_of(error)))


def sent_across(layout: Layout, run: int, name: str, parts: Iterable[tuple[int, pa.Table]]) -> Iterator[Sent]:
    for deal, part in parts:
        yield 1 + deal, (PIECE, Piece.of(run, name, part))


def sent_to_units(layout: Layout, run: int, name: str, table: pa.Table) -> Iterator[Sent]:
    for number, part in by_unit(table, layout.count[run]):
        piece = Piece.of(run, name, part)
        yield from ((target, (PIECE, piece)) for target in layout.needing(run, number))


def across_partitions(sent: Iterable[Sent]) -> Iterator[Given]:
    """Send the driver the facts of ranges; what is wrong in the processes of a run, and with its values,
    which must be unique; and the seqs of a trace that is not in order."""
    of_runs: dict[int, list[Piece]] = {}
    for _, given in sent:
        if given[0] == PIECE and given[1].table != REPLICA_ROWS:
            of_runs.setdefault(given[1].run, []).append(given[1])
        else:
            yield given
    for run, mine in of_runs.items():
        try:
            tables = joined(mine)
            if LINES in tables:
                yield from ((FACTS, facts) for facts in pairing(tables[LINES]))
            if VALUES in tables:
                repeated, facts = repeats(tables[VALUES])
                yield from ((FACTS, one) for one in facts)
                if repeated.num_rows:
                    yield PIECE, Piece.of(run, "repeated", repeated)
            if SEQS in tables:
                yield from ((FACTS, one) for one in seq_facts(tables[SEQS]))
        except Exception as error:
            yield FAILED, (run, failure_of(error))


# -- in a worker, second pass -------------------------------------------------------------------------------


def judge_unit(shared_plan: Broadcast[Plan], index: int, sent: Iterable[Sent]) -> Iterator[Sent]:
    """Yield what all laws find in one unit, and the dependencies between its ops if the run has transactions.
    From the shuffle's other partitions, which have the lines of complete processes, it sends on the ops of
    such runs."""
    plan = shared_plan.value
    pieces = (given[1] for _, given in sent if given[0] == PIECE)
    if index not in plan.layout.of_units:
        yield from ops_of_processes(plan, pieces)
        return
    unit = index - plan.layout.of_units.start
    run = plan.layout.units[unit][0]
    try:
        if run not in plan.runs:
            return
        with database(partial(plan.tables_of, unit), pieces, plan.memory_mb) as db:
            run_families(db, PARTITION_FAMILIES)
            yield DRIVER, (FOUND, (run, worst(db)))
            if run in plan.transactional:
                for name, table in sent_on(db).items():
                    yield 1 + plan.transactional.index(run), (PIECE, Piece.of(run, name, table))
    except Exception as error:
        yield DRIVER, (FAILED, (run, failure_of(error)))


def ops_of_processes(plan: Plan, pieces: Iterable[Piece]) -> Iterator[Sent]:
    """Yield the ops of these processes, for the task that looks for cycles in their run."""
    of_runs: dict[int, list[Piece]] = {}
    for piece in pieces:
        if piece.table == LINES and piece.run in plan.transactional:
            of_runs.setdefault(piece.run, []).append(piece)
    for run, mine in of_runs.items():
        try:
            lines = joined(mine)[LINES]
            tables = {LINES: lines, "answers": answers(lines), **plan.rows_of_run(run, "runs", "processes")}
            with database(partial(_these, tables), (), plan.memory_mb) as db:
                ops(db)
                for name, table in ops_sent_on(db).items():
                    yield 1 + plan.transactional.index(run), (PIECE, Piece.of(run, name, table))
        except Exception as error:
            yield DRIVER, (FAILED, (run, failure_of(error)))


def _these(tables: Mapping[str, pa.Table], _: pa.Table | None) -> Mapping[str, pa.Table]:
    return tables


@contextmanager
def database(
    tables: Callable[[pa.Table | None], Mapping[str, pa.Table]],
    pieces: Iterable[Piece],
    memory_mb: int | None = None,
) -> Iterator[Unit]:
    """A unit made of these pieces, and of `tables`, which are made from its rows of replicas.jsonl. It gets
    memory_mb, or else its share of the machine's memory. Where its rows would take more than that, they are
    put into tables of the database batch by batch: compressed, and if necessary on disk, in its own scratch
    folder."""
    free_memory()
    memory_mb = memory_mb or memory_of_unit_mb()
    few: list[Piece] = []
    replicas: list[Piece] = []
    pieces = separate_table(pieces, REPLICA_ROWS, replicas)
    most_rows = (memory_mb << 20) // ROW_BYTES
    for piece in pieces:
        few.append(piece)
        most_rows -= piece.rows
        if most_rows < 0:
            break
    read = joined(few) if most_rows >= 0 else {}
    with (
        tempfile.TemporaryDirectory(prefix="floodmark-unit-", dir=scratch()) as spill,
        opened(read, memory_mb=memory_mb, spill=Path(spill)) as unit,
    ):
        if most_rows < 0:
            for name, rows in batches(chain(drain(few), pieces)):
                unit.append(name, rows)
        few.clear()
        for name, table in tables(joined(replicas).get(REPLICA_ROWS)).items():
            unit.load(name, table)
        yield unit


def separate_table(pieces: Iterable[Piece], table: str, those: list[Piece]) -> Iterator[Piece]:
    """Yield the pieces except those of this table, which are appended to the list."""
    for piece in pieces:
        if piece.table == table:
            those.append(piece)
        else:
            yield piece


def drain(few: list[Piece]) -> Iterator[Piece]:
    """Yield each of these and remove it from the list, so that its memory can be freed."""
    few.reverse()
    while few:
        yield few.pop()


def batches(pieces: Iterable[Piece]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of these pieces with the name of their table, many at a time; few rows of a small table,
    last."""
    waiting: dict[str, list[Piece]] = {}
    for piece in pieces:
        mine = waiting.setdefault(piece.table, [])
        mine.append(piece)
        if sum(one.rows for one in mine) >= BATCH_ROWS:
            yield from joined(waiting.pop(piece.table)).items()
    for left in waiting.values():
        yield from joined(left).items()


def free_memory() -> None:
    """Free the memory that this worker used for earlier ranges and units, for it and its neighbours."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def scratch() -> str | None:
    """A folder of Spark's, which Spark deletes however this worker ends; None outside of a worker."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def memory_of_unit_mb() -> int:
    return min(MOST_MEMORY_MB, int(own_memory_mb() * MEMORY_SHARE / own_cores()))


def judge_run(shared_plan: Broadcast[Plan], sent: Iterable[Sent]) -> Iterator[Given]:
    """Find the cycles in one run; pass on what units sent to the driver."""
    pieces: list[Piece] = []
    for _, given in sent:
        if given[0] == PIECE:
            pieces.append(given[1])
        else:
            yield given
    if not pieces:
        return
    plan, run = shared_plan.value, pieces[0].run
    try:
        tables = joined(pieces) | plan.rows_of_run(run, "runs")
        with database(partial(_these, tables), (), plan.memory_mb) as db:
            for name, schema in SENT_ON.items():
                db.load(name, tables.get(name, schema.empty_table()))
            run_families(db, (of_the_run,))
            yield FOUND, (run, worst(db))
            yield from ((REASON, (of, (finding_names.CYCLES, words))) for of, words in unsearched(db))
    except Exception as error:
        yield FAILED, (run, failure_of(error))
