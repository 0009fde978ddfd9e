"""Gives each entry of a saved schedule the moment at which it is to strike when the run is reproduced.

Rules
1. A moment asked by what can be seen (an ack, a state, a failpoint) stays as it is. One asked by time would
   come again at that time only, so it is tied to what its strike met:
     acks   sends asked after the entry before were being acked: the k-th ack of the partition, and the time
            that had passed since; not sooner than half of the time since the entry before
     state  nothing was being acked, and it met another leader or ISR than the strike before had: so long
            after the entry before (if that is not too short for a look), but not until they are so again
     after  nothing was being acked, or it undoes a fault: so long after the entry before, for then that
            one's effect is the clock (sessions, lags)
     time   it is the first, or it never struck: as asked
2. Who led the partition when it was struck is meant as `leader` again, if no other node is down or paused
   until the fault is undone: else a role could mean one that nothing more can be done to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from floodmark.harness.faults import FAULTS, MENDING
from floodmark.harness.schedule.entry import MOMENT_TIMEOUT_S, Entry, Schedule
from floodmark.harness.schedule.schedule_history import ScheduleHistory, Strike

LONGEST_S = 3600.0  # that a schedule's time-out may be
STATE_TIMEOUT_S = 10.0  # what had come of the fault before by then comes within sessions and lags, or not
LOOKED_NS = 50_000_000  # a strike sooner after the entry before would come late by the look itself
FRESH_NS = 100_000_000  # an ack so long before a strike still shows that acks were coming
_UNDONE_BY_ROLE = {"start": "down", "resume": "paused"}  # what finds by role whom it is to mend
_LEADS = frozenset({"kill", "stop", "pause", "expire", "power_cut", "disk"})  # may strike by role


@dataclass(frozen=True, slots=True, kw_only=True)
class ReanchoredEntry:
    """One entry of the schedule, as it was and as it is to be."""

    position: int
    then: Entry
    now: Entry
    strike: Strike | None  # what the history tells of it
    by: str  # asked (as it was), acks, state, after, time
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorBasis:
    """What anchors go by. focus: the partition whose acks and leader count, most often that of the finding;
    None: the first that the struck node led, or the first of all."""

    past: ScheduleHistory
    partitions: tuple[int, ...]
    focus: int | None = None

    def partition_of(self, strike: Strike) -> int:
        """The partition whose acks and leader tell where this fault struck."""
        if self.focus is not None and self.focus in self.partitions:
            return self.focus
        led = (key for key in self.partitions if strike.leader(key) in strike.nodes)
        return next(led, min(self.partitions))


def reanchor_schedule(schedule: Schedule, ground: AnchorBasis) -> tuple[ReanchoredEntry, ...]:
    """Every entry with the moment it is to have now."""
    named = _by_role(schedule, ground)
    return tuple(_anchored(position, then, named.get(position, then), ground)
                 for position, then in enumerate(schedule))


def _anchored(position: int, then: Entry, entry: Entry, ground: AnchorBasis) -> ReanchoredEntry:
    strike = ground.past.strikes.get(position)

    def answer(moment: Mapping[str, Any] | None, by: str, why: str) -> ReanchoredEntry:
        return ReanchoredEntry(position=position, then=then, now=replace(entry, moment=moment), strike=strike,
                        by=by, why=why)

    moment = then.moment
    if moment is None or moment["at"] != "time":
        return answer(moment, "asked", "as it was asked")
    done_ns = ground.past.done_before(position)
    if strike is None:
        least_ns = moment.get("after_ns")
        if position == 0 or least_ns is None:
            return answer(moment, "time", "it left no line: as asked")
        return answer({"at": "after", "after_ns": least_ns}, "after", "it left no line: the distance asked")
    distance_ns = moment.get("after_ns", 0) if done_ns is None else max(0, strike.began_ns - done_ns)
    found = None if then.f in MENDING else _by_acks(strike, ground, done_ns)
    if found is not None:
        least = {"at": "after", "after_ns": distance_ns // 2}
        entry = replace(entry, timeout_s=min(LONGEST_S, MOMENT_TIMEOUT_S + 2 * distance_ns / 1e9))
        return answer({"at": "sequence", "of": [least, found]}, "acks", "acks were coming")
    if position == 0:
        return answer(moment, "time", "the first, before any ack")
    after = {"at": "after", "after_ns": distance_ns}
    if then.f in MENDING:
        return answer(after, "after", "it undoes a fault")
    met = _by_state(position, entry, strike, ground)
    if met is not None and distance_ns >= LOOKED_NS:
        entry = replace(entry, timeout_s=STATE_TIMEOUT_S)
        return answer({"at": "sequence", "of": [after, met]}, "state", "no acks were coming")
    return answer(after, "after", "no acks were coming")


def _by_acks(strike: Strike, ground: AnchorBasis, done_ns: int | None) -> dict[str, Any] | None:
    """The last ack before it, if acks of sends asked since the entry before were coming."""
    partition = ground.partition_of(strike)
    acks = ground.past.acks(partition)
    count = acks.by(strike.began_ns)
    if count == 0:
        return None
    since_ns = strike.began_ns - acks.times[count - 1]
    if since_ns > FRESH_NS or acks.invoked[count - 1] < (done_ns or 0):
        return None
    return {"at": "ack", "partition": partition, "count": count, "then_ns": since_ns}


def _by_state(position: int, entry: Entry, strike: Strike, ground: AnchorBasis) -> dict[str, Any] | None:
    """Leader and ISR that it met, where they are not what the strike before met: they came of that one."""
    partition = ground.partition_of(strike)
    met = (strike.leader(partition), strike.isr(partition))
    before = next((told for earlier in range(position - 1, -1, -1)
                   if (told := ground.past.strikes.get(earlier)) is not None and told.where), None)
    if before is None or None in met or met == (before.leader(partition), before.isr(partition)):
        return None
    leads = {"is": "!=", "value": None} if "leader" in entry.nodes else {"is": "==", "value": met[0]}
    return {"at": "state", "all": [
        {"partition": partition, "field": "leader", **leads},
        {"partition": partition, "field": "isr", "is": "==", "value": list(met[1] or ())}]}


# -- the roles ----------------------------------------------------------------------------------------------


def _by_role(schedule: Schedule, ground: AnchorBasis) -> dict[int, Entry]:
    """The entries that mean the leader again, and those that undo them."""
    changed: dict[int, Entry] = {}
    for position, entry in enumerate(schedule):
        strike = ground.past.strikes.get(position)
        if strike is None or entry.f not in _LEADS or len(entry.nodes) != 1 or strike.nodes != entry.nodes:
            continue
        partition = ground.partition_of(strike)
        if strike.leader(partition) != entry.nodes[0]:
            continue
        undoes = FAULTS[entry.f].undone_by
        if undoes is not None:
            undone = _undone_at(schedule, position, undoes)
            if undone is None:
                continue
            changed[undone] = replace(schedule[undone], nodes=(_UNDONE_BY_ROLE[undoes],))
        changed[position] = replace(entry, nodes=("leader",), args={**entry.args, "partition": partition})
    return changed


def _undone_at(schedule: Schedule, position: int, undoes: str) -> int | None:
    """The entry that undoes this one, if roles are safe: nobody else is down or paused meanwhile, whom `down`
    would start too, or whom `leader` could mean although nothing more can be done to it."""
    node = schedule[position].nodes[0]
    out: set[str] = set()
    for before in schedule[:position]:
        out = _after(out, before)
    if out:
        return None
    for later in range(position + 1, len(schedule)):
        entry = schedule[later]
        if entry.f == undoes:
            return later if entry.nodes == (node,) else None
        if _ends(entry) or entry.f in _UNDONE_BY_ROLE:
            return None
    return None


def _after(out: set[str], entry: Entry) -> set[str]:
    """Who is down or paused after this entry."""
    if entry.f in _UNDONE_BY_ROLE:
        return out - set(entry.nodes)
    return out | set(entry.nodes) if _ends(entry) else out


def _ends(entry: Entry) -> bool:
    return entry.f in FAULTS and FAULTS[entry.f].undone_by in _UNDONE_BY_ROLE
