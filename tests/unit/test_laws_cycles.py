"""Cycles by level (checkers.laws.cycles, op_graph): the same as plain networkx finds, edge by edge."""

from collections.abc import Iterable
from itertools import pairwise
from random import Random

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.laws.cycles import EDGES, LEVELS, Found, cycles, found_in
from floodmark.checkers.laws.op_graph import NEVER, PROCESS, REALTIME, WR, WW, Graph
from floodmark.checkers.laws.tables import SENT_ON
from floodmark.checkers.laws.unit import opened

Edge = tuple[int, int, int]  # kind, source, target
Op = tuple[int, int, int]  # invoked, done, process


def graph_of(ops: Iterable[Op], edges: Iterable[Edge]) -> Graph:
    inv, done, process = (np.array(column, dtype=np.int64) for column in zip(*ops, strict=True))
    ordered = sorted(edges)
    kind, source, target = (np.array([edge[at] for edge in ordered], dtype=np.int32) for at in range(3))
    return Graph(op=np.arange(len(inv)), inv=inv, done=done, process=process, kind=kind, source=source,
                 target=target, record=np.arange(len(ordered), dtype=np.int32))  # fmt: skip


def plain(graph: Graph, kinds: Iterable[int]) -> nx.MultiDiGraph:
    """Every edge of these kinds; those of time and processes for every pair."""
    drawn = nx.MultiDiGraph()
    for kind, source, target in zip(graph.kind, graph.source, graph.target, strict=True):
        if kind in kinds:
            drawn.add_edge(int(source), int(target), kind=int(kind))
    for one in range(len(graph.inv)):
        for other in range(len(graph.inv)):
            if graph.done[one] < graph.inv[other]:
                if REALTIME in kinds:
                    drawn.add_edge(one, other, kind=REALTIME)
                if PROCESS in kinds and graph.process[one] == graph.process[other] >= 0:
                    drawn.add_edge(one, other, kind=PROCESS)
    return drawn


def components_of(graph: Graph, kinds: Iterable[int]) -> list[frozenset[int]]:
    return [frozenset(one) for one in nx.strongly_connected_components(plain(graph, kinds)) if len(one) > 1]


def expected(graph: Graph) -> list[tuple[str, bool, int]]:
    """(name, permitted, length of the shortest cycle) of each finding that must be reported."""
    reported: list[tuple[frozenset[int], frozenset[int]]] = []
    found = []
    for level in LEVELS:
        for component in components_of(graph, level.kinds):
            if any(kinds < level.all_kinds and other <= component for kinds, other in reported):
                continue
            reported.append((level.all_kinds, component))
            drawn = plain(graph, level.kinds).subgraph(component)
            length = min(1 + nx.shortest_path_length(drawn, head, tail) for tail, head, _ in drawn.edges)
            found.append((level.name, level.permitted, length))
    return sorted(found)


def summary(found: Iterable[Found]) -> list[tuple[str, bool, int]]:
    return sorted((one.name, one.permitted, len(one.cycle)) for one in found)


def some_graph(random: Random) -> Graph:
    """Ops of a few processes, now and then one that never completes; edges mostly forward in time."""
    count, processes = random.randrange(2, 12), random.randrange(1, 5)
    points = iter(random.sample(range(200), 2 * count))
    ops: list[Op] = []
    free = [0] * processes  # since this time
    for one, other in sorted(tuple(sorted((next(points), next(points)))) for _ in range(count)):
        begun = -1 if random.random() < 0.05 else one
        over = NEVER if random.random() < 0.1 else min(other, one + random.choice((5, 20, 100)))
        process = random.randrange(processes)
        if begun < 0 or free[process] >= one:
            process = -1
        else:
            free[process] = over
        ops.append((begun, over, process))
    edges = set()
    for _ in range(random.randrange(1, 3 * count)):
        source, target = random.sample(range(count), 2)
        if ops[source][0] > ops[target][0] and random.random() < 0.6:
            source, target = target, source
        edges.add((random.choice((WR, WW)), source, target))
    return graph_of(ops, edges)


def test_random_graphs_are_judged_as_by_networkx() -> None:
    """Names, classes, number, and length of the shortest cycle; every reported cycle is one."""
    random, hits = Random(6), 0
    for number in range(100):
        graph = some_graph(random)
        found = found_in(graph)

        assert summary(found) == expected(graph), f"graph {number}"
        hits += bool(found)
        for one in found:
            for before, after in pairwise([*one.cycle, one.cycle[0]]):
                assert before.target == after.source
                assert is_edge(graph, before.kind, before.source, before.target)
    assert 40 < hits < 92


def is_edge(graph: Graph, kind: int, source: int, target: int) -> bool:
    if kind in (PROCESS, REALTIME):
        same = graph.process[source] == graph.process[target] >= 0
        return bool(graph.done[source] < graph.inv[target] and (kind == REALTIME or same))
    edges = zip(graph.kind.tolist(), graph.source.tolist(), graph.target.tolist(), strict=True)
    return (kind, source, target) in set(edges)


def test_of_many_ops_in_time_order_none_is_on_a_cycle() -> None:
    """Ten at a time, each after some earlier ones; one dependency against time is found."""
    random, count = Random(1), 20_000
    moments = [10 * at for at in range(count)]
    ops = [(at - random.randrange(1, 50), at + random.randrange(1, 50), -1) for at in moments]
    edges = {(random.choice((WR, WW)), at - random.randrange(1, 8), at) for at in range(8, count)}
    healthy = graph_of(ops, edges)
    turned = graph_of(ops, {*edges, (WR, 9_000, 8_900)})

    assert found_in(healthy) == []
    assert (names.G1C_REALTIME, False, 2) in summary(found_in(turned))


def test_a_long_cycle_is_reported_once() -> None:
    """All ops between a send and a much earlier read of its value are one component."""
    count = 5_000
    ops = [(2 * at, 2 * at + 1, at % 10) for at in range(count)]
    edges = {(WW, at, at + 1) for at in range(count - 1)} | {(WR, count - 1, 0)}
    found = found_in(graph_of(ops, edges))

    assert summary(found) == [(names.G1C, True, count), (names.G1C_REALTIME, False, 2)]


@pytest.mark.parametrize("apart", [1, 500])
def test_a_cycle_by_processes_is_found_among_many_ops(apart: int) -> None:
    """Two ops of one process, two of the other, many of both in between; no cycle of two steps."""
    ops = [(2 * at, 2 * at + 1, at % 2) for at in range(1_002)]
    found = found_in(graph_of(ops, [(WR, 2 * apart, 1), (WR, 2 * apart + 1, 0)]))

    assert summary(found) == [(names.G1C_PROCESS, False, 4)]


def test_edges_of_several_units_are_in_the_order_of_their_records() -> None:
    """So that each judge names the same cycle. Line 11 is another one of op 10; 40 is no op's; those of run 1
    have the same lines."""
    numbered = enumerate(zip([1, 1, 3, 0, 0, 0, 0, 2], [10, 30, 10, 10, 40, 20, 30, 20],
                             [30, 11, 20, 11, 20, 1 << 33, 20, 30], strict=True))
    edges = [{"run": 0, "kind": 0, "x": x, "y": y, "partition": partition, "offset": 0, "value": value}
             for value, (partition, x, y) in numbered]
    ops = [{"run": run, "op": op} for run, op in ((1, 10), (0, 30), (0, 20), (0, 10), (1, 20))]
    rows = {"ops": ops, "op_lines": [{"run": 0, "op": 10, "line": 11}], "dependencies": edges}
    with opened({}) as unit:
        for name, schema in SENT_ON.items():
            unit.load(name, pa.Table.from_pylist(rows.get(name, []), schema=schema))
        cycles(unit)
        found = unit.rows(EDGES)
    assert [found[name].to_pylist() for name in ("value", "source", "target")] == [
        [6, 1, 0, 7, 2], [2, 2, 0, 1, 0], [1, 0, 2, 2, 1]]
