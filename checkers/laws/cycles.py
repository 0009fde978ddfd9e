"""Finds cycles of ops that come before one another: which kinds of edges close one, and what it is called.

Rules
1. LEVELS is the complete law: a strong component of more than one vertex by the edges of a level is a finding
   of that level, unless it contains one that was found at a level with a subset of these edges. (Edges of a
   process are a subset of real time.) Each component is one finding.
2. Edges of RW are combined neither with the order of a process nor with time: otherwise an op that reads
   after the end of a log would be on a cycle with every later writer.
3. Only runs with a transaction are searched; a run with more edges than MOST_EDGES is unknown.
4. An op is a completion with the invocation that it answers (read/pairing.py), or an invocation with sends
   that was never answered. Where a completion's invocation is ambiguous, nobody knows when it was invoked.
5. Where an index is wrong (an op ends before it begins) the op may have begun at any time.
6. The writes of an op with an unknown outcome (info) may be written at any later time, so it is never over;
   its reads ended with its completion. The reading is a vertex of its own (op_graph.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.op_graph import (
    DEPENDENCIES,
    NEVER,
    PROCESS,
    REALTIME,
    RW,
    WR,
    WW,
    Cycle,
    Graph,
    Ints,
    components,
    shortest_cycles,
    suspects,
)
from floodmark.checkers.laws.permits import ISOLATION
from floodmark.checkers.laws.tables import FINDINGS
from floodmark.checkers.laws.unit import Unit

MOST_EDGES = 12_000_000  # of one run
SHOWN = 20  # findings of one run, name and permit whose cycle is kept
EDGES = {WR: "wr", WW: "ww", RW: "rw", PROCESS: "process", REALTIME: "real-time"}
OPS = ("send", "poll", "txn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A set of kinds of edges, and the name of a cycle of them."""

    name: str
    kinds: frozenset[int]
    permitted: bool  # by isolation, at any level

    @property
    def edges(self) -> frozenset[int]:
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
    _level(finding_names.G2_ITEM, WW, WR, RW),  # G-single if one edge of RW is enough
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


def cycles(unit: Unit) -> None:
    """Find all cycles of the runs whose lines and dependencies the unit has."""
    unit.make(
        "unsearched_runs",
        f"""select run, sum(edges)::bigint as edges from dependency_counts
        group by run having sum(edges) > {MOST_EDGES}""",
    )
    unit.make("op_lines", _OP_LINES)
    unit.make("ops", _OPS)
    skipped = [row["run"] for row in unit.rows("select run from unsearched_runs").to_pylist()]
    ops, lines, runs = (unit.rows(one) for one in (_ALL_OPS, _LINES_OF_OPS, _RUNS))
    edges = unit.rows(_ALL_EDGES + (f" where run not in ({', '.join(map(str, skipped))})" if skipped else ""))
    lax = {row["run"] for row in runs.to_pylist() if row["uncommitted"]}
    rows: list[dict[str, Any]] = []
    of_edges, of_lines = slices(edges), slices(lines)
    for run, mine in slices(ops).items():
        if run in of_edges:
            records = by_number(columns_of(edges, of_edges[run]), columns_of(lines, of_lines[run]))
            graph, those = graph_of(columns_of(ops, mine), records)
            uncommitted = run in lax
            found = found_in(graph)
            rows += rows_of(run, found, those, records, graph, uncommitted=uncommitted)
    unit.add(pa.Table.from_pylist(rows, schema=FINDINGS))


def unsearched(unit: Unit) -> list[tuple[int, str]]:
    """The runs that have too many edges to search, each with the reason."""
    rows = unit.rows("select run, edges from unsearched_runs order by run").to_pylist()
    reason = (
        "{} dependencies among the ops of this run with transactions: cycles are looked for among {} at the "
        "most"
    )
    return [(row["run"], reason.format(row["edges"], MOST_EDGES)) for row in rows]


# Completions, and the invocations with sends that were never completed: each with the line (op) and the index
# (invoked) of its invocation; with its own if the invocation is ambiguous.
_OP_LINES = f"""select run, "at", coalesce(answers, "at") as op,
        if(type = 'invoke', index, answers_index) as invoked, if(type = 'invoke', null, index) as completed,
        process, type, f
    from lines join answers using (run, "at") join runs r using (run)
    where r.transactional and f in {OPS} and (type <> 'invoke' or not answered)"""
# One row for each op, from its lines: where two completions answer one invocation, the later counts.
_OPS = f"""select run, op, row_number() over (partition by run order by op) - 1 as number, invoked, completed,
        process, outcome.type as type, outcome.f as f
    from (select run, op, max(invoked) as invoked, max(completed) as completed, max(process) as process,
            max(struct_pack(rank := list_position(['invoke', 'ok', 'fail', 'info'], type),
                f := list_position({list(OPS)}, f) - 1, type := type)) as outcome
        from op_lines group by run, op)"""
_ALL_OPS = """select o.run, coalesce(invoked, -1) as inv, coalesce(completed, -1) as done, process,
        (type = 'info')::bigint as info, f::bigint as f, coalesce("overlaps", false)::bigint as "overlaps"
    from ops o left join processes using (run, process) order by o.run, number"""
# The number of a line's op; of every line that an edge may name.
_LINES_OF_OPS = """select run, line, number from (
        select run, op as line, number from ops
        union all select l.run, l."at", o.number from op_lines l join ops o using (run, op))
    order by run"""
# As they were made: a join here could change their order, which by_number needs.
_ALL_EDGES = """select run, kind::bigint as kind, x, y, partition, "offset", coalesce(value, -1) as value
    from dependencies"""
_RUNS = "select run, uncommitted from runs"


def slices(table: pa.Table) -> dict[int, slice]:
    """The range of rows of each run; the table is sorted by run."""
    runs, begins = np.unique(table["run"].to_numpy(), return_index=True)
    ends = [*begins.tolist(), table.num_rows][1:]
    return {int(run): slice(int(one), end) for run, one, end in zip(runs, begins, ends, strict=True)}


def columns_of(table: pa.Table, mine: slice) -> dict[str, Ints]:
    part = table.slice(mine.start, mine.stop - mine.start)
    return {name: part[name].to_numpy() for name in part.column_names if name != "run"}


def by_number(edges: Mapping[str, Ints], lines: Mapping[str, Ints]) -> dict[str, Ints]:
    """Edges between different ops by their numbers, in the order of their records, so that of equally short
    cycles the same one is named each time. The edges of a partition come in order (transactions.py), those of
    different partitions as their units have sent them. lines: every line of an op, with its op's number."""
    order = np.argsort(edges["partition"], kind="stable")
    by_line = np.argsort(lines["line"], kind="stable")
    line, number = lines["line"][by_line], lines["number"][by_line]
    x, y = edges["x"][order], edges["y"][order]
    source, target = np.searchsorted(line, x), np.searchsorted(line, y)
    last = len(line) - 1
    np.minimum(source, last, out=source)
    np.minimum(target, last, out=target)
    known = (line[source] == x) & (line[target] == y)
    source, target = number[source], number[target]
    keep = known & (source != target)
    columns = {name: edges[name][order][keep] for name in ("kind", "partition", "offset", "value")}
    return {**columns, "source": source[keep], "target": target[keep]}


def graph_of(ops: Mapping[str, Ints], edges: Mapping[str, Ints]) -> tuple[Graph, Ops]:
    """The graph of a run: its ops, and after them the readings that are vertices of their own."""
    count, info = len(ops["inv"]), ops["info"] > 0
    inv, done = ops["inv"].copy(), ops["done"]
    inv[(done >= 0) & (done < inv)] = -1  # a wrong index
    kind, source, target = edges["kind"], edges["source"], edges["target"]
    reads = np.zeros(count, dtype=np.bool_)
    reads[target[kind == WR]] = True
    reading_of = np.full(count, -1, dtype=np.int64)  # op -> the vertex of its reading
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
        record=np.concatenate((np.arange(len(kind)), also)),
    )
    return graph, Ops(inv=inv, done=done, process=ops["process"], f=ops["f"])


# -- level by level -----------------------------------------------------------------------------------------


def found_in(graph: Graph) -> list[Found]:
    """One finding for each component, level by level."""
    found_at_level: list[tuple[Level, int]] = []  # a level and some vertex of a component found there
    every: list[tuple[Level, Ints]] = []  # its components, also those found at a level before
    found: list[Found] = []
    timely = suspects(graph, (WR, WW))
    if timely.any():
        timely = components(graph, (WR, WW, REALTIME), timely) >= 0
    for level in LEVELS:
        members = suspects(graph, DEPENDENCIES) if RW in level.kinds else timely
        if not members.any():
            continue
        before = [labels for other, labels in every if other.edges < level.edges]
        labels = components(graph, level.kinds, members, before[-1] if before else None)
        every.append((level, labels.copy()))
        weaker = {int(labels[vertex]) for other, vertex in found_at_level if other.edges < level.edges}
        labels[np.isin(labels, np.array(sorted(weaker), dtype=np.int64))] = -1
        numbers, first = np.unique(labels, return_index=True)
        found_at_level += [(level, int(vertex)) for vertex in first[numbers >= 0]]
        found += [found_at(level, cycle) for cycle in shortest_cycles(graph, level.kinds, labels)]
    return found


def found_at(level: Level, cycle: Cycle) -> Found:
    single = RW in level.kinds and sum(step.kind == RW for step in cycle) == 1
    name = finding_names.G_SINGLE if single else level.name
    return Found(name=name, permitted=level.permitted, cycle=cycle)


# -- as rows ------------------------------------------------------------------------------------------------


def rows_of(
    run: int, found: Sequence[Found], ops: Ops, edges: Mapping[str, Ints], graph: Graph, *, uncommitted: bool
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
    run: int, found: Found, ops: Ops, edges: Mapping[str, Ints], graph: Graph, *, permitted: bool
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


def place_of(kind: int, record: int, edges: Mapping[str, Ints]) -> tuple[int, int, int] | None:
    """Partition, offset and value of the record that an edge of WR or WW is about."""
    if kind not in (WR, WW):
        return None
    partition, offset, value = (int(edges[name][record]) for name in ("partition", "offset", "value"))
    return partition, offset, value


def step_of(
    kind: int, record: int, ends: Sequence[int], ops: Ops, edges: Mapping[str, Ints]
) -> dict[str, Any]:
    """One step for the text: its kind, both ops, the record."""
    step: dict[str, Any] = {"edge": EDGES[kind], "ops": [op_of(op, ops) for op in ends]}
    if record >= 0:
        columns = ("partition", "offset") if kind == RW else ("partition", "offset", "value")
        step |= {name: int(edges[name][record]) for name in columns}
    return step


def op_of(op: int, ops: Ops) -> dict[str, Any]:
    return {"process": int(ops.process[op]), "f": OPS[int(ops.f[op])], "lines": lines_of(op, ops)}


def lines_of(op: int, ops: Ops) -> list[int]:
    return [int(line) for line in (ops.inv[op], ops.done[op]) if line >= 0]
