"""Judges runs in two passes: parses by ranges, judges by units of partitions. Every function from `parsed` on
is the work of a task.

    ranges of files -> parsed -> shuffled -> across_partitions -> facts of the driver: Plan
                                 shuffled -> judge_part, with the Plan -> Found -> verdicts

A bag of small runs takes these steps on lists, within one task, and is one unit: for a few megabytes a second
task would cost more than it saves. Of a bigger run, Spark gives each range and each unit to a task; between
them is one shuffle, which Spark keeps on disk, so that it can be read twice.

The first pass sends the driver facts, from which follows what may be claimed and what is permitted. In the
second pass every law runs on every record. Where a run with transactions has several units, these find the
dependencies between ops, other tasks the ops, and one task of the run looks for cycles.

A run on which a stage raises is unknown, with that failure, and its neighbours are judged.
"""

import ctypes
import logging
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, Broadcast, SparkContext

from floodmark.checkers.judge.examples import Row, worst
from floodmark.checkers.judge.failures import Failure, failure_of, of_one_run
from floodmark.checkers.judge.far_files import far_ranges
from floodmark.checkers.judge.layout import BY_HASH_OF, KNOWN_REPLICAS, LINES, VALUES, Layout, RunWork
from floodmark.checkers.judge.pieces import Piece, joined
from floodmark.checkers.judge.preconditions import preconditions_of
from floodmark.checkers.judge.run_tables import FACTS, facts_of, make_tables, tables_from
from floodmark.checkers.judge.runs import Run, read_lines_instead, run_of
from floodmark.checkers.judge.verdicts import verdict_of
from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.cycles import ops, unsearched
from floodmark.checkers.laws.families import FAMILIES, needed_in
from floodmark.checkers.laws.finding_names import Reason
from floodmark.checkers.laws.tables import SENT_ON
from floodmark.checkers.laws.transactions import dependencies, of_the_run, ops_sent_on, sent_on, transactions
from floodmark.checkers.laws.unit import Family, Unit, opened, run_families
from floodmark.checkers.read.arrays import Ints, concatenated
from floodmark.checkers.read.folder import Special
from floodmark.checkers.read.pairing import answers, pairing
from floodmark.checkers.read.ranges import Range
from floodmark.checkers.read.repeats import repeats
from floodmark.checkers.read.replica_rows import REPLICA_ROWS, SCHEMA, for_driver
from floodmark.checkers.read.tables import read_range
from floodmark.checkers.spark.settings import own_cores, own_memory_mb
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.verdict import Verdict

_LOG = logging.getLogger("floodmark.judge")

MEMORY_SHARE = 0.6  # of the machine's memory, for the databases of all its tasks together
# The most for one unit's database. A unit of 920 MB of files, 13 million rows, took 2.4 GB as Arrow tables,
# 1.5 GB in the database; with a limit of 600 MB it took a seventh more CPU time. A unit of 390 MB with
# transactions, 5.7 million rows, took 14 CPU seconds in the database and 10 as Arrow tables.
MOST_MEMORY_MB = 1280
ROW_BYTES = 190  # what a row of a unit took as an Arrow table while the laws ran
# Rows that are put into the database at once. A piece has some 30,000: inserting each piece alone took two
# milliseconds more, and DuckDB compressed some of them twice and some not at all.
BATCH_ROWS = 4 * 122_880
DRIVER = 0  # the partition of the shuffle from which the driver gets facts
NO_TABLES: Mapping[str, pa.Table] = {}
SENT_ON_NONE = {name: schema.empty_table() for name, schema in SENT_ON.items()}
DEPENDENCIES: Sequence[Family] = [dependencies if family is transactions else family for family in FAMILIES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a unit found in one run; reasons: those that only the laws could find."""

    run: int
    rows: Sequence[Row]
    reasons: Sequence[Reason] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A stage failed on this run."""

    run: int
    failure: Failure


Sent: TypeAlias = Any  # what tasks send, each with its `run`: facts (of checkers.read), Piece, Found, Failed
Keyed = tuple[int, Sent]  # with the partition of the shuffle that it goes to
Read = tuple[Range, bytes | None]  # with its bytes where only Spark can read the file
ReadAs = Mapping[int, tuple[Special, Ints]]  # run -> processes; partitions whose leader the driver must find


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the tasks of the second pass receive."""

    layout: Layout
    runs: frozenset[int]  # those to judge
    transactional: tuple[int, ...]  # those with transactions; their cycles are searched in this order
    of_driver: Mapping[str, pa.Table]  # the facts of all runs (run_tables.FACTS), and `repeated`
    memory_mb: int | None  # of a unit's database, if it is configured

    def facts_of(self, index: int, runs: Sequence[int]) -> dict[str, pa.Table]:
        """The driver's facts of these runs, and of their partitions in this unit."""
        facts, parts = self.rows_of(runs), [FACTS["assignments"].empty_table()]
        for run in runs:
            units, named = self.layout.units[run], self.rows_of([run], "assignments")["assignments"]
            mine = named["partition"].to_numpy() % len(units) == units.index(index)
            parts.append(named.filter(pa.array(mine)))
        return {**facts, "assignments": pa.concat_tables(parts)}

    def rows_of(self, runs: Sequence[int], *names: str) -> dict[str, pa.Table]:
        """These tables of the driver, about these runs."""
        wanted, of_driver = pa.array(runs, pa.int32()), self.of_driver
        return {name: of_driver[name].filter(pc.is_in(of_driver[name]["run"], wanted))
                for name in names or of_driver}  # fmt: skip

    def to_find_cycles(self, run: int, name: str, table: pa.Table) -> "Keyed":
        """This table, for the task that looks for cycles in the run."""
        return 1 + self.transactional.index(run), Piece.of(run, name, table).packed()


# -- both passes --------------------------------------------------------------------------------------------


def judged_bag(
    works: Sequence[RunWork], families: Sequence[Family] = FAMILIES, memory_mb: int | None = None
) -> dict[int, Verdict | Failure]:
    """The verdict on each of these runs, by its position in the call; all in this process."""
    plan, derived, first, sent = read_bag(works, memory_mb)
    second = judge_part(plan, 0, needed(plan, sent), families)
    return verdicts(works, derived, [*first, *(one for _, one in second)])


def read_bag(
    works: Sequence[RunWork], memory_mb: int | None = None
) -> "tuple[Plan, dict[int, Run | Failure], list[Sent], list[Keyed]]":
    """The first pass: what it sends the driver, and what it sends the second pass."""
    layout = Layout.of_bag(works)
    sent = list(parsed(layout, read_as(works), ((one, None) for work in works for one in work.ranges)))
    first = list(across_partitions(sent))
    derived = derive(works, first)
    if derived is None:
        return read_bag([RunWork.of(work.run, work.folder) for work in works], memory_mb)
    return plan_of(layout, derived, first, memory_mb), derived, first, sent


def all_tables(works: Sequence[RunWork]) -> tuple[dict[str, pa.Table], Mapping[int, Run]]:
    """The tables that the laws have of these runs, also those that they would not need. FloodmarkError if one
    cannot be read."""
    if not works:
        return {}, {}
    plan, derived, _, sent = read_bag(works)
    runs: dict[int, Run] = {}
    for work in works:
        run = derived[work.run]
        if isinstance(run, Failure):
            raise FloodmarkError(f"{work.folder.path} cannot be read: {run.words}")
        runs[work.run] = run
    tables = joined(one for _, one in sent if isinstance(one, Piece))
    if LINES in tables:
        tables["answers"] = answers(tables[LINES])
    facts = {REPLICA_ROWS: SCHEMA.empty_table(), **tables, **plan.of_driver}
    return tables | tables_from(facts), runs


def judged_by_many(
    spark: SparkContext, works: Sequence[RunWork], memory_mb: int | None = None
) -> dict[int, Verdict | Failure]:
    """The same, by tasks of Spark. It raises if a task did not come back. memory_mb: of a unit's database;
    None: as much as the worker's machine has for it."""
    layout = Layout.of(works, spark.defaultParallelism)
    near = [(one, None) for work in works if not work.far for one in work.ranges]
    far = [work for work in works if work.far]
    _LOG.info("reading %d MB, by ranges", sum(work.size for work in works) >> 20)
    ranges: RDD[Read] = spark.parallelize(near, max(1, len(near)))
    if far:
        ranges = ranges.union(far_ranges(spark, far))
    shuffled = ranges.mapPartitions(partial(parsed, layout, read_as(works))).partitionBy(layout.size, int)
    first = spark.runJob(shuffled, across_partitions, range(layout.across))
    derived = derive(works, first)
    if derived is None:
        return judged_by_many(spark, [RunWork.of(work.run, work.folder) for work in works], memory_mb)
    plan = plan_of(layout, derived, first, memory_mb)
    _LOG.info("running the laws on %d units of partitions", layout.size - layout.across)
    shared = spark.broadcast(plan)
    second = shuffled.mapPartitionsWithIndex(partial(judge_shared, shared))
    if plan.transactional:
        _LOG.info("looking for cycles as well, in each run of transactions")
        by_run = second.partitionBy(1 + len(plan.transactional), int)
        found = by_run.mapPartitions(partial(find_cycles, shared)).collect()
    else:
        found = [one for _, one in spark.runJob(second, list, range(layout.across, layout.size))]
    return verdicts(works, derived, [*first, *found])


# -- at the driver, or in the task of a bag -----------------------------------------------------------------


def read_as(works: Iterable[RunWork]) -> ReadAs:
    asked = {work.run: work.folder.partitions for work in works}
    return {work.run: (work.folder.special, asked[work.run].keys_there[asked[work.run].asks_isr])
            for work in works}  # fmt: skip


def derive(works: Iterable[RunWork], first: Sequence[Sent]) -> dict[int, Run | Failure] | None:
    """What follows from the first pass, for each run. None: the JSON lines of some dump must be read instead
    of its Parquet."""
    by_run = defaultdict[int, list[Sent]](list)
    for one in first:
        by_run[one.run].append(one)
    made = {work.run: of_one_run(partial(derive_run, work, by_run[work.run])) for work in works}
    return {run: one for run, one in made.items() if one is not None} if None not in made.values() else None


def derive_run(work: RunWork, first: Sequence[Sent]) -> Run | Failure | None:
    for one in first:
        if isinstance(one, Failed):
            return one.failure
    seen = preconditions_of(work.run, first)
    if read_lines_instead(work.folder, seen.flaws):
        return None
    rows = joined(one for one in first if isinstance(one, Piece) and one.name == KNOWN_REPLICAS)
    return run_of(work.folder, seen, rows.get(KNOWN_REPLICAS))


def plan_of(
    layout: Layout, derived: dict[int, Run | Failure], first: Iterable[Sent], memory_mb: int | None
) -> Plan:
    """The plan for the runs that have not failed so far."""
    runs, tables = list[int](), [{name: schema.empty_table() for name, schema in FACTS.items()}]
    tables.append(joined(one for one in first if isinstance(one, Piece) and one.name == "repeated"))
    transactional = list[int]()
    for number, run in derived.items():
        made = run if isinstance(run, Failure) else of_one_run(partial(facts_of, number, run))
        if isinstance(made, Failure) or isinstance(run, Failure):
            derived[number] = made if isinstance(made, Failure) else run
            continue
        runs.append(number)
        tables.append(made)
        if run.preconditions.history.txns:
            transactional.append(number)
    return Plan(layout=layout, runs=frozenset(runs), transactional=tuple(transactional),
                of_driver=concatenated(tables), memory_mb=memory_mb)  # fmt: skip


def needed(plan: Plan, sent: list[Keyed]) -> list[Keyed]:
    """Those that the second pass of a bag needs; the list is cleared, so that the others can be freed."""
    kept = [(key, one) for key, one in sent if isinstance(one, Piece) and one.run in plan.runs
            and (one.name not in BY_HASH_OF or (one.name == LINES and one.run in plan.transactional))]
    sent.clear()
    return kept


def verdicts(
    works: Iterable[RunWork], derived: Mapping[int, Run | Failure], sent: Iterable[Sent]
) -> dict[int, Verdict | Failure]:
    """The verdict on each run, once all laws have run."""
    found, failed = defaultdict[int, list[Found]](list), dict[int, Failure]()
    for one in sent:
        if isinstance(one, Found):
            found[one.run].append(one)
        elif isinstance(one, Failed):
            failed.setdefault(one.run, one.failure)

    def verdict(number: int) -> Verdict | Failure:
        run, mine = failed.get(number) or derived[number], found[number]
        if isinstance(run, Failure):
            return run
        reasons = [reason for one in mine for reason in one.reasons]
        return of_one_run(partial(verdict_of, run, [one.rows for one in mine], reasons))

    return {work.run: verdict(work.run) for work in works}


# -- in a task, first pass ----------------------------------------------------------------------------------


def parsed(layout: Layout, read_as: ReadAs, ranges: Iterable[Read]) -> Iterator[Keyed]:
    """Facts and pieces of each range."""
    is_bag = layout.is_bag  # asked once: it looks at all runs
    for one, data in ranges:
        special, asked = read_as[one.run]
        try:
            read = read_range(one, special, data)
            yield DRIVER, read.facts
            tables = dict(read.tables)
            if REPLICA_ROWS in tables:
                tables[KNOWN_REPLICAS] = for_driver(tables[REPLICA_ROWS], asked)
            if "sends" in tables:
                tables[VALUES] = tables["sends"].select(["run", "value", "index", "type"])
            for name, table in tables.items():
                for targets, part in layout.dealt(one.run, name, table):
                    piece = Piece.of(one.run, name, part)
                    piece = piece if is_bag else piece.packed()
                    yield from ((target, piece) for target in targets)
        except Exception as error:
            yield DRIVER, Failed(run=one.run, failure=failure_of(error))


def across_partitions(sent: Iterable[Keyed]) -> Iterator[Sent]:
    """Send the driver the facts of ranges; what is wrong in the processes of a run, and with its values,
    which must be unique."""
    of_runs = defaultdict[int, list[Piece]](list)
    for _, one in sent:
        if not isinstance(one, Piece) or one.name == KNOWN_REPLICAS:
            yield one
        elif one.name in BY_HASH_OF:
            of_runs[one.run].append(one)
    for run, mine in of_runs.items():
        try:
            tables = joined(mine)
            if LINES in tables:
                yield from pairing(tables[LINES])
            if VALUES in tables:
                repeated, facts = repeats(tables[VALUES])
                yield from facts
                if repeated.num_rows:
                    yield Piece.of(run, "repeated", repeated)
        except Exception as error:
            yield Failed(run=run, failure=failure_of(error))


# -- in a task, second pass ---------------------------------------------------------------------------------


def judge_shared(shared: Broadcast[Plan], index: int, sent: Iterable[Keyed]) -> Iterator[Keyed]:
    return judge_part(shared.value, index, sent)


def judge_part(
    plan: Plan, index: int, sent: Iterable[Keyed], families: Sequence[Family] = DEPENDENCIES
) -> Iterator[Keyed]:
    """Yield what these families find in one partition of the shuffle. One that has no unit, but the lines of
    complete processes, yields the ops of runs with transactions."""
    pieces = (one for _, one in sent if isinstance(one, Piece))
    if plan.layout.runs_in(index):
        runs = [run for run in plan.layout.runs_in(index) if run in plan.runs]
        return judge_unit(plan, index, runs, [*pieces] if len(runs) > 1 else pieces, families)
    return ops_of_processes(plan, (one for one in pieces if one.name == LINES))


def judge_unit(
    plan: Plan, index: int, runs: Sequence[int], pieces: Iterable[Piece], families: Sequence[Family]
) -> Iterator[Keyed]:
    """Run the laws on these runs; on each alone where they fail on several."""
    if not runs:
        return
    failure = None
    try:
        found = run_laws(plan, index, runs, pieces, families)
    except Exception as error:
        found, failure = [], failure_of(error)
    # Outside the handler, because the traceback keeps the failed unit's tables alive.
    if failure is None:
        yield from found
    elif len(runs) == 1:
        yield DRIVER, Failed(run=runs[0], failure=failure)
    else:
        for run in runs:
            yield from judge_unit(plan, index, [run], [one for one in pieces if one.run == run], families)


def run_laws(
    plan: Plan, index: int, runs: Sequence[int], pieces: Iterable[Piece], families: Sequence[Family]
) -> list[Keyed]:
    """The findings of each run; and of runs with transactions that have more units, the dependencies."""
    reasons, sent = dict[int, list[Reason]](), list[Keyed]()
    transactional = [run for run in runs if run in plan.transactional]
    with database(pieces, plan.memory_mb) as unit:
        if not unit.has(REPLICA_ROWS):
            unit.load(REPLICA_ROWS, SCHEMA.empty_table())
        make_tables(unit, plan.facts_of(index, runs))
        if plan.layout.is_bag and transactional:
            unit.load("answers", answers(unit.table(LINES)))
        run_families(unit, needed_in(unit, families))
        found = worst(unit)
        if transactions in families:
            reasons = unsearched_in(unit)
        elif transactional:
            [run] = transactional
            sent = [plan.to_find_cycles(run, name, table) for name, table in sent_on(unit).items()]
    return [*sent, *((DRIVER, Found(run=run, rows=[row for row in found if row["run"] == run],
                                    reasons=reasons.get(run, ()))) for run in runs)]


def unsearched_in(unit: Unit) -> dict[int, list[Reason]]:
    """The runs in which cycles are not searched, with the reason."""
    return {run: [(finding_names.CYCLES, words)] for run, words in unsearched(unit)}


def ops_of_processes(plan: Plan, pieces: Iterable[Piece]) -> Iterator[Keyed]:
    """Yield the ops of these processes, for the task that looks for cycles in their run."""
    of_runs = defaultdict[int, list[Piece]](list)
    for piece in pieces:
        if piece.run in plan.transactional:
            of_runs[piece.run].append(piece)
    for run, mine in of_runs.items():
        try:
            with database(mine, plan.memory_mb, plan.rows_of([run], "runs", "processes")) as unit:
                unit.load("answers", answers(unit.table(LINES)))
                ops(unit)
                for name, table in ops_sent_on(unit).items():
                    yield plan.to_find_cycles(run, name, table)
        except Exception as error:
            yield DRIVER, Failed(run=run, failure=failure_of(error))


def find_cycles(shared: Broadcast[Plan], sent: Iterable[Keyed]) -> Iterator[Sent]:
    """Find the cycles in one run; pass on what units sent to the driver."""
    plan, pieces = shared.value, list[Piece]()
    for _, one in sent:
        if isinstance(one, Piece):
            pieces.append(one)
        else:
            yield one
    for run in {piece.run for piece in pieces}:
        try:
            with database(pieces, plan.memory_mb, {**SENT_ON_NONE, **plan.rows_of([run], "runs")}) as unit:
                run_families(unit, (of_the_run,))
                yield Found(run=run, rows=worst(unit), reasons=unsearched_in(unit).get(run, ()))
        except Exception as error:
            yield Failed(run=run, failure=failure_of(error))


@contextmanager
def database(
    pieces: Iterable[Piece], memory_mb: int | None, tables: Mapping[str, pa.Table] = NO_TABLES
) -> Iterator[Unit]:
    """A unit made of these tables and pieces. It gets memory_mb, or else its share of the machine's memory.
    Where its rows would take more than that, they are put into tables of the database batch by batch:
    compressed, and if necessary on disk, in a scratch folder of Spark's, which Spark deletes however this
    worker ends."""
    free_memory()
    memory_mb = memory_mb or min(MOST_MEMORY_MB, int(own_memory_mb() * MEMORY_SHARE / own_cores()))
    pieces, few, room = iter(pieces), list[Piece](), (memory_mb << 20) // ROW_BYTES
    for piece in pieces:
        few.append(piece)
        room -= piece.rows
        if room < 0:
            break
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    with (
        tempfile.TemporaryDirectory(prefix="floodmark-unit-", dir=folder) as spill,
        opened({}, memory_mb=memory_mb, spill=Path(spill)) as unit,
    ):
        for name, table in chain(tables.items(), joined(few).items() if room >= 0 else ()):
            unit.load(name, table)
        if room < 0:  # each piece of these few is freed once its rows are in the database
            for name, table in batches(chain((few.pop() for _ in range(len(few))), pieces)):
                unit.append(name, table)
        few.clear()  # else their streams stay in memory while the laws run
        yield unit


def batches(pieces: Iterable[Piece]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of these pieces with the name of their table, many at a time; few rows of a small table,
    last."""
    waiting = defaultdict[str, list[Piece]](list)
    for piece in pieces:
        waiting[piece.name].append(piece)
        if sum(one.rows for one in waiting[piece.name]) >= BATCH_ROWS:
            yield from joined(waiting.pop(piece.name)).items()
    for left in waiting.values():
        yield from joined(left).items()


def free_memory() -> None:
    """Free the memory that this worker used for earlier ranges and units, for it and its neighbours."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
