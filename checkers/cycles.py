"""Ops in a circle: which kinds of edges close it, and what that is called.

Rules
1. LEVELS is the whole law: a strong component by the edges of a level, of more than one vertex, is a finding
   of the level, unless it contains one that is told already at a level whose edges are among its own. (Edges
   of a process are among those of real time.) One finding a component.
2. Edges of RW meet neither the order of a process nor time: who reads behind the end of a log would be on a
   cycle with every writer since.
3. Only a run with a transaction is looked at; of one with more edges than MOST_EDGES nothing is said but
   that.

The edges come from Spark as arrays (transactions.py), some runs at once; one run after the other is made a
graph (graphs.py), what may lie on a cycle is told by arithmetic on all of it at once, and only what is left
is walked through.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from checkers import names, transactions
from checkers.facts import Facts, Run, beside
from checkers.findings import COLUMNS, ISOLATION, kept
from checkers.folder import Folder
from checkers.frames import TYPES, Frames
from checkers.graphs import DEPENDENCIES, NEVER, PROCESS, REALTIME, Graph, Ints, components, suspects
from checkers.shortest import Cycle, maze_of, shortest_cycle
from checkers.transactions import FS, LINE, RW, WR, WW

MOST_EDGES = 12_000_000  # of one run
SHOWN = 20  # findings of one run and name that keep their cycle
EDGES = {WR: "wr", WW: "ww", RW: "rw", PROCESS: "process", REALTIME: "real-time"}
_INFO = TYPES.index("info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A set of kinds of edges, and what a cycle of them is called."""

    name: str
    kinds: frozenset[int]
    permitted: bool  # by isolation, whichever that is

    @property
    def edges(self) -> frozenset[int]:
        return self.kinds | {PROCESS} if REALTIME in self.kinds else self.kinds


def _level(name: str, *kinds: int, permitted: bool = True) -> Level:
    return Level(name=name, kinds=frozenset(kinds), permitted=permitted)


LEVELS = (
    _level(names.G1C, WR, permitted=False),
    _level(names.G1C_PROCESS, WR, PROCESS, permitted=False),
    _level(names.G1C_REALTIME, WR, REALTIME, permitted=False),
    _level(names.G0, WW),
    _level(names.G0_PROCESS, WW, PROCESS),
    _level(names.G0_REALTIME, WW, REALTIME),
    _level(names.G1C, WW, WR),
    _level(names.G1C_PROCESS, WW, WR, PROCESS),
    _level(names.G1C_REALTIME, WW, WR, REALTIME),
    _level(names.G2_ITEM, WW, WR, RW),  # G-single if one edge of RW is enough
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What the edges are about, and what the ops were, for the examples."""

    partition: Ints
    offset: Ints
    value: Ints
    op: Ints  # vertex -> op
    inv: Ints  # op -> index of its invocation, -1: nobody knows
    done: Ints  # op -> index of its completion, -1: there is none
    process: Ints
    code: Ints  # op -> type * len(FS) + f


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One component."""

    name: str
    permitted: bool
    cycle: Cycle


# -- from Spark and back -----------------------------------------------------------------------------------


def by_component(spark: SparkSession, frames: Frames, runs: Sequence[Run], facts: Facts) -> list[DataFrame]:
    """All findings about transactions; the reasons of a run that is too big for it grow by one."""
    chosen = [run for run in facts.transactional if not runs[run].sieved]
    sieved = [run for run in facts.transactional if runs[run].sieved]
    found = [] if frames.passed is None or not sieved else [found_before(frames.passed, sieved)]
    if not chosen:
        return found
    repeated = [run for run in chosen if runs[run].repeated]
    items = transactions.items_of(frames, chosen, repeated)
    fates = transactions.fates_of(items)
    uncommitted = [run for run in chosen if is_uncommitted(runs[run].folder)]
    edges = transactions.edges_of(frames, items, fates, chosen)
    batches = [edges]
    if not frames.small:
        edges = kept(edges)
        batches = [edges.where(transactions.among(some)) for some in batches_of(edges, runs)]
    rows: list[tuple[object, ...]] = []
    for batch in batches:
        for number, table in tables_of(batch.toArrow()):
            graph, records = graph_of(table, runs[number].overlapping)
            rows += rows_of(number, found_in(graph), records, uncommitted=number in uncommitted)
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    found += [beside(spark, rows, schema, frames.small)] if rows else []
    return [transactions.precommitted(fates, uncommitted), *found]


def found_before(passed: DataFrame, runs: Sequence[int]) -> DataFrame:
    """What the sieve found of the transactions of these runs."""
    schema = ", ".join(f"{name}:{kind}" for name, kind in COLUMNS.items() if name != "run")
    told = passed.where(f"what = 'found' and {transactions.among(runs)}").select(
        "run", F.inline(F.from_json("text", f"array<struct<{schema}>>"))
    )
    return told.select(*COLUMNS)


def is_uncommitted(folder: Folder) -> bool:
    return bool(folder.guarantee("isolation", "read_committed") == "read_uncommitted")


def batches_of(edges: DataFrame, runs: Sequence[Run]) -> list[list[int]]:
    """The runs of which the edges can be looked at, as many at once as have MOST_EDGES rows together: no more
    than that of a call of many runs is ever at the driver. The others get their reason."""
    counts = edges.groupBy("run").agg(
        F.count("*").alias("rows"), F.count_if(F.col("kind") < LINE).alias("edges")
    )
    batches: list[list[int]] = []
    room = 0
    for row in counts.orderBy("run").collect():
        if row["edges"] > MOST_EDGES:
            told = (
                f"{row['edges']} dependencies among the ops of this run with transactions: cycles are looked "
                f"for among {MOST_EDGES} at the most"
            )
            runs[row["run"]].folder.reasons.append((names.CYCLES, told))
            continue
        if row["rows"] > room:
            batches.append([])
            room = MOST_EDGES
        batches[-1].append(row["run"])
        room -= row["rows"]
    return batches


def tables_of(table: pa.Table) -> Iterator[tuple[int, dict[str, Ints]]]:
    """The columns of each run's rows, in the order of their records, so that of cycles that are as short the
    same one is told each time; what does not apply is -1."""
    columns: dict[str, Ints] = {
        name: table[name].combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in table.column_names
    }
    order = np.lexsort([columns[name] for name in ("x", "y", "kind", "offset", "partition", "run")])
    runs, begins = np.unique(columns["run"][order], return_index=True)
    for number, first, end in zip(runs.tolist(), begins, [*begins[1:], len(order)], strict=False):
        yield number, {name: column[order[first:end]] for name, column in columns.items()}


def graph_of(table: dict[str, Ints], overlapping: frozenset[int]) -> tuple[Graph, Records]:
    """The graph of a run: lines become ops, and readings that stand for themselves are added."""
    lines = table["kind"] >= LINE
    names_of = ("x", "y", "partition", "offset", "value", "kind")
    at, asked, invoked, index, process, code = (table[name][lines] for name in names_of)
    ops, op = np.unique(asked, return_inverse=True)
    inv, done, whose, what = (np.full(len(ops), -1, dtype=np.int64) for _ in range(4))
    for column, told in ((inv, invoked), (done, index), (whose, process), (what, code - LINE)):
        np.maximum.at(column, op, told)
    inv[(done >= 0) & (done < inv)] = -1  # an index that lies
    kind, source, target, place = edges_of(table, np.concatenate((asked, at)), np.concatenate((op, op)))
    outcome = what // len(FS)
    info = outcome == _INFO
    reads = np.zeros(len(ops), dtype=np.bool_)
    reads[target[kind == WR]] = True
    twin = np.full(len(ops), -1, dtype=np.int64)  # op -> the vertex of its reading
    twins = np.flatnonzero(info & reads)
    twin[twins] = np.arange(len(ops), len(ops) + len(twins))
    also = np.flatnonzero((kind == WR) & (twin[target] >= 0))
    lone = np.isin(whose, np.array(sorted(overlapping), dtype=np.int64))
    of = np.concatenate((np.arange(len(ops)), twins))
    graph = Graph(
        op=of,
        inv=inv[of],
        done=np.concatenate((np.where((done < 0) | info, NEVER, done), done[twins])),
        process=np.where(lone, -1, whose)[of],
        kind=np.concatenate((kind, kind[also])),
        source=np.concatenate((source, source[also])),
        target=np.concatenate((target, twin[target[also]])),
        record=np.concatenate((place, place[also])),
    )
    places = {name: table[name] for name in ("partition", "offset", "value")}
    return graph, Records(**places, op=of, inv=inv, done=done, process=whose, code=what)


def edges_of(table: dict[str, Ints], lines: Ints, ops: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Kind, source, target and row of the edges between two different ops; `lines` stand for `ops`."""
    edges = np.flatnonzero(table["kind"] < LINE)
    lines, first = np.unique(lines, return_index=True)
    ops = ops[first]
    ends = []
    for name in ("x", "y"):
        which = np.minimum(np.searchsorted(lines, table[name][edges]), max(len(lines) - 1, 0))
        ends.append(np.where(lines[which] == table[name][edges], ops[which], -1) if len(lines) else which - 1)
    source, target = ends
    stays = (source >= 0) & (target >= 0) & (source != target)
    return table["kind"][edges[stays]], source[stays], target[stays], edges[stays]


# -- level by level ----------------------------------------------------------------------------------------


def found_in(graph: Graph) -> list[Found]:
    """The components that are told, level by level."""
    told: list[tuple[Level, int]] = []  # a level and some vertex of a component told there
    found: list[Found] = []
    timely = suspects(graph, (WR, WW))
    if timely.any():
        timely = components(graph, (WR, WW, REALTIME), timely) >= 0
    for level in LEVELS:
        members = suspects(graph, DEPENDENCIES) if RW in level.kinds else timely
        if not members.any():
            continue
        labels = components(graph, level.kinds, members)
        weaker = {int(labels[vertex]) for other, vertex in told if other.edges < level.edges}
        labels[np.isin(labels, np.array(sorted(weaker), dtype=np.int64))] = -1
        numbers, first = np.unique(labels, return_index=True)
        maze = maze_of(graph, level.kinds, labels)
        for label, vertex in zip(numbers.tolist(), first.tolist(), strict=True):
            if label >= 0:
                told.append((level, vertex))
                found.append(found_at(level, shortest_cycle(maze, label)))
    return found


def found_at(level: Level, cycle: Cycle) -> Found:
    single = RW in level.kinds and sum(step.kind == RW for step in cycle) == 1
    return Found(name=names.G_SINGLE if single else level.name, permitted=level.permitted, cycle=cycle)


# -- as rows -----------------------------------------------------------------------------------------------


def rows_of(
    run: int, found: Sequence[Found], records: Records, *, uncommitted: bool
) -> list[tuple[object, ...]]:
    """The findings as rows of the common columns; of each name only the lowest keep their cycle."""
    rows = [row_of(run, one, records, permitted=one.permitted or uncommitted) for one in found]
    rows.sort(key=lambda row: [(row[key] is None, row[key] or 0) for key in ("partition", "offset", "value")])
    shown: dict[tuple[str, int | None], int] = {}
    for row in rows:
        group = row["name"], row["by"]
        shown[group] = shown.get(group, 0) + 1
        if shown[group] > SHOWN:
            row |= {"how": None, "ops": None}
    return [tuple(row[name] for name in COLUMNS) for row in rows]


def row_of(run: int, found: Found, records: Records, *, permitted: bool) -> dict[str, Any]:
    """One finding; its cycle begins with what is told of the lowest record that somebody wrote and read."""
    places = [place_of(step.kind, step.record, records) for step in found.cycle]
    first = min(range(len(places)), key=lambda at: (places[at] is None, places[at] or (0, 0, 0), at))
    cycle, place = [*found.cycle[first:], *found.cycle[:first]], places[first] or (None, None, None)
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    ops = [int(records.op[step.source]) for step in cycle]
    lines = [int(line) for op in ops for line in (records.inv[op], records.done[op]) if line >= 0]
    row |= {"run": run, "name": found.name, "by": ISOLATION if permitted else None, "ops": lines}
    row |= dict(zip(("partition", "offset", "value"), place, strict=True))
    return row | {"how": orjson.dumps([told_of(step.kind, step, records) for step in cycle]).decode()}


def place_of(kind: int, record: int, records: Records) -> tuple[int, int, int] | None:
    """Partition, offset and value of the record that an edge of WR or WW is about."""
    if kind not in (WR, WW):
        return None
    return int(records.partition[record]), int(records.offset[record]), int(records.value[record])


def told_of(kind: int, step: Any, records: Records) -> dict[str, Any]:
    """One step for the words: its kind, both ops, the record."""
    ops = [op_of(int(records.op[end]), records) for end in (step.source, step.target)]
    told: dict[str, Any] = {"edge": EDGES[kind], "ops": ops}
    if step.record >= 0:
        told |= {"partition": int(records.partition[step.record]), "offset": int(records.offset[step.record])}
        told |= {"value": int(records.value[step.record])} if kind != RW else {}
    return told


def op_of(op: int, records: Records) -> dict[str, Any]:
    lines = [int(line) for line in (records.inv[op], records.done[op]) if line >= 0]
    return {"process": int(records.process[op]), "f": FS[int(records.code[op]) % len(FS)], "lines": lines}
