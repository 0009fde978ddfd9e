"""The twin's cycles: every op is a vertex, every edge is found pair by pair, every level's components anew.

Rules kept here: a failed send wrote nothing, and a value that was sent twice takes no part; what an op read
it had seen when it was answered, whatever the answer, while its writes may come later unless it was answered
ok; a component is reported at the weakest levels that make one, and not at a level that has all their edges
and contains it. Only reads of each other's writes (with time or process) are a bug; a cycle that uses the
order of records in a log is permitted by isolation, because open transactions may interleave there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import networkx as nx
from twin_classes import ISOLATION, Cause
from twin_facts import Op, Send, World
from twin_logs import Found

WR, WW, PROCESS, REALTIME = "wr", "ww", "process", "realtime"
Edges = set[tuple[int, int]]  # positions in the list of vertices
Kinds = frozenset[str]

PRECOMMITTED = "precommitted-read"
BY_PROCESS = ("G0-process", "G1c-process")
BY_TIME = ("G0-realtime", "G1c-realtime")
NAMES = (PRECOMMITTED, "G0", "G1c", *BY_PROCESS, *BY_TIME)

LEVELS: tuple[tuple[Kinds, str], ...] = (  # weakest first
    (frozenset({WR}), "G1c"),
    (frozenset({WR, PROCESS}), "G1c-process"),
    (frozenset({WR, REALTIME}), "G1c-realtime"),
    (frozenset({WW}), "G0"),
    (frozenset({WW, PROCESS}), "G0-process"),
    (frozenset({WW, REALTIME}), "G0-realtime"),
    (frozenset({WW, WR}), "G1c"),
    (frozenset({WW, WR, PROCESS}), "G1c-process"),
    (frozenset({WW, WR, REALTIME}), "G1c-realtime"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A component to report, and its level."""

    kinds: Kinds
    members: frozenset[int]


def cycle_findings(world: World) -> Iterator[tuple[str, Found]]:
    """All findings of this module, with their names."""
    yield from ((PRECOMMITTED, one) for one in precommitted_read(world))
    if world.has_txns():
        yield from cycles(world)
    else:
        yield from early_reads(world)


def uncommitted(world: World) -> Cause | None:
    reads_all = world.run["guarantees"].get("isolation") == "read_uncommitted"
    return Cause(by=ISOLATION) if reads_all else None


def precommitted_read(world: World) -> Iterator[Found]:
    """A transaction of any outcome read a value that it sends itself; one finding for each op, also if its
    answer comes twice."""
    seen: set[Value] = set()
    for op in sorted(world.ops, key=lambda op: op.completed or 0):
        own = {(send.partition, send.value) for send in op.sends if send.value not in world.repeated} - seen
        mine = [read for read in op.reads if (read.partition, read.value) in own]
        if op.f == "txn" and mine:
            lowest = min(mine, key=lambda read: (read.partition, read.offset, read.value))
            yield (op.completed, lowest.partition, lowest.offset, lowest.value), uncommitted(world)
            seen |= {(read.partition, read.value) for read in mine}


def early_reads(world: World) -> Iterator[tuple[str, Found]]:
    """Without transactions: a value was read before its send was invoked. One finding for each value, by
    process if its own sender was among the readers."""
    if world.folder.breach:
        return
    for op in world.ops:
        for send in writes(world, op):
            early = {read.process for read in world.reads if op.invoked is not None
                     and (read.partition, read.value) == (send.partition, send.value)
                     and read.index < op.invoked}
            own = op.process in early and op.process not in world.overlapping
            if early:
                name = "G1c-process" if own else "G1c-realtime"
                yield name, ((send.partition, send.value), None)


# -- edges --------------------------------------------------------------------------------------------------

def vertices(world: World) -> list[Op]:
    return [op for op in world.ops if op.sends or op.reads]


def writes(world: World, op: Op) -> list[Send]:
    """The op's possible writes, without values that are sent twice."""
    failed = {(send.partition, send.value) for send in world.sends if send.type == "fail"}
    return [send for send in op.sends
            if (send.partition, send.value) not in failed and send.value not in world.repeated]


Value = tuple[int, int]  # partition and value


def writers_of(world: World, ops: list[Op]) -> dict[Value, int]:
    """The op that may have written each value: the one that invoked its send (no other, even if the answer is
    another's)."""
    writers: dict[Value, int] = {}
    for asked in (False, True):
        for at, op in enumerate(ops):
            if (op.invoked is not None) == asked:
                writers |= {(send.partition, send.value): at for send in writes(world, op)}
    return writers


def edges_of(world: World, ops: list[Op]) -> dict[str, Edges]:
    """Every edge of every kind, also transitive ones; none from an op to itself."""
    writers = writers_of(world, ops)
    versions = {partition: version_order(world, writers, partition) for partition, _ in writers}
    made: dict[str, Edges] = {
        WR: {(writers[read.partition, read.value], at) for at, op in enumerate(ops) for read in op.reads
             if (read.partition, read.value) in writers},
        WW: {(one, other) for order in versions.values() for (_, one), (_, other) in pairwise(order)
             if one is not None and other is not None},
        PROCESS: {(one, other) for one, a in enumerate(ops) for other, b in enumerate(ops)
                  if a.process == b.process and a.process not in world.overlapping and is_before(a, b)},
        REALTIME: {(one, other) for one, a in enumerate(ops) for other, b in enumerate(ops)
                   if is_before(a, b)},
    }
    return {kind: {(one, other) for one, other in edges if one != other} for kind, edges in made.items()}


def is_before(a: Op, b: Op) -> bool:
    """Some part of a was over when b was invoked: all of it if a was ok, else its reads."""
    over = a.completed is not None and (a.type == "ok" or bool(a.reads))
    return over and a.completed is not None and b.invoked is not None and a.completed < b.invoked


Version = tuple[int, int | None]  # offset, and the vertex that wrote its record


def version_order(world: World, writers: dict[Value, int], partition: int) -> list[Version]:
    """Our records that acks of ok sends and reads prove, by offset. An offset with two values is left out; a
    record whose writer is unknown, or failed, has its position and no edge."""
    shown: dict[int, set[int]] = {}
    for send in world.oks():
        if send.partition == partition and send.offset is not None:
            shown.setdefault(send.offset, set()).add(send.value)
    for read in world.reads:
        if read.partition == partition and read.value not in world.repeated:
            shown.setdefault(read.offset, set()).add(read.value)
    single = [(offset, min(values)) for offset, values in sorted(shown.items()) if len(values) == 1]
    return [(offset, writers.get((partition, value))) for offset, value in single]


# -- levels -------------------------------------------------------------------------------------------------

def cycles(world: World) -> Iterator[tuple[str, Found]]:
    """One finding for each component of more than one vertex, at the weakest levels that have it."""
    ops = vertices(world)
    edges = edges_of(world, ops)
    found: list[Component] = []
    for kinds, name in LEVELS:
        if world.folder.breach and kinds & {PROCESS, REALTIME}:
            continue  # an index may be wrong
        for members in components(ops, edges, kinds):
            if any(one.kinds < within(kinds) and one.members <= members for one in found):
                continue
            found.append(Component(kinds=kinds, members=members))
            cause = Cause(by=ISOLATION) if WW in kinds else uncommitted(world)
            yield name, (key_of(ops, members, kinds), cause)


def within(kinds: Kinds) -> Kinds:
    """An op that comes after another op of its process also comes after it in time."""
    return kinds | {PROCESS} if REALTIME in kinds else kinds


DEPENDENCIES = (WR, WW)  # these edges leave an op's writes; those of WW reach another's


def components(ops: list[Op], edges: dict[str, Edges], kinds: Kinds) -> list[frozenset[int]]:
    """The ops of each component of this level. An op reads, then writes; if time counts, only an op that was
    answered ok had written by its answer, so a path that reaches another op's write does not leave by its
    answer. Otherwise reading and writing are one vertex."""
    graph = nx.DiGraph()
    for at, op in enumerate(ops):
        graph.add_edge((at, "read"), (at, "wrote"))
        if op.type == "ok" or not kinds & {PROCESS, REALTIME}:
            graph.add_edge((at, "wrote"), (at, "read"))
    for kind in kinds:
        leaves = "wrote" if kind in DEPENDENCIES else "read"
        comes = "wrote" if kind == WW else "read"
        graph.add_edges_from(((one, leaves), (other, comes)) for one, other in edges[kind])
    found = [frozenset(at for at, _ in half) for half in nx.strongly_connected_components(graph)]
    return [members for members in found if len(members) > 1]


def key_of(ops: list[Op], members: frozenset[int], kinds: Kinds) -> tuple[Any, ...]:
    lines = {line for at in members for line in (ops[at].invoked, ops[at].completed) if line is not None}
    return (tuple(sorted(kinds)), *sorted(lines))
