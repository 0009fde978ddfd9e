"""The graph of one run's ops as arrays: what may lie on a cycle at all, and what is strongly connected.

Rules
1. A vertex is an op; or the reading of one whose writes may land later (its completion was an info). Such a
   reading has the op's edges of WR towards it, and alone of the two it may come before something in time.
2. Time is the index of lines. A was over before B began (done[A] < inv[B]): an edge of real time, of which
   there are too many to be listed. NEVER is the end of what is not known to be over, -1 the beginning of what
   may have begun at any time. No op ends before it begins.

Theory of operation. Most edges agree with time, and a cycle needs one that does not. Let an op take place
somewhere in [inv, done], and no op before one that it depends on. Pushing every op as late as that demands,
but never beyond its own end, comes to rest after a few rounds; where some op is then pushed beyond its end,
the stretch from its end to there is crossed by dependencies against time. A cycle that takes real time or an
edge that agrees with it touches such a stretch (of all paths between two ops of it, one crosses each point
between them backwards); any other cycle is of ops that are pushed to one and the same point, along edges that
do not agree with time. So whoever does neither is on no cycle, and what is left is small in a healthy run.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from checkers.transactions import RW, WR, WW

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER = int(np.iinfo(np.int64).max)
PROCESS, REALTIME = 3, 4  # kinds of edges that are not listed
DEPENDENCIES = (WR, WW, RW)
_PEELS = 1_000  # rounds; more of them would find more that is on no cycle, and nothing wrong without
_PUSHES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Vertices and listed edges of one run."""

    op: Ints  # vertex -> op
    inv: Ints
    done: Ints
    process: Ints  # -1: it gives no edges of a process
    kind: Ints
    source: Ints
    target: Ints
    record: Ints  # edge -> row of the table of records

    def among(self, kinds: Iterable[int], members: Bools | None = None) -> Ints:
        """The listed edges of these kinds, of the members."""
        there = np.isin(self.kind, np.array(sorted(kinds), dtype=np.int64))
        if members is not None:
            there &= members[self.source] & members[self.target]
        return np.flatnonzero(there)

    def against(self, edges: Ints) -> Bools:
        """Which of these edges time does not agree with: their source was not over when the target began."""
        return np.asarray(self.done[self.source[edges]] >= self.inv[self.target[edges]])


# -- what may lie on a cycle --------------------------------------------------------------------------------


def suspects(graph: Graph, kinds: Iterable[int]) -> Bools:
    """The vertices that may lie on a cycle of these dependencies, of time, and of the order of processes."""
    edges = graph.among(kinds)
    edges = edges[graph.against(edges)]
    source, target = graph.source[edges], graph.target[edges]
    latest = pushed(graph, source, target)
    if latest is None:
        return np.ones(len(graph.inv), dtype=np.bool_)
    beyond = latest > graph.done
    near = touching(graph, graph.done[beyond], latest[beyond])
    level = (latest[source] == latest[target]) & ~beyond[source] & ~beyond[target]
    near[peeled(source[level], target[level], len(near))] = True
    return near


def pushed(graph: Graph, source: Ints, target: Ints) -> Ints | None:
    """The earliest that each op can have taken place at; None where that takes too many rounds to say."""
    latest = graph.inv.copy()
    for _ in range(_PUSHES):
        push = np.minimum(latest[source], graph.done[source])
        moves = push > latest[target]
        if not moves.any():
            return latest
        np.maximum.at(latest, target[moves], push[moves])
    return None


def touching(graph: Graph, begins: Ints, ends: Ints) -> Bools:
    """The vertices whose time touches one of these stretches."""
    if not len(begins):
        return np.zeros(len(graph.inv), dtype=np.bool_)
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    last = np.searchsorted(begins, graph.done, side="right") - 1  # of those that begin before it is over
    return (last >= 0) & (ends[np.maximum(last, 0)] >= graph.inv)


def peeled(source: Ints, target: Ints, count: int) -> Ints:
    """The vertices that are left when those without an edge in, or out, are taken away, and again."""
    for _ in range(_PEELS):
        into, out = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        into[target] = True
        out[source] = True
        both = into & out
        stays = both[source] & both[target]
        if stays.all():
            break
        source, target = source[stays], target[stays]
    return np.unique(np.concatenate((source, target)))


# -- strong components --------------------------------------------------------------------------------------


def components(graph: Graph, kinds: Iterable[int], members: Bools) -> Ints:
    """Vertex -> the number of its strong component, from 0; -1 where that is the vertex alone."""
    kinds = frozenset(kinds)
    edges = graph.among(kinds & {*DEPENDENCIES}, members)
    sources, targets, count = [graph.source[edges]], [graph.target[edges]], len(graph.inv)
    if PROCESS in kinds:
        before, after = in_turn(graph, members)
        sources.append(before)
        targets.append(after)
    if REALTIME in kinds:
        before, after, count = through_time(graph, members)
        sources.append(before)
        targets.append(after)
    labels = strongly_connected(np.concatenate(sources), np.concatenate(targets), count)[: len(graph.inv)]
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    labels[(labels >= 0) & (sizes[np.maximum(labels, 0)] < 2)] = -1
    labels[~members] = -1
    _, dense = np.unique(labels, return_inverse=True)
    return dense.astype(np.int64) - (1 if (labels < 0).any() else 0)


def in_turn(graph: Graph, members: Bools) -> tuple[Ints, Ints]:
    """Edges from each op of a process to its next one; what is never over is followed by nothing."""
    mine = np.flatnonzero(members & (graph.process >= 0) & (graph.inv >= 0))
    mine = mine[np.lexsort((mine, graph.inv[mine], graph.process[mine]))]
    before, after = mine[:-1], mine[1:]
    follows = (graph.process[before] == graph.process[after]) & (graph.done[before] < graph.inv[after])
    twins = np.flatnonzero(graph.op[before] == graph.op[after])  # an op and its reading come after the same
    twins = twins[twins > 0]
    early = (graph.process[before[twins - 1]] == graph.process[after[twins]]) & (
        graph.done[before[twins - 1]] < graph.inv[after[twins]]
    )
    return (
        np.concatenate((before[follows], before[twins - 1][early])),
        np.concatenate((after[follows], after[twins][early])),
    )


def through_time(graph: Graph, members: Bools) -> tuple[Ints, Ints, int]:
    """Edges that lead from each vertex to all that began after it was over, by way of points in time: an op
    leads to the point of its end, a point to the next one, and the point of a beginning to its op. The points
    are numbered behind the vertices; with them, how many there are of both."""
    mine, first = np.flatnonzero(members), len(graph.inv)
    over, begun = mine[graph.done[mine] < NEVER], mine[graph.inv[mine] >= 0]
    times = np.unique(np.concatenate((graph.done[over], graph.inv[begun])))
    points = np.arange(first, first + 2 * len(times), dtype=np.int64)  # what begins there, then what ends
    at_end = first + 2 * np.searchsorted(times, graph.done[over]) + 1
    at_beginning = first + 2 * np.searchsorted(times, graph.inv[begun])
    return (
        np.concatenate((over, points[:-1], at_beginning)),
        np.concatenate((at_end, points[1:], begun)),
        first + len(points),
    )


def strongly_connected(source: Ints, target: Ints, count: int) -> Ints:
    """Vertex -> the number of its strong component, by Tarjan's algorithm without recursion; -1: no edge
    out. (networkx would want some hundred bytes for each of what can be millions of edges.)"""
    order = np.argsort(source, kind="stable")
    heads: list[int] = target[order].tolist()
    starts: list[int] = np.searchsorted(source[order], np.arange(count + 1)).tolist()
    labels, open_, met = [-1] * count, bytearray(count), [0] * count
    low, stack, counter, number = [0] * count, [], 0, 0
    for root in np.unique(source).tolist():
        if met[root]:
            continue
        path, places = [root], [starts[root]]
        counter += 1
        met[root] = low[root] = counter
        stack.append(root)
        open_[root] = 1
        while path:
            vertex, place = path[-1], places[-1]
            if place < starts[vertex + 1]:
                places[-1] += 1
                head = heads[place]
                if not met[head]:
                    counter += 1
                    met[head] = low[head] = counter
                    stack.append(head)
                    open_[head] = 1
                    path.append(head)
                    places.append(starts[head])
                elif open_[head] and met[head] < low[vertex]:
                    low[vertex] = met[head]
                continue
            path.pop()
            places.pop()
            if path and low[vertex] < low[path[-1]]:
                low[path[-1]] = low[vertex]
            if low[vertex] == met[vertex]:
                while open_[vertex]:
                    member = stack.pop()
                    open_[member] = 0
                    labels[member] = number
                number += 1
    return np.array(labels, dtype=np.int64)
