"""Reads from a saved history when each entry of its schedule struck, whom and where, and when acks came.

Rules
1. The history alone is asked. Entries leave their lines in the schedule's order; a line of the nemesis that
   no entry asked for (a death at a failpoint) is passed over.
2. An entry that left no line (missed, or nobody was there to be mended) has no strike: nothing is guessed.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.schedule.entry import ACTS, Entry, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One entry as it was carried out. Times in ns since the run began."""

    began_ns: int  # when it was set about
    took_ns: int  # when it had taken effect: its line's own time; of a send, its completion's
    nodes: tuple[str, ...] = ()
    reached_ns: int | None = None  # when its moment was seen to have come
    met_ns: int | None = None  # when a broker stood at the failpoint it waited for, by that broker's clock
    where: Mapping[str, Any] = field(default_factory=dict)  # acks, leader, isr by partition, as the op tells

    def leader(self, partition: int) -> str | None:
        """Who led the partition when it struck, where the op tells."""
        told = self.where.get("leader")
        named = told.get(str(partition)) if isinstance(told, Mapping) else None
        return named if isinstance(named, str) else None

    def isr(self, partition: int) -> tuple[str, ...] | None:
        """Its ISR then, where the op tells."""
        told = self.where.get("isr")
        named = told.get(str(partition)) if isinstance(told, Mapping) else None
        return tuple(map(str, named)) if isinstance(named, list) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acks:
    """The acked micro-sends of one partition, in the order of their acks."""

    times: tuple[int, ...] = ()
    invoked: tuple[int, ...] = ()  # when the op of each was asked

    def by(self, time_ns: int) -> int:
        """How many there were by then."""
        return bisect_right(self.times, time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleHistory:
    """A history in the schedule's terms."""

    strikes: Mapping[int, Strike]  # by position in the schedule
    partitions: Mapping[int, Acks]
    done: tuple[int | None, ...]  # when each entry was done; None: its history does not tell

    def acks(self, partition: int) -> Acks:
        return self.partitions.get(partition, Acks())

    def done_before(self, position: int) -> int | None:
        """When the entry before was done, where that is known. The run's begin, for the first."""
        return 0 if position == 0 else self.done[position - 1]


def read_schedule_history(ops: Iterable[Op], schedule: Schedule) -> ScheduleHistory:
    """One pass over the history."""
    reading = _Reading(schedule)
    for op in ops:
        reading.take(op)
    return ScheduleHistory(strikes=reading.strikes, done=_done(schedule, reading.strikes), partitions={
        partition: Acks(times=tuple(time for time, _ in acked), invoked=tuple(asked for _, asked in acked))
        for partition, acked in reading.acked.items()})


def _done(schedule: Schedule, strikes: Mapping[int, Strike]) -> tuple[int | None, ...]:
    """What left a line was done then; what left none and was asked by time, at that time."""
    done: list[int | None] = []
    before: int | None = 0
    for position, entry in enumerate(schedule):
        moment = entry.moment or {}
        if position in strikes:
            strike = strikes[position]
            before = strike.began_ns if entry.args.get("nowait") else strike.took_ns
        elif moment.get("at") != "time":
            before = None
        elif before is not None:
            before = max(moment["time"], before + moment.get("after_ns", 0))
        done.append(before)
    return tuple(done)


class _Reading:
    """Strikes and acks found so far."""

    def __init__(self, schedule: Schedule) -> None:
        self.strikes: dict[int, Strike] = {}
        self.acked: dict[int, list[tuple[int, int]]] = {}  # partition -> (acked, invoked)
        self._schedule = schedule
        self._next = 0  # entries before this have left their lines, or none
        self._open: dict[int, Op] = {}
        self._scripted = {
            send["value"]: position for position, entry in enumerate(schedule)
            for send in entry.args.get("sends", ())}

    def take(self, op: Op) -> None:
        if op.process == NEMESIS:
            self._strike(op)
        elif op.f == "send" and op.type is Type.INVOKE:
            self._open[op.process] = op
        elif op.f == "send":
            invoked = self._open.pop(op.process, op)
            self._complete(op, invoked)

    def _complete(self, op: Op, invoked: Op) -> None:
        sends = op.sends or ()
        for position in {self._scripted[send.value] for send in sends if send.value in self._scripted}:
            self.strikes[position] = Strike(began_ns=invoked.time, took_ns=op.time)
        if op.type is Type.OK:
            for send in sends:
                self.acked.setdefault(send.partition, []).append((op.time, invoked.time))

    def _strike(self, op: Op) -> None:
        fault = op.fault or {}
        for position in range(self._next, len(self._schedule)):
            if _tells_of(self._schedule[position], op.f, fault):
                self._next = position + 1
                self.strikes[position] = _strike_of(op, fault)
                return


def _tells_of(entry: Entry, f: str, fault: Mapping[str, Any]) -> bool:
    """Whether this line of the nemesis is this entry's: its f, the moment asked, the names it was given."""
    if entry.f in ACTS or entry.f != f or fault.get("moment") != entry.moment:
        return False
    if not entry.nodes or f in ("cut", "packet", "reset"):
        return True
    return bool(fault.get("asked", fault.get("nodes")) == list(entry.nodes))


def _strike_of(op: Op, fault: Mapping[str, Any]) -> Strike:
    reached, where, began = fault.get("reached"), fault.get("where"), fault.get("began")
    told = reached if isinstance(reached, Mapping) else {}
    parts, nodes = told.get("of"), fault.get("nodes")
    last = parts[-1] if isinstance(parts, list) and parts else told  # of a sequence the last moment counts
    return Strike(
        began_ns=began if isinstance(began, int) else op.time, took_ns=op.time,
        nodes=tuple(node for node in nodes if isinstance(node, str)) if isinstance(nodes, list) else (),
        reached_ns=_whole(told.get("time")),
        met_ns=_whole(last.get("met")) if isinstance(last, Mapping) else None,
        where=where if isinstance(where, Mapping) else {})


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
