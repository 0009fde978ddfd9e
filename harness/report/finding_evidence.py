"""Collects the evidence for a finding from a run's files: who acked the record, which replicas had it and
have it now, and what happened in between.

Theory. An example of a finding names a place (partition, offset), a value, lines of the history, or a line of
the trace. They are looked up here together with what belongs to them: the leader's ack of that send, the
appends before it, the final logs at that offset, what removed a copy since, and, for a permitted finding, the
faults and elections that permit it.

Rules
1. Evidence is what a line says. If two lines are possible, or a window was not read to its end, nothing is
   claimed.
2. All evidence is optional: a run without a trace, or with missing files, has less.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.op import Op, Send, Type
from floodmark.harness.report.line_search import Found
from floodmark.harness.report.model import AckEvent, Copy, Evidence, Json, Record, TraceLine
from floodmark.harness.report.run_files import RunFiles

OPS = 6  # ops looked up, of those that a finding names
LOSSES = 4  # lost copies
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
    _ack_events: dict[tuple[int, int, int], tuple[tuple[Found, AckEvent], ...]] = field(default_factory=dict)
    _losses: dict[tuple[int, int, int], tuple[TraceLine, ...]] = field(default_factory=dict)

    def evidence_for(self, found: Json, example: Json) -> Evidence:
        """Everything that the files show about this example."""
        evidence = Evidence(
            found=found, example=example, about=self.about, traced=self.files.trace.size() > 0,
            perhaps=is_perhaps(found, self.unknown),
        )
        evidence = replace(evidence, copies=self.copies(evidence))
        evidence = replace(evidence, ops=self.ops(evidence))
        event = self.event(evidence)
        evidence = replace(evidence, event=None if event is None else event[1])
        ack_events = list(self.ack_events(evidence))
        if not ack_events and event is not None and not evidence.ops:
            ack_events = self.acked_before(evidence, *event)
        evidence = replace(evidence, ack_events=tuple(line for _, line in ack_events))
        return replace(
            evidence, copy_losses=self.copy_losses(evidence, ack_events), acts=self.acts(evidence),
            skipped=self.skipped(evidence), elections=self.elections(evidence),
        )

    # -- the history ----------------------------------------------------------------------------------------

    def ops(self, evidence: Evidence) -> tuple[Op, ...]:
        """The ops that the example names; if it names none, the send of its record."""
        indexes = [index for index in listed(evidence.example.get("ops")) if type(index) is int]
        if indexes:
            return tuple(op for op in map(self.files.op, indexes[:OPS]) if op is not None)
        partition, value = evidence.number("partition"), evidence.number("value")
        if value is None:
            value = written(evidence)
        if partition is None or value is None or evidence.name == names.PHANTOM:
            return ()
        return self.files.send_of(partition, value)

    # -- the trace ------------------------------------------------------------------------------------------

    def event(self, evidence: Evidence) -> tuple[Found, TraceLine] | None:
        number = evidence.number("event")
        return None if number is None else self.files.event(number + 1)

    def ack_events(self, evidence: Evidence) -> Iterable[tuple[Found, AckEvent]]:
        """The trace's ack of each acked send among the ops."""
        if not evidence.traced:
            return
        for op in evidence.ops:
            send = next((send for send in op.sends or () if send.offset is not None and (
                evidence.concerns(send.partition, send.offset, send.value))), None)
            invoked = self.files.invocation(op) if send is not None and op.type is Type.OK else None
            if send is None or invoked is None:
                continue
            key = op.index, send.partition, send.value
            if key not in self._ack_events:
                self._ack_events[key] = tuple(self.ack_event(op, invoked, send))
            yield from self._ack_events[key]

    def ack_event(self, op: Op, invoked: Op, send: Send) -> Iterable[tuple[Found, AckEvent]]:
        """The line of the trace that acked this send, if exactly one fits."""
        assert send.offset is not None
        error = self.about.get("clock_error_ns")
        slack = error if type(error) is int else 0
        window = self.files.between(
            invoked.time - slack, op.time + slack, send.partition, "ack", "append")
        firsts: dict[tuple[str, int | None], tuple[Found, TraceLine]] = {}
        for found, line in window.lines:
            whose = line.name_in("node"), line.whole_number("epoch")
            fits = line.event == "ack" and reaches(line, "offset", send.offset)
            if fits and send.epoch in (None, whose[1]):
                firsts.setdefault(whose, (found, line))
        if len(firsts) != 1 or not window.complete:
            return
        (found, line), = firsts.values()
        earlier = [each for at, each in window.lines if at.begin < found.begin]
        numbered = self.files.numbered(found, line.fields)
        yield found, AckEvent(line=numbered, appended_by=appended_by(earlier, send.offset), index=op.index)

    def acked_before(
        self, evidence: Evidence, found: Found, event: TraceLine
    ) -> list[tuple[Found, AckEvent]]:
        """For a record that only the trace knows: the first ack of it or of a later record."""
        partition, offset = evidence.number("partition"), evidence.number("offset")
        if partition is None or offset is None or evidence.name not in names.GUILTY or event.event == "ack":
            return []
        epoch = evidence.number("epoch")
        window = self.files.before(found, partition, "ack", "append")
        acks = [(at, line) for at, line in window.lines
                if line.event == "ack" and reaches(line, "offset", offset)
                and (epoch is None or reaches(line, "epoch", epoch))]
        if not acks or not window.complete:
            return []
        at, line = acks[0]
        earlier = [each for each_at, each in window.lines if each_at.begin < at.begin]
        return [(at, AckEvent(line=self.files.numbered(at, line.fields),
                              appended_by=appended_by(earlier, offset), index=None))]

    def copy_losses(
        self, evidence: Evidence, ack_events: Sequence[tuple[Found, AckEvent]]
    ) -> tuple[TraceLine, ...]:
        """How the copies of a lost record went: for each node that had it, the first truncation or start
        without it."""
        partition, offset = evidence.number("partition"), evidence.number("offset")
        if evidence.name not in OF_A_LOSS or not ack_events or partition is None or offset is None:
            return ()
        at, ack_event = ack_events[0]
        key = partition, offset, at.begin
        if key not in self._losses:
            self._losses[key] = tuple(self._lost_copies(partition, offset, at, ack_event.appended_by or ()))
        return self._losses[key]

    def _lost_copies(
        self, partition: int, offset: int, at: Found, had_it: tuple[str, ...]
    ) -> Iterable[TraceLine]:
        firsts: dict[str, tuple[Found, TraceLine]] = {}
        for word in ("truncate", "start"):
            left = set(had_it)
            for found, line in self.files.after(at.begin, partition, word) if left else ():
                node, end = line.name_in("node"), line.whole_number("to" if word == "truncate" else "leo")
                if node in left and end is not None and end <= offset:
                    left.discard(node)
                    if node not in firsts or found.begin < firsts[node][0].begin:
                        firsts[node] = found, line
                if not left:
                    break
        for found, line in sorted(firsts.values(), key=lambda each: each[0].begin)[:LOSSES]:
            yield self.files.numbered(found, line.fields)

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
        log_start, leo = (value if type(value) is int else None for value in (
            row.get("log_start"), row.get("leo")))
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
        before = [read.offset for op in evidence.ops for read in op.reads or ()
                  if read.partition == partition and read.offset < offset]
        for at in range(max(before) + 1, offset)[:OPS] if before and led is not None else ():
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
        if cause == "fault budget" or (cause is None and evidence.name == names.LOST_WRITE):
            here = set(replicas_of(self.about, partition))
            return tuple(op for op in self.files.losses
                         if op.index > since and here & set(map(str, listed((op.fault or {}).get("nodes")))))
        if cause != "unclean.leader.election.enable":
            return ()
        asked = tuple(op for op in self.files.unclean_asked if op.index > since and concerned(op, partition))
        begin = min((op.time for op in evidence.ops), default=None)
        seen = [self.files.numbered(found, line.fields)
                for found, line in self.files.after(0, partition, "elect")
                if line.fields.get("clean") is False
                and (begin is None or reaches(line, "time", begin))] if evidence.traced else []
        return tuple(seen[:LOSSES]) or asked


def is_perhaps(found: Json, unknown: Sequence[Json]) -> bool:
    """Whether the permission is uncertain: the judge then lists the finding's name and its cause as
    unknown."""
    cause = found.get("permitted_by")
    return cause is not None and any(
        found["name"] in entry["names"] and f"whether {cause} covers" in str(entry["reason"])
        for entry in unknown)


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


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
    nodes: dict[str, None] = {}
    for line in lines:
        first, count = line.whole_number("offset"), line.whole_number("count")
        if line.event == "append" and first is not None and count is not None and (
                first <= offset < first + count):
            nodes[line.name_in("node")] = None
    return tuple(sorted(nodes))


def leader_of(about: Json, partition: int) -> str | None:
    leader = mapping(mapping(about.get("leaders")).get(str(partition))).get("leader")
    return leader if isinstance(leader, str) else None


def replicas_of(about: Json, partition: int) -> list[str]:
    described = mapping(mapping(about.get("partitions")).get(str(partition)))
    return [str(node) for node in listed(described.get("replicas"))]


def concerned(op: Op, partition: int) -> bool:
    """Whether a requested election was for this partition."""
    fault = op.fault or {}
    partitions = fault.get("partitions", fault.get("partition"))
    return partitions is None or partition in (partitions if isinstance(partitions, list) else [partitions])
