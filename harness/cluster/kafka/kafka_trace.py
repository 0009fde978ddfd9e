"""Makes raw traces, as harness.trace reads them, of what Apache Kafka writes anyhow: logs, KRaft records.

What is told, and when, by the wall clock of the process, in ms:

    by brokers     become_leader, become_follower, start of the node; truncate, where the LEO before is known
    by a KRaft     elect, isr; register (without `clean`), fence, unfence
    controller

Rules
1. TRACED_EVENTS are told whenever they happen, and at the time at which they happened: checks may rest on
   them. The others are for people to read. Of truncate `from` is the LEO that the line of the role, or the
   cut before, shows, and of a log that was given up altogether (`Truncate and start at ...`) nothing is told.
   A controller's records are stamped when their batch was begun: what was decided later, while an earlier
   batch was being written or the process stood still, has the same stamp. An unclean election could seem to
   come before somebody asked for it, or before the power cut that is its excuse; so no check may ask.
   Besides, a cluster with eligible leader replicas (KIP-966, the default from 4.1 on) elects the last known
   leader uncleanly by itself where ISR and ELR are empty, whatever unclean.leader.election.enable says: seen
   on 4.3.1 after all replicas were killed. `unclean-election` would accuse it.
2. No line tells of an append, a fetch, an ack or a HW that moves: the trace has none.
3. A broker's lines are in the order of its log, whose lines of one replica are in the order of its roles
   (log_lines.py). Times never fall: a wall clock that is set back repeats the last one.
4. An election is unclean where the controller says so: it marks the partition as recovering (KIP-704). While
   one still is, the mark cannot be set anew, and a leader from outside ISR and ELR is an unclean one.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness.cluster.kafka.log_lines import Said, read_line
from floodmark.harness.cluster.kafka.metadata_log import NO_LEADER, Decisions, MetadataLog, PartitionState

Line = dict[str, Any]
TRACED_EVENTS = frozenset({"become_leader", "become_follower", "start"})
CLOCK_ERROR_NS = 2_000_000  # stamps are cut to the ms below, and the two clocks are read one after the other
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How far the machine's wall clock is ahead of its monotonic one."""

    ahead_ns: int

    @classmethod
    def now(cls) -> "Clock":
        return cls(ahead_ns=time.time_ns() - time.monotonic_ns())

    def monotonic_ns(self, time_ms: int) -> int:
        return time_ms * _NS_PER_MS - self.ahead_ns


def write_broker_trace(log: Path, trace: Path, *, node_id: int, clock: Clock) -> None:
    """The trace of what a broker's log says; the whole of it, anew. No log: no trace."""
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as lines:
            told = broker_events(said for line in lines if (said := read_line(line)) is not None)
            _write(trace, told, node_id=node_id, clock=clock)


def write_controller_trace(log_dir: Path, trace: Path, *, node_id: int, clock: Clock) -> None:
    """The trace of what a KRaft controller has decided. FloodmarkError where its records cannot be read."""
    _write(trace, controller_events(log_dir), node_id=node_id, clock=clock)


def _write(trace: Path, told: Iterator[tuple[int, Line]], *, node_id: int, clock: Clock) -> None:
    latest = -(1 << 62)
    with trace.open("wb") as file:
        for seq, (time_ms, line) in enumerate(told):
            latest = max(latest, clock.monotonic_ns(time_ms))
            file.write(orjson.dumps({"time": latest, "node": node_id, "seq": seq, **line},
                                    option=orjson.OPT_APPEND_NEWLINE))


# -- brokers ------------------------------------------------------------------------------------------------

@dataclass(slots=True)
class _Replica:
    """What is known of one replica since its process began."""

    epoch: int
    leo: int
    hw: int
    why: str | None = None


def broker_events(said: Iterator[Said]) -> Iterator[tuple[int, Line]]:
    """The events of one broker's log, with their times in ms."""
    replicas: dict[tuple[str, int], _Replica] = {}
    clean = False
    for one in said:
        if one.kind in ("clean", "unclean"):
            clean = one.kind == "clean"
            continue
        if one.kind == "loaded":  # of a first start without logs nothing shows an orderly stop
            yield one.time_ms, {"event": "start", "clean": clean}
            replicas, clean = {}, False
            continue
        assert one.topic is not None
        assert one.partition is not None
        line = _replica_event(replicas, (one.topic, one.partition), one)
        if line is not None:
            yield one.time_ms, {"topic": one.topic, "partition": one.partition, **line}


def _replica_event(replicas: dict[tuple[str, int], _Replica], place: tuple[str, int], said: Said
                   ) -> Line | None:
    if said.kind in ("leader", "follower"):
        assert said.epoch is not None
        assert said.leo is not None
        assert said.hw is not None
        replicas[place] = _Replica(said.epoch, said.leo, said.hw)
        state = {"epoch": said.epoch, "leo": said.leo, "hw": said.hw}
        if said.isr is not None:
            return {"event": "become_leader", **state, "isr": list(said.isr), "start": said.leo}
        return {"event": "become_follower", **state,
                **({} if said.leader is None else {"leader": said.leader})}
    known = replicas.get(place)
    if known is None:
        return None  # a recovery: the process had no role yet
    if said.kind == "why":
        known.why = said.why
        return None
    assert said.leo is not None
    if said.leo >= known.leo:
        known.why = None
        return None  # records that no line told of were cut: nobody can say how many
    line = {"event": "truncate", "epoch": known.epoch, "leo": said.leo, "hw": min(known.hw, said.leo),
            "from": known.leo, "to": said.leo, **({} if known.why is None else {"why": known.why})}
    replicas[place] = _Replica(known.epoch, said.leo, min(known.hw, said.leo))
    return line


# -- the controller -----------------------------------------------------------------------------------------

@dataclass(slots=True)
class _Decided:
    """The events so far, and the state that they lead to."""

    events: list[tuple[int, Line]] = field(default_factory=list)
    partitions: dict[tuple[bytes, int], PartitionState] = field(default_factory=dict)
    fenced: dict[int, bool] = field(default_factory=dict)
    broker_epochs: dict[int, int] = field(default_factory=dict)

    def see(self, time_ms: int, now: Decisions) -> None:
        """What one more record has changed."""
        for key, state in now.partitions.items():
            before = self.partitions.get(key)
            if before != state and key[0] in now.topics:
                self.events.append((time_ms, _partition_event(now.topics[key[0]], key[1], before, state)))
                self.partitions[key] = state
        self.events += ((time_ms, line) for line in self._broker_events(now))
        self.fenced, self.broker_epochs = dict(now.fenced), dict(now.broker_epochs)

    def _broker_events(self, now: Decisions) -> Iterator[Line]:
        for broker in sorted({*self.fenced, *now.fenced}):
            epoch = now.broker_epochs.get(broker, self.broker_epochs.get(broker, -1))
            about = {"broker": broker, "broker_epoch": epoch}
            fenced = now.fenced.get(broker, True)  # one that was unregistered is no more than a fenced one
            if now.broker_epochs.get(broker) != self.broker_epochs.get(broker) and broker in now.fenced:
                yield {"event": "register", **about}
            elif fenced != self.fenced.get(broker, True):
                yield {"event": "fence" if fenced else "unfence", **about}


def controller_events(log_dir: Path) -> Iterator[tuple[int, Line]]:
    """The events of a KRaft controller's records, with their times in ms."""
    decided = _Decided()
    MetadataLog(log_dir, decided.see).decisions()
    yield from decided.events


def _partition_event(topic: str, partition: int, before: PartitionState | None, now: PartitionState) -> Line:
    about = {"topic": topic, "partition": partition, "leader": now.leader, "epoch": now.epoch,
             "isr": list(now.isr), "partition_epoch": now.partition_epoch}
    if now.leader == NO_LEADER or (before is not None and before.epoch == now.epoch):
        return {"event": "isr", **about, "cause": "leader lost" if now.leader == NO_LEADER else "ISR changed"}
    return {"event": "elect", **about, "clean": before is None or _is_clean(before, now),
            "cause": "created" if before is None else "election"}


def _is_clean(before: PartitionState, now: PartitionState) -> bool:
    if before.recovering:
        return now.leader in (*before.isr, *before.elr)
    return not now.recovering


def clock_error_ns(began: Clock, ended: Clock) -> int:
    """How far two stamps may lie apart: the wall clock may have been set in between."""
    return CLOCK_ERROR_NS + abs(ended.ahead_ns - began.ahead_ns)
