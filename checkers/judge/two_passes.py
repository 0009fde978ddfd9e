"""Runs that are too big for one task: parsed by ranges, judged by units of whole partitions, on all cores.

First pass: a task parses a range of a file, and gives facts to the driver and pieces (pieces.py) to Spark's
disk. What must be looked at across partitions is dealt by hash: lines by their process, to pair invocations
with completions, and values, which are to be unique in the run. Then the driver knows what may be claimed,
and broadcasts it.

Second pass: the buckets of a run are put together to units, by how much there is in them, and a task judges
one unit. Of runs with transactions it gives the dependencies between ops as well; those of all units of a run
go to one task, which looks for cycles.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, Broadcast, SparkContext, StorageLevel

from checkers import names
from checkers.judge.examples import merged, worst
from checkers.judge.failures import failure_of
from checkers.judge.pieces import EVERY, Piece, cut, dealt, joined, pieces_of
from checkers.judge.preconditions import preconditions_of
from checkers.judge.run_tables import run_tables
from checkers.judge.runs import Run, read_lines_instead, run_of
from checkers.judge.whole_runs import Judged, RunWork
from checkers.laws import FAMILIES
from checkers.laws.cycles import unsearched
from checkers.laws.tables import SENT_ON, TABLES
from checkers.laws.transactions import dependencies, of_the_run, sent_on, transactions
from checkers.laws.unit import Family, Unit, asked, opened
from checkers.read.pairing import answers, pairing
from checkers.read.ranges import Range
from checkers.read.repeats import repeats
from checkers.read.tables import read_range
from checkers.settings import own_cores, own_memory_mb

UNIT_ROWS = 4_000_000  # of all tables: about 1 GB while it is judged
MEMORY_SHARE = 0.6  # of the machine's memory, for the databases of all its tasks together
LINES, VALUES = "lines", "values"  # tables that are dealt by hash, of lines by process and of values
# What a task gives are pairs of a kind and a value: of a range, of processes, of values; how many rows a
# bucket has; a Piece; findings; names of checks and a reason; a run and its failure (it is unknown then, and
# its neighbours are judged).
FACTS, ROWS, PIECE, FOUND, REASON, FAILED = "facts", "rows", "piece", "found", "reason", "failed"
Given = tuple[str, Any]
PARTITION_FAMILIES: Sequence[Family] = tuple(
    dependencies if family is transactions else family for family in FAMILIES
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Which task of the second pass judges what: a unit is some buckets of one run."""

    runs: tuple[int, ...]  # unit -> run
    buckets: tuple[frozenset[int], ...]  # unit -> its buckets
    of_driver: Mapping[str, pa.Table]  # the tables that the driver made, of all runs

    def of(self, piece: Piece) -> Iterator[int]:
        """The units that need this piece."""
        for unit, (run, buckets) in enumerate(zip(self.runs, self.buckets, strict=True)):
            if run == piece.run and (piece.bucket == EVERY or piece.bucket in buckets):
                yield unit

    def tables_of(self, unit: int) -> dict[str, pa.Table]:
        """The driver's tables, as far as they are of the unit's run and partitions."""
        return {name: self.rows_of(table, unit) for name, table in self.of_driver.items()}

    def rows_of(self, table: pa.Table, unit: int) -> pa.Table:
        run, buckets = self.runs[unit], self.buckets[unit]
        return pa.concat_tables([
            table.slice(0, 0),
            *(part for of, bucket, part in cut(table) if of == run and bucket in {EVERY, *buckets}),
        ])  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Notes:
    """What the driver has heard so far."""

    judged: dict[int, Judged]
    facts: list[Any] = field(default_factory=list)
    rows: Counter[tuple[int, int]] = field(default_factory=Counter)  # (run, bucket) -> rows
    found: dict[int, list[Any]] = field(default_factory=dict)  # run -> the rows of each unit

    def hear(self, given: Iterable[Given]) -> None:
        for kind, value in given:
            if kind == FACTS:
                self.facts.append(value)
            elif kind == ROWS:
                self.rows.update(value)
            elif kind == FOUND:
                self.found.setdefault(value[0], []).append(value[1])
            elif kind == REASON:
                self.judged[value[0]].reasons.append(value[1])
            elif kind == FAILED:
                self.judged[value[0]].failure = value[1]


# -- at the driver ------------------------------------------------------------------------------------------


def judged_in_pieces(spark: SparkContext, works: Sequence[RunWork]) -> list[Judged]:
    """Each of these runs, told once. An exception is that of a task which did not come back."""
    notes = Notes(judged={work.run: Judged(run=work.run) for work in works})
    ranges = [one for work in works for one in work.ranges]
    aside = {work.run: work.folder.settle_processes for work in works}
    cut_up = spark.parallelize(ranges, max(1, len(ranges)))
    first = on_disk(cut_up.mapPartitions(partial(parsed, aside)))
    notes.hear(first.filter(is_for_driver).collect())
    tasks = max(spark.defaultParallelism, sum(notes.rows.values()) // (2 * UNIT_ROWS))
    dealt_out = first.flatMap(partial(dealt_to, tasks)).partitionBy(tasks, int)
    across = on_disk(dealt_out.mapPartitions(across_partitions))
    notes.hear(across.filter(is_for_driver).collect())
    good = [work for work in works if notes.judged[work.run].failure is None]
    seen = preconditions_of(max(notes.judged) + 1, notes.facts, (), ())
    otherwise = [read_lines_instead(work.folder, seen[work.run].flaws) for work in good]
    if any(otherwise):
        free(first, across)
        return judged_in_pieces(spark, [RunWork.of(work.run, work.folder) for work in works])
    known = {work.run: run_of(work.folder, seen[work.run]) for work in good}
    units = units_of(notes, known, spark.defaultParallelism)
    plan = spark.broadcast(units)
    count = len(units.runs)
    begun = spark.parallelize([(unit, None) for unit in range(count)], count)
    sent = first.union(across).flatMap(partial(sent_to, plan)).union(begun)
    second = on_disk(sent.partitionBy(count, int).mapPartitions(partial(judge_units, plan)))
    notes.hear(second.filter(is_for_driver).collect())
    transactional = [number for number, run in known.items() if run.preconditions.txns]
    if transactional:
        gathered = first.union(second).flatMap(partial(of_run, transactional))
        whole = gathered.partitionBy(len(transactional), int).mapPartitions(partial(judge_runs, plan))
        notes.hear(whole.collect())
    free(first, across, second)
    for number, judged in notes.judged.items():
        judged.rows = merged(notes.found.get(number, []))
        judged.known = known.get(number)
    return list(notes.judged.values())


def on_disk(rdd: "RDD[Given]") -> "RDD[Given]":
    """Computed once, when first asked for."""
    return rdd.persist(StorageLevel.DISK_ONLY)


def free(*rdds: "RDD[Given]") -> None:
    for rdd in rdds:
        rdd.unpersist()


def units_of(notes: Notes, known: Mapping[int, Run], cores: int) -> Units:
    """Whole buckets, put together so that no unit has much more than UNIT_ROWS, and there is work for all
    cores."""
    tables = run_tables(known)
    rows = Counter(notes.rows)
    for name in ("partitions", "replicas"):  # a partition of which no file has a row is judged all the same
        for run, bucket, part in cut(tables[name]):
            rows[run, bucket] += part.num_rows
    most = max(1, min(UNIT_ROWS, sum(rows.values()) // cores))
    runs: list[int] = []
    buckets: list[set[int]] = []
    for run in known:
        room = 0
        mine = {bucket: rows[run, bucket] for of, bucket in rows if of == run and bucket != EVERY} or {0: 0}
        for bucket, count in sorted(mine.items(), key=lambda item: (-item[1], item[0])):
            if count > room or not buckets or runs[-1] != run:
                runs.append(run)
                buckets.append(set())
                room = most
            buckets[-1].add(bucket)
            room -= count
    return Units(runs=tuple(runs), buckets=tuple(map(frozenset, buckets)), of_driver=tables)


# -- in a worker, first pass --------------------------------------------------------------------------------


def parsed(acked_aside: Mapping[int, Sequence[int]], ranges: Iterable[Range]) -> Iterator[Given]:
    """Facts and pieces of each range; acked_aside: run -> processes whose acks do not count."""
    for one in ranges:
        try:
            read = read_range(one, acked_aside[one.run])
            yield FACTS, read.facts
            tables = {name: table for name, table in read.tables.items() if name != LINES}
            rows: Counter[tuple[int, int]] = Counter()
            for name, table in tables.items():
                for piece in pieces_of(name, table):
                    rows[piece.run, piece.bucket] += piece.rows
                    yield PIECE, piece
            yield ROWS, rows
            if LINES in read.tables:
                yield from ((PIECE, piece) for piece in dealt(LINES, read.tables[LINES], "process"))
            if "sends" in tables:
                values = tables["sends"].select(["run", "value", "index", "type"])
                yield from ((PIECE, piece) for piece in dealt(VALUES, values, "value"))
        except Exception as error:
            yield FAILED, (one.run, failure_of(error))


def is_for_driver(given: Given) -> bool:
    return given[0] != PIECE


def dealt_to(tasks: int, given: Given) -> Iterator[tuple[int, Piece]]:
    """Lines of one process, and equal values, to one task."""
    kind, piece = given
    if kind == PIECE and piece.table in (LINES, VALUES):
        yield piece.bucket % tasks, piece


def across_partitions(pieces: Iterable[tuple[int, Piece]]) -> Iterator[Given]:
    """What is wrong in whole processes, and with values that are to be unique in the run."""
    of_runs: dict[int, list[Piece]] = {}
    for _, piece in pieces:
        of_runs.setdefault(piece.run, []).append(piece)
    for run, mine in of_runs.items():
        try:
            tables = joined(mine)
            if LINES in tables:
                yield from ((FACTS, facts) for facts in pairing(tables[LINES]))
            if VALUES in tables:
                repeated, facts = repeats(tables[VALUES])
                yield from ((FACTS, one) for one in facts)
                yield from ((PIECE, piece) for piece in pieces_of("repeated", repeated))
        except Exception as error:
            yield FAILED, (run, failure_of(error))


# -- in a worker, second pass -------------------------------------------------------------------------------


def sent_to(plan: Broadcast[Units], given: Given) -> Iterator[tuple[int, Piece]]:
    """Each piece to the units that need it."""
    kind, piece = given
    if kind == PIECE and piece.table in TABLES and piece.table != LINES:
        yield from ((unit, piece) for unit in plan.value.of(piece))


def judge_units(plan: Broadcast[Units], sent: Iterable[tuple[int, Piece | None]]) -> Iterator[Given]:
    """What all laws find in one unit, and the dependencies between its ops where the run has transactions.
    (The task of a unit is sent its number, if nothing else.)"""
    numbered = list(sent)
    if not numbered:
        return
    unit, units = numbered[0][0], plan.value
    run, pieces = units.runs[unit], [piece for _, piece in numbered if piece is not None]
    del numbered
    try:
        with database(joined(pieces) | units.tables_of(unit)) as db:
            yield FOUND, (run, worst(db, asked(db, PARTITION_FAMILIES)))
            for name, table in sent_on(db).items():
                yield from ((PIECE, piece) for piece in pieces_of(name, table, whole=True))
    except Exception as error:
        yield FAILED, (run, failure_of(error))


@contextmanager
def database(tables: Mapping[str, pa.Table]) -> Iterator[Unit]:
    """A unit with its share of the machine's memory; what it has beyond that goes to its own scratch."""
    memory_mb = int(own_memory_mb() * MEMORY_SHARE / own_cores())
    with (
        tempfile.TemporaryDirectory(prefix="floodmark-unit-") as spill,
        opened(tables, memory_mb=memory_mb, spill=Path(spill)) as unit,
    ):
        yield unit


def of_run(runs: Sequence[int], given: Given) -> Iterator[tuple[int, Piece]]:
    """The lines and the dependencies of each of these runs to one task."""
    kind, piece = given
    if kind == PIECE and piece.run in runs and (piece.table == LINES or piece.table in SENT_ON):
        yield runs.index(piece.run), piece


def judge_runs(plan: Broadcast[Units], sent: Iterable[tuple[int, Piece]]) -> Iterator[Given]:
    """The cycles in one run."""
    pieces = [piece for _, piece in sent]
    if not pieces:
        return
    run = pieces[0].run
    try:
        tables = joined(pieces)
        tables["answers"] = answers(tables[LINES])
        for name in ("runs", "processes"):
            every = plan.value.of_driver[name]
            tables[name] = every.filter(pc.equal(every["run"], run))
        with database(tables) as db:
            for name, schema in SENT_ON.items():
                db.load(name, tables.get(name, schema.empty_table()))
            yield FOUND, (run, worst(db, asked(db, (of_the_run,))))
            yield from ((REASON, (of, (names.CYCLES, words))) for of, words in unsearched(db))
    except Exception as error:
        yield FAILED, (run, failure_of(error))
