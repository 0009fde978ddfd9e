"""Collects the evidence for a finding from a run's files: who acked the record, which replicas had it and
have it now, and what happened in between.

Theory. An example of a finding names a place (partition, offset), a value, lines of the history, or a line of
the trace. They are looked up here together with what belongs to them: the leader's ack of that send, the
appends before it, the final logs at that offset, what removed a copy since, and, for a permitted finding, the
faults and elections that permit it. The finding's course is the time from the promise to its breach.

Rules
1. Evidence is what a line says. If two lines are possible, or a window was not read to its end, nothing is
   claimed.
2. All evidence is optional: a run without a trace, or with missing files, has less.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.faults import UNSEEN
from floodmark.harness.op import Op, Send, Type
from floodmark.harness.report.model import (
    AckEvent,
    Copy,
    Course,
    Evidence,
    Json,
    Record,
    TraceLine,
    int_in,
    items,
    mapping,
    text,
)
from floodmark.harness.report.run_files import RunFiles

OPS = 6  # ops looked up, of those that a finding names
LOSSES = 4  # lost copies
BEFORE_NS = 3_000_000_000  # if no op leads to the event, its course begins so long before it
OF_A_RECORD = (  # findings about the record at an offset
    names.LOST_WRITE, names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS, names.DIVERGED, names.UNDER_REPLICATED,
    names.EPOCH_LINEAGE, names.UNSEEN, names.DUPLICATE, names.PHANTOM, names.G1A, names.LEADER_INCOMPLETE,
    names.CANDIDATE_INCOMPLETE, names.UNSAFE_TRUNCATION, names.ACK_RULE, names.MALFORMED_LOG,
)  # fmt: skip
OF_AN_ENTRY = ("gap", "doubled", "disordered", "crc")  # flaws of a log that one of its entries shows
OF_A_LOSS = (names.LOST_WRITE, names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS)


@dataclass(slots=True, kw_only=True)
class Gathering:
    """Looks up the evidence of one run; what several findings need is looked up once."""

    files: RunFiles
    about: Json
    unknown: Sequence[Json] = ()
    _ack_events: dict[tuple[int, int, int], tuple[AckEvent, ...]] = field(default_factory=dict)
    _losses: dict[tuple[int, int, int], tuple[TraceLine, ...]] = field(default_factory=dict)

    def evidence_for(self, found: Json, example: Json) -> Evidence:
        """Everything that the files show about this example."""
        number = int_in(example, "event")
        evidence = Evidence(
            found=found, example=example, about=self.about, traced=self.files.trace.size() > 0,
            perhaps=is_perhaps(found, self.unknown),
            event=None if number is None else self.files.event(number + 1),
        )
        evidence = replace(evidence, copies=self.copies(evidence))
        evidence = replace(evidence, ops=self.ops(evidence))
        evidence = replace(evidence, ack_events=self.ack_events(evidence))
        return replace(
            evidence, copy_losses=self.copy_losses(evidence), acts=self.acts(evidence),
            skipped=self.skipped(evidence), elections=self.elections(evidence),
        )

    # -- the history ----------------------------------------------------------------------------------------

    def ops(self, evidence: Evidence) -> tuple[Op, ...]:
        """The ops that the example names; if it names none, the send of its record."""
        indexes = [index for index in items(evidence.example, "ops") if type(index) is int]
        if indexes:
            return tuple(op for op in map(self.files.op, indexes[:OPS]) if op is not None)
        partition, value = evidence.number("partition"), evidence.number("value")
        if value is None:
            value = written(evidence)
        if partition is None or value is None or evidence.name == names.PHANTOM:
            return ()
        return self.files.send_of(partition, value)

    # -- the trace ------------------------------------------------------------------------------------------

    def ack_events(self, evidence: Evidence) -> tuple[AckEvent, ...]:
        """The trace's ack of each acked send among the ops; for a record that only the trace knows, its first
        ack."""
        acks: list[AckEvent] = []
        for op in evidence.ops if evidence.traced else ():
            send = next((send for send in op.sends or () if send.offset is not None and (
                evidence.concerns(send.partition, send.offset, send.value))), None)
            invoked = self.files.invocation(op) if send is not None and op.type is Type.OK else None
            if send is not None and invoked is not None:
                key = op.index, send.partition, send.value
                if key not in self._ack_events:
                    self._ack_events[key] = self.ack_event(op, invoked, send)
                acks += self._ack_events[key]
        if acks or evidence.event is None or evidence.ops:
            return tuple(acks)
        return self.acked_before(evidence, evidence.event)

    def ack_event(self, op: Op, invoked: Op, send: Send) -> tuple[AckEvent, ...]:
        """The line of the trace that acked this send, if exactly one fits."""
        assert send.offset is not None
        slack = int_in(self.about, "clock_error_ns") or 0
        window = self.files.between(
            invoked.time - slack, op.time + slack, send.partition, "ack", "append")
        firsts: dict[tuple[str, int | None], TraceLine] = {}
        for line in window:
            whose = line.name_in("node"), line.whole_number("epoch")
            fits = line.event == "ack" and reaches(line, "offset", send.offset)
            if fits and send.epoch in (None, whose[1]):
                firsts.setdefault(whose, line)
        return tuple(self.acked_at(line, window, send.offset, op.index)
                     for line in firsts.values() if len(firsts) == 1)

    def acked_before(self, evidence: Evidence, event: TraceLine) -> tuple[AckEvent, ...]:
        """For a record that only the trace knows: the first ack of it or of a later record."""
        partition, offset = evidence.number("partition"), evidence.number("offset")
        if partition is None or offset is None or evidence.name not in names.GUILTY or event.event == "ack":
            return ()
        epoch = evidence.number("epoch")
        window = self.files.before(event, partition, "ack", "append")
        acks = [line for line in window if line.event == "ack" and reaches(line, "offset", offset)
                and (epoch is None or reaches(line, "epoch", epoch))]
        return tuple(self.acked_at(line, window, offset, None) for line in acks[:1])

    def acked_at(
        self, line: TraceLine, window: Iterable[TraceLine], offset: int, index: int | None
    ) -> AckEvent:
        earlier = (one for one in window if one.begin < line.begin)
        return AckEvent(line=self.files.numbered(line), appended_by=appended_by(earlier, offset), index=index)

    def copy_losses(self, evidence: Evidence) -> tuple[TraceLine, ...]:
        """How the copies of a lost record went: for each node that had it, the first truncation or start
        without it."""
        partition, offset = evidence.number("partition"), evidence.number("offset")
        if evidence.name not in OF_A_LOSS or not evidence.ack_events or partition is None or offset is None:
            return ()
        ack_event = evidence.ack_events[0]
        key = partition, offset, ack_event.line.begin
        if key not in self._losses:
            self._losses[key] = self.lost_copies(partition, offset, ack_event)
        return self._losses[key]

    def lost_copies(self, partition: int, offset: int, ack_event: AckEvent) -> tuple[TraceLine, ...]:
        firsts: dict[str, TraceLine] = {}
        for word, key in (("truncate", "to"), ("start", "leo")):
            left = set(ack_event.appended_by or ())
            for line in self.files.after(ack_event.line.begin, partition, word) if left else ():
                node, end = line.name_in("node"), line.whole_number(key)
                if node in left and end is not None and end <= offset:
                    left.discard(node)
                    firsts[node] = min(line, firsts.get(node, line), key=lambda one: one.begin)
                if not left:
                    break
        return tuple(map(self.files.numbered, sorted(firsts.values(), key=lambda one: one.begin)[:LOSSES]))

    def elections(self, evidence: Evidence) -> tuple[TraceLine, ...]:
        """The elections that may have caused the finding."""
        partition, times = evidence.number("partition"), [op.time for op in evidence.ops]
        if partition is None or not evidence.traced:
            return ()
        if evidence.name == names.DIVERGED:
            lines = self.files.changes(0, None, partition)
        elif evidence.name == names.END_OFFSET_REGRESSED and times:
            lines = self.files.changes(min(times), max(times), partition)
        else:
            return ()
        return tuple(line for line in lines if line.event == "elect")

    # -- the logs -------------------------------------------------------------------------------------------

    def copies(self, evidence: Evidence) -> tuple[Copy, ...]:
        """What each replica's final log has at the offset."""
        partition, offset = evidence.number("partition"), evidence.number("offset")
        if evidence.name not in OF_A_RECORD or partition is None or offset is None or offset < 0:
            return ()
        if evidence.name == names.MALFORMED_LOG and evidence.example.get("how") not in OF_AN_ENTRY:
            return ()
        led = leader_of(self.about, partition)
        return tuple(self.copy(node, partition, offset, node == led)
                     for node in replicas_of(self.about, partition))

    def copy(self, node: str, partition: int, offset: int, leads: bool) -> Copy:
        row = self.files.replicas.get((node, partition), {})
        log_start, leo = int_in(row, "log_start"), int_in(row, "leo")
        expected = (log_start is None or log_start <= offset) and (leo is None or offset < leo)
        return Copy(
            node=node, leads=leads, readable=self.files.readable(node), log_start=log_start, leo=leo,
            record=self.files.record(node, partition, offset, expected=expected),
        )

    def skipped(self, evidence: Evidence) -> tuple[int, Record] | None:
        """A record that the leader's final log has between two reads and that a poll passed over."""
        partition, offset = evidence.number("partition"), evidence.number("offset")
        if evidence.name not in (names.POLL_SKIP, names.INT_POLL_SKIP) or partition is None or offset is None:
            return None
        led = leader_of(self.about, partition)
        last = last_read_before(evidence.ops, partition, offset)
        for at in range(last + 1, offset)[:OPS] if last is not None and led is not None else ():
            record = self.files.record(led or "", partition, at)
            if record is not None and record.value is not None and record.flaw is None:
                return at, record
        return None

    # -- what permits it, or might have ---------------------------------------------------------------------

    def acts(self, evidence: Evidence) -> tuple[Op | TraceLine, ...]:
        """The acts after the send that permit its loss; for a loss that nothing permits, the acts that lost
        data."""
        partition, cause = evidence.number("partition"), evidence.found.get("permitted_by")
        if partition is None:
            return ()
        since = min((op.index for op in evidence.ops), default=-1)
        later = [op for op in self.files.nemesis if op.index > since]
        if cause == "fault budget" or (cause is None and evidence.name == names.LOST_WRITE):
            here = set(replicas_of(self.about, partition))
            return tuple(op for op in later if (op.fault or {}).get("lost") is True
                         and here & set(map(str, items(op.fault or {}, "nodes"))))
        if cause != "unclean.leader.election.enable":
            return ()
        asked = tuple(op for op in later
                      if (op.fault or {}).get("unclean") is True and is_of_partition(op, partition))
        begin = min((op.time for op in evidence.ops), default=None)
        seen = [line for line in self.files.after(0, partition, "elect") if line.fields.get("clean") is False
                and (begin is None or reaches(line, "time", begin))]
        return tuple(map(self.files.numbered, seen[:LOSSES])) or asked

    # -- its course -----------------------------------------------------------------------------------------

    def course_of(self, evidence: Evidence) -> Course:
        """The course of a finding, for the summary and for the timeline."""
        rivals = self.rivals(evidence)
        times = [time for one in (evidence, *rivals) if (time := since_of(one)) is not None]
        since, until = min(times, default=None), until_of(evidence)
        partition = evidence.number("partition")
        if since is None:
            return Course(evidence=evidence, rivals=rivals, since_ns=None, until_ns=until)
        here = set(replicas_of(evidence.about, partition)) if partition is not None else set()
        acts = [op for op in self.files.nemesis if is_about_nodes(op, here)]
        changes = self.files.changes(since, until, partition) if partition is not None else []
        return Course(
            evidence=evidence, rivals=rivals, since_ns=since, until_ns=until, changes=tuple(changes),
            promised=bool(rivals or evidence.ack_events or conclusive_ops(evidence)),
            strikes=tuple(op for op in acts if since <= began(op) and (until is None or began(op) <= until)),
            before=tuple(op for op in acts if began(op) < since))

    def rivals(self, evidence: Evidence) -> tuple[Evidence, ...]:
        """For logs that differ at an offset: the evidence of each record there that was acked."""
        if evidence.name not in (names.DIVERGED, names.EPOCH_LINEAGE):
            return ()
        values = {copy.record.value for copy in evidence.copies if copy.record is not None}
        found = [self.evidence_for(evidence.found, {**evidence.example, "value": value, "ops": []})
                 for value in sorted(value for value in values if value is not None)]
        return tuple(sorted((one for one in found if since_of(one) is not None and conclusive_ops(one)),
                            key=lambda one: since_of(one) or 0))


def since_of(evidence: Evidence) -> int | None:
    """The time of the promise; if no op leads to the event, a little before it."""
    times = [time for one in evidence.ack_events[:1] if (time := one.line.whole_number("time")) is not None]
    times += [op.time for op in conclusive_ops(evidence)]
    if times:
        return min(times)
    event = None if evidence.event is None else evidence.event.whole_number("time")
    return None if event is None else event - BEFORE_NS


def until_of(evidence: Evidence) -> int | None:
    """The time when the last copy was lost, or of the line to blame, or of the last op named."""
    if evidence.name in OF_A_LOSS and not evidence.copy_losses:
        return None
    if evidence.name in names.GUILTY and evidence.example.get("blame"):
        return None  # the line to blame is earlier than the lines that show the finding
    lines = [*evidence.copy_losses, *([evidence.event] if evidence.event is not None else [])]
    times = [time for line in lines if (time := line.whole_number("time")) is not None]
    return max(times, default=max((op.time for op in evidence.ops[1:]), default=None))


def conclusive_ops(evidence: Evidence) -> list[Op]:
    """The ops worth a sentence: completions, and invocations without one; for realtime-order all."""
    ops = evidence.ops
    if evidence.name == names.REALTIME_ORDER:
        return list(ops)
    ended = {op.process for op in ops if op.type is not Type.INVOKE}
    return [op for op in ops if op.type is not Type.INVOKE or op.process not in ended]


def began(op: Op) -> int:
    """The time when an act of the nemesis began: its effects come after that, its line at its end."""
    value = (op.fault or {}).get("began")
    return value if type(value) is int and 0 <= value <= op.time else op.time


def is_about_nodes(op: Op, here: set[str]) -> bool:
    """Whether an act is about nodes that have a replica of the partition, or about no particular nodes."""
    nodes = items(op.fault or {}, "nodes")
    return op.f not in UNSEEN and (  # the fault that a failpoint triggers has a line of its own
        not here or not nodes or not here.isdisjoint(map(str, nodes)))


def is_of_partition(op: Op, partition: int) -> bool:
    """Whether a requested election was for this partition."""
    fault = op.fault or {}
    partitions = fault.get("partitions", fault.get("partition"))
    return partitions is None or partition in (partitions if isinstance(partitions, list) else [partitions])


def is_perhaps(found: Json, unknown: Sequence[Json]) -> bool:
    """Whether the permission is uncertain: the judge then lists the finding's name and its cause as
    unknown."""
    cause = found.get("permitted_by")
    return cause is not None and any(
        found["name"] in entry["names"] and f"whether {cause} covers" in str(entry["reason"])
        for entry in unknown)


def last_read_before(ops: Iterable[Op], partition: int, offset: int) -> int | None:
    """The highest offset below this one that the ops read."""
    there = [read.offset for op in ops for read in op.reads or () if read.partition == partition]
    return max((each for each in there if each is not None and each < offset), default=None)


def written(evidence: Evidence) -> int | None:
    """The value of the record with the example's epoch, if some final log has it."""
    epoch = evidence.number("epoch")
    records = [copy.record for copy in evidence.copies if copy.record is not None]
    return next((one.value for one in records if epoch is not None and one.epoch == epoch), None)


def reaches(line: TraceLine, name: str, least: int) -> bool:
    """Whether the field is a number and at least `least`."""
    number = line.whole_number(name)
    return number is not None and number >= least


def appended_by(lines: Iterable[TraceLine], offset: int) -> tuple[str, ...]:
    """The nodes that appended the offset in these lines."""
    nodes: set[str] = set()
    for line in lines:
        first, count = line.whole_number("offset"), line.whole_number("count")
        if line.event == "append" and first is not None and count is not None and (
                first <= offset < first + count):
            nodes.add(line.name_in("node"))
    return tuple(sorted(nodes))


def leader_of(about: Json, partition: int) -> str | None:
    return text(mapping(mapping(about, "leaders"), str(partition)), "leader") or None


def replicas_of(about: Json, partition: int) -> list[str]:
    return [str(node) for node in items(mapping(mapping(about, "partitions"), str(partition)), "replicas")]
