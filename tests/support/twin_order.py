"""The twin's findings in the order of what clients saw, one function for each; and the cycles.

Rules kept here: a process is sequential, so its order is the order of its lines; between processes only "was
answered before the other was invoked" orders anything; nothing is claimed below the final log_start.

Of cycles every op is a vertex, every edge is found pair by pair, every level's components anew. A failed send
wrote nothing, and a value that was sent twice takes no part; what an op read it had seen when it was
answered, whatever the answer, while its writes may come later unless it was answered ok; a component is
reported at the weakest levels that make one, and not at a level that has all their edges and contains it.
Only reads of each other's writes (with time or process) are a bug; a cycle that uses the order of records in
a log is permitted by isolation, because open transactions may interleave there.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import networkx as nx
from twin_facts import UNNAMED, World, beginnings, reads_of
from twin_folder import Row
from twin_permits import (
    ISOLATION,
    SUBSCRIBE,
    Cause,
    Found,
    first,
    follows,
    follows_offsets,
    losing_cause,
    retried,
    uncommitted,
)

Named = tuple[str, Found]


def realtime_order(world: World) -> Iterator[Found]:
    """Send a was answered ok before send b was invoked, but b, ok too, has the lower offset. One finding for
    each b; it is permitted only if it is with every such a."""
    placed = [send for send in world.oks if send.offset is not None and not world.folder.breach
              and send.process not in world.overlapping]
    for b in placed:
        earlier = [a for a in placed if a.partition == b.partition and a.offset > b.offset
                   and b.invoked is not None and a.completed < b.invoked]
        if earlier:
            yield b.partition, every(follows(world, [a, b], acks=True) for a in earlier)


def every(causes: Iterator[Cause | None]) -> Cause | None:
    """Permitted by the first-named of the causes if each finding has one; else not at all."""
    given = [*causes]
    return None if None in given else first(given)


def nonmonotonic_send(world: World) -> Iterator[Found]:
    """A process's ok send in one op got a lower offset than its ok send in an earlier op. A permitted loss of
    either, or retries, may permit it. If indexes do not rise, it is unknown which op was the earlier."""
    for b, earlier in lower_sends(world, lambda a, b: bool(a.completed < b.completed)):
        if b.process not in world.overlapping and not world.folder.disordered:
            yield b.partition, follows_all(world, b, earlier)


def int_nonmonotonic_send(world: World) -> Iterator[Found]:
    """Inside one ok send or transaction, a later micro-send got a lower offset than an earlier one."""
    for b, earlier in lower_sends(world, lambda a, b: a.completed == b.completed and a.place < b.place):
        yield b.partition, follows_all(world, b, earlier)


def follows_all(world: World, b: Row, earlier: list[Row]) -> Cause | None:
    return every(follows(world, [a, b], acks=True) for a in earlier) or retried(world)


def lower_sends(world: World, before: Callable[[Row, Row], bool]) -> Iterator[tuple[Row, list[Row]]]:
    """Each ok send with the earlier sends of its process and partition that have a higher offset: its ack's;
    without one the only offset at which its value was read."""
    placed = [(send, {send.offset} if send.offset is not None else send.read_at) for send in world.oks]
    for b, mine in placed:
        earlier = [a for a, theirs in placed if (a.process, a.partition) == (b.process, b.partition)
                   and before(a, b) and len(mine) == len(theirs) == 1 and max(theirs) > max(mine)]
        if earlier:
            yield b, earlier


# -- polls ------------------------------------------------------------------------------------------------

def poll_findings(world: World) -> Iterator[Named]:
    """Walks every process's lines once. A poll's first read of a partition is compared with the last read of
    the last ok poll (nonmonotonic-poll: not higher; poll-skip: a known record between them, not returned
    since); each further read with the one before it in the same poll (the int- forms). A transaction is a
    poll like any other; a crash ends the consumer and its positions."""
    for process in {line.process for line in world.lines if line.process >= 0}:
        held: dict[int, tuple[Row, set[int]]] = {}  # the last ok poll's last read, and what was shown since
        subscribed = False
        across = world.complete and process not in world.overlapping
        for line in (line for line in world.lines if line.process == process and line.type != "invoke"):
            if line.f in ("assign", "subscribe") and line.type == "ok":
                subscribed = line.f == "subscribe"
                held = {key: held[key] for key in held if key in line.partitions}
            held = {} if line.f == "crash" else held
            reads = reads_of(line)
            for key in {read.partition for read in reads}:
                mine = [read for read in reads if read.partition == key]
                # a failed poll's records will be read again
                here = {read.offset for read in mine if line.type != "fail"}
                if key in held and across:
                    last, shown = held[key]
                    yield from step(world, last, mine[0], shown | here, "", subscribed=subscribed)
                for before, after in pairwise(mine):
                    yield from step(world, before, after, here, "int-", subscribed=False)
                if line.type == "ok":
                    held[key] = (mine[-1], set())
                elif key in held:
                    held[key][1].update(here)


def step(world: World, last: Row, following: Row, shown: set[int], form: str, *, subscribed: bool
         ) -> Iterator[Named]:
    """From one read of a partition to the next: whether it goes backwards, or skips a record. A permitted
    loss, or a subscription, excuses it; but nothing excuses an order inside one poll."""
    key, by = last.partition, Cause(SUBSCRIBE) if subscribed else None
    home = world.partitions.get(key, UNNAMED)
    start = max([home.log_start, *beginnings(world, key)])
    if following.offset <= last.offset:
        if following.offset >= start:
            lost = follows_offsets(world, key, range(following.offset, last.offset + 1)) or by
            yield form + "nonmonotonic-poll", (key, None if form else lost)
        return
    between = range(last.offset + 1, following.offset)
    skipped = {offset for offset in known_offsets(world, home) if offset in between and offset >= start}
    unreadable = any(place.partition == key and place.offset in between for line in world.lines
                     if line.process == following.process and line.type != "invoke" and line.f == "poll"
                     for place in line.corrupt or [])
    if skipped - shown and not unreadable:
        lost = follows_offsets(world, key, between) or by
        yield form + "poll-skip", (key, None if form and home.usable else lost)


def known_offsets(world: World, home: Row) -> set[int]:
    """Offsets that certainly have a record of ours: in the leader's final log, not aborted; without that log,
    offsets that acks and reads prove, unless compaction may have removed the record since."""
    if home.usable:
        return {entry.offset for entry in home.leader_log if entry.value is not None and not entry.aborted}
    if not home.named or home.compact:
        return set()
    # An ack of a value that was sent twice also proves a record's offset, though not which send's.
    acked = {send.offset for op in world.ops for send in op.sends if send.partition == home.key
             and world.given.acks == "all"}  # else readers may not find it
    return (acked | {read.offset for read in world.reads if read.partition == home.key}) - {None}


def end_offset_regressed(world: World) -> Iterator[Found]:
    """A process got an end offset below its last one, or not above what it had polled, or behind an ack. If
    indexes do not rise, what came before is unknown."""
    last: dict[tuple[int, int], tuple[int, int]] = {}  # (process, partition) -> the highest end, and its line
    polled: dict[tuple[int, int], tuple[int, int]] = {}  # ... -> (above all its reads, the first line)
    for line in world.lines:
        if line.type == "invoke" or line.process < 0 or line.process in world.overlapping:
            continue  # of two answers to open questions nobody knows which was asked first
        for read in reads_of(line):
            place = (read.process, read.partition)
            if read.offset + 1 > polled.get(place, (0, 0))[0]:
                polled[place] = (read.offset + 1, line.position)
        answers = line.offsets if line.f == "list_offsets" and line.type == "ok" else []
        for key, offset in sorted({(end.partition, end.offset) for end in answers}):
            acked = max(acked_to(world, line, end) for end in answers
                        if (end.partition, end.offset) == (key, offset))
            known = [last.get((line.process, key), (0, 0)), polled.get((line.process, key), (0, 0)), acked]
            since = [shown for above, shown in known if above > offset]
            if since and not world.folder.disordered:
                yield key, fallen(world, key, range(offset, max(known)[0]), min(since))
        for key in {end.partition for end in answers}:
            highest = max(end.offset for end in answers if end.partition == key)
            last[line.process, key] = (highest, line.position)


def acked_to(world: World, line: Row, end: Row) -> tuple[int, int]:
    """Above the highest record that was acked by acks=all before this answer was asked for, and appended in
    the epoch of the leader that answered; and the first line that acked it."""
    given = world.given
    isolation = (world.run.isolation_of or {}).get(
        str(line.process), None if "isolation" in world.strange else given.isolation)
    # Of a send that was repeated the ack may be a later leader's than the record.
    once = not (given.idempotence or given.retries or "idempotence" in world.strange)
    if (isolation != "read_uncommitted" or given.acks != "all" or not once
            or end.partition not in world.partitions or end.epoch is None or end.epoch < 0):
        return 0, 0
    asked = max((other.position for other in world.lines if other.position < line.position
                 and (other.process, other.f, other.type) == (line.process, "list_offsets", "invoke")),
                default=-1)
    acks = [(other, send) for other in world.lines if other.position < line.position and other.type == "ok"
            for send in other.sends or [] if send.partition == end.partition and send.offset is not None]
    above = max((send.offset + 1 for other, send in acks if other.position < asked and other.f == "send"
                 and send.value not in world.repeated and end.epoch in epochs_of(world, send)), default=0)
    return above, min((other.position for other, send in acks if send.offset + 1 == above), default=0)


def epochs_of(world: World, send: Row) -> set[int]:
    """The epochs in which the ack, a read or a log says that this record was appended."""
    told = [send, *(read for line in world.lines for read in reads_of(line)),
            *(entry for log in world.partitions[send.partition].logs.values() for entry in log)]
    return {one.epoch for one in told if one.epoch is not None and (one.partition, one.offset, one.value)
            == (send.partition, send.offset, send.value)}


def fallen(world: World, key: int, concerned: range, since: int) -> Cause | None:
    """A record that was lost by a permitted cause; or there may have been one of which nobody knows the
    offset (in doubt, or a marker): it was there when line `since` showed that the log was longer."""
    known, home = follows_offsets(world, key, concerned), world.partitions.get(key, UNNAMED)
    there = Row(partition=key, home=home, type="info", invoked=since, since=since, invoked_time=-(1 << 70))
    cause = known or losing_cause(world, there)
    return known or (cause and Cause(cause.by, sure=False))


# -- cycles -----------------------------------------------------------------------------------------------

WR, WW, PROCESS, REALTIME = "wr", "ww", "process", "realtime"
PRECOMMITTED = "precommitted-read"
BY_PROCESS = ("G0-process", "G1c-process")
CYCLES = (PRECOMMITTED, "G0", "G1c", *BY_PROCESS, "G0-realtime", "G1c-realtime")
LEVELS = [({*edges, *order}, f"{name}{suffix}")  # weakest first
          for edges, name in (({WR}, "G1c"), ({WW}, "G0"), ({WW, WR}, "G1c"))
          for order, suffix in ((set(), ""), ({PROCESS}, "-process"), ({REALTIME}, "-realtime"))]
Edges = set[tuple[int, int]]  # positions in the list of vertices


def cycle_findings(world: World) -> Iterator[Named]:
    yield from ((PRECOMMITTED, one) for one in precommitted_read(world))
    yield from cycles(world) if world.txns else early_reads(world)


def precommitted_read(world: World) -> Iterator[Found]:
    """A transaction of any outcome read a value that it sends itself; one finding for each op, also if its
    answer comes twice."""
    seen: set[tuple[int, int]] = set()
    for op in sorted(world.ops, key=lambda op: op.completed or 0):
        own = {(send.partition, send.value) for send in op.sends if send.value not in world.repeated} - seen
        mine = {(read.partition, read.value) for read in op.reads} & own
        if op.f == "txn" and mine:
            yield None, uncommitted(world)
            seen |= mine


def early_reads(world: World) -> Iterator[Named]:
    """Without transactions: a value was read before its send was invoked. One finding for each value, by
    process if its own sender was among the readers."""
    for op in world.ops if not world.folder.breach else []:
        for send in writes(world, op):
            early = {read.process for read in world.reads if op.invoked is not None
                     and (read.partition, read.value) == (send.partition, send.value)
                     and read.index < op.invoked}
            own = op.process in early and op.process not in world.overlapping
            if early:
                yield "G1c-process" if own else "G1c-realtime", (None, None)


def writes(world: World, op: Row) -> list[Row]:
    """The op's possible writes, without values that are sent twice."""
    failed = {(send.partition, send.value) for send in world.sends if send.type == "fail"}
    return [send for send in op.sends
            if (send.partition, send.value) not in failed and send.value not in world.repeated]


def edges_of(world: World, ops: list[Row]) -> dict[str, Edges]:
    """Every edge of every kind, also transitive ones; none from an op to itself. The writer of a value is the
    op that invoked its send (no other, even if the answer is another's)."""
    writers = {(send.partition, send.value): at for asked in (False, True) for at, op in enumerate(ops)
               if (op.invoked is not None) == asked for send in writes(world, op)}
    befores = {(one, other) for one, a in enumerate(ops) for other, b in enumerate(ops) if is_before(a, b)}
    made: dict[str, Edges] = {
        WR: {(writers[read.partition, read.value], at) for at, op in enumerate(ops) for read in op.reads
             if (read.partition, read.value) in writers},
        WW: {(one, other) for key in {key for key, _ in writers}
             for one, other in pairwise(version_order(world, writers, key))
             if one is not None and other is not None},
        PROCESS: {(one, other) for one, other in befores if ops[one].process == ops[other].process
                  and ops[one].process not in world.overlapping},
        REALTIME: befores,
    }
    return {kind: {(one, other) for one, other in edges if one != other} for kind, edges in made.items()}


def is_before(a: Row, b: Row) -> bool:
    """Some part of a was over when b was invoked: all of it if a was ok, else its reads."""
    over = a.completed is not None and (a.type == "ok" or bool(a.reads))
    return over and b.invoked is not None and bool(a.completed < b.invoked)


def version_order(world: World, writers: dict[tuple[int, int], int], key: int) -> list[int | None]:
    """The writers of our records that acks of ok sends and reads prove, by offset. An offset with two values
    is left out; a record whose writer is unknown, or failed, has its position and no edge."""
    shown: dict[int, set[int]] = {}
    for one in [*world.oks, *world.reads]:
        if one.partition == key and one.offset is not None and one.value not in world.repeated:
            shown.setdefault(one.offset, set()).add(one.value)
    return [writers.get((key, min(values))) for _, values in sorted(shown.items()) if len(values) == 1]


def cycles(world: World) -> Iterator[Named]:
    """One finding for each component of more than one vertex, at the weakest levels that have it."""
    ops = [op for op in world.ops if op.sends or op.reads]
    edges = edges_of(world, ops)
    found: list[tuple[set[str], set[int]]] = []
    for kinds, name in LEVELS:
        if world.folder.breach and kinds & {PROCESS, REALTIME}:
            continue  # an index may be wrong
        # An op that comes after another op of its process also comes after it in time.
        within = kinds | ({PROCESS} if REALTIME in kinds else set())
        for members in components(ops, edges, kinds):
            if not any(weaker < within and inner <= members for weaker, inner in found):
                found.append((kinds, members))
                yield name, (None, Cause(ISOLATION) if WW in kinds else uncommitted(world))


def components(ops: list[Row], edges: dict[str, Edges], kinds: set[str]) -> list[set[int]]:
    """The ops of each component of this level. An op reads, then writes; if time counts, only an op that was
    answered ok had written by its answer, so a path that reaches another op's write does not leave by its
    answer. Otherwise reading and writing are one vertex."""
    graph = nx.DiGraph()
    for at, op in enumerate(ops):
        graph.add_edge((at, "read"), (at, "wrote"))
        if op.type == "ok" or not kinds & {PROCESS, REALTIME}:
            graph.add_edge((at, "wrote"), (at, "read"))
    for kind in kinds:  # dependencies leave an op's writes; those of WW reach another's
        leaves = "wrote" if kind in (WR, WW) else "read"
        comes = "wrote" if kind == WW else "read"
        graph.add_edges_from(((one, leaves), (other, comes)) for one, other in edges[kind])
    found = [{at for at, _ in half} for half in nx.strongly_connected_components(graph)]
    return [members for members in found if len(members) > 1]
