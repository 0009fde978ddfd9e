"""The shortest cycle of a strong component, and of the shortest one with the fewest edges of RW.

Rules
1. A cycle is a list of steps; each goes to where the next one begins, the last to where the first does.
2. Where real time takes part, one step of it is enough: of the pieces between such steps one begins after the
   end of its last op, else time would rise all the way round.
3. Every cycle has an edge that time does not agree with: the search begins with the sources of those.
4. The search stops at the shortest there can be, or after STEPS edges with the shortest it has found.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from checkers.graphs import DEPENDENCIES, NEVER, PROCESS, REALTIME, Graph, Ints
from checkers.transactions import RW

STEPS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One edge of a cycle."""

    kind: int
    source: int
    target: int
    record: int  # row of the table of records; -1: it is not about one


Cycle = list[Step]
Ways = dict[int, tuple[int, Step | None]]  # vertex -> edges of RW on the way there, the way's last step


@dataclass(frozen=True, slots=True, kw_only=True)
class Maze:
    """The strong components of a level, to be walked through: their edges by source, and who began first."""

    graph: Graph
    timed: bool
    edges: Ints  # those within components, by source
    source: Ints  # of each of these edges
    starts: dict[int, list[int]]  # component -> the vertices that a cycle may begin with
    turns: dict[tuple[int, int], list[int]]  # component and process -> its vertices, in order
    labels: Ints
    spent: list[int] = field(default_factory=lambda: [0])  # edges walked for the component at hand
    known: dict[int, list[Step]] = field(default_factory=dict)

    def steps(self, vertex: int) -> list[Step]:
        """The listed edges from this vertex."""
        if vertex not in self.known:
            self.known[vertex] = list(self._found(vertex))
        self.spent[0] += len(self.known[vertex])
        return self.known[vertex]

    def _found(self, vertex: int) -> Iterator[Step]:
        first, last = np.searchsorted(self.source, (vertex, vertex + 1)).tolist()
        graph, mine = self.graph, self.edges[first:last]
        for kind, target, record in zip(
            graph.kind[mine].tolist(), graph.target[mine].tolist(), graph.record[mine].tolist(), strict=True
        ):
            yield Step(kind=kind, source=vertex, target=target, record=record)

    def later(self, vertex: int, passed: dict[tuple[int, int], int]) -> list[Step]:
        """The steps to the later ops of its process, without those to which another one led before: of each
        process what was passed is the rest of its ops from some place on."""
        if not self.turns:
            return []
        key = int(self.labels[vertex]), int(self.graph.process[vertex])
        queue = self.turns.get(key, [])
        first = bisect_right(
            queue, int(self.graph.done[vertex]), key=lambda other: int(self.graph.inv[other])
        )
        news = queue[first : passed.get(key, len(queue))]
        passed[key] = min(first, passed.get(key, first))
        self.spent[0] += len(news)
        return [Step(kind=PROCESS, source=vertex, target=other, record=-1) for other in news]


def maze_of(graph: Graph, kinds: frozenset[int], labels: Ints) -> Maze:
    """`labels`: vertex -> its component by edges of these kinds, -1: it is in none."""
    edges = graph.among(kinds & {*DEPENDENCIES}, labels >= 0)
    edges = edges[labels[graph.source[edges]] == labels[graph.target[edges]]]
    edges = edges[np.argsort(graph.source[edges], kind="stable")]
    first = np.unique(graph.source[edges[graph.against(edges)]])
    first = first[np.lexsort((first, -graph.inv[first]))]  # who began last is where time is turned
    turns: dict[tuple[int, int], list[int]] = {}
    if PROCESS in kinds:
        mine = np.flatnonzero((labels >= 0) & (graph.process >= 0) & (graph.inv >= 0))
        mine = mine[np.lexsort((mine, graph.inv[mine]))]
        for vertex in mine.tolist():
            turns.setdefault((int(labels[vertex]), int(graph.process[vertex])), []).append(vertex)
    starts: dict[int, list[int]] = {}
    for label, vertex in zip(labels[first].tolist(), first.tolist(), strict=True):
        starts.setdefault(label, []).append(vertex)
    return Maze(graph=graph, timed=REALTIME in kinds, edges=edges, source=graph.source[edges], starts=starts,
                turns=turns, labels=labels)  # fmt: skip


def shortest_cycle(maze: Maze, label: int) -> Cycle:
    """The shortest cycle of this component."""
    best: Cycle = []
    maze.spent[0] = 0
    for start in maze.starts[label]:
        found = round_trip(maze, start, longest_of_use(best) - maze.timed)
        if found and (not best or cost(found) < cost(best)):
            best = found
        if best and (cost(best) <= (2, 1) or maze.spent[0] > STEPS):
            break
    assert best, f"no cycle from {len(maze.starts[label])} vertices of a strong component"
    return best


def cost(cycle: Cycle) -> tuple[int, int]:
    return len(cycle), sum(step.kind == RW for step in cycle)


def longest_of_use(best: Cycle) -> int:
    """How long a cycle may be that is better than this one."""
    if not best:
        return NEVER
    length, against = cost(best)
    return length if against > 1 else length - 1


def round_trip(maze: Maze, start: int, limit: int) -> Cycle:
    """The shortest way from the vertex back to it (timed: to one that was over before it began, and back by
    time) in at most `limit` steps that are no time; none: []."""
    ways: Ways = {start: (0, None)}
    frontier, depth, begun, done = [start], 0, int(maze.graph.inv[start]), maze.graph.done
    passed: dict[tuple[int, int], int] = {}
    while frontier and depth < limit:
        depth += 1
        reached: dict[int, tuple[int, Step]] = {}
        ends: list[tuple[int, Step]] = []
        for vertex in frontier:
            for step in chain(maze.steps(vertex), maze.later(vertex, passed)):
                spent, head = ways[vertex][0] + (step.kind == RW), step.target
                if int(done[head]) < begun if maze.timed else head == start:
                    ends.append((spent, step))
                elif head not in ways and (head not in reached or spent < reached[head][0]):
                    reached[head] = (spent, step)
        if ends:
            last = min(ends, key=lambda end: end[0])[1]
            back = [Step(kind=REALTIME, source=last.target, target=start, record=-1)] if maze.timed else []
            return [*reversed([last, *walked(ways, last.source)]), *back]
        ways.update(reached)
        frontier = list(reached)
    return []


def walked(ways: Ways, vertex: int) -> Iterator[Step]:
    """The steps by which a vertex was reached, the last one first."""
    step = ways[vertex][1]
    while step is not None:
        yield step
        step = ways[step.source][1]
