"""Reads where each entry of a saved schedule struck, and gives each a new moment, so that a reproduction
strikes there too.

Rules
1. A moment that waits for an ack, a state or a failpoint stays as it is. A time is replaced by the state that
   the strike met in the saved run, and `by` says which:
     acks   sends invoked after the entry before were being acked: the k-th ack of the partition, plus the
            time since that ack; not earlier than half of the time since the entry before
     state  no acks were coming, and the leader or ISR had changed since the strike before: the same time
            after the entry before (if that is long enough to observe the cluster), and once leader and ISR
            are the same again; if they are not within STATE_LATE_NS, it strikes without them: a missed
            moment or a long wait in a dense schedule would shift everything after it
     after  no acks were coming, it undoes a fault, or it never struck: the same time after the entry before
     time   it is the first, before any ack, or it never struck and had no such time: unchanged
2. A node that led the partition when it was struck is replaced by the role `leader`, if no other node is down
   or paused until the fault is undone; otherwise the role could mean a node that is already down.
3. Of the saved run only the history is read. The lines of entries are in the schedule's order; a line of the
   nemesis that belongs to no entry (a death at a failpoint) is skipped. An entry without a line (missed, or
   nothing to undo) has no strike.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.harness.faults import BY_ROLE, FAULTS, MENDING, MENDS_ROLE
from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.schedule.moments import (
    ACTS,
    MOMENT_TIMEOUT_S,
    Ack,
    After,
    Entry,
    FirstOf,
    InTurn,
    Schedule,
    Time,
    WhenState,
)
from floodmark.harness.schedule.states import Condition, Joined, Observation
from floodmark.harness.schedule.views import ActiveFaults

LONGEST_S = 3600.0  # the longest time-out in a schedule
STATE_TIMEOUT_S = 10.0  # longer than session and lag time-outs, by which the fault before changes the ISR
STATE_LATE_NS = 2_000_000_000  # the longest wait for a state: as long as a session
OBSERVE_NS = 50_000_000  # observing the cluster takes about so long, so earlier strikes would come late
FRESH_NS = 100_000_000  # if the last ack before a strike is not older than this, acks were coming


# -- what the history says ----------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One entry as it was carried out. Times in ns since the run began."""

    began_ns: int  # when it began
    took_ns: int  # when it had taken effect: its line's time; of a send, its completion's
    nodes: tuple[str, ...] = ()
    reached_ns: int | None = None  # when its moment was noticed
    met_ns: int | None = None  # when a broker met the failpoint that it waited for, by that broker's clock
    where: Mapping[str, Any] = field(default_factory=dict)  # acks, leader, isr by partition, from its op
    first: int | None = None  # if its moment had alternatives (in its last part): the one that came

    def leader(self, partition: int) -> str | None:
        """The partition's leader when it struck, if the op says so."""
        named = _object(self.where.get("leader")).get(str(partition))
        return named if isinstance(named, str) else None

    def isr(self, partition: int) -> tuple[str, ...] | None:
        """The partition's ISR then, if the op says so."""
        named = _object(self.where.get("isr")).get(str(partition))
        return tuple(map(str, named)) if isinstance(named, list) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acks:
    """The acked micro-sends of one partition, in the order of their acks."""

    times: tuple[int, ...] = ()
    invoked: tuple[int, ...] = ()  # when the op of each was invoked

    def count_by(self, time_ns: int) -> int:
        return bisect_right(self.times, time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleHistory:
    """The strikes and acks of a saved run."""

    strikes: Mapping[int, Strike]  # by position in the schedule
    partitions: Mapping[int, Acks]
    done: tuple[int | None, ...]  # the time at which each entry was done; None: unknown

    def acks(self, partition: int) -> Acks:
        return self.partitions.get(partition, Acks())

    def done_before(self, position: int) -> int | None:
        """When the entry before was done, if that is known; for the first entry the run's begin."""
        return 0 if position == 0 else self.done[position - 1]


def read_schedule_history(ops: Iterable[Op], schedule: Schedule) -> ScheduleHistory:
    strikes: dict[int, Strike] = {}
    acked: dict[int, list[tuple[int, int]]] = {}  # partition -> (acked, invoked)
    invoked: dict[int, Op] = {}  # by process
    scripted = {send["value"]: position for position, entry in enumerate(schedule)
                for send in entry.args.get("sends", ())}
    left = list(enumerate(schedule))  # entries that may still have a line
    for op in ops:
        if op.process == NEMESIS:
            fault = op.fault or {}
            at = next((at for at, (_, entry) in enumerate(left) if _is_line_of(entry, op.f, fault)), None)
            if at is not None:
                strikes[left[at][0]] = _read_strike(op, fault)
                left = left[at + 1:]
        elif op.sends and op.type is Type.INVOKE:
            invoked[op.process] = op
        elif op.sends:
            invoked_ns = invoked.pop(op.process, op).time
            for send in op.sends:
                if send.value in scripted:
                    strikes[scripted[send.value]] = Strike(began_ns=invoked_ns, took_ns=op.time)
                if op.type is Type.OK:
                    acked.setdefault(send.partition, []).append((op.time, invoked_ns))
    return ScheduleHistory(strikes=strikes, done=_done_times(schedule, strikes), partitions={
        partition: Acks(times=tuple(ack_ns for ack_ns, _ in pairs), invoked=tuple(sent for _, sent in pairs))
        for partition, pairs in acked.items()})


def _done_times(schedule: Schedule, strikes: Mapping[int, Strike]) -> tuple[int | None, ...]:
    """When each entry was done: at the time of its line, or, without a line, at its moment's time."""
    done: list[int | None] = []
    before: int | None = 0
    for position, entry in enumerate(schedule):
        strike = strikes.get(position)
        if strike is not None:
            before = strike.began_ns if entry.args.get("nowait") else strike.took_ns
        elif not isinstance(entry.moment, Time):
            before = None
        elif before is not None:
            before = max(entry.moment.time, before + (entry.moment.after_ns or 0))
        done.append(before)
    return tuple(done)


def _is_line_of(entry: Entry, f: str, fault: Mapping[str, Any]) -> bool:
    """Whether this line of the nemesis is this entry's: by its f, its moment and its nodes."""
    if entry.f in ACTS or entry.f != f or fault.get("moment") != (
            None if entry.moment is None else entry.moment.to_json()):
        return False
    if not entry.nodes or (f in FAULTS and FAULTS[f].on == "links"):
        return True  # its line has all nodes of the links
    return bool(fault.get("asked", fault.get("nodes")) == list(entry.nodes))


def _read_strike(op: Op, fault: Mapping[str, Any]) -> Strike:
    reached, nodes, began_ns = _object(fault.get("reached")), fault.get("nodes"), _integer(fault, "began")
    parts = reached.get("of")
    last = _object(parts[-1]) if isinstance(parts, list) and parts else reached  # of a sequence
    return Strike(
        began_ns=op.time if began_ns is None else began_ns, took_ns=op.time,
        nodes=tuple(node for node in nodes if isinstance(node, str)) if isinstance(nodes, list) else (),
        reached_ns=_integer(reached, "time"), met_ns=_integer(last, "met"), first=_integer(last, "first"),
        where=_object(fault.get("where")))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _integer(fields: Mapping[str, Any], key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) else None


# -- the new moments ----------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class ReanchoredEntry:
    """One entry of the schedule, as it was (`then`) and as it is to be (`now`)."""

    position: int
    then: Entry
    now: Entry
    strike: Strike | None  # of the saved run
    by: str  # asked (unchanged), acks, state, after, time
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorBasis:
    """What moments are chosen from: the saved run's history. focus: the partition whose acks and leader are
    used, usually the finding's; None: the first that the struck node led, or the first of all."""

    history: ScheduleHistory
    partitions: tuple[int, ...]
    focus: int | None = None

    def partition_of(self, strike: Strike) -> int:
        if self.focus is not None and self.focus in self.partitions:
            return self.focus
        led = (key for key in self.partitions if strike.leader(key) in strike.nodes)
        return next(led, min(self.partitions))


def reanchor_schedule(schedule: Schedule, basis: AnchorBasis) -> tuple[ReanchoredEntry, ...]:
    named, anchored = _replace_by_roles(schedule, basis), []
    for position, then in enumerate(schedule):
        entry, strike = named.get(position, then), basis.history.strikes.get(position)
        changes, by, why = _anchor(position, entry, strike, basis)
        anchored.append(ReanchoredEntry(position=position, then=then, now=replace(entry, **changes),
                                        strike=strike, by=by, why=why))
    return tuple(anchored)


def _anchor(position: int, entry: Entry, strike: Strike | None, basis: AnchorBasis
            ) -> tuple[Mapping[str, Any], str, str]:
    moment = entry.moment
    if not isinstance(moment, Time):
        return {}, "asked", "unchanged"
    if strike is None:
        if position == 0 or moment.after_ns is None:
            return {}, "time", "it has no line: unchanged"
        return {"moment": After(after_ns=moment.after_ns)}, "after", "it has no line: the same distance"
    done_ns = basis.history.done_before(position)
    distance_ns = (moment.after_ns or 0) if done_ns is None else max(0, strike.began_ns - done_ns)
    undoes = entry.f in MENDING
    if not undoes and (acked := _anchor_by_acks(strike, basis, done_ns)) is not None:
        timeout_s = min(LONGEST_S, MOMENT_TIMEOUT_S + 2 * distance_ns / 1e9)
        halfway = After(after_ns=distance_ns // 2)
        return {"moment": InTurn(of=(halfway, acked)), "timeout_s": timeout_s}, "acks", "acks were coming"
    if position == 0:
        return {}, "time", "the first, before any ack"
    after = After(after_ns=distance_ns)
    if undoes:
        return {"moment": after}, "after", "it undoes a fault"
    state = _anchor_by_state(position, entry, strike, basis)
    if state is None or distance_ns < OBSERVE_NS:
        return {"moment": after}, "after", "no acks were coming"
    once = FirstOf(of=(state, After(after_ns=distance_ns + STATE_LATE_NS)))
    return {"moment": InTurn(of=(after, once)), "timeout_s": STATE_TIMEOUT_S}, "state", "no acks were coming"


def _anchor_by_acks(strike: Strike, basis: AnchorBasis, done_ns: int | None) -> Ack | None:
    """The last ack before the strike, if sends that were invoked after the entry before were being acked."""
    partition = basis.partition_of(strike)
    acks = basis.history.acks(partition)
    count = acks.count_by(strike.began_ns)
    if count == 0:
        return None
    since_ns = strike.began_ns - acks.times[count - 1]
    if since_ns > FRESH_NS or acks.invoked[count - 1] < (done_ns or 0):
        return None
    return Ack(partition=partition, count=count, then_ns=since_ns)


def _anchor_by_state(position: int, entry: Entry, strike: Strike, basis: AnchorBasis) -> WhenState | None:
    """The moment at which leader and ISR are as the strike met them, if the strike before met others."""
    partition = basis.partition_of(strike)
    met = (strike.leader(partition), strike.isr(partition))
    earlier = (basis.history.strikes.get(index) for index in range(position - 1, -1, -1))
    before = next((one for one in earlier if one is not None and one.where), None)
    if before is None or None in met or met == (before.leader(partition), before.isr(partition)):
        return None
    leader, isr = (Observation(partition=partition, field=field) for field in ("leader", "isr"))
    led = (Condition(seen=leader, how="!=", value=None) if "leader" in entry.nodes
           else Condition(seen=leader, how="==", value=met[0]))
    return WhenState(state=Joined(by="all", states=(led, Condition(seen=isr, how="==", value=met[1]))))


# -- the roles ----------------------------------------------------------------------------------------------

def _replace_by_roles(schedule: Schedule, basis: AnchorBasis) -> dict[int, Entry]:
    """Replace node names by roles, in the entries that struck a leader and in those that undo them."""
    changed: dict[int, Entry] = {}
    for position, entry in enumerate(schedule):
        strike = basis.history.strikes.get(position)
        if strike is None or entry.f not in BY_ROLE or len(entry.nodes) != 1 or strike.nodes != entry.nodes:
            continue
        partition = basis.partition_of(strike)
        if strike.leader(partition) != entry.nodes[0]:
            continue
        if (undone_by := FAULTS[entry.f].undone_by) is not None:
            undoing = _find_undoing_entry(schedule, position, undone_by)
            if undoing is None:
                continue
            changed[undoing] = replace(schedule[undoing], nodes=(MENDS_ROLE[undone_by],))
        changed[position] = replace(entry, nodes=("leader",), args={**entry.args, "partition": partition})
    return changed


def _find_undoing_entry(schedule: Schedule, position: int, undone_by: str) -> int | None:
    """Find the entry that undoes this one, if roles are safe: no other node is down or paused meanwhile,
    which `down` would start too, or which `leader` could mean although it is down already."""
    node = schedule[position].nodes[0]
    faults = ActiveFaults()
    for entry in schedule[:position]:
        faults = faults.after(entry.f, entry.nodes)
    if faults.down or faults.paused:
        return None
    for later in range(position + 1, len(schedule)):
        entry = schedule[later]
        if entry.f == undone_by:
            return later if entry.nodes == (node,) else None
        if entry.f in MENDS_ROLE or (entry.f in FAULTS and FAULTS[entry.f].undone_by in MENDS_ROLE):
            return None
    return None
