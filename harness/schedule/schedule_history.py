"""Reads a saved history: when and where each entry of its schedule struck, and when sends were acked.

Rules
1. It reads only the history. The lines of entries are in the schedule's order; a line of the nemesis that
   belongs to no entry (a death at a failpoint) is skipped.
2. An entry without a line (missed, or nothing to mend) has no strike.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness.faults import FAULTS
from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.schedule.entry import ACTS, Entry, Schedule
from floodmark.harness.schedule.moments import Time


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
        fields = self.where.get("leader")
        named = fields.get(str(partition)) if isinstance(fields, Mapping) else None
        return named if isinstance(named, str) else None

    def isr(self, partition: int) -> tuple[str, ...] | None:
        """The partition's ISR then, if the op says so."""
        fields = self.where.get("isr")
        named = fields.get(str(partition)) if isinstance(fields, Mapping) else None
        return tuple(map(str, named)) if isinstance(named, list) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acks:
    """The acked micro-sends of one partition, in the order of their acks."""

    times: tuple[int, ...] = ()
    invoked: tuple[int, ...] = ()  # when the op of each was invoked

    def count_by(self, time_ns: int) -> int:
        """Count the acks up to this time."""
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
        """The time at which the entry before was done, if that is known; for the first entry the run's
        begin."""
        return 0 if position == 0 else self.done[position - 1]


def read_schedule_history(ops: Iterable[Op], schedule: Schedule) -> ScheduleHistory:
    """Read the history in one pass."""
    reader = _HistoryReader(schedule)
    for op in ops:
        reader.read_op(op)
    done = _find_done_times(schedule, reader.strikes)
    return ScheduleHistory(strikes=reader.strikes, done=done, partitions={
        partition: Acks(times=tuple(time for time, _ in acked), invoked=tuple(asked for _, asked in acked))
        for partition, acked in reader.acked.items()})


def _find_done_times(schedule: Schedule, strikes: Mapping[int, Strike]) -> tuple[int | None, ...]:
    """Find when each entry was done: at the time of its line, or, without a line, at its moment's time."""
    done: list[int | None] = []
    before: int | None = 0
    for position, entry in enumerate(schedule):
        if position in strikes:
            strike = strikes[position]
            before = strike.began_ns if entry.args.get("nowait") else strike.took_ns
        elif not isinstance(entry.moment, Time):
            before = None
        elif before is not None:
            before = max(entry.moment.time, before + (entry.moment.after_ns or 0))
        done.append(before)
    return tuple(done)


class _HistoryReader:
    """Collects strikes and acks from the ops of a history."""

    def __init__(self, schedule: Schedule) -> None:
        self.strikes: dict[int, Strike] = {}
        self.acked: dict[int, list[tuple[int, int]]] = {}  # partition -> (acked, invoked)
        self._schedule = schedule
        self._next = 0  # the lines of the entries before this one are read, or missing
        self._open: dict[int, Op] = {}
        self._scripted = {
            send["value"]: position for position, entry in enumerate(schedule)
            for send in entry.args.get("sends", ())}

    def read_op(self, op: Op) -> None:
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
            if _matches_entry(self._schedule[position], op.f, fault):
                self._next = position + 1
                self.strikes[position] = _read_strike(op, fault)
                return


def _matches_entry(entry: Entry, f: str, fault: Mapping[str, Any]) -> bool:
    """Whether this line of the nemesis is this entry's: by its f, its moment and its nodes."""
    if entry.f in ACTS or entry.f != f or fault.get("moment") != (
            None if entry.moment is None else entry.moment.to_json()):
        return False
    if not entry.nodes or (f in FAULTS and FAULTS[f].on == "links"):
        return True
    return bool(fault.get("asked", fault.get("nodes")) == list(entry.nodes))


def _read_strike(op: Op, fault: Mapping[str, Any]) -> Strike:
    reached, where, began = fault.get("reached"), fault.get("where"), fault.get("began")
    fields = reached if isinstance(reached, Mapping) else {}
    parts, nodes = fields.get("of"), fault.get("nodes")
    last = parts[-1] if isinstance(parts, list) and parts else fields  # of a sequence the last moment counts
    return Strike(
        began_ns=began if isinstance(began, int) else op.time, took_ns=op.time,
        nodes=tuple(node for node in nodes if isinstance(node, str)) if isinstance(nodes, list) else (),
        reached_ns=_integer_or_none(fields.get("time")),
        met_ns=_integer_or_none(last.get("met")) if isinstance(last, Mapping) else None,
        first=_integer_or_none(last.get("first")) if isinstance(last, Mapping) else None,
        where=where if isinstance(where, Mapping) else {})


def _integer_or_none(value: object) -> int | None:
    return value if isinstance(value, int) else None
