"""Finds cycles of ops that come before one another: which kinds of edges close one, and what it is called.

Rules
1. LEVELS is the complete law: a strongly connected component of more than one vertex by the edges of a level
   is a finding of that level, unless it contains one that was found at a level with a subset of these edges.
   (Edges of a process are a subset of real time.) Each component is one finding.
2. Only runs with a transaction are searched; a run with more edges than MOST_EDGES is unknown.
3. An op is a completion with the invocation that it answers (read/pairing.py), or an invocation with sends
   that was never answered. Where a completion's invocation is ambiguous, nobody knows when it was invoked.
4. Where an index is wrong (an op ends before it begins) the op may have begun at any time.
5. The writes of an op with an unknown outcome (info) may be written at any later time, so it is never over;
   its reads ended with its completion. The reading is a vertex of its own (op_graph.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.op_graph import (
    NEVER,
    PROCESS,
    REALTIME,
    WR,
    WW,
    Cycle,
    Graph,
    Ints,
    components,
    shortest_cycles,
)
from floodmark.checkers.laws.permits import ISOLATION
from floodmark.checkers.laws.tables import FINDINGS
from floodmark.checkers.laws.unit import Unit
from floodmark.checkers.read.arrays import sliced
from floodmark.checkers.read.field_table import TYPES

MOST_EDGES = 12_000_000  # of one run
SHOWN = 20  # findings of one run, name and permit whose cycle is kept
KIND_NAMES = {WR: "wr", WW: "ww", PROCESS: "process", REALTIME: "real-time"}
OPS = ("send", "poll", "txn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A set of kinds of edges, and the name of a cycle of them."""

    name: str
    kinds: frozenset[int]
    permitted: bool  # by isolation, also under read_committed

    @property
    def all_kinds(self) -> frozenset[int]:
        return self.kinds | {PROCESS} if REALTIME in self.kinds else self.kinds


def _level(name: str, *kinds: int, permitted: bool = True) -> Level:
    return Level(name=name, kinds=frozenset(kinds), permitted=permitted)


LEVELS = (
    _level(finding_names.G1C, WR, permitted=False),
    _level(finding_names.G1C_PROCESS, WR, PROCESS, permitted=False),
    _level(finding_names.G1C_REALTIME, WR, REALTIME, permitted=False),
    _level(finding_names.G0, WW),
    _level(finding_names.G0_PROCESS, WW, PROCESS),
    _level(finding_names.G0_REALTIME, WW, REALTIME),
    _level(finding_names.G1C, WW, WR),
    _level(finding_names.G1C_PROCESS, WW, WR, PROCESS),
    _level(finding_names.G1C_REALTIME, WW, WR, REALTIME),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """The ops of one run, for the examples."""

    inv: Ints  # op -> index of its invocation, -1: nobody knows
    done: Ints  # op -> index of its completion, -1: there is none
    process: Ints
    f: Ints  # its position in OPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One component."""

    name: str
    permitted: bool
    cycle: Cycle


# -- tables -------------------------------------------------------------------------------------------------


def ops(unit: Unit) -> None:
    """Make `ops` and `op_lines` (tables.SENT_ON), from the `lines` and `answers` of complete processes."""
    unit.make("completions", _COMPLETIONS)
    unit.make("ops", _OPS)
    unit.make("op_lines", "select run, op, line from completions where line <> op")


def cycles(unit: Unit) -> None:
    """Find all cycles of the runs whose ops and dependencies the unit has."""
    unit.make(
        "unsearched_runs",
        f"""select run, sum(edges)::bigint as edges from dependency_counts
        group by run having sum(edges) > {MOST_EDGES}""",
    )
    unit.make("numbered_ops", _NUMBERED_OPS)
    unit.make("numbered_lines", _NUMBERED_LINES)
    uncommitted = unit.rows("select run from runs where uncommitted")["run"].to_pylist()
    vertices = by_run(unit.rows("from numbered_ops order by run, number"))
    rows: list[dict[str, Any]] = []
    for run, edges in by_run(unit.rows(EDGES)).items():
        graph, shown = graph_of(columns_of(vertices[run]), edges)
        rows += rows_of(run, found_in(graph), shown, edges, graph, uncommitted=run in uncommitted)
    unit.add(pa.Table.from_pylist(rows, schema=FINDINGS))


def unsearched(unit: Unit) -> list[tuple[int, str]]:
    """The runs that have too many edges to search, each with the reason."""
    rows = unit.rows("select run, edges from unsearched_runs order by run").to_pylist()
    reason = (
        "{} dependencies among the ops of this run with transactions: cycles are looked for among {} at the "
        "most"
    )
    return [(row["run"], reason.format(row["edges"], MOST_EDGES)) for row in rows]


# Completions, and the invocations with sends that were never completed: each (line) with the line (op) and
# the index (invoked) of its invocation; with its own if the invocation is ambiguous. type_and_f: both as one
# number; of two completions the one with the higher number counts.
_COMPLETIONS = f"""select run, "at" as line, coalesce(answers, "at") as op,
        if(type = 'invoke', index, answers_index) as invoked, if(type = 'invoke', null, index) as completed,
        process,
        list_position({list(TYPES)}, type) * {len(OPS)} + list_position({list(OPS)}, f) - 1 as type_and_f
    from lines join answers using (run, "at") join runs r using (run)
    where r.transactional and f in {OPS} and (type <> 'invoke' or not answered)"""
# One row for each op, from its lines: where two completions answer one invocation, the later counts.
_OPS = f"""select run, op, invoked, completed, process,
        type_and_f // {len(OPS)} = list_position({list(TYPES)}, 'info') as info,
        (type_and_f % {len(OPS)})::tinyint as f, coalesce("overlaps", false) as "overlaps"
    from (select run, op, max(invoked) as invoked, max(completed) as completed, max(process) as process,
            max(type_and_f) as type_and_f
        from completions group by run, op) left join processes using (run, process)"""
_NUMBERED_OPS = """
    select *, (row_number() over (partition by run order by op) - 1)::integer as number from ops"""
_NUMBERED_LINES = """
    select run, op as line, number from numbered_ops
    union all select run, line, number from op_lines join numbered_ops using (run, op)"""
# Those between different ops, by their numbers; in this order, so that of equally short cycles the same one
# is named each time.
EDGES = """
    select run, kind, source.number as source, target.number as target, partition, "offset", value
    from dependencies anti join unsearched_runs using (run)
    join (select run, line as x, number from numbered_lines) source using (run, x)
    join (select run, line as y, number from numbered_lines) target using (run, y)
    where source.number <> target.number
    order by run, partition, "offset", kind, y, x, value"""


def by_run(table: pa.Table) -> dict[int, pa.Table]:
    """The rows of each run, in their order."""
    return dict(sliced(table, table["run"].to_numpy()))


def columns_of(ops: pa.Table) -> dict[str, Ints]:
    """The columns; -1 for what is null."""
    return {name: pc.fill_null(ops[name].cast(pa.int64()), -1).to_numpy() for name in ops.column_names}


def graph_of(ops: Mapping[str, Ints], edges: pa.Table) -> tuple[Graph, Ops]:
    """The graph of a run: its ops, and after them the readings that are vertices of their own."""
    count, info = len(ops["op"]), ops["info"] > 0
    inv, done = ops["invoked"].copy(), ops["completed"]
    inv[(done >= 0) & (done < inv)] = -1  # a wrong index
    kind, source, target = (edges[name].to_numpy() for name in ("kind", "source", "target"))
    reads = np.zeros(count, dtype=np.bool_)
    reads[target[kind == WR]] = True
    reading_of = np.full(count, -1, dtype=np.int32)  # op -> the vertex of its reading
    readers = np.flatnonzero(info & reads)
    reading_of[readers] = np.arange(count, count + len(readers))
    also = np.flatnonzero((kind == WR) & (reading_of[target] >= 0))
    of = np.concatenate((np.arange(count), readers))
    graph = Graph(
        op=of,
        inv=inv[of],
        done=np.concatenate((np.where((done < 0) | info, NEVER, done), done[readers])),
        process=np.where(ops["overlaps"] > 0, -1, ops["process"])[of],
        kind=np.concatenate((kind, kind[also])),
        source=np.concatenate((source, source[also])),
        target=np.concatenate((target, reading_of[target[also]])),
        record=np.concatenate((np.arange(len(kind), dtype=np.int32), also.astype(np.int32))),
    )
    return graph, Ops(inv=inv, done=done, process=ops["process"], f=ops["f"])


# -- level by level -----------------------------------------------------------------------------------------


def found_in(graph: Graph) -> list[Found]:
    """One finding for each component, level by level."""
    found_at_level: list[tuple[Level, int]] = []  # a level and some vertex of a component found there
    every: list[tuple[Level, Ints]] = []  # its components, also those found at a level before
    found: list[Found] = []
    everything = np.ones(len(graph.inv), dtype=np.bool_)
    members = components(graph, (WR, WW, REALTIME), everything) >= 0  # no level has a cycle beyond these
    for level in LEVELS if members.any() else ():
        before = [labels for other, labels in every if other.all_kinds < level.all_kinds]
        labels = components(graph, level.kinds, members, before[-1] if before else None)
        every.append((level, labels.copy()))
        known = {int(labels[vertex]) for other, vertex in found_at_level if other.all_kinds < level.all_kinds}
        labels[np.isin(labels, np.array(sorted(known), dtype=np.int64))] = -1
        numbers, first = np.unique(labels, return_index=True)
        found_at_level += [(level, int(vertex)) for vertex in first[numbers >= 0]]
        found += [Found(name=level.name, permitted=level.permitted, cycle=cycle)
                  for cycle in shortest_cycles(graph, level.kinds, labels)]
    return found


# -- as rows ------------------------------------------------------------------------------------------------


def rows_of(
    run: int, found: Sequence[Found], ops: Ops, edges: pa.Table, graph: Graph, *, uncommitted: bool
) -> list[dict[str, Any]]:
    """The findings as rows; for each name and permit only the lowest keep their cycle."""
    rows = [row_of(run, one, ops, edges, graph, permitted=one.permitted or uncommitted) for one in found]
    rows.sort(key=lambda row: [(row[key] is None, row[key] or 0) for key in ("partition", "offset", "value")])
    shown: dict[tuple[str, int | None], int] = {}
    for row in rows:
        group = row["name"], row["permit"]
        shown[group] = shown.get(group, 0) + 1
        if shown[group] > SHOWN:
            row |= {"how": None, "ops": None}
    return rows


def row_of(
    run: int, found: Found, ops: Ops, edges: pa.Table, graph: Graph, *, permitted: bool
) -> dict[str, Any]:
    """One finding; its cycle begins with the step of the lowest record that was written and read."""
    places = [place_of(step.kind, step.record, edges) for step in found.cycle]
    first = min(range(len(places)), key=lambda at: (places[at] is None, places[at] or (0, 0, 0), at))
    cycle, place = [*found.cycle[first:], *found.cycle[:first]], places[first] or (None, None, None)
    ends = [[int(graph.op[end]) for end in (step.source, step.target)] for step in cycle]
    steps = [
        step_of(step.kind, step.record, pair, ops, edges) for step, pair in zip(cycle, ends, strict=True)
    ]
    return {
        "run": run,
        "name": found.name,
        "permit": ISOLATION if permitted else None,
        **dict(zip(("partition", "offset", "value"), place, strict=True)),
        "ops": [line for source, _ in ends for line in lines_of(source, ops)],
        "how": orjson.dumps(steps).decode(),
    }


def place_of(kind: int, record: int, edges: pa.Table) -> tuple[int, int, int] | None:
    """Partition, offset and value of the record that an edge of WR or WW is about."""
    if kind not in (WR, WW):
        return None
    partition, offset, value = (edges[name][record].as_py() for name in ("partition", "offset", "value"))
    return partition, offset, value


def step_of(
    kind: int, record: int, ends: Sequence[int], ops: Ops, edges: pa.Table
) -> dict[str, Any]:
    """One step for the text: its kind, both ops, the record."""
    step: dict[str, Any] = {"edge": KIND_NAMES[kind], "ops": [op_fields(op, ops) for op in ends]}
    if record >= 0:
        step |= {name: edges[name][record].as_py() for name in ("partition", "offset", "value")}
    return step


def op_fields(op: int, ops: Ops) -> dict[str, Any]:
    return {"process": int(ops.process[op]), "f": OPS[int(ops.f[op])], "lines": lines_of(op, ops)}


def lines_of(op: int, ops: Ops) -> list[int]:
    return [int(line) for line in (ops.inv[op], ops.done[op]) if line >= 0]
