"""Collects the evidence for a finding from a run's files: who acked the record, which replicas had it and
have it now, and what happened in between; and groups the findings that are about one event.

Theory. An example of a finding names a place (partition, offset), a value, lines of the history, or a line of
the trace. They are looked up here together with what belongs to them: the leader's ack of that send, the
appends before it, the final logs at that offset, what removed a copy since, and, for a permitted finding, the
faults and elections that permit it. The finding's course is the time from the promise to its breach.
Many checks see one loss: the record is gone, a reader had seen it, a replica truncated it, another became
leader without it. For a reader that is one event, not six: the gravest is its root, those that follow from it
get a line each.

Rules
1. Evidence is what a line says. If two lines are possible, or a window was not read to its end, nothing is
   claimed. All of it is optional: a run without a trace, or with missing files, has less.
2. A finding joins a graver one only if every example that is shown is about the same record, the same place,
   or the same line of the trace; a truncation also if it removed that place. When in doubt it stays alone.
   Both must be of one class: a bug is never printed as part of what a setting permits, nor the reverse.
3. Only what can follow from the graver one, or lead to it, joins it (OF_ONE_EVENT).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.blame_words import knows_blame
from floodmark.checkers.text.words import without_lines
from floodmark.harness.faults import UNSEEN
from floodmark.harness.op import Op, Type
from floodmark.harness.report.model import (
    HISTORY,
    MOST,
    TRACE,
    AckEvent,
    Copy,
    Course,
    Evidence,
    Follower,
    Json,
    Record,
    TraceLine,
    examples_of,
    int_in,
    items,
    mapping,
    text,
    text_of,
)
from floodmark.harness.report.phrases import listed, removes
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
NUMBER = attrgetter("number")
OF_A_LOSS = (names.LOST_WRITE, names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS)


@dataclass(slots=True, kw_only=True)
class Gathering:
    """Looks up the evidence of one run."""

    files: RunFiles
    about: Json
    unknown: Sequence[Json] = ()

    @property
    def clock_error_ns(self) -> int:
        """How far apart the stamps of one instant may be on two nodes."""
        return int_in(self.about, "clock_error_ns") or 0

    def evidence_for(self, found: Json, example: Json) -> Evidence:
        """Everything that the files show about this example."""
        line, partition, offset = (int_in(example, key) for key in ("event", "partition", "offset"))
        doubt = f"whether {found.get('permitted_by')} covers"
        one = Evidence(
            found=found, example=example, about=self.about,
            perhaps=next((reason for entry in self.unknown if found["name"] in entry["names"]
                          and doubt in (reason := str(entry["reason"]))), ""),
            partition=partition, offset=offset, value=int_in(example, "value"),
            epoch=int_in(example, "epoch"), event=None if line is None else self.files.event(line + 1),
        )
        if partition is None:
            return replace(one, ops=self.ops(one))
        one = replace(one, copies=self.copies(one, partition))
        one = replace(one, ops=self.ops(one))
        one = replace(one, ack_events=self.ack_events(one), acts=self.acts(one, partition),
                      elections=self.elections(one, partition))
        if offset is None:
            return one
        if not one.ack_events and not one.ops:
            one = replace(one, ack_events=self.acked_before(one, partition, offset))
        return replace(one, copy_losses=self.copy_losses(one, partition, offset),
                       skipped=self.skipped(one, partition, offset))

    def ops(self, evidence: Evidence) -> tuple[Op, ...]:
        """The ops that the example names; if it names none, the send of its record."""
        if evidence.indexes:
            return tuple(op for op in map(self.files.op, evidence.indexes[:OPS]) if op is not None)
        written = [copy.record.value for copy in evidence.copies if copy.record is not None
                   and evidence.epoch is not None and copy.record.epoch == evidence.epoch]
        value = next(iter(written), None) if evidence.value is None else evidence.value
        if evidence.partition is None or value is None or evidence.name == names.PHANTOM:
            return ()
        return self.files.send_of(evidence.partition, value)

    # -- the trace ------------------------------------------------------------------------------------------

    def ack_events(self, evidence: Evidence) -> tuple[AckEvent, ...]:
        """The line of the trace that acked each acked send among the ops, if exactly one fits."""
        acks: list[AckEvent] = []
        for op in evidence.ops if self.files.trace.begins else ():
            send = next((send for send in op.sends or ()
                         if send.offset is not None and evidence.concerns(send)), None)
            invoked = self.files.invocation(op) if send is not None and op.type is Type.OK else None
            if send is None or send.offset is None or invoked is None:
                continue
            window = self.files.between(invoked.time - self.clock_error_ns, op.time + self.clock_error_ns,
                                        send.partition, "ack", "append")
            firsts: dict[tuple[str, int | None], TraceLine] = {}
            for line in window:
                epoch = line.whole_number("epoch")
                if (line.event == "ack" and reaches(line, "offset", send.offset)
                        and send.epoch in (None, epoch)):
                    firsts.setdefault((line.name_in("node"), epoch), line)
            if len(firsts) == 1:
                acks += [self.acked_at(line, window, send.offset, op.index) for line in firsts.values()]
        return tuple(acks)

    def acked_before(self, evidence: Evidence, partition: int, offset: int) -> tuple[AckEvent, ...]:
        """For a record that only the trace knows: the first ack of it or of a later record."""
        event, epoch = evidence.event, evidence.epoch
        if event is None or event.event == "ack" or evidence.name not in names.GUILTY:
            return ()
        window = self.files.before(event, partition, "ack", "append")
        acks = [line for line in window if line.event == "ack" and reaches(line, "offset", offset)
                and (epoch is None or reaches(line, "epoch", epoch))]
        return tuple(self.acked_at(line, window, offset, None) for line in acks[:1])

    def acked_at(
        self, ack: TraceLine, window: Iterable[TraceLine], offset: int, index: int | None
    ) -> AckEvent:
        """The ack, with the nodes that had appended the record by then. Times of two nodes that lie no
        further apart than the clocks' error are in no order: then nobody knows which had."""
        surely, perhaps = set[str](), set[str]()
        for one in window:
            if appends(one, offset):
                is_before, node = one.number < ack.number, one.name_in("node")
                apart = abs((one.whole_number("time") or 0) - (ack.whole_number("time") or 0))
                is_sure = one.node == ack.node or apart > self.clock_error_ns or not self.clock_error_ns
                surely |= {node} if is_before and is_sure else set()
                perhaps |= set() if is_sure else {node}
        known = None if perhaps - surely else tuple(sorted(surely))
        return AckEvent(line=ack, appended_by=known, index=index)

    def copy_losses(self, evidence: Evidence, partition: int, offset: int) -> tuple[TraceLine, ...]:
        """How the copies of a lost record went: for each node that had it, the first truncation or start
        without it."""
        if evidence.name not in OF_A_LOSS or not evidence.ack_events:
            return ()
        ack, firsts = evidence.ack_events[0], dict[str, TraceLine]()
        for word, key_of_end in (("truncate", "to"), ("start", "leo")):
            left = set(ack.appended_by or ())
            for line in self.files.after(ack.line.number, partition, word) if left else ():
                node, end = line.name_in("node"), line.whole_number(key_of_end)
                if node in left and end is not None and end <= offset:
                    left.discard(node)
                    firsts[node] = min(line, firsts.get(node, line), key=NUMBER)
                if not left:
                    break
        return tuple(sorted(firsts.values(), key=NUMBER)[:LOSSES])

    def elections(self, evidence: Evidence, partition: int) -> tuple[TraceLine, ...]:
        """The elections that may have caused the finding."""
        times = [op.time for op in evidence.ops]
        if evidence.name == names.DIVERGED:
            lines = self.files.changes(0, None, partition)
        elif evidence.name == names.END_OFFSET_REGRESSED and times:
            lines = self.files.changes(min(times), max(times), partition)
        else:
            return ()
        return tuple(line for line in lines if line.event == "elect")

    # -- the logs -------------------------------------------------------------------------------------------

    def copies(self, evidence: Evidence, partition: int) -> tuple[Copy, ...]:
        """What each replica's final log has at the offset."""
        offset = evidence.offset
        if evidence.name not in OF_A_RECORD or offset is None or offset < 0:
            return ()
        if evidence.name == names.MALFORMED_LOG and evidence.example.get("how") not in OF_AN_ENTRY:
            return ()
        led = leader_of(self.about, partition)
        copies = []
        for node in replicas_of(self.about, partition):
            row = self.files.replicas.get((node, partition), {})
            log_start, leo = int_in(row, "log_start"), int_in(row, "leo")
            expected = (log_start is None or log_start <= offset) and (leo is None or offset < leo)
            copies.append(Copy(
                node=node, leads=node == led, readable=self.files.readable(node), log_start=log_start,
                leo=leo, record=self.files.record(node, partition, offset, expected=expected)))
        return tuple(copies)

    def skipped(self, evidence: Evidence, partition: int, offset: int) -> tuple[int, Record] | None:
        """A record that the leader's final log has between two reads and that a poll passed over."""
        led, last = leader_of(self.about, partition), last_read_before(evidence.ops, partition, offset)
        if evidence.name not in (names.POLL_SKIP, names.INT_POLL_SKIP) or led is None or last is None:
            return None
        there = ((at, self.files.record(led, partition, at)) for at in range(last + 1, offset)[:OPS])
        return next(((at, record) for at, record in there
                     if record is not None and record.value is not None and record.flaw is None), None)

    # -- what permits it, or might have ---------------------------------------------------------------------

    def acts(self, evidence: Evidence, partition: int) -> tuple[Op | TraceLine, ...]:
        """The acts after the send that permit its loss; for a loss that nothing permits, the acts that lost
        data."""
        cause, since = evidence.found.get("permitted_by"), min((op.index for op in evidence.ops), default=-1)
        later = [(op, op.fault or {}) for op in self.files.nemesis if op.index > since]
        if cause == "fault budget" or (cause is None and evidence.name == names.LOST_WRITE):
            here = set(replicas_of(self.about, partition))
            return tuple(op for op, fault in later
                         if fault.get("lost") is True and here & set(map(str, items(fault, "nodes"))))
        if cause != "unclean.leader.election.enable":
            return ()
        begin = min((op.time for op in evidence.ops), default=None)
        seen = [line for line in self.files.after(1, partition, "elect") if line.fields.get("clean") is False
                and (begin is None or reaches(line, "time", begin))]
        return tuple(seen[:LOSSES]) or tuple(
            op for op, fault in later if fault.get("unclean") is True
            and partition in (items(fault, "partitions") or [partition]))

    # -- its course -----------------------------------------------------------------------------------------

    def course_of(self, evidence: Evidence) -> Course:
        """The course of a finding, for the summary and for the timeline."""
        rivals = self.rivals(evidence)
        times = [time for one in (evidence, *rivals) if (time := since_of(one)) is not None]
        since, until = min(times, default=None), until_of(evidence)
        partition = evidence.partition
        if since is None:
            return Course(evidence=evidence, rivals=rivals, since_ns=None, until_ns=until)
        here = set(replicas_of(evidence.about, partition)) if partition is not None else set()
        acts = [op for op in self.files.nemesis if op.f not in UNSEEN  # what it triggers has its own line
                and (not here or not here.isdisjoint(map(str, items(op.fault or {}, "nodes") or here)))]
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


def last_read_before(ops: Iterable[Op], partition: int, offset: int) -> int | None:
    """The highest offset below this one that the ops read."""
    there = [read.offset for op in ops for read in op.reads or () if read.partition == partition]
    return max((each for each in there if each is not None and each < offset), default=None)


def reaches(line: TraceLine, name: str, least: int) -> bool:
    """Whether the field is a number and at least `least`."""
    number = line.whole_number(name)
    return number is not None and number >= least


def appends(line: TraceLine, offset: int | None) -> bool:
    """Whether the line is an append that has the offset."""
    first, count = line.whole_number("offset"), line.whole_number("count") or 0
    return (line.event == "append" and first is not None and offset is not None
            and first <= offset < first + count)


def leader_of(about: Json, partition: int) -> str | None:
    return text(mapping(mapping(about, "leaders"), str(partition)), "leader") or None


def replicas_of(about: Json, partition: int) -> list[str]:
    return [str(node) for node in items(mapping(mapping(about, "partitions"), str(partition)), "replicas")]


Place = tuple[int, int]  # partition, and an offset or a value

PLACES = 3  # lines named after a finding
# How a record came to be lost.
_CAUSES = frozenset({
    names.UNSAFE_TRUNCATION, names.LEADER_INCOMPLETE, names.CANDIDATE_INCOMPLETE, names.UNSAFE_ISR,
    names.ACK_RULE, names.UNCLEAN_ELECTION, names.RECOVERY_LOSS,
})  # fmt: skip
_AFTER_A_LOSS = _CAUSES | {
    names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS, names.REALTIME_ORDER, names.NONMONOTONIC_SEND,
    names.INT_NONMONOTONIC_SEND, names.DUPLICATE, names.END_OFFSET_REGRESSED, names.NONMONOTONIC_POLL,
    names.INT_NONMONOTONIC_POLL, names.POLL_SKIP, names.INT_POLL_SKIP, names.DIVERGED, names.EPOCH_LINEAGE,
    names.UNDER_REPLICATED, names.HW_REGRESSED, names.READ_ABOVE_HW, names.END_OFFSET_AHEAD,
}  # fmt: skip
OF_ONE_EVENT: Mapping[str, frozenset[str]] = {
    names.LOST_WRITE: _AFTER_A_LOSS,
    names.SAW_THEN_LOST: _AFTER_A_LOSS,
    names.DIVERGED: _CAUSES | {
        names.EPOCH_LINEAGE, names.UNDER_REPLICATED, names.SAW_THEN_LOST, names.HW_REGRESSED},
    names.INCONSISTENT_OFFSETS: frozenset({names.REALTIME_ORDER, names.NONMONOTONIC_SEND}),
    names.MALFORMED_LOG: frozenset({names.UNDER_REPLICATED}),
    names.EPOCH_LINEAGE: frozenset({names.UNDER_REPLICATED}),
    names.UNSAFE_TRUNCATION: frozenset({names.LEADER_INCOMPLETE, names.CANDIDATE_INCOMPLETE}),
    names.LEADER_INCOMPLETE: frozenset({names.CANDIDATE_INCOMPLETE}),
    names.ACK_RULE: frozenset({names.CANDIDATE_INCOMPLETE, names.UNSAFE_ISR}),
    names.UNSAFE_ISR: frozenset({names.CANDIDATE_INCOMPLETE}),
    names.RECOVERY_LOSS: frozenset({names.LEADER_INCOMPLETE, names.CANDIDATE_INCOMPLETE}),
}
_CLAUSES = {  # what a node did with the event's record
    names.UNSAFE_TRUNCATION: "{} truncated it, although it was committed",
    names.LEADER_INCOMPLETE: "{} began to lead without it",
    names.UNCLEAN_ELECTION: "{} was elected uncleanly, which nothing allowed",
    names.CANDIDATE_INCOMPLETE: "{} could have been elected without it",
}
_SKIPS = frozenset({names.POLL_SKIP, names.INT_POLL_SKIP})


@dataclass(slots=True, kw_only=True)
class Event:
    """One thing that happened: the gravest group of findings, and the groups that belong to it."""

    root: Json
    followers: list[Follower] = field(default_factory=list)
    offsets: set[Place]
    values: set[Place]
    lines: set[int]  # of the trace, from 0


def group_findings(gathering: Gathering, findings: Sequence[Json]) -> list[Event]:
    """The events; findings must be in order, the gravest first."""
    events: list[Event] = []
    for found in findings:
        event = next((event for event in events if belongs_to(gathering, event, found)), None)
        if event is None:
            examples = examples_of(found)
            offsets, values = ({(partition, number) for one in examples
                                if (partition := int_in(one, "partition")) is not None
                                and (number := int_in(one, key)) is not None} for key in ("offset", "value"))
            lines = {line for one in examples if (line := int_in(one, "event")) is not None}
            events.append(Event(root=found, offsets=offsets, values=values, lines=lines))
        else:
            event.followers.append(Follower(found=found, clause=clause(found), places=places(found)))
    return events


def belongs_to(gathering: Gathering, event: Event, found: Json) -> bool:
    root, examples = event.root, examples_of(found)
    if found["name"] not in OF_ONE_EVENT.get(root["name"], ()) or not examples:
        return False
    return all(found.get(key) == root.get(key) for key in ("class", "permitted_by")) and all(
        is_about(gathering, event, str(found["name"]), example) for example in examples)


def is_about(gathering: Gathering, event: Event, name: str, example: Json) -> bool:
    """Whether an example of a finding called `name` is about the event's record, place or line."""
    files = gathering.files
    partition, offset, value, number = (
        int_in(example, key) for key in ("partition", "offset", "value", "event"))
    if partition is None:
        return False
    if number in event.lines or (partition, offset) in event.offsets or (partition, value) in event.values:
        return True
    line = None if number is None else files.event(number + 1)
    if name == names.UNCLEAN_ELECTION and line is not None and is_election(files, line, event):
        return True
    if name in _SKIPS and offset is not None:
        return passed_over(files, example, partition, offset, event)
    if offset is not None and is_one_more(gathering, event, example, partition, offset):
        return True
    return line is not None and any(of == partition and removes(line, each) for of, each in event.offsets)


def is_one_more(gathering: Gathering, event: Event, example: Json, partition: int, offset: int) -> bool:
    """Whether the files show that the place is one of those of the event that are not named: only the first
    are."""
    if event.root["count"] <= len(examples_of(event.root)) or (partition, offset) <= max(
            event.offsets, default=(MOST, 0)):
        return False
    files, led = gathering.files, leader_of(gathering.about, partition)
    lines = filter(None, (files.event(number + 1) for number in event.lines))
    if any(line.whole_number("partition") == partition and removes(line, offset) for line in lines):
        return True
    if event.root["name"] == names.DIVERGED:
        records = (files.record(node, partition, offset) for node in replicas_of(gathering.about, partition))
        return len({(record.epoch, record.value) for record in records if record is not None}) > 1
    if event.root["name"] not in OF_A_LOSS or led is None or not files.readable(led):
        return False
    record, log_start = (files.record(led, partition, offset),
                         int_in(files.replicas.get((led, partition), {}), "log_start"))
    if record is None:
        return log_start is not None and log_start <= offset
    known = [(int_in(example, "value"), record.value), (int_in(example, "epoch"), record.epoch)]
    return any(was is not None and was != now for was, now in known)


def is_election(files: RunFiles, line: TraceLine, event: Event) -> bool:
    """Whether a line of the trace is the election of the leader that one of the event's lines names."""
    chosen = [line.fields.get(key) for key in ("leader", "epoch", "partition")]
    roles = filter(None, (files.event(number + 1) for number in event.lines))
    return line.event == "elect" and any(
        chosen == [role.fields.get(key) for key in ("node", "epoch", "partition")]
        for role in roles if role.event == "become_leader")


def passed_over(files: RunFiles, example: Json, partition: int, offset: int, event: Event) -> bool:
    """Whether all offsets that a consumer passed over belong to the event: what is lost cannot be read."""
    ops = [files.op(index) for index in items(example, "ops") if type(index) is int]
    last = last_read_before(filter(None, ops), partition, offset)
    return last is not None and offset - last <= len(event.offsets) + 1 and all(
        (partition, each) in event.offsets for each in range(last + 1, offset))


# -- text ---------------------------------------------------------------------------------------------------


def clause(found: Json) -> str:
    """A clause that says what the finding is about the event's record."""
    examples = examples_of(found)
    nodes = sorted({str(node) for example in examples for node in items(example, "nodes")})
    if found["name"] in _CLAUSES and nodes:
        return _CLAUSES[found["name"]].format(listed(nodes))
    sentence = text_of(examples[0]) if examples else ""
    sentence = sentence.split("; ")[0] if found["name"] == names.SAW_THEN_LOST else sentence
    return without_lines(sentence).rstrip(".")


def places(found: Json) -> str:
    """`trace.jsonl:58, 64`: the lines to blame; if there are none, the clients' ops. For examples whose blame
    is on an earlier line, `n1, seq 58; n2, seq 64`: the lines that show them."""
    examples = examples_of(found)
    own = [f"{line['node']}, seq {line['seq']}" for example in examples
           if knows_blame(example) and (line := example["blame"].get("shown_by"))]
    events = {line + 1 for example in examples
              if not knows_blame(example) and (line := int_in(example, "event")) is not None}
    ops = {index + 1 for example in examples[:1] for index in items(example, "ops") if type(index) is int}
    in_trace = found["name"] in _CAUSES and bool(events or own)
    file, numbers = (TRACE, events) if in_trace else (HISTORY, ops)
    lines = first_few(map(str, sorted(numbers)))
    return "; ".join([*([f"{file}:{', '.join(lines)}"] if lines else []), *first_few(dict.fromkeys(own))])


def first_few(names: Iterable[str]) -> list[str]:
    every = list(names)
    return [*every[:PLACES], *(["..."] if len(every) > PLACES else [])]
