"""The twin's findings in the trace, from the format's text and the catalogue of invariants alone.

Readings that had to be chosen:
- A finding counts only if it is one in every order of events that times and the clock error leave open.
- A trace with a gap, a missing node or an unreadable line proves only what one node's own lines show:
  hw-regressed, epoch-regressed, two-leaders, and of ack-rule the HW and the size of the ISR.
- leader-incomplete compares only LEO; records that a leader of a later epoch has committed do not count,
  because a leader that learns late of its election cannot have them.
- candidate-incomplete counts (replica, epoch of the records that it lacks).
- two-leaders counts (partition, epoch); a line `append`, `ack` or `hw` as leader is an act.
- ack-rule: an append that may have come before the ack is enough, even if it is cut later;
  min.insync.replicas is the guarantee's, at most as many as there are replicas.
- unsafe-isr counts the controller's lines (isr; a proposal is no ISR yet) that add a replica too early: all
  of the replica's lines around it then have a LEO below the HW or the epoch's start, in the incarnation that
  is registered. An ISR that a leader's ack uses and that lacks a member of the controller's counts once for
  each epoch.
- recovery-loss counts a replica's own `start` lines. A length that a leader's `fetch` of it, certainly before
  the start, or its own `ack` proves counts only if no line of the replica from before its LEO last fell has a
  LEO as high; and not if it is above its last LEO. An ack at the time of the process's last line may never
  have been. A follower that ends before it has appended anything may have been truncating: nothing but an
  orderly stop proves its length then.
- Every line of a broker's replica except a follower's `hw` gives the HW; one within the clock error after an
  op counts as well. read-above-hw counts records of polls and txns, of any outcome.
- Nothing is claimed of records below the final log_start.
- A missing record is permitted if an unclean election came after it (in time, or by its epoch: an old leader
  may go on for a while), or if copies of it were struck and a leader was elected from those; it need not be
  lost for good, because a struck leader may fail before anyone follows it. A finding of several records is
  permitted if all of them are.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

from twin_facts import World, reads_of
from twin_folder import Row, is_int, is_offset
from twin_observes import is_broken, not_made
from twin_permits import (
    BUDGET,
    DOUBT,
    UNCLEAN,
    Cause,
    Found,
    any_of,
    both,
    chosen_from_struck,
    first,
    losing_cause,
    perhaps_struck,
    strikes,
    unclean_elections,
    untold_election,
    was_allowed,
)
from twin_timeline import ROLES, TELLS, Record, Trace, in_order, may_be

# -- one node's own lines ---------------------------------------------------------------------------------

def hw_regressed(trace: Trace) -> Iterator[Found]:
    """The high watermark of a leader falls from one of its lines to the next, in one epoch."""
    for key in trace.world.partitions:
        last: dict[tuple[str, int], int] = {}
        for event in in_order(trace.leading(key)):
            term = (event.node, event.epoch)
            if event.hw < last.get(term, event.hw):
                yield key, None
            last[term] = event.hw


def epoch_regressed(trace: Trace) -> Iterator[Found]:
    """A replica takes a role in an epoch below that of an earlier role."""
    for key in trace.world.partitions:
        highest: dict[str, int] = {}
        for event in (event for event in in_order(trace.of(key)) if event.event in ROLES):
            before = highest.get(event.node, event.epoch)
            if event.epoch < before:
                yield key, None
            highest[event.node] = max(event.epoch, before)


def two_leaders(trace: Trace) -> Iterator[Found]:
    """Two nodes act as leader of one epoch."""
    for key in trace.world.partitions:
        acted = {(event.epoch, event.node) for event in trace.leading(key)
                 if event.event in ("append", "ack", "hw")}
        epochs = [epoch for epoch, _ in acted]
        yield from ((key, None) for epoch in {*epochs} if epochs.count(epoch) > 1)


def ack_rule(trace: Trace) -> Iterator[Found]:
    """An acks=all ack at or above the HW, below min.insync.replicas, or ahead of an ISR member's append."""
    for key, home in trace.world.partitions.items():
        least = min(trace.world.given.get("min_insync_replicas", 1), len(home.replicas))
        for event in trace.leading(key):
            if event.event == "ack" and event.acks == "all" and (
                    event.hw <= event.offset or len(event.isr) < least
                    or (trace.world.folder.trace_complete and any(
                        lags(trace, key, event, member) for member in event.isr
                        if member in home.replicas))):
                yield key, None


def lags(trace: Trace, key: int, ack: Row, member: str) -> bool:
    """Whether this ISR member certainly appended the record only after the ack, or never."""
    record: Record = (ack.offset, None)
    for held in trace.held[key]:
        if (held.node, held.offset) == (ack.node, ack.offset) and held.since.seq <= ack.seq and (
                held.until is None or ack.seq < held.until.seq):
            record = (held.offset, held.epoch)
    return bool(trace.of(key, member)) and not any(
        held.node == member and may_be(held, record) and not trace.before(ack, held.since)
        for held in trace.held[key])


# -- committed records ------------------------------------------------------------------------------------

def leader_incomplete(trace: Trace) -> Iterator[Found]:
    """At become_leader the LEO is below what leaders up to this epoch had committed."""
    for key, home in trace.world.partitions.items():
        for event in (event for event in trace.of(key) if event.event == "become_leader"):
            lacking = [record for record in trace.commits[key]
                       if record[0] >= max(event.leo, home.log_start)
                       and trace.committed_before(record, key, event, event.epoch)]
            if lacking:
                yield key, excuse_of_all(trace, home, lacking, event)


def candidate_incomplete(trace: Trace) -> Iterator[Found]:
    """At some instant a record was committed, and a replica in the controller's ISR, registered and unfenced,
    lacked it."""
    for key, home in trace.world.partitions.items():
        for node in home.replicas:
            members, alive = trace.in_isr(key, node), trace.registered(node)
            lacking: dict[int | None, list[Record]] = {}
            for record, leaders in trace.commits[key].items():
                lacks = trace.lacking(key, node, record) if record[0] >= home.log_start else []
                if any(trace.meet([(commit, None), member, *life, lack]) for commit in leaders.values()
                       for member in members for life in alive for lack in lacks):
                    lacking.setdefault(record[1], []).append(record)
            yield from ((key, excuse_of_all(trace, home, records)) for records in lacking.values())


def unsafe_truncation(trace: Trace) -> Iterator[Found]:
    """A truncation, other than recovery (by its cause, or in an old file by its words), cut a record that had
    been committed before. A node may change a stray copy as it likes."""
    for key, home in trace.world.partitions.items():
        for event in (event for event in trace.of(key) if event.event == "truncate"):
            recovers = event.cause == "recovery" or (
                event.cause is None and "recover" in str(event.why or "").lower())
            lost = [(held.offset, held.epoch) for held in trace.held[key] if held.until is event
                    and held.offset >= home.log_start and held.epoch is not None
                    and trace.committed_before((held.offset, held.epoch), key, event)]
            if lost and not recovers and event.node in home.replicas:
                yield key, excuse_of_all(trace, home, lost, event)


# -- what permits a missing record ------------------------------------------------------------------------

def excuse_of_all(trace: Trace, home: Row, records: list[Record], at: Row | None = None) -> Cause | None:
    """The cause that permits all of these records to be missing. `at`: the line that shows it; an election
    that certainly came later is no excuse by itself. But a record whose loss is permitted in the end is
    excused everywhere, and so are those of its epoch behind it, which were lost with it."""
    causes = []
    for epoch in {epoch for _, epoch in records}:
        mine = sorted(record for record in records if record[1] == epoch)
        each = [excuse(trace, home, record, at) for record in mine]
        least = None if None in each else first(each)
        sure = all(cause.sure for cause in filter(None, each) if least and cause.by == least.by)
        causes.append(first([lost_with_permission(trace, home, mine[0]), least and Cause(least.by, sure)]))
    return None if None in causes else first(causes)


def excuse(trace: Trace, home: Row, record: Record, at: Row | None) -> Cause | None:
    """What permits a record to be missing, by the time of its first append: a strike that is later than that
    by more than the clock error surely met it, one that is earlier by more did not."""
    world, error = trace.world, trace.world.clock_error
    born = min((held.since.time for held in trace.held[home.key] if may_be(held, record)),
               default=-(1 << 62))
    elected = any_of(both(was_allowed(world, event), was_before(trace, event, at))
                     for event in unclean_elections(world, home.key)
                     if event.time > born - error or (record[1] is not None and event.epoch > record[1]))
    if elected is not False or untold_election(world):
        return Cause(UNCLEAN, sure=elected is True)
    if any(before is not False for _, before in elections_of_struck(trace, home, born - error, at)):
        surely = elections_of_struck(trace, home, born + error + 1, at)
        return Cause(BUDGET, sure=(True, True) in surely)
    return perhaps_struck(world, home, timeless=world.folder.time_falls)


def elections_of_struck(trace: Trace, home: Row, since: int, at: Row | None
                        ) -> list[tuple[bool, bool | None]]:
    """Elections from copies that were all struck since this time: whether that is sure, and whether they came
    before the line."""
    struck = strikes(trace.world, home, lambda line: line.time >= since)
    return [(sure, was_before(trace, event, at))
            for event, sure in chosen_from_struck(trace.world, home, struck)]


def was_before(trace: Trace, election: Row, at: Row | None) -> bool | None:
    """Whether the election came before that line. A line of its epoch, or of a later one, comes after it.
    None: the clocks do not decide."""
    if at is None or (at.epoch is not None and at.epoch >= election.epoch):
        return True
    apart = at.time - election.time
    return bool(apart > 0) if abs(apart) > trace.world.clock_error else None


def lost_with_permission(trace: Trace, home: Row, record: Record) -> Cause | None:
    """The permission for the loss of an acked record of this offset that is lost in the end, or may be:
    something that came after its send. The record is not in the leader's final log, and was not written by a
    leader that was uncleanly elected last, nor after the copies of the others were struck."""
    offset, epoch = record
    elected = [event.epoch for event in unclean_elections(trace.world, home.key)
               if was_allowed(trace.world, event) is not False]
    if any((entry.offset, entry.epoch) == record for entry in home.leader_log) or (
            elected and epoch is not None and max(elected) <= epoch):
        return None
    causes = []
    for send in trace.world.sends:
        if (send.partition, send.offset) == (home.key, offset) and (send.lost or home.blind):
            cause = losing_cause(trace.world, send)
            newer = cause is not None and cause.by == BUDGET and (
                elections_of_struck(trace, home, -(1 << 62), None)
                and excuse(trace, home, record, None) is None)
            if cause is not None and not newer:
                causes.append(Cause(cause.by, sure=cause.sure and send.lost))
    return first(causes)


def unclean_election(trace: Trace) -> Iterator[Found]:
    """An unclean election that neither the setting nor a request allowed; each line of the controller's."""
    for event in unclean_elections(trace.world):
        allowed = was_allowed(trace.world, event)
        if not allowed:
            yield event.partition, DOUBT if allowed is None else None


# -- the ISR (catalogue C15, C20) -------------------------------------------------------------------------

def unsafe_isr(trace: Trace) -> Iterator[Found]:
    """A replica that joins below the HW or the epoch's start, an ISR without its leader or not newer than the
    one before it, and a leader's ISR that lacks a member of the controller's."""
    for key, home in trace.world.partitions.items():
        words = trace.words(key)
        wrong = sum(event.leader is not None and event.leader not in event.isr for event in words)
        for before, event in pairwise(words):
            wrong += (is_offset(event.partition_epoch) and is_offset(before.partition_epoch)
                      and event.partition_epoch <= before.partition_epoch)
            wrong += event.event == "isr" and any(
                taken_too_early(trace, key, event, member)
                for member in ({*event.isr} - {*before.isr}) & {*home.replicas})
        lacking = {(event.node, event.epoch, lacking_members(trace, key, event))
                   for event in trace.leading(key) if event.event == "ack"}
        wrong += sum(members != () for _, _, members in lacking)
        yield from ((key, None) for _ in range(wrong))


def taken_too_early(trace: Trace, key: int, applied: Row, member: str) -> bool:
    """Whether all of the replica's lines around the controller's are below what its leader had then, in a
    registered incarnation. After the node's start its log is unknown until the replica has a line on its log,
    or on its role."""
    if not any(all(trace.covers(span, applied) for span in life) for life in trace.registered(member)):
        return False
    mine, starts = trace.of(key, member), trace.starts(member)
    tells = [event for event in in_order([*starts, *(event for event in mine if event.event in TELLS)])
             if not trace.before(applied, event)]
    before = [event for event in mine if trace.before(event, applied)]
    if not tells or tells[-1] in starts or not before:
        return False
    around = [event for event in mine if not trace.before(event, applied)
              and not trace.before(applied, event)]
    floor = max((max(event.hw, (event.start or 0) if event.event == "become_leader" else 0)
                 for event in trace.leading(key)
                 if event.epoch == applied.epoch and trace.before(event, applied)), default=0)
    return all(event.leo < floor for event in [before[-1], *around])


def lacking_members(trace: Trace, key: int, event: Row) -> tuple[str, ...]:
    """The members of the controller's ISR, in this leader's epoch, that the leader's lacks."""
    decided = any(one is not None and one.epoch == event.epoch and trace.covers((one, other), event)
                  for one, other in pairwise([*trace.words(key), None]))
    members = {node for word in trace.words(key) for node in word.isr} - {*event.isr}
    return tuple(sorted(node for node in members if decided and any(
        trace.covers(span, event) for span in trace.in_isr(key, node))))


# -- the trace and the history ----------------------------------------------------------------------------

def recovery_loss(trace: Trace) -> Iterator[Found]:
    """A start that finds less than the replica surely had."""
    for key, home in trace.world.partitions.items():
        for node in home.replicas:
            mine = trace.lives(key, node)
            for place, start in enumerate(mine):
                if start.event == "start" and start.partition is not None and (
                        lost_by_itself(trace, key, start, mine[:place])):
                    yield key, None


def lost_by_itself(trace: Trace, key: int, start: Row, before: list[Row]) -> bool:
    """Whether the log was surely longer than this start found it, without a fault that explains it. After a
    node's start its length is 0 until the replica has a line."""
    lengths = [0 if event.partition is None else event.leo for event in before]
    begun = [event.time for event in before if event.event == "start"]
    if not before or start.leo >= lengths[-1] or any(
            was_struck(trace, start, act, begun) for act in trace.world.acts):
        return False
    if start.clean is True:
        return True
    last = next((event.event for event in reversed(before)
                 if event.event in ("start", "append", *ROLES)), None)
    if last == "become_follower":
        return False
    falls = [place for place, (one, other) in enumerate(pairwise(lengths), 1) if other < one]
    outgrown = max(lengths[:falls[-1]]) if falls else 0
    ends = [event.offset for event in trace.of(key) if event.event == "fetch" and event.follower == start.node
            and event.offset is not None and event.time + trace.world.clock_error < start.time]
    ends += [event.offset + 1 for event in before if event.event == "ack" and event.time < before[-1].time]
    return any(max(start.leo, outgrown) < end <= lengths[-1] for end in ends)


def was_struck(trace: Trace, start: Row, act: Row, begun: list[int]) -> bool:
    """Whether this may be a fault that lost data of the node, since its start before."""
    error = trace.world.clock_error
    since = act.fault.began if is_int(act.fault.began) else act.time
    return (act.fault.lost is True and start.node in (act.fault.nodes or []) and since <= start.time + error
            and (not begun or act.time + error >= begun[-1]))


def read_above_hw(trace: Trace) -> Iterator[Found]:
    """A poll returned a record that no HW had passed."""
    for line in trace.world.lines:
        for read in reads_of(line):
            if read.partition in trace.world.partitions and (
                    read.offset >= highest_hw(trace, read.partition, line)):
                yield read.partition, None


def end_offset_ahead(trace: Trace) -> Iterator[Found]:
    """list_offsets answered an end that no HW had reached."""
    for line in trace.world.lines:
        for end in line.offsets if (line.f, line.type) == ("list_offsets", "ok") else []:
            if end.partition in trace.world.partitions and (
                    end.offset > highest_hw(trace, end.partition, line)):
                yield end.partition, None


def highest_hw(trace: Trace, key: int, line: Row) -> float:
    """The highest HW of this partition when the op was over, or perhaps was; infinite before the first HW."""
    return max((event.hw for event in trace.of(key) if event.hw is not None
                and not (event.event == "hw" and event.role == "follower")
                and event.time <= line.time + trace.world.clock_error), default=math.inf)


CHECKS: dict[str, Callable[[Trace], Iterator[Found]]] = {
    "hw-regressed": hw_regressed, "epoch-regressed": epoch_regressed, "two-leaders": two_leaders,
    "ack-rule": ack_rule, "unclean-election": unclean_election,
}
OF_A_COMPLETE_TRACE: dict[str, Callable[[Trace], Iterator[Found]]] = {
    "leader-incomplete": leader_incomplete, "candidate-incomplete": candidate_incomplete,
    "unsafe-truncation": unsafe_truncation, "unsafe-isr": unsafe_isr, "recovery-loss": recovery_loss,
    "read-above-hw": read_above_hw, "end-offset-ahead": end_offset_ahead,
}
OF_THE_HISTORY = ("recovery-loss", "read-above-hw", "end-offset-ahead")
NAMES = tuple(sorted(CHECKS | OF_A_COMPLETE_TRACE))


def trace_findings(world: World) -> Iterator[tuple[str, Found]]:
    """Every finding of the trace by its name. A history with missing or unreadable lines leaves some open."""
    if world.folder.trace is None:
        return
    trace, complete = Trace(world), world.folder.trace_complete
    open_names = {*OF_THE_HISTORY} if world.folder.breach else {"recovery-loss"}
    if world.complete:
        open_names = set()
    doubtful = not complete or world.repeated or not is_offset(world.run.get("clock_error_ns", 0))
    yield from ((name, (None, DOUBT)) for name in (NAMES if doubtful else open_names))
    left_out = {*NAMES} if is_broken(world.run) else not_made(world.run)
    for name, check in (CHECKS | (OF_A_COMPLETE_TRACE if complete else {})).items():
        if name not in left_out | open_names:
            yield from ((name, one) for one in check(trace))
