"""The twin's findings in the order of what clients saw, one function for each.

Rules kept here: a process is sequential, so its order is the order of its lines; between processes only "was
answered before the other was invoked" orders anything; nothing is claimed below the final log_start.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from twin_classes import (
    SUBSCRIBE,
    Cause,
    beginnings,
    first,
    follows,
    follows_lost_offsets,
    losing_cause,
    retried,
)
from twin_facts import Partition, Read, Send, World, reads_of
from twin_folder import Line
from twin_logs import Found

# the last read of the last ok poll, and the offsets that later polls returned
Position = tuple[Read, set[int]]


def realtime_order(world: World) -> Iterator[Found]:
    """Send a was answered ok before send b was invoked, but b, ok too, has the lower offset. One finding for
    each b; it is permitted only if it is with every such a."""
    if world.folder.breach:
        return
    placed = [send for send in world.oks()
              if send.offset is not None and send.process not in world.overlapping]
    for b in placed:
        earlier = [a for a in placed if a.partition == b.partition and offset_of(a) > offset_of(b)
                   and a.completed is not None and b.invoked is not None and a.completed < b.invoked]
        if earlier:
            causes = [follows(world, [a, b], acks=True) for a in earlier]
            yield (b.partition, b.offset, b.value), every(causes)


def offset_of(send: Send) -> int:
    assert send.offset is not None
    return send.offset


def every(causes: list[Cause | None]) -> Cause | None:
    """Permitted by the first-named of the causes if each finding has one; else not at all."""
    return first(causes) if all(cause is not None for cause in causes) else None


def nonmonotonic_send(world: World) -> Iterator[Found]:
    """A process's ok send in one op got a lower offset than its ok send in an earlier op. A permitted loss of
    either, or retries, may permit it. If indexes do not rise, it is unknown which op was the earlier. If no
    ack has the offset, it is where the value was read, if that is one offset only."""
    if world.folder.disordered:
        return
    for b, earlier in lower_sends(world, lambda a, b: indexed(a) < indexed(b)):
        if b.process not in world.overlapping:
            losses = [follows(world, [a, b], acks=True) for a in earlier]
            yield (b.partition, where(world, b), b.value), every(losses) or retried(world)


def int_nonmonotonic_send(world: World) -> Iterator[Found]:
    """Inside one ok send or transaction, a later micro-send got a lower offset than an earlier one: only
    retries permit it."""
    for b, _ in lower_sends(world, lambda a, b: a.completed == b.completed and a.place < b.place):
        yield (b.partition, where(world, b), b.value), retried(world)


Before = Callable[[Send, Send], bool]


def lower_sends(world: World, before: Before) -> Iterator[tuple[Send, list[Send]]]:
    """Each ok send with the earlier sends of its process and partition that have a higher offset."""
    placed = [(send, where(world, send)) for send in world.oks()]
    for b, mine in placed:
        earlier = [a for a, theirs in placed if a.process == b.process and a.partition == b.partition
                   and before(a, b) and mine is not None and theirs is not None and theirs > mine]
        if earlier:
            yield b, earlier


def where(world: World, send: Send) -> int | None:
    """Its ack's offset; without one the only offset at which its value was read."""
    if send.offset is not None:
        return send.offset
    read_at = {read.offset for read in world.reads
               if (read.partition, read.value) == (send.partition, send.value)}
    return read_at.pop() if len(read_at) == 1 else None


def indexed(send: Send) -> int:
    assert send.completed is not None
    return send.completed


# -- polls --------------------------------------------------------------------------------------------------

def poll_findings(world: World) -> Iterator[tuple[str, Found]]:
    """Walks every process's lines once. A poll's first read of a partition is compared with the last read of
    the last ok poll (nonmonotonic-poll: not higher; poll-skip: a known record between them, not returned
    since); each further read with the one before it in the same poll (the int- forms). A transaction is a
    poll like any other; a crash ends the consumer and its positions."""
    for process in sorted({line["process"] for line in world.lines if line["process"] >= 0}):
        held: dict[int, Position] = {}
        subscribed = False
        for line in (line for line in world.lines if line["process"] == process and line["type"] != "invoke"):
            if line["f"] in ("assign", "subscribe") and line["type"] == "ok":
                subscribed = line["f"] == "subscribe"
                kept = line.get("partitions")
                held = {key: held[key] for key in held if kept is None or key in kept}
            elif line["f"] == "crash":
                held = {}
            elif line["f"] in ("poll", "txn"):
                yield from one_poll(world, line, held, subscribed=subscribed)


def one_poll(world: World, line: Line, held: dict[int, Position], *, subscribed: bool
             ) -> Iterator[tuple[str, Found]]:
    across = world.complete and line["process"] not in world.overlapping
    reads = reads_of(line)
    for partition in {read.partition for read in reads}:
        mine = [read for read in reads if read.partition == partition]
        # a failed poll's records will be read again
        here = {read.offset for read in mine if line["type"] != "fail"}
        if partition in held and across:
            last, shown = held[partition]
            yield from step(world, last, mine[0], shown | here, "", subscribed=subscribed)
        for before, after in pairwise(mine):
            yield from step(world, before, after, here, "int-", subscribed=False)
        if line["type"] == "ok":
            held[partition] = (mine[-1], set())
        elif partition in held:
            held[partition][1].update(here)


def step(world: World, last: Read, following: Read, shown: set[int], form: str, *, subscribed: bool
         ) -> Iterator[tuple[str, Found]]:
    """From one read of a partition to the next: whether it goes backwards, or skips a record."""
    partition = world.partitions.get(last.partition)
    key = (last.partition, following.offset, following.value, following.index, following.place)
    start = max([partition.log_start if partition is not None else 0, *beginnings(world, last.partition)])
    if following.offset <= last.offset:
        if following.offset >= start:
            excuse = excused(world, last, subscribed, lambda lost: following.offset <= lost <= last.offset)
            yield form + "nonmonotonic-poll", (key, None if form else excuse)
        return
    skipped = {offset for offset in known_offsets(world, partition, last.partition)
               if last.offset < offset < following.offset and offset >= start and offset not in shown}
    unreadable = {place["offset"] for line in world.lines if line["process"] == following.process
                  and line["type"] != "invoke" and line["f"] == "poll"
                  for place in line.get("corrupt") or [] if place["partition"] == last.partition}
    if skipped and not any(last.offset < offset < following.offset for offset in unreadable):
        excuse = excused(world, last, subscribed, lambda lost: last.offset < lost < following.offset)
        proven_by_log = partition is not None and partition.usable
        yield form + "poll-skip", (key, None if form and proven_by_log else excuse)


def excused(world: World, last: Read, subscribed: bool, concerned: Callable[[int], bool]) -> Cause | None:
    """A permitted loss at one of these offsets, else a subscription. Nothing excuses an order inside one
    poll."""
    lost = follows_lost_offsets(world, last.partition, concerned)
    return lost or (Cause(by=SUBSCRIBE) if subscribed else None)


def known_offsets(world: World, partition: Partition | None, key: int) -> set[int]:
    """Offsets that certainly have a record of ours: in the leader's final log, not aborted; without that log,
    offsets that acks and reads prove, unless compaction may have removed the record since."""
    if partition is not None and partition.usable:
        return {entry["offset"] for entry in partition.leader_log
                if entry["value"] is not None and not entry.get("aborted")}
    if partition is None or partition.compact:
        return set()
    # An ack of a value that was sent twice also proves a record's offset, though not which send's.
    acked = {send.offset for op in world.ops for send in op.sends
             if send.partition == key and send.offset is not None
             and world.run["guarantees"].get("acks") == "all"}  # else readers may not find it
    return acked | {read.offset for read in world.reads if read.partition == key}


def end_offset_regressed(world: World) -> Iterator[Found]:
    """A process got an end offset below its last one, or not above what it had polled. If indexes do not
    rise, what came before is unknown."""
    if world.folder.disordered:
        return
    last: dict[tuple[int, int], int] = {}  # (process, partition) -> the highest end of the last answer
    polled: dict[tuple[int, int], tuple[int, int]] = {}  # ... -> (above all its reads, minus the first line)
    answered: dict[tuple[int, int], int] = {}  # ... -> the line of the last answer
    for line in world.lines:
        if line["type"] == "invoke" or line["process"] < 0 or line["process"] in world.overlapping:
            continue  # of two answers to open questions nobody knows which was asked first
        for read in reads_of(line):
            place = (read.process, read.partition)
            polled[place] = max(polled.get(place, (0, 0)), (read.offset + 1, -line["position"]))
        if line["f"] == "list_offsets" and line["type"] == "ok":
            answers: dict[tuple[int, int], set[int]] = {}
            behind: dict[tuple[int, int], int] = {}  # (partition, end) -> above the acks that it is behind
            for end in line["offsets"]:
                answers.setdefault((line["process"], end["partition"]), set()).add(end["offset"])
                behind[end["partition"], end["offset"]] = max(
                    behind.get((end["partition"], end["offset"]), 0), acked_to(world, line, end))
            for place, offsets in answers.items():
                read_to, first_read = polled.get(place, (0, 0))
                least = max(last.get(place, 0), read_to)
                for offset in sorted(offsets):
                    acked = behind[place[1], offset]
                    if offset < max(least, acked):
                        how = "behind-ack" if offset < acked else None
                        since = [answered[place]] if last.get(place, 0) > offset else []
                        since += [-first_read] if read_to > offset else []
                        since += [acked_line(world, line, place[1], acked)] if acked > offset else []
                        cause = fallen(world, place[1], offset, max(least, acked), min(since))
                        yield (place[1], offset, line["position"], how), cause
                last[place], answered[place] = max(offsets), line["position"]


def acked_to(world: World, line: Line, end: Line) -> int:
    """Above the highest record that was acked by acks=all before this answer was asked for, and appended in
    the epoch of the leader that answered."""
    promised = None if "isolation" in world.strange else world.run["guarantees"].get("isolation")
    own = (world.run.get("isolation_of") or {}).get(str(line["process"]), promised)
    asked = max((other["position"] for other in world.lines if other["position"] < line["position"]
                 and other["process"] == line["process"] and other["f"] == "list_offsets"
                 and other["type"] == "invoke"), default=-1)
    weak = world.run["guarantees"].get("acks", "all") != "all" or end["partition"] not in world.partitions
    epoch = end.get("epoch")
    overlaps = line["process"] in world.overlapping
    given = world.run["guarantees"]
    if given.get("idempotence") or given.get("retries") or "idempotence" in world.strange:
        return 0  # the ack may be a later leader's than the record
    if own != "read_uncommitted" or weak or epoch is None or epoch < 0 or overlaps:
        return 0
    return max((send["offset"] + 1 for other in world.lines if other["position"] < asked
                and other["f"] == "send" and other["type"] == "ok"
                for send in other.get("sends") or []
                if send["partition"] == end["partition"] and send.get("offset") is not None
                and send["value"] not in world.repeated and epoch in epochs_of(world, send)), default=0)


def epochs_of(world: World, send: Line) -> set[int]:
    """The epochs in which the ack, a read or a log says that this record was appended."""
    place = (send["partition"], send["offset"], send["value"])
    told = [send, *(read for line in world.lines if line["type"] != "invoke" and line["f"] in ("poll", "txn")
                    for read in line.get("reads") or []),
            *(entry for log in world.partitions[send["partition"]].logs.values() for entry in log)]
    return {each["epoch"] for each in told if each.get("epoch") is not None
            and (each["partition"], each["offset"], each["value"]) == place}


def acked_line(world: World, line: Line, key: int, acked: int) -> int:
    """The first line that acked the record just below."""
    return min(other["position"] for other in world.lines
               if other["position"] < line["position"] and other["type"] == "ok" and any(
                   (send["partition"], send.get("offset")) == (key, acked - 1)
                   for send in other.get("sends") or []))


def fallen(world: World, partition: int, offset: int, least: int, since: int) -> Cause | None:
    """A record that was lost by a permitted cause; or there may have been one of which nobody knows the
    offset (in doubt, or a marker): it was there when line `since` showed that the log was longer."""
    known = follows_lost_offsets(world, partition, lambda lost: offset <= lost < least)
    if known is not None or partition not in world.partitions:
        return known
    there = Send(partition=partition, value=0, process=0, f="send", type="info", offset=None, invoked=since,
                 invoked_time=-(1 << 70), completed=None, place=0)
    cause = losing_cause(world, there)
    return None if cause is None else Cause(by=cause.by, sure=False)
