"""The graph of one run's ops: what is strongly connected, which cycle is shortest.

Rules
1. A vertex is an op; or the reading of an op whose writes may be written later (its completion was an info).
   The op's edges of WR lead to that reading, and only the reading may come before something in time.
2. Time is the index of lines. If A was over before B began (done[A] < inv[B]) there is an edge of real time;
   there are too many of these to list, and of a process's edges too. NEVER is the end of an op that may not
   be over, -1 the beginning of one that may have begun at any time. No op ends before it begins.
3. A cycle is a list of steps; each goes to where the next one begins, the last to where the first does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import networkx as nx

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]  # of vertices and edges: half the memory

NEVER = int(np.iinfo(np.int64).max)
WR, WW = 0, 1
DEPENDENCIES = (WR, WW)
PROCESS, REALTIME = 2, 3  # kinds of edges that are not listed
_SHORTEST = 3  # steps, of cycles that are searched for by walks
_WALKS = 200_000  # vertices reached from all starts together; then the shortest cycle so far is used


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Vertices and listed edges of one run."""

    op: Ints  # vertex -> op
    inv: Ints
    done: Ints
    process: Ints  # -1: it gives no edges of a process
    kind: Numbers
    source: Numbers
    target: Numbers
    record: Numbers  # edge -> row of the table of records

    def among(self, kinds: Iterable[int], members: Bools) -> Ints:
        """The listed edges of these kinds, between members."""
        wanted = np.zeros(REALTIME + 1, dtype=np.bool_)
        wanted[[*kinds]] = True
        return np.flatnonzero(wanted[self.kind] & members[self.source] & members[self.target])

    def against(self, edges: Ints) -> Bools:
        """Which of these edges do not agree with time: their source was not over when the target began."""
        return np.asarray(self.done[self.source[edges]] >= self.inv[self.target[edges]])


# -- strongly connected components --------------------------------------------------------------------------


def components(graph: Graph, kinds: Iterable[int], members: Bools, known: Ints | None = None) -> Ints:
    """Vertex -> the number of its strongly connected component, from 0; -1 where that is the vertex alone.
    `known`: the components by some of these kinds, each of which counts as one vertex."""
    kinds, count = frozenset(kinds), len(graph.inv)
    edges = graph.among(kinds & {*DEPENDENCIES}, members)
    source: npt.NDArray[Any] = graph.source[edges]
    target: npt.NDArray[Any] = graph.target[edges]
    size = count
    if kinds & {PROCESS, REALTIME}:
        every = np.zeros(count, dtype=np.int64)
        whose = every if REALTIME in kinds else graph.process
        later = later_ops(graph, np.where(members, whose, -1))
        source, target = (np.concatenate(both, dtype=np.int32) for both in (
            (source, later.source), (target, later.target)))
        size = later.size
    known = np.full(count, -1, dtype=np.int64) if known is None else np.where(members, known, -1)
    representative = np.arange(size, dtype=np.int32)
    inside = np.flatnonzero(known >= 0)
    representative[inside] = inside[first_places(known[inside])[known[inside]]]
    source, target = representative[source], representative[target]
    leads = source != target
    labels = strongly_connected(source[leads], target[leads], size)[representative[:count]]
    several = (np.bincount(labels) >= 2)[labels] & members
    wanted = np.zeros(size, dtype=np.bool_)
    wanted[labels[several]] = True
    return np.where(several, (np.cumsum(wanted) - 1)[labels], -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """Edges from each op to all that began after it was over, through points in time: an op has an edge to
    the first point after its end, a point to the next one and to the ops that begin there. Points are
    numbered after the vertices."""

    source: Ints
    target: Ints
    counts: Bools  # whether the edge is a step of a cycle: those from an op are, those from a point are not
    size: int  # vertices and points


def later_ops(graph: Graph, whose: Ints) -> Later:
    """`whose`: vertex -> its group; each group has points of its own; -1: the vertex is left out."""
    first, mine = len(graph.inv), whose >= 0
    begun = np.flatnonzero(mine & (graph.inv >= 0))
    begun = begun[np.lexsort((begun, graph.inv[begun], whose[begun]))]
    new = np.ones(len(begun), dtype=np.bool_)
    new[1:] = (graph.inv[begun][1:] != graph.inv[begun][:-1]) | (whose[begun][1:] != whose[begun][:-1])
    heads = begun[new]  # the first vertex of each point
    same = np.flatnonzero(whose[heads][1:] == whose[heads][:-1])
    over = np.flatnonzero(mine & (graph.done < NEVER))
    place = first_after(whose[heads], graph.inv[heads], whose[over], graph.done[over])
    there = place < len(heads)
    there[there] = whose[heads][place[there]] == whose[over][there]
    source = np.concatenate((over[there], first + same, first + np.cumsum(new) - 1))
    return Later(
        source=source,
        target=np.concatenate((first + place[there], first + same + 1, begun)),
        counts=np.arange(len(source)) < there.sum(),
        size=first + len(heads),
    )


def first_after(groups: Ints, times: Ints, whose: Ints, ends: Ints) -> Ints:
    """For points sorted by group and time: the first after each end in its group (or the next group's
    first)."""
    every_group, every_time = np.concatenate((groups, whose)), np.concatenate((times, ends))
    ended = np.arange(len(every_group)) >= len(groups)
    order = np.lexsort((ended, every_time, every_group))  # at equal times the points come first
    before = np.cumsum(~ended[order])
    places = np.empty(len(order), dtype=np.int64)
    places[order] = before
    return places[len(groups) :]


def strongly_connected(source: Ints, target: Ints, count: int) -> Ints:
    """Vertex -> the number of its component, in the order of their first vertices. By SciPy, because a run
    can have millions of edges, and networkx keeps each as Python objects."""
    from scipy.sparse import csr_array  # here, because only runs with transactions need it: 0.2 s
    from scipy.sparse.csgraph import connected_components

    edges = csr_array((np.ones(len(source), dtype=np.bool_), (source, target)), shape=(count, count))
    _, labels = connected_components(edges, directed=True, connection="strong")
    first = first_places(labels)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    numbers: Ints = number[labels]
    return numbers


def first_places(labels: Ints) -> Ints:
    """Label -> the place where it comes first. (Of several assignments to an element the last one counts.)"""
    first = np.zeros(labels.max() + 1 if len(labels) else 0, dtype=np.int64)
    first[labels[::-1]] = np.arange(len(labels))[::-1]
    return first


# -- the shortest cycle of each -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One edge of a cycle."""

    kind: int
    source: int
    target: int
    record: int  # row of the table of records; -1: it is not about one


Cycle = list[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The listed edges within components: of those between two vertices the first, by source and target."""

    source: Ints
    target: Ints
    edge: Ints  # its number in the graph


def shortest_cycles(graph: Graph, kinds: frozenset[int], labels: Ints) -> Iterator[Cycle]:
    """The shortest cycle of each component, by its number. `labels`: vertex -> its component by edges of
    these kinds; -1: in none, or in one that is not wanted."""
    if not (labels >= 0).any():
        return
    edges = edges_within(graph, kinds, labels)
    starts = starts_of(graph, edges)
    found = cycles_of_two(graph, kinds, labels, edges, starts)
    rest = np.setdiff1d(labels[labels >= 0], np.array(sorted(found), dtype=np.int64))
    if len(rest):
        left = np.isin(labels, rest)
        walks = Walks.of(graph, kinds, np.where(left, labels, -1), edges[left[graph.source[edges]]])
        first = np.flatnonzero(starts & left)
        first = first[np.lexsort((first, -graph.inv[first]))]
        for label in rest.tolist():
            found[label] = walks.shortest(first[labels[first] == label].tolist())
    yield from (found[label] for label in sorted(found))


def pairs_of(graph: Graph, edges: Ints) -> Pairs:
    source, target = (column[edges].astype(np.int64) for column in (graph.source, graph.target))
    # one number for both, and a stable sort: half the time of a lexsort
    order = np.argsort(source * len(graph.inv) + target, kind="stable")
    edges, source, target = edges[order], source[order], target[order]
    first = np.ones(len(edges), dtype=np.bool_)
    first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    return Pairs(source=source[first], target=target[first], edge=edges[first])


def starts_of(graph: Graph, edges: Ints) -> Bools:
    """The vertices at which the search begins. Every cycle has an edge that does not agree with time: these
    are the sources of those edges. Those that began last are searched first: there it goes back."""
    starts = np.zeros(len(graph.inv), dtype=np.bool_)
    starts[graph.source[edges[graph.against(edges)]]] = True
    return starts


def edges_within(graph: Graph, kinds: frozenset[int], labels: Ints) -> Ints:
    """The listed edges of these kinds inside a component."""
    edges = graph.among(kinds & {*DEPENDENCIES}, labels >= 0)
    inside: Ints = edges[labels[graph.source[edges]] == labels[graph.target[edges]]]
    return inside


def cycles_of_two(
    graph: Graph, kinds: frozenset[int], labels: Ints, edges: Ints, starts: Bools
) -> dict[int, Cycle]:
    """Component -> its cycle of two steps, if it has one: computed for all components at once. edges: those
    within the components."""
    if kinds & {PROCESS, REALTIME}:
        source, target = graph.source[edges], graph.target[edges]
        before = graph.done[target] < graph.inv[source]  # back by time
        if PROCESS in kinds:
            before &= (graph.process[source] == graph.process[target]) & (graph.process[source] >= 0)
        pairs = pairs_of(graph, edges[before])
        there = np.arange(len(pairs.edge))
        back = np.full(len(there), -1, dtype=np.int64)
    else:
        pairs, size = pairs_of(graph, edges), len(graph.inv)
        ways = pairs.source * size + pairs.target, pairs.target * size + pairs.source
        _, there, back = np.intersect1d(*ways, assume_unique=True, return_indices=True)
    start = pairs.source[there]
    label, begins = labels[start], starts[start]
    last = np.where(begins, graph.inv[start], -1)  # of those that begin a search the last
    order = np.lexsort((pairs.edge[there], start * begins, -last, ~begins, label))
    _, first = np.unique(label[order], return_index=True)
    found = {}
    for at in order[first].tolist():
        step = step_by(graph, int(pairs.edge[there[at]]))
        by = PROCESS if PROCESS in kinds else REALTIME
        home = Step(kind=by, source=step.target, target=step.source, record=-1)
        found[int(label[at])] = [step, home if back[at] < 0 else step_by(graph, int(pairs.edge[back[at]]))]
    return found


def step_by(graph: Graph, edge: int) -> Step:
    kind, source, target, record = (
        int(column[edge]) for column in (graph.kind, graph.source, graph.target, graph.record)
    )
    return Step(kind=kind, source=source, target=target, record=record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walks:
    """Searches the components that have no cycle of two steps.

    Where real time is used, one step of it is enough: of the pieces between such steps one begins after the
    end of its last op, otherwise time would rise all the way round. So edges of real time are not listed.
    """

    graph: Graph
    timed: bool
    drawn: "nx.DiGraph"

    @staticmethod
    def of(graph: Graph, kinds: frozenset[int], labels: Ints, edges: Ints) -> "Walks":
        pairs = pairs_of(graph, edges)
        import networkx as nx  # here, because only runs with cycles need it: 0.1 s

        drawn = nx.DiGraph()
        columns = (pairs.source, pairs.target, pairs.edge)
        for source, target, edge in zip(*(column.tolist() for column in columns), strict=True):
            drawn.add_edge(source, target, weight=1, edge=edge)
        if PROCESS in kinds:
            members = np.where((labels >= 0) & (graph.process >= 0), labels, -1)
            _, whose = np.unique(np.stack((members, graph.process)), axis=1, return_inverse=True)
            later = later_ops(graph, np.where(members >= 0, whose, -1))
            points = (later.source, later.target, later.counts.astype(np.int64))
            drawn.add_weighted_edges_from(zip(*(column.tolist() for column in points), strict=True))
        return Walks(graph=graph, timed=REALTIME in kinds, drawn=drawn)

    def shortest(self, starts: list[int]) -> Cycle:
        """The shortest cycle of the component with these starts, or the best that was found within _WALKS."""
        best: Cycle = []
        walked = 0
        for start in starts:
            shorter = len(best) - 1 if best else NEVER
            found, reached = self.round_trip(start, shorter - self.timed)
            walked += reached
            if found and (not best or len(found) < len(best)):
                best = found
            if best and (len(best) <= _SHORTEST or walked > _WALKS):
                break
        assert best, f"no cycle from {len(starts)} vertices of a component"
        return best

    def round_trip(self, start: int, limit: int) -> tuple[Cycle, int]:
        """(the shortest way from the vertex back to it, vertices reached). If `self.timed` the way goes to an
        op that was over before the vertex began, and back by time. []: there is none whose weight is at most
        `limit`."""
        from networkx import dijkstra_predecessor_and_distance

        before, weight = dijkstra_predecessor_and_distance(self.drawn, start, cutoff=limit)
        if self.timed:
            begun, done = int(self.graph.inv[start]), self.graph.done
            ends = (vertex for vertex in weight if int(done[vertex]) < begun)
            last = next(ends, None)  # they are sorted by weight
        else:
            place = {vertex: at for at, vertex in enumerate(weight)}
            back = self.drawn.pred[start]
            ways = [(weight[one] + back[one]["weight"], place[one], one) for one in back if one in place]
            last = min(ways)[2] if ways else None
        if last is None:
            return [], len(weight)
        way = [last]
        while way[-1] != start:
            way.append(before[way[-1]][0])
        return self.cycle([*reversed(way)]), len(weight)

    def cycle(self, way: list[int]) -> Cycle:
        """The steps along these vertices and points, and back to the first."""
        steps, size = [], len(self.graph.inv)
        round_way = way if self.timed else [*way, way[0]]
        left = way[0]
        for one, other in pairwise(round_way):
            if one < size:
                left = one
            if other >= size:
                continue
            if one >= size:
                steps.append(Step(kind=PROCESS, source=left, target=other, record=-1))
            else:
                steps.append(step_by(self.graph, self.drawn.edges[one, other]["edge"]))
        if self.timed:
            steps.append(Step(kind=REALTIME, source=way[-1], target=way[0], record=-1))
        return steps


