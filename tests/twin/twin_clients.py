"""The twin's findings in what clients sent and saw, one function for each: values, their order, cycles.

Rules kept here: what a poll returned counts whatever its outcome; an offset is evidence only of an ok send; a
value that was sent twice proves nothing; a process is sequential, so its order is the order of its lines;
between processes only "was answered before the other was invoked" orders anything; nothing is claimed below
the final log_start. A function yields (partition, cause) pairs, one for each finding.

Of cycles every op is a vertex, every edge is found pair by pair, every level's components anew. A failed send
wrote nothing. Only reads of each other's writes (with time or process) are a bug; a cycle that uses the order
of records in a log is permitted by isolation, because open transactions may interleave there.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import networkx as nx
from twin_facts import LONG_AGO, UNNAMED, beginnings, grouped, reads_of, sends_of
from twin_folder import Row, World
from twin_permits import (
    INTERNAL,
    ISOLATION,
    SUBSCRIBE,
    Cause,
    Found,
    first,
    follows,
    follows_offsets,
    follows_values,
    internal_topics,
    losing_cause,
    of_lost_write,
    retried,
    uncommitted,
)

Named = tuple[str, Found]


def lost_write(world: World) -> Iterator[Found]:
    """An ok send whose record is lost, or is, of a txn, in the leader's final log only as aborted."""
    for send in world.oks:
        if send.lost:
            yield send.partition, of_lost_write(world, send)
        elif send.f == "txn" and not send.home.blind and aborted_at(send) is not None:
            yield send.partition, internal_topics(world, send)


def unseen(world: World) -> Iterator[Found]:
    """Settled and read to the end: an ok send in the leader's final log, not aborted, at its offset below the
    high watermark (the last stable offset under read_committed), which no final read returned."""
    if not world.settled or not world.complete:
        return
    committed = world.given.isolation == "read_committed" or "isolation" in world.unclear
    for send in world.oks:
        home = send.home
        if home.usable and home.key in world.read_to_the_end:
            there = any(entry.value == send.value and not entry.aborted
                        and home.log_start <= entry.offset < (home.decided_end if committed else home.hw)
                        and send.offset in (None, entry.offset) for entry in home.leader_log)
            if there and send.ident not in world.returned:
                yield home.key, None


def inconsistent_offsets(world: World) -> Iterator[Found]:
    """Clients saw two values at one offset: in acks of ok sends, in reads, or in one of each."""
    shown = grouped(((one.partition, one.offset), one.value) for one in [*world.oks, *world.reads]
                    if one.offset is not None)
    for (key, _), values in shown.items():
        if len(values) > 1:
            yield key, follows_values(world, key, values, acks=True)


def phantom(world: World) -> Iterator[Found]:
    """A value read, or in any replica's log, that no invocation sent to that partition."""
    sent = {send.ident for line in world.lines if line.type == "invoke" for send in sends_of(line)}
    met = {read.ident for read in world.reads}
    met |= {(home.key, entry.value) for home in world.partitions.values() for log in home.logs.values()
            for entry in log if entry.value is not None}
    yield from ((key, None) for key, _ in (met - sent if world.complete else ()))


def G1a(world: World) -> Iterator[Found]:
    """A value whose send certainly failed was read, or is in the leader's final log below the high watermark
    (in a run with transactions, below the last stable offset: above it, its abort may be under way) and not
    aborted. Reading it is allowed there under read_uncommitted. Or a txn's value, of any outcome, was read by
    an ok poll under read_committed where its only entry in the leader's log is aborted."""
    permitted = uncommitted(world) if world.txns else None
    of_txns = {send.ident for line in world.lines if line.f == "txn" for send in sends_of(line)}
    read = {(read.ident, read.offset) for op in world.ops if op.type == "ok" for read in op.reads}
    for send in (send for send in world.sends if not send.twice):
        home, aborted = send.home, aborted_at(send)
        if send.type == "fail":
            end = home.decided_end if world.txns else home.hw
            logged = any(entry.value == send.value and not entry.aborted and entry.offset < end
                         for entry in home.leader_log)
            if logged or send.read_at:
                internal = internal_topics(world, send) if aborted is not None and world.txns else None
                yield send.partition, internal if logged or permitted is None else permitted
        elif permitted is None and send.ident in of_txns and (send.ident, aborted) in read:
            yield send.partition, internal_topics(world, send)


def aborted_at(send: Row) -> int | None:
    """Where a complete leader's log has this value, if it has it in one place and only as aborted."""
    mine = [entry for entry in send.home.leader_log if send.home.usable and entry.value == send.value]
    places = {entry.offset for entry in mine}
    return min(places) if len(places) == 1 and all(entry.aborted for entry in mine) else None


def saw_then_lost(world: World) -> Iterator[Found]:
    """An offset at or above log_start was read with a value that the leader's final log lacks there."""
    for key, offset, value in {(read.partition, read.offset, read.value) for read in world.reads}:
        home = world.partitions.get(key, UNNAMED)
        if not home.blind and offset >= home.log_start and offset not in home.places[value]:
            yield key, follows_values(world, key, [value])


def duplicate(world: World) -> Iterator[Found]:
    """One value at two offsets of the leader's final log (without aborted entries), or in what clients saw:
    in reads and in its own ack (which the leader's log may prove wrong: that is a lost write)."""
    logged = grouped(((home.key, entry.value), entry.offset) for home in world.partitions.values()
                     for entry in home.leader_log if entry.value is not None and not entry.aborted)
    shown = [*world.reads, *(send for send in world.oks if not (send.home.usable and send.lost))]
    seen = grouped((one.ident, one.offset) for one in shown if one.offset is not None)
    for key, value in logged.keys() | seen.keys():
        twice = len(logged[key, value]) > 1 or len(seen[key, value]) > 1
        if twice and value not in world.repeated:
            yield key, follows_values(world, key, [value]) or retried(world)


def torn_transaction(world: World) -> Iterator[Found]:
    """Of a txn that is not ok one record is certainly committed and one certainly is not. A pair is excused
    by what excuses either of its records."""
    for op in world.ops if world.complete else []:
        if op.f != "txn" or op.type == "ok" or op.invoked is None:
            continue
        sends = [send for send in op.sends if send.value not in world.repeated]
        fates = [(send, is_committed(world, op, send)) for send in sends]
        pairs = [pair_cause(world, one, other) for one, committed in fates if committed is True
                 for other, lacking in fates if lacking is False]
        if pairs:
            yield None, None if None in pairs else min(filter(None, pairs), key=lambda cause: cause.sure)


def is_committed(world: World, op: Row, send: Row) -> bool | None:
    """None: nobody knows."""
    home = world.partitions.get(send.partition)
    if home is None:
        return None
    if home.inferred:
        return by_reads(world, op, send)
    if not world.settled or not home.usable or home.row.lso is None:
        return None
    mine = [entry for entry in home.leader_log if entry.value == send.value]
    live = [entry.offset for entry in mine if not entry.aborted]
    if live:
        return True if min(live) < home.decided_end else None
    # Nothing was deleted from a log that begins at 0.
    return False if mine or (not home.compact and home.log_start == 0) else None


def by_reads(world: World, op: Row, send: Row) -> bool | None:
    """Without logs, under read_committed: an ok poll returned it; or it was acked and all went past it."""
    reads = [(other.type, read) for other in world.ops for read in other.reads if read.ident == send.ident]
    acked = min((told.offset for told in (op.answer or Row()).sends or [] if told.offset is not None
                 and (told.partition, told.value) == send.ident), default=None)
    if uncommitted(world) or any(kind == "ok" for kind, _ in reads):
        return None if uncommitted(world) else True
    passed = acked is not None and not reads and any(
        before.offset < acked < after.offset for before, after in neighbours(world, send.partition))
    return False if passed else None


def neighbours(world: World, key: int) -> Iterator[tuple[Row, Row]]:
    """Each two reads of the partition of which one process got the second right after the first, in ok polls
    and with no move of its own between."""
    for process in {read.process for read in world.reads} - world.overlapping:
        last, subscribed = None, False
        for line in world.answers(process):
            moved = line.f in ("assign", "subscribe") and line.type == "ok"
            last = None if moved or line.f == "crash" else last
            subscribed = line.f == "subscribe" if moved else subscribed
            mine = [read for read in reads_of(line) if read.partition == key] if line.type == "ok" else []
            yield from pairwise(mine)
            if mine:
                if last is not None and not subscribed:
                    yield last, mine[0]
                last = mine[-1]


def pair_cause(world: World, one: Row, other: Row) -> Cause | None:
    """The record is lost by a permitted cause; or the coordinator's word, or its marker, may be."""
    causes = []
    for send in world.sends:
        if send.ident in (one.ident, other.ident):
            cause = of_lost_write(world, send) if send.lost else None
            surely = cause is not None and cause.sure
            causes.append(Cause(INTERNAL) if surely else internal_topics(world, send))
    return first(causes)


# -- order -----------------------------------------------------------------------------------------------

def realtime_order(world: World) -> Iterator[Found]:
    """Send a was answered ok before send b was invoked, but b, ok too, has the lower offset. One finding for
    each b; it is permitted only if it is with every such a."""
    placed = [send for send in world.oks if send.offset is not None and not world.breach
              and send.process not in world.overlapping]
    for b in placed:
        earlier = [a for a in placed if a.partition == b.partition and a.offset > b.offset
                   and b.invoked is not None and a.completed < b.invoked]
        if earlier:
            yield b.partition, follows_all(world, b, earlier)


def follows_all(world: World, b: Row, earlier: list[Row]) -> Cause | None:
    """Permitted by the loss of b; or of the highest record before it, if the losses of all those are."""
    of_all = all(follows(world, [a], acks=True) for a in earlier)
    highest = max(earlier, key=lambda a: (max(a.read_at) if a.offset is None else a.offset, -a.completed))
    return follows(world, [highest, b] if of_all else [b], acks=True)


def nonmonotonic_send(world: World) -> Iterator[Found]:
    """A process's ok send in one op got a lower offset than its ok send in an earlier op. A permitted loss of
    either, or retries, may permit it. If indexes do not rise, it is unknown which op was the earlier."""
    yield from lower_sends(world, lambda a, b: bool(a.completed < b.completed)
                           and b.process not in world.overlapping and not world.disordered)


def int_nonmonotonic_send(world: World) -> Iterator[Found]:
    """Inside one ok send or transaction, a later micro-send got a lower offset than an earlier one."""
    yield from lower_sends(world, lambda a, b: a.completed == b.completed and a.place < b.place)


def lower_sends(world: World, before: Callable[[Row, Row], bool]) -> Iterator[Found]:
    """Each ok send with earlier ones of its process and partition that have a higher offset: its ack's;
    without one the only offset at which its value was read."""
    placed = [(send, {send.offset} if send.offset is not None else send.read_at) for send in world.oks]
    for b, mine in placed:
        earlier = [a for a, theirs in placed if (a.process, a.partition) == (b.process, b.partition)
                   and before(a, b) and len(mine) == len(theirs) == 1 and max(theirs) > max(mine)]
        if earlier:
            yield b.partition, follows_all(world, b, earlier) or retried(world)


def poll_findings(world: World) -> Iterator[Named]:
    """Walks every process's lines once. A poll's first read of a partition is compared with the last read of
    the last ok poll (nonmonotonic-poll: not higher; poll-skip: a known record between them, not returned
    since); each further read with the one before it in the same poll (the int- forms). A transaction is a
    poll like any other; a crash ends the consumer and its positions."""
    for process in {line.process for line in world.lines if line.process >= 0}:
        held: dict[int, tuple[Row, set[int]]] = {}  # the last ok poll's last read, and what was shown since
        subscribed = False
        across = world.complete and process not in world.overlapping
        for line in world.answers(process):
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
    unreadable = any(place.partition == key and place.offset in between
                     for line in world.answers(following.process) if line.f == "poll"
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
            if since and not world.disordered:
                yield key, fallen(world, key, range(offset, max(known)[0]), min(since))
        for key in {end.partition for end in answers}:
            highest = max(end.offset for end in answers if end.partition == key)
            last[line.process, key] = (highest, line.position)


def acked_to(world: World, line: Row, end: Row) -> tuple[int, int]:
    """Above the highest record that was acked by acks=all before this answer was asked for, and appended in
    the epoch of the leader that answered; and the first line that acked it."""
    given = world.given
    isolation = (world.run.isolation_of or {}).get(
        str(line.process), None if "isolation" in world.unclear else given.isolation)
    # Of a send that was repeated the ack may be a later leader's than the record.
    once = not (given.idempotence or given.retries or "idempotence" in world.unclear)
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
    logged = [entry for log in world.partitions[send.partition].logs.values() for entry in log]
    return {one.epoch for one in [send, *world.reads, *logged] if one.epoch is not None
            and (one.partition, one.offset, one.value) == (send.partition, send.offset, send.value)}


def fallen(world: World, key: int, concerned: range, since: int) -> Cause | None:
    """A record that was lost by a permitted cause; or one may have been there of which nobody knows the
    offset (in doubt, or a marker), when line `since` showed that the log was longer."""
    known, home = follows_offsets(world, key, concerned), world.partitions.get(key, UNNAMED)
    there = Row(partition=key, home=home, type="info", invoked=since, since=since, invoked_time=LONG_AGO)
    cause = known or losing_cause(world, there)
    return known or (cause and Cause(cause.by, sure=False))


# -- cycles -----------------------------------------------------------------------------------------------

WR, WW, PROCESS, REALTIME = "wr", "ww", "process", "realtime"
BY_PROCESS = ("G0-process", "G1c-process")
CYCLES = ("G0", "G1c", *BY_PROCESS, "G0-realtime", "G1c-realtime")
LEVELS = [({*edges, *order}, f"{name}{suffix}")  # weakest first
          for edges, name in (({WR}, "G1c"), ({WW}, "G0"), ({WW, WR}, "G1c"))
          for order, suffix in ((set(), ""), ({PROCESS}, "-process"), ({REALTIME}, "-realtime"))]
Edges = set[tuple[int, int]]  # positions in the list of vertices


def precommitted_read(world: World) -> Iterator[Found]:
    """A transaction of any outcome read a value that it sends itself; one finding for each op, also if its
    answer comes twice."""
    seen: set[tuple[int, int]] = set()
    for op in sorted(world.ops, key=lambda op: op.completed or 0):
        own = {send.ident for send in op.sends if send.value not in world.repeated} - seen
        mine = {read.ident for read in op.reads} & own
        if op.f == "txn" and mine:
            yield None, uncommitted(world)
            seen |= mine


def early_reads(world: World) -> Iterator[Named]:
    """Without transactions: a value was read before its send was invoked. One finding for each value, by
    process if its own sender was among the readers."""
    for op in world.ops if not world.breach else []:
        for send in writes(world, op):
            early = {read.process for read in world.reads if op.invoked is not None
                     and read.ident == send.ident and read.index < op.invoked}
            own = op.process in early and op.process not in world.overlapping
            if early:
                yield "G1c-process" if own else "G1c-realtime", (None, None)


def writes(world: World, op: Row) -> list[Row]:
    """The op's possible writes, without values that are sent twice."""
    failed = {send.ident for send in world.sends if send.type == "fail"}
    return [send for send in op.sends if send.ident not in failed and send.value not in world.repeated]


def edges_of(world: World, ops: list[Row]) -> dict[str, Edges]:
    """Every edge of every kind, also transitive ones; none from an op to itself. The writer of a value is the
    op that invoked its send, even if the answer is another's; or else the first that was answered."""
    writers = {send.ident: at for asked in (False, True) for at, op in reversed([*enumerate(ops)])
               if (op.invoked is not None) == asked for send in writes(world, op)}
    befores = {(one, other) for one, a in enumerate(ops) for other, b in enumerate(ops) if is_before(a, b)}
    made: dict[str, Edges] = {
        WR: {(writers[read.ident], at) for at, op in enumerate(ops) for read in op.reads
             if read.ident in writers},
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
    shown = grouped((one.offset, one.value) for one in [*world.oks, *world.reads]
                    if one.partition == key and one.offset is not None and one.value not in world.repeated)
    return [writers.get((key, min(values))) for _, values in sorted(shown.items()) if len(values) == 1]


def cycles(world: World) -> Iterator[Named]:
    """One finding for each component of more than one vertex, at the weakest levels that have it."""
    if not world.txns:
        yield from early_reads(world)
        return
    ops = [op for op in world.ops if op.sends or op.reads]
    edges = edges_of(world, ops)
    found: list[tuple[set[str], set[int]]] = []
    for kinds, name in LEVELS:
        if world.breach and kinds & {PROCESS, REALTIME}:
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
