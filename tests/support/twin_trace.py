"""The twin's findings in the trace, from the format's text and the catalogue of invariants alone.

Readings that had to be chosen:
- A record is committed if some leader had it below the high watermark in any of its lines as leader.
- A record is its offset and its own epoch; if no line has the epoch, it may be any, and excuses.
- A finding counts only if it is one in every order of events that times and the clock error leave open.
- A trace with a gap, a missing node or an unreadable line proves only what one node's own lines show:
  hw-regressed, epoch-regressed, two-leaders, and of ack-rule the HW and the size of the ISR.
- A line without the fields that its event must have (`epochs`, `start`, `partition_epoch` may be missing) is
  not readable; lines of partitions that run.json does not name, and events of other names, are ignored.
- The LEO in a line outranks the LEO that was computed: the other records are gone, or of unknown epoch.
- hw-regressed counts falls: a line as leader whose HW is below the one before in that (node, epoch).
- leader-incomplete counts become_leader lines and compares only LEO; records that a leader of a later epoch
  has committed do not count, because a leader that learns late of its election cannot have them.
- candidate-incomplete counts (replica, epoch of the records that it lacks). An incarnation is registered or
  not: it is not from its `start` or `crash` to the controller's next `unfence`, nor from `register` until
  then, nor where no line shows it.
- two-leaders counts (partition, epoch); a line `append`, `ack` or `hw` as leader is an act.
- ack-rule counts acks. An append that may have come before the ack is enough, even if it is cut later;
  min.insync.replicas is the guarantee's, at most as many as there are replicas.
- unsafe-truncation counts truncations; recovery is a cause, and a start that finds less.
- unsafe-isr counts the controller's lines (isr; a proposal is no ISR yet) that add a replica too early: all
  of the replica's lines around it then have a LEO below the HW or the epoch's start, in the incarnation that
  is registered. An ISR that a leader uses (ack) or takes over (isr, become_leader) and that lacks a member
  of the controller's counts once for each epoch.
- unclean-election counts the controller's lines.
- epoch-regressed counts lines below the highest epoch before.
- Nothing is claimed of records below the final log_start.
- A missing record is permitted if an unclean election came after it (in time, or by its epoch: an old leader
  may go on for a while), or if copies of it were struck and a leader was elected from those; it need not be
  lost for good, because a struck leader may fail before anyone follows it. A finding of several records is
  permitted if all of them are.
- "values not unique" leaves these checks unknown too; a missing trace is not named anywhere.
"""

from collections.abc import Callable, Iterator

import twin_trace_clients
from twin_classes import (
    BUDGET,
    UNCLEAN,
    Cause,
    any_of,
    both,
    can_cost,
    chosen_from_struck,
    first,
    is_blind,
    is_lost,
    losing_cause,
    struck_by,
    unflushed_faults,
    unseen_unflushed,
    untold_election,
    was_allowed,
)
from twin_facts import Partition, World
from twin_folder import Line, is_offset
from twin_logs import Found
from twin_observes import is_broken, not_made
from twin_trace_isr import TELLS, controllers_isr, registered, unsafe_isr
from twin_trace_lines import Event, Record, Span, Trace, in_order, instant, trace_of

# -- one node's own lines -----------------------------------------------------------------------------------


def hw_regressed(world: World, trace: Trace) -> Iterator[Found]:
    """The high watermark of a leader falls from one of its lines to the next, in one epoch."""
    for key in world.partitions:
        last: dict[tuple[str, int], int] = {}
        for event in in_order(trace.leading(key)):
            term = (event.node, event["epoch"])
            if event["hw"] < last.get(term, event["hw"]):
                yield (key, event.node, event.seq), None
            last[term] = event["hw"]


def epoch_regressed(world: World, trace: Trace) -> Iterator[Found]:
    """A replica takes a role in an epoch below that of an earlier role."""
    for key in world.partitions:
        highest: dict[str, int] = {}
        for event in in_order(trace.of(key)):
            if event.name in ("become_leader", "become_follower"):
                if event["epoch"] < highest.get(event.node, event["epoch"]):
                    yield (key, event.node, event.seq), None
                highest[event.node] = max(event["epoch"], highest.get(event.node, event["epoch"]))


def two_leaders(world: World, trace: Trace) -> Iterator[Found]:
    """Two nodes act as leader of one epoch."""
    for key in world.partitions:
        acted: dict[int, set[str]] = {}
        for event in trace.leading(key):
            if event.name in ("append", "ack", "hw"):
                acted.setdefault(event["epoch"], set()).add(event.node)
        for epoch, nodes in acted.items():
            if len(nodes) > 1:
                yield (key, epoch), None


def ack_rule(world: World, trace: Trace) -> Iterator[Found]:
    """An acks=all ack at or above the HW, below min.insync.replicas, or ahead of an ISR member's append."""
    for key, partition in world.partitions.items():
        least = min(world.run["guarantees"].get("min_insync_replicas", 1), len(partition.replicas))
        for event in trace.leading(key):
            if event.name == "ack" and event["acks"] == "all" and (
                    event["hw"] <= event["offset"] or len(event["isr"]) < least
                    or (trace.complete and any(lags(trace, key, event, member) for member in event["isr"]
                                               if member in partition.replicas))):
                yield (key, event.node, event.seq), None


def lags(trace: Trace, key: int, ack: Event, member: str) -> bool:
    """Whether this ISR member certainly appended the record only after the ack, or never."""
    record: Record = (ack["offset"], None)
    for holding in trace.held[key]:
        if holding.node == ack.node and holding.offset == ack["offset"] and holding.is_held_at(ack):
            record = (holding.offset, holding.epoch)
    has_lines = any(True for _ in trace.of(key, member))
    return has_lines and not any(holding.node == member and holding.may_be(record)
                                 and not trace.before(ack, holding.since) for holding in trace.held[key])


ROLES = ("become_leader", "become_follower")

# -- committed records --------------------------------------------------------------------------------------

def leader_incomplete(world: World, trace: Trace) -> Iterator[Found]:
    """At become_leader the LEO is below what leaders up to this epoch had committed."""
    for key, partition in world.partitions.items():
        for event in trace.of(key):
            if event.name == "become_leader":
                lacking = [record for record in trace.commits[key]
                           if record[0] >= max(event["leo"], partition.log_start)
                           and trace.committed_before(record, key, event, event["epoch"])]
                if lacking:
                    yield (key, event.node, event.seq), excuse_of_all(world, trace, partition, lacking, event)


def candidate_incomplete(world: World, trace: Trace) -> Iterator[Found]:
    """At some instant a record was committed, and a replica in the controller's ISR, registered and unfenced,
    lacked it."""
    for key, partition in world.partitions.items():
        isr = controllers_isr(trace, key)
        for node in partition.replicas:
            alive = registered(trace, node)
            lacking: dict[int | None, list[Record]] = {}
            for record, leaders in trace.commits[key].items():
                if record[0] < partition.log_start:
                    continue
                lacks = lacking_spans(trace, key, node, record)
                if any(instant(trace, [(commit, None), member, *life, lack])
                       for commit in leaders.values() for member in isr.get(node, [])
                       for life in alive for lack in lacks):
                    lacking.setdefault(record[1], []).append(record)
            for epoch, records in lacking.items():
                yield (key, node, epoch), excuse_of_all(world, trace, partition, records)


def lacking_spans(trace: Trace, key: int, node: str, record: Record) -> list[Span]:
    """The spans in which this replica (known from its first line on) had nothing that may be the record.
    After the node's start its log is unknown until the replica has a line on its log, or on its role; unless
    that is its first line and has an empty log: then the log was empty all the time."""
    mine = in_order(trace.of(key, node))
    starts = in_order(event for event in trace.events
                      if event.node == node and event.name == "start" and event["partition"] is None)
    empty = [start for start in starts if was_empty(start, [*starts, *mine])]
    held = sorted((holding for holding in trace.held[key] if holding.node == node and holding.may_be(record)),
                  key=lambda holding: holding.since.seq)
    spans: list[Span] = []
    since: Event | None = in_order([*mine[:1], *empty])[0] if mine else None
    for holding in held:
        if since is not None and since is not holding.since:
            spans.append((since, holding.since))
        since = holding.until
    if since is not None:
        spans.append((since, None))
    for start in starts:
        if start not in empty:
            first = next((event for event in in_order([*mine, *empty])
                         if event.seq > start.seq and (event.name in TELLS or event in empty)), None)
            spans = [part for span in spans for part in without(span, start, first)]
    return spans


def was_empty(start: Event, lines: list[Event]) -> bool:
    """Is the next of the starts and of the replica's lines its role, with an empty log? (A follower's HW is
    not looked at, nor is a crash: no log changes with them.)"""
    after = in_order(event for event in lines if event.seq > start.seq and event.name != "crash"
                     and (event.name != "hw" or event.leads))[:1]
    return any(event.name in ROLES and event["leo"] == 0 for event in after)


def without(span: Span, start: Event, end: Event | None) -> Iterator[Span]:
    """The rest of a span of one node, without the part between these two events of that node."""
    begin, over = span
    assert begin is not None
    if begin.seq < start.seq:
        yield begin, start if over is None or start.seq < over.seq else over
    if end is not None and (over is None or end.seq < over.seq):
        yield end if begin.seq < end.seq else begin, over


def recovers(event: Event) -> bool:
    """Whether a truncation is a recovery: by its cause, or in an old file by its words."""
    if event["cause"] is not None:
        return bool(event["cause"] == "recovery")
    return "recover" in str(event["why"] or "").lower()


def unsafe_truncation(world: World, trace: Trace) -> Iterator[Found]:
    """A truncation, other than recovery, cut a record that had been committed before."""
    for key, partition in world.partitions.items():
        for event in trace.of(key):
            if event.name != "truncate" or recovers(event):
                continue
            if event.node not in partition.replicas:  # a stray copy: its node may change it as it likes
                continue
            cut = [(holding.offset, holding.epoch) for holding in trace.held[key]
                   if holding.until is event and holding.offset >= partition.log_start
                   and holding.epoch is not None]
            lost = [record for record in cut if trace.committed_before(record, key, event)]
            if lost:
                yield (key, event.node, event.seq), excuse_of_all(world, trace, partition, lost, event)


# -- permissions --------------------------------------------------------------------------------------------

def excuse_of_all(world: World, trace: Trace, partition: Partition, records: list[Record],
                  at: Event | None = None) -> Cause | None:
    """The cause that permits all of these records to be missing. `at`: the line that shows it; an election
    that certainly came later is no excuse by itself. But a record whose loss is permitted in the end is
    excused everywhere, and so are those of its epoch behind it, which were lost with it."""
    causes = []
    for epoch in {epoch for _, epoch in records}:
        of_epoch = sorted(record for record in records if record[1] == epoch)
        with_it = lost_with_permission(world, trace, partition, of_epoch[0])
        causes.append(first([with_it, of_all(
            [excuse(world, trace, partition, record, at) for record in of_epoch])]))
    return None if None in causes else first(causes)


def of_all(causes: list[Cause | None]) -> Cause | None:
    """The cause of all records of one epoch: sure if it is so for each of them."""
    found = None if None in causes else first(causes)
    same = [cause for cause in causes if cause is not None and found is not None and cause.by == found.by]
    return found and Cause(by=found.by, sure=all(cause.sure for cause in same))


def excuse(world: World, trace: Trace, partition: Partition, record: Record, at: Event | None
           ) -> Cause | None:
    """What permits a record to be missing, by the time of its first append: a strike that is later than that
    by more than the clock error surely met it, one that is earlier by more did not."""
    born = min((holding.since.time for holding in trace.held[partition.key] if holding.may_be(record)),
               default=-(1 << 62))
    by_election = unclean_since(world, trace, partition, born - trace.clock_error_ns, record, at)
    if by_election is not False:
        return Cause(by=UNCLEAN, sure=by_election is True)
    if untold_election(world):
        return Cause(by=UNCLEAN, sure=False)
    perhaps = elections_of_struck(world, trace, partition, born - trace.clock_error_ns, at)
    if any(before is not False for _, before in perhaps):
        surely = elections_of_struck(world, trace, partition, born + trace.clock_error_ns + 1, at)
        return Cause(by=BUDGET, sure=(True, True) in surely)
    untimely = world.folder.time_falls and unflushed_faults(world, partition)
    return Cause(by=BUDGET, sure=False) if untimely or unseen_unflushed(world, partition) else None


def elections_of_struck(world: World, trace: Trace, partition: Partition, since: int, at: Event | None
                        ) -> list[tuple[bool, bool | None]]:
    """Elections from copies that were all struck since this time: whether that is sure, and whether they came
    before the line."""
    strikes = [(time, node) for time, node, line in struck_by(world, partition) if line["time"] >= since
               and can_cost(world, line, node, lambda end: end["time"] >= since)]
    return [(sure, was_before(trace, event, at))
            for event, sure in chosen_from_struck(world, partition, strikes)]


def was_before(trace: Trace, election: Line, at: Event | None) -> bool | None:
    """Whether the election came before that line. A line of its epoch, or of a later one, comes after it.
    None: the clocks do not decide."""
    if at is None or (at["epoch"] is not None and at["epoch"] >= election["epoch"]):
        return True
    apart = at.time - election["time"]
    return apart > 0 if abs(apart) > trace.clock_error_ns else None


def unclean_since(world: World, trace: Trace, partition: Partition, born: int, record: Record,
                  at: Event | None) -> bool | None:
    """Whether there was an allowed unclean election since the record was written, and before the line that
    shows it. None: unknown."""
    epoch = record[1]
    answers: list[bool | None] = []
    for event in trace.controller("elect"):
        if event["partition"] == partition.key and event["clean"] is False and (
                event.time > born or (epoch is not None and event["epoch"] > epoch)):
            allowed = was_allowed(world, partition.key, event.line)
            answers.append(both(allowed, was_before(trace, event.line, at)))
    return any_of(answers)


def lost_with_permission(world: World, trace: Trace, partition: Partition, record: Record) -> Cause | None:
    """The permission for the loss of an acked record of this offset that is lost in the end, or may be:
    something that came after its send. The record is not in the leader's final log, and was not written by a
    leader that was uncleanly elected last, nor after the copies of the others were struck."""
    offset, epoch = record
    if any((entry["offset"], entry["epoch"]) == record for entry in partition.leader_log):
        return None
    elected = [event["epoch"] for event in trace.controller("elect") if event["partition"] == partition.key
               and event["clean"] is False and was_allowed(world, partition.key, event.line) is not False]
    if elected and epoch is not None and max(elected) <= epoch:
        return None
    causes = []
    for send in world.sends:
        if (send.partition, send.offset) == (partition.key, offset):
            cause, blind = losing_cause(world, send), is_blind(world, send) and not is_lost(world, send)
            newer = cause is not None and cause.by == BUDGET and (
                elections_of_struck(world, trace, partition, -(1 << 62), None)
                and excuse(world, trace, partition, record, None) is None)
            if cause is not None and not newer and (blind or is_lost(world, send)):
                causes.append(Cause(by=cause.by, sure=cause.sure and not blind))
    return first(causes)


def unclean_election(world: World, trace: Trace) -> Iterator[Found]:
    """An unclean election that neither the setting nor a request allowed; each line of the controller's."""
    for event in trace.controller("elect"):
        if event["clean"] is False and event["partition"] in world.partitions and (
                was_allowed(world, event["partition"], event.line) is False):
            yield (event["partition"], event.node, event.seq), None


def in_doubt(world: World, trace: Trace) -> bool:
    """Whether there was an unclean election that may or may not have been allowed."""
    return any(was_allowed(world, event["partition"], event.line) is None
               for event in trace.controller("elect")
               if event["clean"] is False and event["partition"] in world.partitions)


CHECKS: dict[str, Callable[[World, Trace], Iterator[Found]]] = {
    "hw-regressed": hw_regressed, "epoch-regressed": epoch_regressed, "two-leaders": two_leaders,
    "ack-rule": ack_rule, "unclean-election": unclean_election,
}
OF_A_COMPLETE_TRACE: dict[str, Callable[[World, Trace], Iterator[Found]]] = {
    "leader-incomplete": leader_incomplete, "candidate-incomplete": candidate_incomplete,
    "unsafe-truncation": unsafe_truncation, "unsafe-isr": unsafe_isr,
}
NAMES = tuple(sorted({*CHECKS, *OF_A_COMPLETE_TRACE, *twin_trace_clients.CHECKS}))


def trace_findings(world: World, unknown: set[str]) -> Iterator[tuple[str, Found]]:
    """Every finding of the trace by its name; checks without an answer go into unknown."""
    trace = trace_of(world)
    if trace is None:
        return
    if not trace.complete:
        unknown |= set(NAMES)
    if world.repeated or not is_offset(world.run.get("clock_error_ns", 0)):
        unknown |= set(NAMES)
    if in_doubt(world, trace):
        unknown.add("unclean-election")
    unknown |= twin_trace_clients.in_doubt(world)
    claimable = OF_A_COMPLETE_TRACE | twin_trace_clients.claimed(world)
    left_out = NAMES if is_broken(world.run) else not_made(world.run)
    for name, check in (CHECKS | (claimable if trace.complete else {})).items():
        for one in check(world, trace) if name not in left_out else ():
            yield name, one
