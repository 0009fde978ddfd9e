"""The twin's findings in the values that clients sent and saw, one function for each.

Rules kept here: what a poll returned counts whatever its outcome; an offset is evidence only of an ok send; a
value that was sent twice proves nothing; a function yields (partition, cause) pairs, one for each finding.
"""

from collections.abc import Iterator
from itertools import pairwise

from twin_facts import UNNAMED, World, inferred, reads_of, sends_of
from twin_folder import Row
from twin_permits import (
    INTERNAL,
    Cause,
    Found,
    follows_values,
    internal_topics,
    of_lost_write,
    retried,
    uncommitted,
)


def lost_write(world: World) -> Iterator[Found]:
    """An ok send whose record is not in the leader's final log at its offset (anywhere, without one), or,
    without that log, whose loss reads show; or a txn's that is there only as aborted."""
    for send in world.oks:
        if send.lost:
            yield send.partition, of_lost_write(world, send)
        elif send.f == "txn" and not send.home.blind and aborted_at(send) is not None:
            yield send.partition, internal_topics(world, send)


def unseen(world: World) -> Iterator[Found]:
    """Settled and read to the end: an ok send in the leader's final log, at its offset below the high
    watermark (the last stable offset under read_committed), which no final read returned."""
    final = world.run.final_reads or Row()
    if not world.settled or not world.complete or not isinstance(final.get("processes", []), list):
        return
    returned = {(read.partition, read.value) for read in world.reads if read.process in world.readers}
    committed = world.given.isolation == "read_committed" or "isolation" in world.strange
    for send in world.oks:
        home = send.home
        if home.usable and home.key in (final.partitions or []):
            there = any(place < (home.decided_end if committed else home.hw)
                        and send.offset in (None, place) for place in home.places[send.value])
            if there and (send.partition, send.value) not in returned:
                yield home.key, None


def inconsistent_offsets(world: World) -> Iterator[Found]:
    """Clients saw two values at one offset: in acks of ok sends, in reads, or in one of each."""
    shown: dict[tuple[int, int], set[int]] = {}
    for one in [*world.oks, *world.reads]:
        if one.offset is not None:
            shown.setdefault((one.partition, one.offset), set()).add(one.value)
    for (key, _), values in shown.items():
        if len(values) > 1:
            yield key, follows_values(world, key, values, acks=True)


def phantom(world: World) -> Iterator[Found]:
    """A value read, or in any replica's log, that no invocation sent to that partition."""
    sent = {(send.partition, send.value) for line in world.lines if line.type == "invoke"
            for send in sends_of(line)}
    met = {(read.partition, read.value) for read in world.reads}
    met |= {(home.key, entry.value) for home in world.partitions.values() for log in home.logs.values()
            for entry in log if entry.value is not None}
    yield from ((key, None) for key, _ in (met - sent if world.complete else ()))


def G1a(world: World) -> Iterator[Found]:
    """A value whose send certainly failed was read, or is in the leader's final log below the high watermark
    (in a run with transactions, below the last stable offset: above it, its abort may be under way) and not
    aborted. Reading it is allowed there under read_uncommitted. Or a txn's value, of any outcome, was read by
    an ok poll under read_committed where its only entry in the leader's log is aborted."""
    permitted = uncommitted(world) if world.txns else None
    of_txns = {(send.partition, send.value) for line in world.lines if line.f == "txn"
               for send in sends_of(line)}
    read = {(read.partition, read.value, read.offset) for op in world.ops if op.type == "ok"
            for read in op.reads}
    for send in (send for send in world.sends if not send.twice):
        home, aborted = send.home, aborted_at(send)
        if send.type == "fail":
            end = home.decided_end if world.txns else home.hw
            logged = any(entry.value == send.value and not entry.aborted and entry.offset < end
                         for entry in home.leader_log)
            if logged or send.read_at:
                internal = internal_topics(world, send) if aborted is not None and world.txns else None
                yield send.partition, internal if logged or permitted is None else permitted
        elif permitted is None and (send.partition, send.value) in of_txns and (
                send.partition, send.value, aborted) in read:
            yield send.partition, internal_topics(world, send)


def aborted_at(send: Row) -> int | None:
    """Where a complete leader's log has this value, if it has it in one place and only as aborted."""
    mine = [entry for entry in send.home.leader_log if send.home.usable and entry.value == send.value]
    places = {entry.offset for entry in mine}
    return min(places) if len(places) == 1 and all(entry.aborted for entry in mine) else None


def saw_then_lost(world: World) -> Iterator[Found]:
    """An offset at or above log_start was read with a value that the leader's final log does not have
    there."""
    for key, offset, value in {(read.partition, read.offset, read.value) for read in world.reads}:
        home = world.partitions.get(key, UNNAMED)
        if not home.blind and offset >= home.log_start and offset not in home.places[value]:
            yield key, follows_values(world, key, [value])


def duplicate(world: World) -> Iterator[Found]:
    """One value at two offsets of the leader's final log (without aborted entries), or in what clients saw:
    in reads and in its own ack (which the leader's log may prove wrong: that is a lost write)."""
    logged: dict[tuple[int, int], set[int]] = {}
    for home in world.partitions.values():
        for entry in home.leader_log:
            if entry.value is not None and not entry.aborted:
                logged.setdefault((home.key, entry.value), set()).add(entry.offset)
    seen: dict[tuple[int, int], set[int]] = {}
    for one in [*world.reads, *(send for send in world.oks if not (send.home.usable and send.lost))]:
        if one.offset is not None:
            seen.setdefault((one.partition, one.value), set()).add(one.offset)
    for key in logged.keys() | seen.keys():
        twice = len(logged.get(key, ())) > 1 or len(seen.get(key, ())) > 1
        if twice and key[1] not in world.repeated:
            yield key[0], follows_values(world, key[0], [key[1]]) or retried(world)


# -- torn transactions ------------------------------------------------------------------------------------

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
    if inferred(world, home):
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
    key = (send.partition, send.value)
    reads = [(other.type, read) for other in world.ops for read in other.reads
             if (read.partition, read.value) == key]
    acked = min((told.offset for told in (op.answer or Row()).sends or [] if told.offset is not None
                 and (told.partition, told.value) == key), default=None)
    if uncommitted(world) or any(kind == "ok" for kind, _ in reads):
        return None if uncommitted(world) else True
    passed = acked is not None and not reads and any(
        before.offset < acked < after.offset for before, after in neighbours(world, key[0]))
    return False if passed else None


def neighbours(world: World, key: int) -> Iterator[tuple[Row, Row]]:
    """Each two reads of the partition of which one process got the second right after the first, in ok polls
    and with no move of its own between."""
    for process in {read.process for read in world.reads} - world.overlapping:
        last, subscribed = None, False
        for line in world.lines:
            if line.process != process or line.type == "invoke":
                continue
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
        if (send.partition, send.value) in ((one.partition, one.value), (other.partition, other.value)):
            cause = of_lost_write(world, send) if send.lost else None
            surely = cause is not None and cause.sure
            causes.append(Cause(INTERNAL) if surely else internal_topics(world, send))
    return min(filter(None, causes), key=lambda cause: not cause.sure, default=None)
