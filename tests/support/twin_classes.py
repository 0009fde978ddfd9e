"""The twin's classes: which losses the configuration permits, and which findings follow from them.

Rules kept here: only losses that the leader's final log shows are losses; the cause is the first that applies
of acks, unclean election, fault budget; a cause that is guessed because there is no trace is marked unsure,
and the name of its finding also goes under unknown.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import twin_observes
from twin_facts import Partition, Send, World, reads_of
from twin_folder import Line, clock_error, is_list, is_text

ACKS = "acks"
UNCLEAN = "unclean.leader.election.enable"
BUDGET = "fault budget"
RETRIES = "retries"
SUBSCRIBE = "subscribe"
ISOLATION = "isolation"
INTERNAL = "internal topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What permits a finding; sure is false if only a trace could have shown it."""

    by: str
    sure: bool = True


def is_lost(world: World, send: Send) -> bool:
    """An ok send missing at its offset (without one: anywhere) in the leader's log, at or above its start; an
    info send that is nowhere in it. Fails are never lost, and nothing is lost if the leader's log is
    unreliable. If a value was sent twice, any missing record may be this send's."""
    partition = world.partitions.get(send.partition)
    if partition is None or not can_lose(world, send):
        return False
    if is_below_the_beginning(world, send):
        return True
    if is_blind(world, send):
        return is_unread(world, send) or is_denied(world, send)
    twice = send.value in world.repeated
    if send.type == "ok" and send.offset is not None and not twice:
        return send.offset >= partition.log_start and not partition.leader_holds(send.offset, send.value)
    shown = {read.offset for read in world.reads
             if (read.partition, read.value) == (send.partition, send.value)}
    if twice:
        shown |= acks_of(world, send)
    gone = [offset for offset in shown
            if offset >= partition.log_start and not partition.leader_holds(offset, send.value)]
    if (twice or send.type == "info") and gone:
        return True
    # Without an offset, a missing record may have been below log_start.
    return not partition.leader_offsets_of(send.value) and partition.log_start == 0


def is_gone(world: World, send: Send) -> bool:
    """It is lost, or one of its records is that was read where the leader's log does not have it."""
    partition = world.partitions.get(send.partition)
    if is_lost(world, send) or partition is None or is_blind(world, send) or not can_lose(world, send):
        return is_lost(world, send)
    return any(read.offset >= partition.log_start and not partition.leader_holds(read.offset, send.value)
               for read in world.reads if (read.partition, read.value) == (send.partition, send.value))


def may_be_gone(world: World, send: Send) -> bool:
    """Nobody can see whether it is: there is no leader's log, or it begins above."""
    if not can_lose(world, send) or is_gone(world, send):
        return False
    partition = world.partitions.get(send.partition)
    if partition is None or is_blind(world, send):
        return True
    places = acks_of(world, send) if send.value in world.repeated else {send.offset} - {None}
    return partition.log_start > 0 and (not partition.leader_offsets_of(send.value)
                                        or any(place < partition.log_start for place in places))


def is_unread(world: World, send: Send) -> bool:
    """There is no leader's log, and reads alone show that the record of this ok send is lost: the final
    readers returned a record at or below its offset, one above it, and not this one; or, in an imported
    history, no read returned it, though one returned a higher offset."""
    partition = world.partitions[send.partition]
    if send.type != "ok" or send.offset is None or send.value in world.repeated:
        return False
    if partition.leader_holds(send.offset, send.value):
        return False  # a part of a log proves the records in it
    reads = [read for read in world.reads if read.partition == send.partition]
    final = [read for read in reads if read.process in final_readers(world)]
    if read_to_the_end(world, partition) and not any(read.value == send.value for read in final):
        begins = max(beginnings(world, partition.key), default=0)
        below = begins <= send.offset and any(read.offset <= send.offset for read in final)
        if below and any(read.offset > send.offset for read in final):
            return True
        if log_begins_at_or_below(world, partition, send.offset):
            readers = set(final_readers(world))
            if sum(was_told(world, reader, partition.key, send.offset) for reader in readers) >= 3:
                return True
    return inferred(world, partition) and not world.was_read(send) and any(
        read.offset > send.offset for read in reads)


def is_denied(world: World, send: Send) -> bool:
    """Every broker said to the end that it knows no such topic, and neither a log nor a final reader has
    anything that says otherwise."""
    partition = world.partitions[send.partition]
    held = any(entry["value"] == send.value for log in partition.logs.values() for entry in log)
    read = any(read.partition == send.partition and read.process in final_readers(world)
               for read in world.reads)
    return (topic_gone(world, partition) and send.type == "ok" and send.value not in world.repeated
            and not held and not read)


def topic_gone(world: World, partition: Partition) -> bool:
    """All nodes denied it while they settled, there is no leader and no log of one, and nothing that the
    nemesis did deletes topics or data."""
    acts = [line for line in world.lines if line["process"] == -1]
    explained = any(act["f"] not in (*GRAVE, *HARMLESS, "elect") or act["fault"].get("lost") is True
                    for act in acts)
    return (names_all_nodes(world, "topic_unknown") and not explained and partition.leader is None
            and all_reads_are_here(world, partition) and not partition.compact)


def names_all_nodes(world: World, what: str) -> bool:
    named = (world.run.get("settle") or {}).get(what)
    return isinstance(named, list) and bool(world.run["nodes"]) and all(
        node in named for node in world.run["nodes"])


def is_below_the_beginning(world: World, send: Send) -> bool:
    """The log keeps everything, and now begins above this acked record: by its leader's row or, without one,
    by what the final readers were told."""
    partition = world.partitions[send.partition]
    if not (partition.keeps_all and world.settled) or partition.compact or send.value in world.repeated:
        return False
    if send.type != "ok" or send.offset is None or partition.leader_holds(send.offset, send.value):
        return False
    if partition.leader in partition.rows:
        return send.offset < partition.log_start
    return send.offset < max(beginnings(world, partition.key), default=0)


def beginnings(world: World, key: int) -> list[int]:
    """What the final readers were told about where the log begins."""
    return [start["offset"] for line in world.lines if line["process"] in final_readers(world)
            and (line["f"], line["type"]) == ("list_offsets", "ok")
            for start in line.get("starts") or [] if start["partition"] == key]


def log_begins_at_or_below(world: World, partition: Partition, offset: int) -> bool:
    """Whether the log surely begins at or below this offset."""
    told = beginnings(world, partition.key)
    return max([*told, partition.log_start]) <= offset and (
        bool(told) or partition.keeps_all or partition.leader in partition.rows)


def was_told(world: World, reader: int, key: int, offset: int) -> bool:
    """This process was told, before it read anything, that the log ends above the offset; and then it read on
    above it, or a poll was answered with nothing."""
    told = has_read = False
    for line in world.lines:
        if line["process"] != reader or line["type"] == "invoke":
            continue
        if (line["f"], line["type"]) == ("list_offsets", "ok") and not has_read:
            told |= any(end["partition"] == key and end["offset"] > offset for end in line["offsets"])
        mine = [read.offset for read in reads_of(line) if read.partition == key]
        has_read |= bool(mine)
        is_empty = line["f"] == "poll" and line.get("reads") == [] and not line.get("corrupt")
        if told and line["type"] == "ok" and (is_empty or any(read > offset for read in mine)):
            return True
    return False


def final_readers(world: World) -> list[int]:
    processes = (world.run.get("final_reads") or {}).get("processes")
    return processes if isinstance(processes, list) else []


def read_to_the_end(world: World, partition: Partition) -> bool:
    """Final reads show losses of this partition, because its log does not."""
    to_the_end = (world.run.get("final_reads") or {}).get("partitions") or []
    return (world.settled and partition.key in to_the_end and bool(final_readers(world))
            and all_reads_are_here(world, partition) and not partition.usable and not partition.compact)


def inferred(world: World, partition: Partition) -> bool:
    """Any reads show them, in an imported history."""
    return (isinstance(world.run.get("imported"), dict) and all_reads_are_here(world, partition)
            and not partition.usable and not partition.compact)


def all_reads_are_here(world: World, partition: Partition) -> bool:
    """No line is missing or bad, and an import left out no read of this partition (an old import: no read at
    all)."""
    imported = world.run.get("imported")
    if not world.complete or not isinstance(imported, dict):
        return world.complete
    if "blind" in imported:
        return partition.key not in imported["blind"]
    return not any(what.startswith("read ") for what in imported.get("left_out") or {})


def is_unread_above(world: World, partition: Partition) -> bool:
    """The import says that an ack is above all that was read: it is unknown whether that record is lost."""
    imported = world.run.get("imported")
    return isinstance(imported, dict) and partition.key in imported.get("unread", [])


def is_looked_for(world: World, partition: Partition) -> bool:
    """Final reads decide, of a system that promises no logs; or the topic is gone."""
    by_reads = twin_observes.blind_to_losses(world.run) and read_to_the_end(world, partition)
    return by_reads or topic_gone(world, partition)


def perhaps_unread(world: World) -> bool:
    """There is no log, and an ok send that no final read returned may be lost."""
    return any(
        send.partition in world.partitions and is_looked_for(world, world.partitions[send.partition])
        and not is_lost(world, send) and not world.partitions[send.partition].leader_offsets_of(send.value)
        and not any((read.partition, read.value) == (send.partition, send.value)
                    and read.process in final_readers(world) for read in world.reads)
        for send in world.oks())


def acks_of(world: World, send: Send) -> set[int]:
    """The offsets in the acks of a value that was sent more than once."""
    return {other.offset for op in world.ops for other in op.sends if other.offset is not None
            and (other.partition, other.value) == (send.partition, send.value)}


def can_lose(world: World, send: Send) -> bool:
    """A failed send has nothing to lose; if a value was sent several times, it is unknown which send
    failed."""
    return send.type != "fail" or send.value in world.repeated


def is_blind(world: World, send: Send) -> bool:
    """The leader's final log is not reliable enough to show whether this was lost."""
    partition = world.partitions.get(send.partition)
    return partition is None or not partition.usable or partition.compact


def losing_cause(world: World, send: Send) -> Cause | None:
    """Why the record of a send that is_lost may be missing, apart from acks."""
    if send.partition not in world.partitions:
        return None
    return unclean(world, send) or fault_budget(world, send)


# -- unclean elections ------------------------------------------------------------------------------------

def unclean(world: World, send: Send) -> Cause | None:
    """An unclean election of the partition after the send was invoked, one that was allowed; or the setting
    is on and there is no trace. If the clocks, or whether it was allowed, leave it open, the cause is unsure.
    """
    index = send.invoked if send.invoked is not None else -1
    if asked_for_unclean(world, send.partition, index):
        return Cause(by=UNCLEAN)
    later = [(was_allowed(world, send.partition, event),
              True if send.invoked is None else earlier(world.run, send.invoked_time, event["time"]))
             for event in traced_unclean(world, send.partition)]
    if (True, True) in later:
        return Cause(by=UNCLEAN)
    setting = world.run["guarantees"].get("unclean_leader_election") is True
    in_doubt = (world.folder.disordered and asked_for_unclean(world, send.partition, -1)) or (
        world.folder.time_falls and any(allowed is not False for allowed, _ in later))
    perhaps = any(False not in pair for pair in later)
    if (setting and not world.folder.shows_cleanness) or in_doubt or perhaps or untold_election(world):
        return Cause(by=UNCLEAN, sure=False)
    return None


def earlier(run: Line, one: int, other: int) -> bool | None:
    """Whether the first stamp is before the other. None: the clocks do not decide."""
    return one < other if abs(one - other) > clock_error(run) else None


def unclean_elections(world: World, partition: int) -> bool:
    """Whether the trace or the nemesis shows one, allowed or not."""
    return asked_for_unclean(world, partition, -1) or bool(traced_unclean(world, partition))


def asks(world: World, partition: int) -> list[Line]:
    """The nemesis's lines that requested one."""
    return [line for line in world.lines if line["process"] == -1 and line["f"] == "elect"
            and (line.get("fault") or {}).get("unclean") is True
            and (line["fault"].get("partitions") is None or partition in line["fault"]["partitions"])]


def asked_for_unclean(world: World, partition: int, after: int) -> bool:
    """Whether the nemesis requested one on a later line, and nothing shows whether it happened."""
    shown = world.folder.shows_cleanness
    return not shown and any(line["position"] > after for line in asks(world, partition))


def traced_unclean(world: World, partition: int) -> list[Line]:
    """The controller's lines of unclean elections."""
    return [event for event in world.folder.trace or [] if event.get("event") == "elect"
            and event.get("partition") == partition and event.get("clean") is False
            and event["node"] not in world.run["nodes"]]


def was_allowed(world: World, partition: int, event: Line) -> bool | None:
    """Whether this unclean election was allowed: by the setting, or because the nemesis had requested one
    before. None: unknown."""
    setting = world.run["guarantees"].get("unclean_leader_election")
    begun = [line["fault"].get("began", line["time"]) for line in asks(world, partition)]
    before = [None if world.folder.time_falls else earlier(world.run, time, event["time"]) for time in begun]
    if setting is True or True in before:
        return True
    return False if setting is False and None not in before and not unseen_ask(world) else None


def unseen_ask(world: World) -> bool:
    """Whether a request may exist that no readable line shows. The last line of a harness that was killed may
    be missing."""
    promised, schedule = world.run.get("history_lines"), world.run.get("schedule")
    complete = promised is not None and world.folder.positions >= promised and not world.folder.strange
    if complete or unseen_election(world):
        return not complete
    if not isinstance(schedule, list):
        return True
    missed = world.run.get("missed") or []
    wanted = [act for place, act in enumerate(schedule)
              if act["f"] == "elect" and act.get("unclean") is True and place not in missed]
    return len(wanted) > sum(line["process"] == -1 and line["f"] == "elect" for line in world.lines)


# -- the fault budget ---------------------------------------------------------------------------------------

def struck_by(world: World, partition: Partition) -> list[tuple[int, str, Line]]:
    """(time, node, line) of each fault with "lost" on a replica's node."""
    faults = [(line["fault"], line) for line in world.lines if line["process"] == -1 and line.get("fault")]
    return [(fault.get("began") or line["time"], node, line) for fault, line in faults
            if fault.get("lost") is True for node in fault.get("nodes") or [] if node in partition.replicas]


def fault_budget(world: World, send: Send) -> Cause | None:
    """Copies were struck and a leader was then elected from struck copies only; without a trace, by
    counting."""
    guarantees = world.run["guarantees"]
    partition = world.partitions.get(send.partition)
    if partition is None:
        return None  # it has no copies that anybody knows
    since = -1 if send.invoked is None else send.invoked
    struck = [(time, node) for time, node, line in struck_by(world, partition) if line["position"] > since
              and can_cost(world, line, node, lambda end: end["position"] > since)]
    nodes = {node for _, node in struck}
    if world.folder.shows_elections:
        elections = chosen_from_struck(world, partition, struck)
        if elections:
            return Cause(by=BUDGET, sure=any(sure for _, sure in elections))
    elif nodes:
        return Cause(by=BUDGET, sure=len(nodes) >= guarantees.get("min_insync_replicas", 1))
    return Cause(by=BUDGET, sure=False) if may_be_struck(world, partition) else None


def internal_topics(world: World, send: Send) -> Cause | None:
    """The coordinator's record of the txn, or its marker beside this record, may be lost. No trace shows."""
    graves = [line["position"] for line in world.lines if line["process"] == -1 and (
        (line["f"] == "elect" and (line.get("fault") or {}).get("unclean") is True
         and line["fault"].get("partitions") is None)
        or ((line.get("fault") or {}).get("lost") is True and line["fault"].get("nodes")))]
    after = [position for position in graves if position > (-1 if send.invoked is None else send.invoked)]
    unseen = unseen_strike(world) or unseen_election(world) or (world.folder.disordered and graves)
    setting = world.run["guarantees"].get("unclean_leader_election") is True
    lost = bool(after or unseen) or setting or losing_cause(world, send) is not None
    return Cause(by=INTERNAL, sure=False) if lost else None


# -- writes that were flushed -------------------------------------------------------------------------------

ENDING = ("kill", "disk", "bad_disk", "mend_disk", "memory")  # processes end with writes unflushed, or may


def can_cost(world: World, line: Line, node: str, since: Callable[[Line], bool]) -> bool:
    """Whether this fault, which lost data of the node, may have cost a record that had to be flushed: not if
    it is a power cut, unless the node's process had ended since the record was sent, and was credited with
    what it had written and not flushed."""
    if world.run["guarantees"].get("flush") != "every" or line["f"] != "power_cut":
        return True
    if flushes_at_recovery(world):
        return False
    if may_have_died(world, node):
        return True
    return any(since(end) and (end["position"] < line["position"] or world.folder.disordered)
               for end in ends(world, node))


def may_have_died(world: World, node: str) -> bool:
    """By itself, nobody knows when."""
    died = world.run.get("died") or []
    return not is_list(is_text, died) or node in died


def flushes_at_recovery(world: World) -> bool:
    system = world.run.get("system")
    return isinstance(system, dict) and system.get("flushes_at_recovery") is True


def ends(world: World, node: str) -> list[Line]:
    """The lines by which the node's process ended, or may have, without a flush: also a start of a node that
    nothing had ended."""
    found, up = [], True
    for line in world.lines:
        if line["process"] == -1 and node in ((line.get("fault") or {}).get("nodes") or []):
            known = line["f"] in (*GRAVE, *HARMLESS, "elect")
            if line["f"] in ENDING or not known or (line["f"] == "start" and up):
                found.append(line)
            if line["f"] in ("start", "kill", "stop", "power_cut", "disk"):
                up = line["f"] == "start"
    return found


def unseen_end(world: World) -> bool:
    """Whether such an end may be among the lines that are missing or cannot be read."""
    return bool({*lacking(world, ENDING)} & {*ENDING}) or any(
        is_nameless(text) or names_of(text) & {*ENDING} for text in speaking(world))


# -- faults that the history does not show ------------------------------------------------------------------

GRAVE = ("power_cut", "disk", "bad_disk")  # faults that may lose data
HARMLESS = ("kill", "stop", "start", "pause", "resume", "cut", "heal", "expire", "packet", "reset",
            "mend_disk", "clock", "reset_clock", "memory", "free_memory", "arm", "release")


def may_be_struck(world: World, partition: Partition) -> bool:
    """A fault that lost data may be among the missing or unreadable lines; or there is one whose time is
    unknown."""
    when = world.folder.disordered or (world.folder.time_falls and world.folder.shows_elections)
    return unseen_unflushed(world, partition) or (when and bool(unflushed_faults(world, partition)))


def unflushed_faults(world: World, partition: Partition) -> list[Line]:
    """The faults that may have cost any record of it."""
    return [line for _, node, line in struck_by(world, partition)
            if can_cost(world, line, node, lambda end: True)]


def unseen_unflushed(world: World, partition: Partition) -> bool:
    """Whether a fault that cost flushed records may be missing, or the end of a process before a power
    cut."""
    if world.run["guarantees"].get("flush") != "every":
        return unseen_strike(world)
    graves = [f for f in GRAVE if f != "power_cut"]
    somebody_ended = unseen_end(world) or bool(world.run.get("died")) or any(
        ends(world, node) for node in {node for line in world.lines if line["process"] == -1
                                       for node in (line.get("fault") or {}).get("nodes") or []})
    if flushes_at_recovery(world) or not somebody_ended:
        return any(is_nameless(text) or names_of(text) & {*graves} for text in speaking(world)) or bool(
            {*lacking(world)} & {*graves})
    cut = any(line["f"] == "power_cut" and not may_have_died(world, node)
              for _, node, line in struck_by(world, partition))
    return unseen_strike(world) or (unseen_end(world) and cut)


def unseen_strike(world: World) -> bool:
    return any(is_nameless(text) or names_of(text) & {*GRAVE} for text in speaking(world)) or bool(
        {*lacking(world)} & {*GRAVE})


def untold_election(world: World) -> bool:
    return unseen_election(world) and not world.folder.shows_cleanness


def unseen_election(world: World) -> bool:
    return "elect" in lacking(world) or any(
        (is_nameless(text) and "unclean" in text)
        or ("elect" in names_of(text) and not re.search(r'"unclean"\s*:\s*false', text))
        for text in speaking(world))


def speaking(world: World) -> list[str]:
    """Unreadable lines that mention the nemesis."""
    return [text for text in world.folder.strange
            if '"fault"' in text or '"lost"' in text or re.search(r'"process"\s*:\s*-', text)]


def names_of(text: str) -> set[str]:
    """The faults that it names, as far as they can be recognized."""
    return {*re.findall(r'"f"\s*:\s*"(\w+)"', text)} & {*GRAVE, *HARMLESS, "elect"}


def is_nameless(text: str) -> bool:
    """It mentions more faults than it names."""
    known = [f for f in re.findall(r'"f"\s*:\s*"(\w+)"', text) if f in (*GRAVE, *HARMLESS, "elect")]
    return len(known) < max(1, text.count('"fault"'))


def lacking(world: World, also: tuple[str, ...] = ()) -> list[str]:
    """Faults of the schedule that may lose records (or are among these others) and that are in the history,
    of which lines are missing or unreadable, fewer times than planned."""
    promised = world.run.get("history_lines")
    if not world.folder.strange and (promised is None or world.folder.positions >= promised):
        return []
    missed = world.run.get("missed") or []
    asked = [act["f"] for place, act in enumerate(world.run.get("schedule") or []) if place not in missed
             and ((act["f"] in GRAVE and act.get("kind") != "full") or act["f"] in also
                  or (act["f"] == "elect" and act.get("unclean") is True))]
    done = [line["f"] for line in world.lines if line["process"] == -1]
    return [f for f in asked if asked.count(f) > done.count(f)]


def chosen_from_struck(world: World, partition: Partition, strikes: list[tuple[int, str]]
                       ) -> list[tuple[Line, bool]]:
    """The elections whose leader and ISR were all struck, each with whether that is sure."""
    found = []
    words = [event for event in world.folder.trace or [] if event["node"] not in world.run["nodes"]
             and event.get("partition") == partition.key and event.get("event") in ("elect", "isr")
             and is_list(is_text, event.get("isr") or [])]
    for place, event in enumerate(words):
        if event["event"] == "elect" and is_text(event.get("leader")):
            chosen = {event["leader"], *(event.get("isr") or [])}
            states = [is_struck(world, node, event, words[:place], strikes) for node in chosen]
            if False not in states:
                found.append((event, None not in states))
    return found


def is_struck(world: World, node: str, election: Line, words: list[Line], strikes: list[tuple[int, str]]
              ) -> bool | None:
    """Whether this copy had been struck before the election, and had not joined the ISR since in an
    incarnation that began after the strike. `words`: the controller's lines before the election. None:
    unknown."""
    lives = [event["time"] for event in world.folder.trace or []
             if event["node"] == node and event.get("event") == "start"]
    taken_in = [event["time"] for before, event in pairwise([{}, *words]) if event["event"] == "isr"
                and node in (event.get("isr") or []) and node not in (before.get("isr") or [])]
    answers: set[bool | None] = {False}
    for time, who in strikes:
        if who == node:
            back = any_of(both(earlier(world.run, time, life), earlier(world.run, life, entry))
                          for life in lives for entry in taken_in)
            answers.add(both(earlier(world.run, time, election["time"]),
                             None if back is None else not back))
    return any_of(answers)


def both(one: bool | None, other: bool | None) -> bool | None:
    return False if False in (one, other) else None if None in (one, other) else True


def any_of(answers: Iterable[bool | None]) -> bool | None:
    given = {*answers}
    return True if True in given else None if None in given else False


# -- findings that follow -----------------------------------------------------------------------------------

def first(causes: Iterable[Cause | None]) -> Cause | None:
    """The first of several causes in the order of naming, sure before unsure."""
    order = (ACKS, UNCLEAN, BUDGET, RETRIES, SUBSCRIBE, ISOLATION, INTERNAL)
    found = [cause for cause in causes if cause is not None]
    return min(found, key=lambda cause: (order.index(cause.by), not cause.sure), default=None)


def of_lost_write(world: World, send: Send) -> Cause | None:
    if world.run["guarantees"].get("acks") != "all":
        return Cause(by=ACKS)
    return losing_cause(world, send)


def follows(world: World, concerned: Iterable[Send], *, acks: bool = False) -> Cause | None:
    """A finding about these sends is permitted if one of them is itself lost by a permitted cause; by acks
    only if no read returned it (what was read had been committed). If the leader's log cannot show what was
    lost, each may have been, and the cause is unsure."""
    causes: list[Cause | None] = []
    for send in concerned:
        blind = may_be_gone(world, send)
        if not blind and not is_gone(world, send):
            continue
        weak = acks and world.run["guarantees"].get("acks") != "all" and not world.was_read(send)
        cause = Cause(by=ACKS) if weak else losing_cause(world, send)
        if cause is not None:
            causes.append(Cause(by=cause.by, sure=cause.sure and (weak or not blind)))
    return first(causes)


def sends_of_values(world: World, partition: int, values: Iterable[int]) -> list[Send]:
    wanted = set(values)
    return [send for send in world.sends if send.partition == partition and send.value in wanted]


def follows_lost_offsets(world: World, partition: int, concerned: Callable[[int], bool]) -> Cause | None:
    """For what consumers saw: one of these offsets (below an end, or skipped) is that of a record lost by a
    permitted cause. An info send's offset is where it was read."""
    causes: list[Cause | None] = []
    for send in world.sends:
        blind = may_be_gone(world, send)
        if send.partition == partition and (blind or is_gone(world, send)):
            read_at = {read.offset for read in world.reads
                       if read.partition == partition and read.value == send.value}
            places = {send.offset} if send.offset is not None else read_at
            if send.value in world.repeated:
                places = read_at | acks_of(world, send)
            cause = losing_cause(world, send)
            if cause is not None and any(concerned(offset) for offset in places):
                causes.append(Cause(by=cause.by, sure=cause.sure and not blind))
    return first(causes)


def retried(world: World) -> Cause | None:
    guarantees = world.run["guarantees"]
    risky = guarantees.get("retries", 0) > 0 and not guarantees.get("idempotence")
    return Cause(by=RETRIES) if risky else None
