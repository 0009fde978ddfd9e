"""The twin's torn transactions: for each txn op that is not ok, what became of each of its records.

Rules kept here: a value that was sent twice takes no part; one record that is certainly committed and one
that certainly is not are enough; a pair is excused by what excuses either of its records.
"""

from collections.abc import Iterator
from itertools import pairwise

from twin_classes import INTERNAL, Cause, inferred, internal_topics, is_lost, of_lost_write
from twin_facts import Op, Partition, Read, Send, World
from twin_logs import Found


def torn_transaction(world: World) -> Iterator[Found]:
    if not world.complete:
        return
    for op in world.ops:
        if op.f != "txn" or op.type == "ok" or op.invoked is None:
            continue
        fates = [(send, is_committed(world, op, send)) for send in op.sends
                 if send.value not in world.repeated]
        has = [send for send, committed in fates if committed is True]
        lacks = [send for send, committed in fates if committed is False]
        pairs = [pair_cause(world, one, other) for one in has for other in lacks]
        if pairs:
            unsure = next((cause for cause in pairs if cause is not None and not cause.sure), pairs[0])
            yield (op.invoked,), None if None in pairs else unsure


def is_committed(world: World, op: Op, send: Send) -> bool | None:
    """None: nobody knows."""
    partition = world.partitions.get(send.partition)
    if partition is None:
        return None
    if inferred(world, partition):
        return by_reads(world, op, send)
    row = partition.rows.get(str(partition.leader), {})
    if not world.settled or not partition.usable or row.get("lso") is None:
        return None
    mine = [entry for entry in partition.leader_log if entry["value"] == send.value]
    live = [entry["offset"] for entry in mine if not entry.get("aborted")]
    if live:
        return True if min(live) < partition.decided_end else None
    return False if mine or is_whole(partition) else None


def is_whole(partition: Partition) -> bool:
    """Nothing was deleted from its log."""
    return not partition.compact and partition.log_start == 0


def by_reads(world: World, op: Op, send: Send) -> bool | None:
    """Without logs, under read_committed: an ok poll returned it; or it was acked and all went past it."""
    if world.run["guarantees"].get("isolation") == "read_uncommitted":
        return None
    key = (send.partition, send.value)
    if any(other.type == "ok" and key in {(read.partition, read.value) for read in other.reads}
           for other in world.ops):
        return True
    acked = told(world, op, key)
    if acked is None or world.was_read(send):
        return None
    return False if any(before.offset < acked < after.offset for before, after in neighbours(world, key[0])
                        ) else None


def told(world: World, op: Op, key: tuple[int, int]) -> int | None:
    """The lowest offset at which this op's completion has the value."""
    if op.completed is None:
        return None
    line = next(line for line in world.lines if line["position"] == op.completed)
    return min((send["offset"] for send in line.get("sends") or [] if send.get("offset") is not None
                and (send["partition"], send["value"]) == key), default=None)


def neighbours(world: World, partition: int) -> Iterator[tuple[Read, Read]]:
    """Each two reads of the partition of which one process got the second right after the first, in ok polls
    and with no move of its own between."""
    for process in {read.process for read in world.reads} - world.overlapping:
        mine = [line for line in world.lines if line["process"] == process and line["type"] != "invoke"]
        for one, other in pairwise([op for op in sorted(world.ops, key=lambda op: op.completed or 0)
                                    if op.process == process and op.type == "ok"
                                    and any(read.partition == partition for read in op.reads)]):
            moves = [line for line in mine if line["f"] == "crash"
                     or (line["f"] in ("assign", "subscribe") and line["type"] == "ok")]
            held = [line["f"] for line in moves if line["position"] < (other.completed or 0)
                    and line["f"] != "crash"]
            moved = any((one.completed or 0) < line["position"] < (other.completed or 0) for line in moves)
            if not moved and held[-1:] != ["subscribe"]:
                yield (next(read for read in reversed(one.reads) if read.partition == partition),
                       next(read for read in other.reads if read.partition == partition))
        for op in world.ops:
            if op.process == process and op.type == "ok":
                yield from pairwise(read for read in op.reads if read.partition == partition)


def pair_cause(world: World, one: Send, other: Send) -> Cause | None:
    causes = [cause_of(world, one), cause_of(world, other)]
    found = [cause for cause in causes if cause is not None]
    return next((cause for cause in found if cause.sure), found[0] if found else None)


def cause_of(world: World, send: Send) -> Cause | None:
    """The record is lost by a permitted cause; or the coordinator's word, or its marker, may be."""
    cause = of_lost_write(world, send) if is_lost(world, send) else None
    if cause is not None and cause.sure:
        return Cause(by=INTERNAL)
    return internal_topics(world, send)
