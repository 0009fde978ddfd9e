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
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.blame_words import knows_blame
from floodmark.checkers.text.words import without_lines
from floodmark.harness.faults import UNSEEN
from floodmark.harness.op import Op, Read, Send, Type
from floodmark.harness.report.model import (
    HISTORY,
    TRACE,
    Account,
    AckEvent,
    Copy,
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
from floodmark.harness.verdict import BUG

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
_SKIPS = frozenset({names.POLL_SKIP, names.INT_POLL_SKIP})
OF_A_LOSS = (names.LOST_WRITE, names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS)


@dataclass(kw_only=True, eq=False)
class Evidence:
    """One example of one group of findings, with everything that the files show about it. What has to be
    looked up is looked up when it is first asked for."""

    files: RunFiles
    about: Json  # run.json
    unknown: Sequence[Json] = ()  # of the verdict
    found: Json  # the group, as verdict.json has it
    example: Json

    def __post_init__(self) -> None:
        self.name, self.is_bug = str(self.found["name"]), bool(self.found["class"] == BUG)
        self.partition, self.offset, self.value, self.epoch, self.line = (
            int_in(self.example, key) for key in ("partition", "offset", "value", "epoch", "event"))
        self.nodes = [str(node) for node in items(self.example, "nodes")]
        # The lines of the history that the example names, from 0.
        self.indexes = [index for index in items(self.example, "ops") if type(index) is int]
        self.event = None if self.line is None else self.files.event(self.line + 1)
        self.replicas = [] if self.partition is None else replicas_of(self.about, self.partition)
        self.leader = None if self.partition is None else leader_of(self.about, self.partition)
        self.clock_error_ns = int_in(self.about, "clock_error_ns") or 0

    def concerns(self, record: Send | Read) -> bool:
        """Whether a send or read is about the finding's record, or at its offset."""
        return record.partition == self.partition and (
            (record.value is not None and record.value == self.value)
            or (record.offset is not None and record.offset == self.offset))

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """The ops that the example names, in its order; if it names none, the send of its record."""
        if self.indexes:
            return tuple(op for op in map(self.files.op, self.indexes[:OPS]) if op is not None)
        written = [copy.record.value for copy in self.copies if copy.record is not None
                   and self.epoch is not None and copy.record.epoch == self.epoch]
        value = next(iter(written), None) if self.value is None else self.value
        if self.partition is None or value is None or self.name == names.PHANTOM:
            return ()
        return self.files.send_of(self.partition, value)

    @property
    def conclusive_ops(self) -> list[Op]:
        """The ops worth a sentence: completions, and invocations without one; for realtime-order all."""
        ended = {op.process for op in self.ops if op.type is not Type.INVOKE}
        return [op for op in self.ops if self.name == names.REALTIME_ORDER or op.type is not Type.INVOKE
                or op.process not in ended]

    @property
    def perhaps(self) -> str:
        """The judge's reason, if it is permitted without proof."""
        doubt = f"whether {self.found.get('permitted_by')} covers"
        return next((reason for entry in self.unknown if self.name in entry["names"]
                     and doubt in (reason := str(entry["reason"]))), "")

    # -- the trace ------------------------------------------------------------------------------------------

    @cached_property
    def ack_events(self) -> tuple[AckEvent, ...]:
        """The line of the trace that acked each acked send among the ops, if exactly one fits. For a record
        that only the trace knows: the first ack of it or of a later record."""
        acks: list[AckEvent] = []
        event, offset = self.event, self.offset
        if self.partition is None or not self.files.trace.begins:
            return ()
        for op in self.ops:
            send = next((send for send in op.sends or ()
                         if send.offset is not None and self.concerns(send)), None)
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
                acks += [self._acked_at(line, window, send.offset, op.index) for line in firsts.values()]
        if (self.ops or offset is None or event is None or event.event == "ack"
                or self.name not in names.GUILTY):
            return tuple(acks)
        window = self.files.before(event, self.partition, "ack", "append")
        return tuple(self._acked_at(line, window, offset, None) for line in [
            line for line in window if line.event == "ack" and reaches(line, "offset", offset)
            and (self.epoch is None or reaches(line, "epoch", self.epoch))][:1])

    def _acked_at(
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

    @cached_property
    def copy_losses(self) -> tuple[TraceLine, ...]:
        """For each node that had a lost record, its first truncation or start without it after the ack."""
        if self.name not in OF_A_LOSS or self.offset is None or not self.ack_events:
            return ()
        ack, firsts = self.ack_events[0], dict[str, TraceLine]()
        for word, key_of_end in (("truncate", "to"), ("start", "leo")):
            left = set(ack.appended_by or ())
            for line in self.files.after(ack.line.number, self.partition, word) if left else ():
                node, end = line.name_in("node"), line.whole_number(key_of_end)
                if node in left and end is not None and end <= self.offset:
                    left.discard(node)
                    firsts[node] = min(line, firsts.get(node, line), key=NUMBER)
                if not left:
                    break
        return tuple(sorted(firsts.values(), key=NUMBER)[:LOSSES])

    @cached_property
    def elections(self) -> tuple[TraceLine, ...]:
        """The elections that may have caused it; of `end-offset-regressed` those in between."""
        times, lines = [op.time for op in self.ops], list[TraceLine]()
        if self.name == names.DIVERGED and self.partition is not None:
            lines = self.files.changes(0, None, self.partition)
        elif self.name == names.END_OFFSET_REGRESSED and self.partition is not None and times:
            lines = self.files.changes(min(times), max(times), self.partition)
        return tuple(line for line in lines if line.event == "elect")

    # -- the logs -------------------------------------------------------------------------------------------

    @cached_property
    def copies(self) -> tuple[Copy, ...]:
        """What each replica's final log has at the offset."""
        partition, offset = self.partition, self.offset
        is_flaw = self.name == names.MALFORMED_LOG and self.example.get("how") not in OF_AN_ENTRY
        if self.name not in OF_A_RECORD or is_flaw or partition is None or offset is None or offset < 0:
            return ()
        copies = []
        for node in self.replicas:
            row = self.files.replicas.get((node, partition), {})
            log_start, leo = int_in(row, "log_start"), int_in(row, "leo")
            expected = (log_start is None or log_start <= offset) and (leo is None or offset < leo)
            copies.append(Copy(
                node=node, leads=node == self.leader, readable=self.files.readable(node), leo=leo,
                log_start=log_start, record=self.files.record(node, partition, offset, expected=expected)))
        return tuple(copies)

    @cached_property
    def skipped(self) -> tuple[int, Record] | None:
        """Of a poll-skip: a record of the leader's final log that was passed over, with its offset."""
        if self.name not in _SKIPS or self.offset is None or self.partition is None or self.leader is None:
            return None
        for at in self.passed_over[:OPS]:
            record = self.files.record(self.leader, self.partition, at)
            if record is not None and record.value is not None and record.flaw is None:
                return at, record
        return None

    @property
    def passed_over(self) -> range:
        """The offsets between this one and the highest one below it that the ops read; empty: none did."""
        reads = [read.offset for op in self.ops for read in op.reads or ()
                 if read.partition == self.partition]
        offset = self.offset or 0
        last = max((each for each in reads if each is not None and each < offset), default=offset)
        return range(last + 1, offset)

    # -- what permits it, or might have ---------------------------------------------------------------------

    @cached_property
    def acts(self) -> tuple[Op | TraceLine, ...]:
        """The acts after the send that permit its loss; if nothing does, those that lost data."""
        cause, since = self.found.get("permitted_by"), min((op.index for op in self.ops), default=-1)
        later = [(op, op.fault or {}) for op in self.files.nemesis if op.index > since]
        if cause == "fault budget" or (cause is None and self.name == names.LOST_WRITE):
            return tuple(op for op, fault in later if fault.get("lost") is True
                         and {*self.replicas} & set(map(str, items(fault, "nodes"))))
        if cause != "unclean.leader.election.enable" or self.partition is None:
            return ()
        begin = min((op.time for op in self.ops), default=None)
        seen = [line for line in self.files.after(1, self.partition, "elect")
                if line.fields.get("clean") is False and (begin is None or reaches(line, "time", begin))]
        return tuple(seen[:LOSSES]) or tuple(
            op for op, fault in later if fault.get("unclean") is True
            and self.partition in (items(fault, "partitions") or [self.partition]))

    # -- its course -----------------------------------------------------------------------------------------

    @cached_property
    def promised_ns(self) -> int | None:
        """The time of the promise; if no op leads to the event, a little before it."""
        lines = [one.line for one in self.ack_events[:1]]
        times = [time for line in lines if (time := line.whole_number("time")) is not None]
        times += [op.time for op in self.conclusive_ops]
        event = None if self.event is None else self.event.whole_number("time")
        return min(times, default=None if event is None else event - BEFORE_NS)

    @cached_property
    def rivals(self) -> Sequence["Evidence"]:
        """Of logs that differ at an offset: the evidence of each record there that was acked, in order."""
        if self.name not in (names.DIVERGED, names.EPOCH_LINEAGE):
            return ()
        values = {copy.record.value for copy in self.copies if copy.record is not None
                  and copy.record.value is not None}
        rivals = [one for value in sorted(values) if (one := replace(self, example={
            **self.example, "value": value, "ops": []})).promised_ns is not None and one.conclusive_ops]
        return sorted(rivals, key=lambda one: one.promised_ns or 0)

    @cached_property
    def since_ns(self) -> int | None:
        """When its event began, with the first promise; None: unknown."""
        return min((one.promised_ns for one in (self, *self.rivals) if one.promised_ns is not None),
                   default=None)

    @cached_property
    def until_ns(self) -> int | None:
        """The time when the last copy was lost, or of the line to blame, or of the last op named; None: the
        run's end, or unknown."""
        if self.name in OF_A_LOSS and not self.copy_losses:
            return None
        if self.name in names.GUILTY and self.example.get("blame"):
            return None  # the line to blame is earlier than the lines that show the finding
        lines = [*self.copy_losses, *([self.event] if self.event is not None else [])]
        times = [time for line in lines if (time := line.whole_number("time")) is not None]
        return max(times, default=max((op.time for op in self.ops[1:]), default=None))

    @property
    def promised(self) -> bool:
        """Whether a client got an answer, with which that time begins."""
        return self.since_ns is not None and bool(self.rivals or self.ack_events or self.conclusive_ops)

    @cached_property
    def changes(self) -> Sequence[TraceLine]:
        """The trace's truncations, elections and ISR changes in that time."""
        return () if self.since_ns is None or self.partition is None else self.files.changes(
            self.since_ns, self.until_ns, self.partition)

    def strikes(self, *, before: bool = False) -> list[Op]:
        """The acts of the nemesis on its replicas that began in that time, or before it."""
        here, since, until = {*self.replicas}, self.since_ns, self.until_ns
        acts = [op for op in self.files.nemesis if op.f not in UNSEEN  # what it triggers has its own line
                and (not here or not here.isdisjoint(map(str, items(op.fault or {}, "nodes") or here)))]
        return [] if since is None else [
            op for op in acts if (began(op) < since if before else
                                  since <= began(op) and (until is None or began(op) <= until))]


def began(op: Op) -> int:
    """The time when an act of the nemesis began: its effects come after that, its line at its end."""
    value = (op.fault or {}).get("began")
    return value if type(value) is int and 0 <= value <= op.time else op.time


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


def group_findings(groups: Iterable[tuple[Json, Sequence[Evidence]]]) -> list[Account]:
    """The events of groups with their examples, which must be in order, the gravest first."""
    events: list[Account] = []
    for found, examples in groups:
        at = next((
            at for at, event in enumerate(events)
            if examples and found["name"] in OF_ONE_EVENT.get(event.name, ()) and all(
                found.get(key) == event.found.get(key) for key in ("class", "permitted_by"))
            and all(is_about(event, one) for one in examples)), None)
        if at is None:
            events.append(Account(found=found, examples=examples))
        else:
            follower = Follower(found=found, clause=clause(found), places=places(found))
            events[at] = replace(events[at], followers=(*events[at].followers, follower))
    return events


def is_about(event: Account, one: Evidence) -> bool:
    """Whether an example of another finding is about the event's record, place or line."""
    partition, offset, line, placed = one.partition, one.offset, one.event, event.examples
    if partition is None:
        return False
    offsets = {(each.partition, each.offset) for each in placed if None not in (each.partition, each.offset)}
    if (one.line is not None and one.line in [each.line for each in placed]) or (
            partition, offset) in offsets or (one.value is not None and (partition, one.value) in [
            (each.partition, each.value) for each in placed]):
        return True
    if one.name == names.UNCLEAN_ELECTION and line is not None and line.event == "elect":
        # The election of the leader that one of the event's lines names.
        roles = [role.fields for each in placed if (role := each.event) is not None
                 and role.event == "become_leader"]
        if [line.fields.get(key) for key in ("leader", "epoch", "partition")] in [
                [role.get(key) for key in ("node", "epoch", "partition")] for role in roles]:
            return True
    if one.name in _SKIPS and offset is not None:  # what is lost cannot be read
        return bool(one.passed_over) and all((partition, each) in offsets for each in one.passed_over)
    if offset is not None and is_one_more(event, one, offset):
        return True
    return line is not None and any(
        each.offset is not None and each.partition == partition and removes(line, each.offset)
        for each in placed)


def is_one_more(event: Account, one: Evidence, offset: int) -> bool:
    """Whether the files show that the place is one of the event, which names only its first places."""
    named = [(each.partition, each.offset) for each in event.examples
             if each.partition is not None and each.offset is not None]
    partition, led = one.partition, one.leader
    if partition is None or event.found["count"] <= len(event.examples) or not named or (
            partition, offset) <= max(named):
        return False
    lines = [each.event for each in event.examples if each.event is not None]
    if any(line.whole_number("partition") == partition and removes(line, offset) for line in lines):
        return True
    if event.found["name"] == names.DIVERGED:
        records = (one.files.record(node, partition, offset) for node in one.replicas)
        return len({(record.epoch, record.value) for record in records if record is not None}) > 1
    if event.found["name"] not in OF_A_LOSS or led is None or not one.files.readable(led):
        return False
    record = one.files.record(led, partition, offset)
    if record is None:
        log_start = int_in(one.files.replicas.get((led, partition), {}), "log_start")
        return log_start is not None and log_start <= offset
    return any(was is not None and was != now for was, now in (
        (one.value, record.value), (one.epoch, record.epoch)))


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
