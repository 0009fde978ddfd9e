"""The twin's findings in what clients saw, one function for each.

Rules kept here: what a poll returned counts whatever its outcome; an offset is evidence only of an ok send; a
function yields (key, cause) pairs, one for each finding.
"""

from collections.abc import Iterator

from twin_classes import (
    ISOLATION,
    Cause,
    final_readers,
    follows,
    internal_topics,
    is_below_the_beginning,
    is_blind,
    is_lost,
    is_unread,
    of_lost_write,
    retried,
    sends_of_values,
)
from twin_facts import Partition, Send, World, sends_of
from twin_logs import Found


def lost_write(world: World) -> Iterator[Found]:
    """An ok send whose record is not in the leader's final log at its offset (anywhere, without one), or,
    without that log, whose loss reads show."""
    for send in world.oks():
        if is_lost(world, send):
            how = "log-start" if is_below_the_beginning(world, send) else how_lost(world, send)
            yield (send.partition, send.offset, send.value, how), of_lost_write(world, send)
        elif send.f == "txn" and send.value not in world.repeated and not is_blind(world, send) and (
                aborted_at(world, send) is not None):
            yield (send.partition, send.offset, send.value, "aborted"), internal_topics(world, send)


def how_lost(world: World, send: Send) -> str:
    """moved: the leader has it at another offset; overwritten: the leader has another record there; orphaned:
    some other replica has it; gone: no replica has it. The first that applies; without the leader's log,
    unread, or gone with its topic."""
    partition = world.partitions[send.partition]
    if not partition.usable:
        return "unread" if is_unread(world, send) else "gone"
    if partition.leader_offsets_of(send.value):
        return "moved"
    if send.offset is not None and any(entry["offset"] == send.offset for entry in partition.leader_log):
        return "overwritten"
    if any(entry["value"] == send.value for log in partition.logs.values() for entry in log):
        return "orphaned"
    return "gone"


def unseen(world: World) -> Iterator[Found]:
    """Settled and read to the end: an ok send in the leader's final log, at its offset below the high
    watermark (the last stable offset under read_committed), which no final read returned."""
    final = world.run.get("final_reads") or {}
    if not world.settled or not world.complete or not isinstance(final.get("processes", []), list):
        return
    returned = {(read.partition, read.value) for read in world.reads
                if read.process in final_readers(world)}
    for send in world.oks():
        partition = world.partitions.get(send.partition)
        if partition is None or not partition.usable or partition.key not in final.get("partitions", []):
            continue
        end = visible_end(world, partition)
        if send.offset is not None:
            there = partition.leader_holds(send.offset, send.value) and send.offset < end
        else:
            there = any(offset < end for offset in partition.leader_offsets_of(send.value))
        if there and (send.partition, send.value) not in returned:
            yield (send.partition, send.offset, send.value), None


def visible_end(world: World, partition: Partition) -> int:
    row = partition.rows[str(partition.leader)]
    committed = world.run["guarantees"].get("isolation") == "read_committed" or "isolation" in world.strange
    if row.get("lso") is not None and committed:
        return partition.decided_end
    return int(row["hw"])


def inconsistent_offsets(world: World) -> Iterator[Found]:
    """Clients saw two values at one offset: in acks of ok sends, in reads, or in one of each."""
    shown: dict[tuple[int, int], set[int]] = {}
    for send in world.oks():
        if send.offset is not None:
            shown.setdefault((send.partition, send.offset), set()).add(send.value)
    for read in world.reads:
        shown.setdefault((read.partition, read.offset), set()).add(read.value)
    for (partition, offset), values in shown.items():
        if len(values) > 1:
            concerned = sends_of_values(world, partition, values)
            yield (partition, offset, *sorted(values)), follows(world, concerned, acks=True)


def phantom(world: World) -> Iterator[Found]:
    """A value read, or in any replica's log, that no invocation sent to that partition."""
    if not world.complete:
        return
    sent = {(send.partition, send.value) for line in world.lines if line["type"] == "invoke"
            for send in sends_of(line, None)}
    met = {(read.partition, read.value) for read in world.reads}
    for partition in world.partitions.values():
        for log in partition.logs.values():
            met |= {(partition.key, entry["value"]) for entry in log if entry["value"] is not None}
    for partition_key, value in met - sent:
        yield (partition_key, value), None


def g1a(world: World) -> Iterator[Found]:
    """A value whose send certainly failed was read, or is in the leader's final log below the high watermark
    (in a run with transactions, below the last stable offset: above it, its abort may be under way) and not
    aborted. Reading it is allowed there under read_uncommitted. Or a txn's value, of any outcome, was read by
    an ok poll under read_committed where its only entry in the leader's log is aborted."""
    txns = world.has_txns()
    uncommitted = txns and world.run["guarantees"].get("isolation") == "read_uncommitted"
    of_txns = {(send.partition, send.value) for line in world.lines if line["f"] == "txn"
               for send in sends_of(line, None)}
    for send in world.sends:
        if send.value in world.repeated:
            continue
        aborted = aborted_at(world, send)
        if send.type != "fail":
            if not uncommitted and aborted is not None and (send.partition, send.value) in of_txns and any(
                    op.type == "ok" and (read.partition, read.offset, read.value)
                    == (send.partition, aborted, send.value) for op in world.ops for read in op.reads):
                yield (send.partition, send.value), internal_topics(world, send)
            continue
        partition = world.partitions.get(send.partition)
        logged = partition is not None and any(
            entry["value"] == send.value and not entry.get("aborted")
            and entry["offset"] < (partition.decided_end if txns else partition.hw)
            for entry in partition.leader_log)
        if logged or world.was_read(send):
            cause = Cause(by=ISOLATION) if uncommitted and not logged else (
                None if aborted is None or not txns else internal_topics(world, send))
            yield (send.partition, send.value), cause


def aborted_at(world: World, send: Send) -> int | None:
    """Where a complete leader's log has this value, if it has it in one place and only as aborted."""
    partition = world.partitions.get(send.partition)
    if partition is None or not partition.usable:
        return None
    mine = [entry for entry in partition.leader_log if entry["value"] == send.value]
    places = {entry["offset"] for entry in mine}
    return min(places) if len(places) == 1 and all(entry.get("aborted") for entry in mine) else None


def saw_then_lost(world: World) -> Iterator[Found]:
    """An offset at or above log_start was read with a value that the leader's final log does not have
    there."""
    for key in {(read.partition, read.offset, read.value) for read in world.reads}:
        partition = world.partitions.get(key[0])
        if partition is None or not partition.usable or partition.compact or key[1] < partition.log_start:
            continue
        if not partition.leader_holds(key[1], key[2]):
            yield key, follows(world, sends_of_values(world, key[0], [key[2]]))


def duplicate(world: World) -> Iterator[Found]:
    """One value at two offsets of the leader's final log (without aborted entries), or in what clients saw:
    in reads and in its own ack (which the leader's log may prove wrong: that is a lost write). A value that
    was sent twice proves nothing."""
    logged: dict[tuple[int, int], set[int]] = {}
    for partition in world.partitions.values():
        for entry in partition.leader_log:
            if entry["value"] is not None and not entry.get("aborted"):
                logged.setdefault((partition.key, entry["value"]), set()).add(entry["offset"])
    seen: dict[tuple[int, int], set[int]] = {}
    for read in world.reads:
        seen.setdefault((read.partition, read.value), set()).add(read.offset)
    for send in world.oks():
        partition = world.partitions.get(send.partition)
        wrong = partition is not None and partition.usable and is_lost(world, send)
        if send.offset is not None and not wrong:
            seen.setdefault((send.partition, send.value), set()).add(send.offset)
    for key in logged.keys() | seen.keys():
        if key[1] in world.repeated:
            continue
        if len(logged.get(key, ())) > 1 or len(seen.get(key, ())) > 1:
            yield key, follows(world, sends_of_values(world, key[0], [key[1]])) or retried(world)
