"""Makes raw traces for harness.trace from what Apache Kafka writes anyway: log files and KRaft records.

Events, with times of the process's wall clock in ms:
    by brokers     become_leader, become_follower, start of the node; truncate, if the LEO before is known
    by a KRaft     elect, isr; register (without `clean`), fence, unfence
    controller

Rules
1. TRACED_EVENTS are recorded whenever they happen, with the right time: checks may use them. The others are
   for people. In truncate, `from` is the LEO in the line of the role or of the truncation before; a log that
   was replaced (`Truncate and start at ...`) has no line. A controller's records have the time at which their
   batch began: later decisions, made while an earlier batch was being written or the process was stopped,
   have the same time. An unclean election could seem to come before its request, or before the power cut that
   excuses it; so no check may use these times. Besides, a cluster with eligible leader replicas (KIP-966, the
   default from 4.1 on) elects the last known leader uncleanly by itself if ISR and ELR are empty, whatever
   unclean.leader.election.enable says (observed on 4.3.1): `unclean-election` would be a false alarm.
2. Kafka logs no append, fetch, ack or change of the HW: the trace has none of these.
3. A broker's lines are in the order of its log, whose lines of one replica are in the order of its roles.
   Times never fall: if the wall clock is set back, the last time is repeated.
4. An election is unclean if the controller marks the partition as recovering (KIP-704). While it still is,
   the mark cannot be set again, and a leader from outside ISR and ELR is an unclean one.

The INFO lines of brokers (the patterns are made from lines of 2.8.2, 3.9.2 and 4.3.1 in
tests/golden/kafka_lines; settings.py sets their format):
    starts      Loaded N logs in T ms; one or two lines earlier it says whether the stop before was orderly
    roles       Leader T starts at leader epoch E from offset LEO with ... high watermark HW, ISR [...]
                Follower T starts at leader epoch E from offset LEO with ... high watermark HW; from 3.x on
                also Current leader is N
    truncations Truncating partition T to local high watermark ..., or with TruncationState(... leader epoch
                ... leaderEpoch=E, endOffset=END): the cause, and the leader's answer; Truncating to offset
                TO: done. With "has no effect" nothing was cut

A role's line is written under the replica's lock, before any effect of the role leaves the broker, and each
line is written to the kernel at once: a node that was observed in a role has its line, even if it was killed.
"""

import re
import time
from calendar import timegm
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from floodmark.harness.cluster.kafka.metadata_log import NO_LEADER, Decisions, MetadataLog, PartitionState

Line = dict[str, Any]
TRACED_EVENTS = frozenset({"become_leader", "become_follower", "start"})
CLOCK_ERROR_NS = 2_000_000  # times are rounded down to ms, and the clocks are not read at once
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The offset between the machine's wall clock and its monotonic clock."""

    ahead_ns: int

    @classmethod
    def now(cls) -> "Clock":
        return cls(ahead_ns=time.time_ns() - time.monotonic_ns())

    def monotonic_ns(self, time_ms: int) -> int:
        return time_ms * _NS_PER_MS - self.ahead_ns


def write_broker_trace(log: Path, trace: Path, *, node_id: int, clock: Clock) -> None:
    """Of a broker's complete log, replacing an earlier one. Without a log there is no trace."""
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as lines:
            events = broker_events(parsed for line in lines if (parsed := read_line(line)) is not None)
            _write(trace, events, node_id=node_id, clock=clock)


def write_controller_trace(log_dir: Path, trace: Path, *, node_id: int, clock: Clock) -> None:
    """Writes the trace of a KRaft controller's decisions. FloodmarkError if its records cannot be read."""
    _write(trace, controller_events(log_dir), node_id=node_id, clock=clock)


def _write(trace: Path, events: Iterator[tuple[int, Line]], *, node_id: int, clock: Clock) -> None:
    latest = -(1 << 62)
    with trace.open("wb") as file:
        for seq, (time_ms, line) in enumerate(events):
            latest = max(latest, clock.monotonic_ns(time_ms))
            file.write(orjson.dumps({"time": latest, "node": node_id, "seq": seq, **line},
                                    option=orjson.OPT_APPEND_NEWLINE))


Kind = Literal["clean", "unclean", "loaded", "leader", "follower", "hw", "epoch", "truncated"]
WHY: dict[Kind, str] = {  # causes of a truncation, for people
    "hw": "its own high watermark", "epoch": "the leader's end offset of an epoch"}

_STAMP = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d),(\d{3})\] INFO ")
_PLACE = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)"
_ROLE = (rf"{_PLACE}(?: with topic id \S+)? starts at leader epoch (?P<epoch>\d+) from offset "
         r"(?P<leo>\d+) with (?:partition epoch \d+(?:,| and) )?high watermark (?P<hw>\d+)")
_CAUSE = (r"\[ReplicaFetcher replicaId=\d+, leaderId=\d+, fetcherId=\d+\] "
          rf"Truncating partition {_PLACE} (?:to|with TruncationState\(.*?\) due to) ")
_SINCE = r" logs (?:in|from) .* since (?:no )?clean shutdown file was found"
# Characters that a line must have, its kind, and its pattern, whose groups are fields of LogLine.
_LINES: tuple[tuple[str, Kind, str], ...] = (
    (" starts at leader epoch ", "leader", rf"\[Broker id=\d+\] Leader {_ROLE},? ISR \[(?P<isr>[\d,]*)\]"),
    (" starts at leader epoch ", "follower", rf"\[Broker id=\d+\] Follower {_ROLE}(?!\d|,? ISR \[)"
                                             r"(?:\. Current leader is (?P<leader>-?\d+)\.)?"),
    ("Truncating partition ", "hw", rf"{_CAUSE}local high watermark"),
    ("Truncating partition ", "epoch",
     rf"{_CAUSE}leader epoch(?:.*\bleaderEpoch=(?P<answer_epoch>-?\d+), endOffset=(?P<answer_end>-?\d+))?"),
    ("Truncating to offset ", "truncated",
     rf"\[(?:Log|UnifiedLog) partition={_PLACE}, dir=.*\] Truncating to offset (?P<leo>\d+) "),
    ("clean shutdown file", "unclean", rf"(?:Attempting recovery for all|Recovering \d+){_SINCE}"),
    ("clean shutdown file", "clean", rf"Skipping recovery (?:for all|of \d+){_SINCE}"),
    ("Loaded ", "loaded", r"Loaded \d+ logs in \d+ ?ms"),
)
_PATTERNS = tuple((mark, kind, re.compile(pattern)) for mark, kind, pattern in _LINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """The content of one line. Fields that it does not have are empty, -1 or None."""

    kind: Kind  # clean, unclean: the stop before; loaded: it has its logs; hw, epoch: why it will truncate
    time_ms: int  # of the broker's wall clock, since 1970
    topic: str = ""
    partition: int = -1
    epoch: int = -1
    leo: int = -1  # of a truncation: the new LEO
    hw: int = -1
    isr: tuple[int, ...] | None = None
    leader: int | None = None  # of a follower's role, if its version logs it; -1: none
    answer_epoch: int | None = None  # the leader's answer that is the cause of a truncation
    answer_end: int | None = None


def read_line(line: str) -> LogLine | None:
    """The content of a line; None: it is about something else."""
    if (stamped := _STAMP.match(line)) is None:
        return None
    for mark, kind, pattern in _PATTERNS:
        if mark in line and (found := pattern.match(line, stamped.end())) is not None:
            *date, ms = map(int, stamped.groups())
            fields = {name: text for name, text in found.groupdict().items() if text is not None}
            topic, isr = fields.pop("topic", ""), fields.pop("isr", None)
            return LogLine(
                kind=kind, time_ms=timegm((*date, 0, 0, 0)) * 1000 + ms, topic=topic,
                isr=None if isr is None else tuple(int(one) for one in isr.split(",") if one),
                **{name: int(text) for name, text in fields.items()})
    return None


@dataclass(slots=True)
class _Replica:
    epoch: int
    leo: int
    hw: int
    cut: LogLine | None = None  # the line with the cause of the truncation that follows it


def broker_events(parsed: Iterator[LogLine]) -> Iterator[tuple[int, Line]]:
    replicas: dict[tuple[str, int], _Replica] = {}
    clean = False
    for one in parsed:
        if one.kind in ("clean", "unclean"):
            clean = one.kind == "clean"
            continue
        if one.kind == "loaded":  # the first start, without logs, is not known to follow an orderly stop
            yield one.time_ms, {"event": "start", "clean": clean}
            replicas, clean = {}, False
            continue
        if (line := _replica_event(replicas, (one.topic, one.partition), one)) is not None:
            yield one.time_ms, {"topic": one.topic, "partition": one.partition, **line}


def _replica_event(replicas: dict[tuple[str, int], _Replica], place: tuple[str, int], parsed: LogLine
                   ) -> Line | None:
    if parsed.kind in ("leader", "follower"):
        replicas[place] = _Replica(parsed.epoch, parsed.leo, parsed.hw)
        state = {"epoch": parsed.epoch, "leo": parsed.leo, "hw": parsed.hw}
        if parsed.isr is not None:
            return {"event": "become_leader", **state, "isr": list(parsed.isr), "start": parsed.leo}
        return {"event": "become_follower", **state,
                **({} if parsed.leader is None else {"leader": parsed.leader})}
    if (known := replicas.get(place)) is None:
        return None  # a recovery: the process had no role yet
    if parsed.kind in WHY:
        known.cut = parsed
        return None
    if parsed.leo >= known.leo:
        known.cut = None
        return None  # it cut records without a line: their number is unknown
    hw = min(known.hw, parsed.leo)
    line = {"event": "truncate", "epoch": known.epoch, "leo": parsed.leo, "hw": hw,
            "from": known.leo, "to": parsed.leo, "cause": "other"}
    if (cut := known.cut) is not None:
        answer = {"answer": {"epoch": cut.answer_epoch, "end": cut.answer_end}}
        line |= {"cause": cut.kind, **({} if cut.answer_epoch is None else answer), "why": WHY[cut.kind]}
    replicas[place] = _Replica(known.epoch, parsed.leo, hw)
    return line


def controller_events(log_dir: Path) -> Iterator[tuple[int, Line]]:
    before = Decisions()
    for time_ms, now in MetadataLog(log_dir).follow():
        for (topic, partition), state in now.partitions.items():
            known = before.partitions.get((topic, partition))
            if known != state and topic in now.topics:
                yield time_ms, _partition_event(now.topics[topic], partition, known, state)
        for broker in sorted({*before.fenced, *now.fenced}):
            fenced = now.fenced.get(broker, True)  # an unregistered broker counts as fenced
            epoch, old_epoch = now.broker_epochs.get(broker), before.broker_epochs.get(broker)
            event = None
            if epoch != old_epoch and broker in now.fenced:
                event = "register"
            elif fenced != before.fenced.get(broker, True):
                event = "fence" if fenced else "unfence"
            if event is not None:
                yield time_ms, {"event": event, "broker": broker, "broker_epoch": (
                    epoch if epoch is not None else old_epoch if old_epoch is not None else -1)}
        before = Decisions(partitions=dict(now.partitions), fenced=dict(now.fenced),
                           broker_epochs=dict(now.broker_epochs))


def _partition_event(topic: str, partition: int, before: PartitionState | None, now: PartitionState) -> Line:
    about = {"topic": topic, "partition": partition, "leader": now.leader, "epoch": now.epoch,
             "isr": list(now.isr), "partition_epoch": now.partition_epoch}
    if now.leader == NO_LEADER or (before is not None and before.epoch == now.epoch):
        return {"event": "isr", **about, "cause": "leader lost" if now.leader == NO_LEADER else "ISR changed"}
    clean = before is None or (
        now.leader in (*before.isr, *before.elr) if before.recovering else not now.recovering)
    return {"event": "elect", **about, "clean": clean, "cause": "created" if before is None else "election"}


def clock_error_ns(began: Clock, ended: Clock) -> int:
    """The possible error between two times: the wall clock may have been set in between."""
    return CLOCK_ERROR_NS + abs(ended.ahead_ns - began.ahead_ns)
