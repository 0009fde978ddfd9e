"""The twin's findings in the trace, from the format's text and the catalogue of invariants alone.

Readings that had to be chosen:
- A finding counts only if it is one in every order of events that times and the clock error leave open.
- A trace with a gap, a missing node or an unreadable line proves only what one node's own lines show:
  hw-regressed, epoch-regressed, two-leaders, and of ack-rule the HW and the size of the ISR.
- candidate-incomplete counts (replica, epoch of the records that it lacks), two-leaders (partition, epoch).
- recovery-loss: a length that a `fetch` or an ack proves counts only if no line of the replica from before
  its LEO last fell has a LEO as high; and not if it is above its last LEO. An ack at the time of the
  process's last line may never have been. A follower that ends before it has appended anything may have been
  truncating: nothing but an orderly stop proves its length then.
- A missing record that is permitted need not be lost for good: a struck leader may fail before anyone follows
  it. Nor need it be older than the unclean election, if its epoch is: an old leader may go on for a while.
"""

from collections.abc import Iterator
from itertools import pairwise

from twin_facts import grouped, reads_of
from twin_folder import FOREVER, Row, World, is_offset
from twin_observes import is_broken, not_made
from twin_permits import (
    BUDGET,
    DOUBT,
    UNCLEAN,
    Cause,
    Found,
    by_name,
    chosen_from_struck,
    earlier,
    first,
    losing_cause,
    perhaps_struck,
    strikes,
    unclean_elections,
    untold_election,
    was_allowed,
)
from twin_timeline import ROLES, TELLS, Record, Trace, in_order, may_be

Causes = Iterator[Cause | None]  # one for each finding of a partition

def hw_regressed(trace: Trace, key: int, home: Row) -> Causes:
    """The high watermark of a leader falls from one of its lines to the next, in one epoch."""
    last: dict[tuple[str, int], int] = {}
    for event in in_order(trace.leading(key)):
        if event.hw < last.get((event.node, event.epoch), event.hw):
            yield None
        last[event.node, event.epoch] = event.hw


def epoch_regressed(trace: Trace, key: int, home: Row) -> Causes:
    """A replica takes a role in an epoch below that of an earlier role."""
    highest: dict[str, int] = {}
    for event in (event for event in in_order(trace.of(key)) if event.event in ROLES):
        if event.epoch < highest.get(event.node, event.epoch):
            yield None
        highest[event.node] = max(event.epoch, highest.get(event.node, event.epoch))


def two_leaders(trace: Trace, key: int, home: Row) -> Causes:
    """Two nodes act as leader of one epoch."""
    acted = grouped((event.epoch, event.node) for event in trace.leading(key)
                    if event.event in ("append", "ack", "hw"))
    yield from (None for nodes in acted.values() if len(nodes) > 1)


def ack_rule(trace: Trace, key: int, home: Row) -> Causes:
    """An acks=all ack at or above the HW, below min.insync.replicas, or ahead of an ISR member's append."""
    least = min(trace.world.given.get("min_insync_replicas", 1), len(home.replicas))
    for event in (event for event in trace.leading(key) if event.event == "ack" and event.acks == "all"):
        if event.hw <= event.offset or len(event.isr) < least or (trace.world.trace_complete and any(
                lags(trace, key, event, member) for member in event.isr if member in home.replicas)):
            yield None


def lags(trace: Trace, key: int, ack: Row, member: str) -> bool:
    """Whether this ISR member surely appended the record, which is of the ack's epoch, after it or never."""
    mine = [held.epoch for held in trace.held[key] if (held.node, held.offset) == (ack.node, ack.offset)
            and held.since.seq <= ack.seq and (held.until is None or ack.seq < held.until.seq)]
    record: Record = (ack.offset, mine[-1] if mine else None)
    return record[1] in (None, ack.epoch) and bool(trace.of(key, member)) and not any(
        held.node == member and may_be(held, record) and not trace.before(ack, held.since)
        for held in trace.held[key])


# -- committed records ------------------------------------------------------------------------------------

def leader_incomplete(trace: Trace, key: int, home: Row) -> Causes:
    """At become_leader the LEO is below what leaders up to this epoch had committed. (One that learns late of
    its election cannot have what later ones did.)"""
    for event in (event for event in trace.of(key) if event.event == "become_leader"):
        lacking = [record for record in trace.commits[key] if record[0] >= max(event.leo, home.deleted_to)
                   and trace.committed_before(record, key, event, event.epoch)]
        if lacking:
            yield excuse_of_all(trace, home, lacking, event)


def candidate_incomplete(trace: Trace, key: int, home: Row) -> Causes:
    """At some instant a record was committed, and a replica in the controller's ISR, registered and unfenced,
    lacked it."""
    for node in home.replicas:
        members, alive = trace.in_isr(key, node), trace.registered(node)
        lacking: dict[int | None, list[Record]] = {}
        for record, leaders in trace.commits[key].items():
            lacks = trace.lacking(key, node, record) if record[0] >= home.deleted_to else []
            if any(trace.meet([(commit, None), member, *life, lack]) for commit in leaders.values()
                   for member in members for life in alive for lack in lacks):
                lacking.setdefault(record[1], []).append(record)
        yield from (excuse_of_all(trace, home, records) for records in lacking.values())


def unsafe_truncation(trace: Trace, key: int, home: Row) -> Causes:
    """A truncation, other than recovery (by its cause, or in an old file by its words), cut a record that had
    been committed before. A stray copy may change."""
    for event in (event for event in trace.of(key) if event.event == "truncate"):
        recovers = event.cause == "recovery" or (
            event.cause is None and "recover" in str(event.why or "").lower())
        lost = [(held.offset, held.epoch) for held in trace.held[key] if held.until is event
                and held.offset >= home.deleted_to and held.epoch is not None
                and trace.committed_before((held.offset, held.epoch), key, event)]
        if lost and not recovers and event.node in home.replicas:
            yield excuse_of_all(trace, home, lost, event)


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
               default=-FOREVER)
    elected = max([0, *(min(was_allowed(world, event), was_before(trace, event, at))
                        for event in unclean_elections(world, home.key)
                        if (event.time > born - error if record[1] is None else event.epoch > record[1]))])
    if elected or untold_election(world):
        return Cause(UNCLEAN, sure=elected == 1)
    if chosen_since(trace, home, born - error, at):
        return Cause(BUDGET, sure=chosen_since(trace, home, born + error + 1, at) == 1)
    return perhaps_struck(world, home, timeless=world.time_falls)


def chosen_since(trace: Trace, home: Row, since: int, at: Row | None) -> float:
    """Whether a leader was elected from copies that were all struck since this time, before the line."""
    struck = strikes(trace.world, home, lambda line: line.time >= since)
    return max((min(surely, was_before(trace, event, at))
                for event, surely in chosen_from_struck(trace.world, home, struck)), default=0)


def was_before(trace: Trace, election: Row, at: Row | None) -> float:
    """Whether the election came before that line. A line of its epoch, or of a later one, comes after it."""
    if at is None or (at.epoch is not None and at.epoch >= election.epoch):
        return 1
    return earlier(trace.world, election.time, at.time)


def lost_with_permission(trace: Trace, home: Row, record: Record) -> Cause | None:
    """The permission for the loss of an acked record of this offset that is lost in the end, or may be:
    something that came after its send. The record is not in the leader's final log, and was not written by a
    leader that was uncleanly elected last, nor after the copies of the others were struck."""
    offset, epoch = record
    elected = [event.epoch for event in unclean_elections(trace.world, home.key)
               if was_allowed(trace.world, event)]
    if any((entry.offset, entry.epoch) == record for entry in home.leader_log) or (
            elected and epoch is not None and max(elected) <= epoch):
        return None
    causes = []
    for send in trace.world.sends:
        if (send.partition, send.offset) == (home.key, offset) and (send.lost or home.blind):
            cause = losing_cause(trace.world, send)
            newer = cause is not None and cause.by == BUDGET and (
                chosen_since(trace, home, -FOREVER, None)
                and excuse(trace, home, record, None) is None)
            if cause is not None and not newer:
                causes.append(Cause(cause.by, sure=cause.sure and send.lost))
    return first(causes)


def unclean_election(trace: Trace, key: int, home: Row) -> Causes:
    """An unclean election that neither the setting nor a request allowed; each line of the controller's."""
    allowed = [was_allowed(trace.world, event) for event in unclean_elections(trace.world, key)]
    yield from (DOUBT if perhaps else None for perhaps in allowed if perhaps < 1)


def unsafe_isr(trace: Trace, key: int, home: Row) -> Causes:
    """A replica that joins below the HW or the epoch's start, an ISR without its leader or not newer than the
    one before it, and once in an epoch a leader's ISR that lacks one of the controller's (C15, C20)."""
    words = trace.words(key)
    wrong = sum(event.leader is not None and event.leader not in event.isr for event in words)
    for before, event in pairwise(words):
        wrong += (is_offset(event.partition_epoch) and is_offset(before.partition_epoch)
                  and event.partition_epoch <= before.partition_epoch)
        wrong += event.event == "isr" and any(
            taken_too_early(trace, key, event, member)
            for member in ({*event.isr} - {*before.isr}) & {*home.replicas})
    lacking = {(event.node, event.epoch, members) for event in trace.leading(key)
               if event.event == "ack" and (members := lacking_members(trace, key, event))}
    yield from (None for _ in range(wrong + len(lacking)))


def taken_too_early(trace: Trace, key: int, applied: Row, member: str) -> bool:
    """Whether all of the replica's lines around the controller's are below what its leader had then, in a
    registered incarnation. (After the node's start its log may be unknown: Trace.lacking.)"""
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

def recovery_loss(trace: Trace, key: int, home: Row) -> Causes:
    """A start that finds less than the replica surely had."""
    for mine in (trace.lives(key, node) for node in home.replicas):
        yield from (None for place, start in enumerate(mine)
                    if start.event == "start" and start.partition is not None
                    and lost_by_itself(trace, key, start, mine[:place]))


def lost_by_itself(trace: Trace, key: int, start: Row, before: list[Row]) -> bool:
    """Whether the log was surely longer than this start found it, without a fault since the start before
    that explains it. After a node's start its length is 0 until the replica has a line."""
    lengths = [0 if event.partition is None else event.leo for event in before]
    error, begun = trace.world.clock_error, [event.time for event in before if event.event == "start"]
    struck = any(act.lost and start.node in (act.nodes or [start.node]) and act.began <= start.time + error
                 and act.time + error >= max(begun[-1:], default=-error) for act in trace.world.acts)
    if not before or start.leo >= lengths[-1] or struck:
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
            and event.offset is not None and event.time + error < start.time]
    ends += [event.offset + 1 for event in before if event.event == "ack" and event.time < before[-1].time]
    return any(max(start.leo, outgrown) < end <= lengths[-1] for end in ends)


def read_above_hw(trace: Trace, key: int, home: Row) -> Causes:
    """A poll returned a record that no HW had passed."""
    yield from (None for line in trace.world.lines for read in reads_of(line)
                if read.partition == key and read.offset >= highest_hw(trace, key, line))


def end_offset_ahead(trace: Trace, key: int, home: Row) -> Causes:
    """list_offsets answered an end that no HW had reached."""
    yield from (None for line in trace.world.lines for end in line.offsets or []
                if (line.f, line.type, end.partition) == ("list_offsets", "ok", key)
                and end.offset > highest_hw(trace, key, line))


def highest_hw(trace: Trace, key: int, line: Row) -> float:
    """The highest HW of this partition when the op was over, or perhaps was; infinite before the first HW."""
    return max((event.hw for event in trace.of(key) if event.hw is not None
                and not (event.event == "hw" and event.role == "follower")
                and event.time <= line.time + trace.world.clock_error), default=FOREVER)


CHECKS = by_name(hw_regressed, epoch_regressed, two_leaders, ack_rule, unclean_election)
OF_A_COMPLETE_TRACE = by_name(leader_incomplete, candidate_incomplete, unsafe_truncation, unsafe_isr,
                              recovery_loss, read_above_hw, end_offset_ahead)
NAMES = tuple(sorted(CHECKS | OF_A_COMPLETE_TRACE))


def trace_findings(world: World) -> Iterator[tuple[str, Found]]:
    """Every finding of the trace by its name. A history with missing or unreadable lines leaves some open."""
    if world.trace is None:
        return
    trace, complete = Trace(world), world.trace_complete
    of_the_history = {"recovery-loss", "read-above-hw", "end-offset-ahead"}
    in_doubt = of_the_history if world.breach else set() if world.complete else {"recovery-loss"}
    doubtful = not complete or world.repeated or not is_offset(world.run.get("clock_error_ns", 0))
    yield from ((name, (None, DOUBT)) for name in (NAMES if doubtful else in_doubt))
    left_out = {*NAMES} if is_broken(world.run) else not_made(world.run)
    for name, check in (CHECKS | (OF_A_COMPLETE_TRACE if complete else {})).items():
        if name not in left_out | in_doubt:
            yield from ((name, (key, cause)) for key, home in world.partitions.items()
                        for cause in check(trace, key, home))
