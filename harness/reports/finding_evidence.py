"""Gathers what a run's files show of one finding: who acked it, who had it, who has it now, what came
between.

Theory. An example of a finding names a place (partition, offset), a value, lines of the history, a line of
the trace; here they are looked up, and what lies around them: the leader's ack of that send, the appends
before it, the final logs at that offset, what took a copy away since, and, for what is permitted, the acts
that permit it.

Rules
1. Evidence is what a line says. Where two lines could be meant, or a window was cut, nothing is claimed.
2. All of it is optional: a run without a trace, or with files missing, gives less.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.op import Op, Send, Type
from floodmark.harness.reports.line_search import Found
from floodmark.harness.reports.run_files import Record, RunFiles
from floodmark.harness.reports.trace_text import TraceLine

Json = Mapping[str, Any]  # an object of run.json or verdict.json

OPS = 6  # that a finding names, at most looked up
FATES = 4  # copies that went
OF_A_RECORD = (  # findings about what stands, or does not, at an offset
    names.LOST_WRITE, names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS, names.DIVERGED, names.UNDER_REPLICATED,
    names.EPOCH_LINEAGE, names.UNSEEN, names.DUPLICATE, names.PHANTOM, names.G1A, names.LEADER_INCOMPLETE,
    names.CANDIDATE_INCOMPLETE, names.UNSAFE_TRUNCATION, names.ACK_RULE, names.MALFORMED_LOG,
)  # fmt: skip
OF_AN_ENTRY = ("gap", "doubled", "disordered", "crc")  # how a log is none, that an entry of it shows
OF_A_LOSS = (names.LOST_WRITE, names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acker:
    """The line of the trace by which a send was acked."""

    line: TraceLine
    holders: tuple[str, ...] | None  # who had appended the record by then; None: nobody knows
    index: int | None  # of the op; None: of nobody's in particular


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What a replica holds at the finding's offset in the end."""

    node: str
    leads: bool
    readable: bool  # its dump is there
    record: Record | None
    begins: int | None = None  # its log start and LEO, by its own word
    ends: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One example of one group of findings, with all that the files tell of it."""

    found: Json  # the group, as verdict.json has it
    example: Json
    about: Json  # run.json
    ops: tuple[Op, ...] = ()  # that the finding names, in its order
    ackers: tuple[Acker, ...] = ()
    copies: tuple[Copy, ...] = ()
    event: TraceLine | None = None
    fates: tuple[TraceLine, ...] = ()  # what took copies away after the ack
    acts: tuple[Op | TraceLine, ...] = ()  # the faults and elections that permit it, or might have
    perhaps: bool = False  # permitted, but nobody saw for certain
    traced: bool = False
    elections: tuple[TraceLine, ...] = ()  # of logs that part, all; of an end that fell, those in between
    skipped: tuple[int, Record] | None = None  # of a poll-skip: a record it passed over, by offset

    @property
    def name(self) -> str:
        return str(self.found["name"])

    def number(self, key: str) -> int | None:
        """An integer of the example."""
        value = self.example.get(key)
        return value if type(value) is int else None

    @property
    def nodes(self) -> list[str]:
        """Those that the example names."""
        return [str(node) for node in listed(self.example.get("nodes"))]

    def concerns(self, partition: int, offset: int | None, value: int | None) -> bool:
        """Whether a send or read is of the finding's record, or at its place."""
        if partition != self.number("partition"):
            return False
        return (value is not None and value == self.number("value")) or (
            offset is not None and offset == self.number("offset"))


@dataclass(slots=True, kw_only=True)
class Gathering:
    """One run's evidence; what several findings need is looked up once."""

    files: RunFiles
    about: Json
    unknown: Sequence[Json] = ()
    _ackers: dict[tuple[int, int, int], tuple[tuple[Found, Acker], ...]] = field(default_factory=dict)
    _fates: dict[tuple[int, int, int], tuple[TraceLine, ...]] = field(default_factory=dict)

    def of(self, found: Json, example: Json) -> Evidence:
        """All that the files tell of this example."""
        evidence = Evidence(
            found=found, example=example, about=self.about, traced=self.files.trace.size() > 0,
            perhaps=is_perhaps(found, self.unknown),
        )
        evidence = replace(evidence, copies=self.copies(evidence))
        evidence = replace(evidence, ops=self.ops(evidence))
        event = self.event(evidence)
        evidence = replace(evidence, event=None if event is None else event[1])
        ackers = list(self.ackers(evidence))
        if not ackers and event is not None and not evidence.ops:
            ackers = self.acked_before(evidence, *event)
        evidence = replace(evidence, ackers=tuple(line for _, line in ackers))
        return replace(
            evidence, fates=self.fates(evidence, ackers), acts=self.acts(evidence),
            skipped=self.skipped(evidence), elections=self.elections(evidence),
        )

    # -- the history ----------------------------------------------------------------------------------------

    def ops(self, evidence: Evidence) -> tuple[Op, ...]:
        """The ops that the example names; where it names none, the send of its record."""
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

    def ackers(self, evidence: Evidence) -> Iterable[tuple[Found, Acker]]:
        """The lines by which the acked sends were acked."""
        if not evidence.traced:
            return
        for op in evidence.ops:
            send = next((send for send in op.sends or () if send.offset is not None and (
                evidence.concerns(send.partition, send.offset, send.value))), None)
            invoked = self.files.invocation(op) if send is not None and op.type is Type.OK else None
            if send is None or invoked is None:
                continue
            key = op.index, send.partition, send.value
            if key not in self._ackers:
                self._ackers[key] = tuple(self.acker(op, invoked, send))
            yield from self._ackers[key]

    def acker(self, op: Op, invoked: Op, send: Send) -> Iterable[tuple[Found, Acker]]:
        """The one line of the trace that acked this send, if it is one."""
        assert send.offset is not None
        error = self.about.get("clock_error_ns")
        slack = error if type(error) is int else 0
        window = self.files.between(
            invoked.time - slack, op.time + slack, send.partition, "ack", "append")
        firsts: dict[tuple[str, int | None], tuple[Found, TraceLine]] = {}
        for found, line in window.lines:
            whose = line.word("node"), line.whole_number("epoch")
            fits = line.event == "ack" and reaches(line, "offset", send.offset)
            if fits and send.epoch in (None, whose[1]):
                firsts.setdefault(whose, (found, line))
        if len(firsts) != 1 or not window.whole:
            return
        (found, line), = firsts.values()
        earlier = [each for at, each in window.lines if at.begin < found.begin]
        numbered = self.files.numbered(found, line.fields)
        yield found, Acker(line=numbered, holders=holders(earlier, send.offset), index=op.index)

    def acked_before(self, evidence: Evidence, found: Found, event: TraceLine) -> list[tuple[Found, Acker]]:
        """Of a record that only the trace knows: the first ack of it or of what came behind it."""
        partition, offset = evidence.number("partition"), evidence.number("offset")
        if partition is None or offset is None or evidence.name not in names.GUILTY or event.event == "ack":
            return []
        epoch = evidence.number("epoch")
        window = self.files.before(found, partition, "ack", "append")
        acks = [(at, line) for at, line in window.lines
                if line.event == "ack" and reaches(line, "offset", offset)
                and (epoch is None or reaches(line, "epoch", epoch))]
        if not acks or not window.whole:
            return []
        at, line = acks[0]
        earlier = [each for each_at, each in window.lines if each_at.begin < at.begin]
        return [(at, Acker(line=self.files.numbered(at, line.fields), holders=holders(earlier, offset),
                           index=None))]

    def fates(self, evidence: Evidence, ackers: Sequence[tuple[Found, Acker]]) -> tuple[TraceLine, ...]:
        """What took the copies of a lost record away: of each holder the first cut, or start without it."""
        partition, offset = evidence.number("partition"), evidence.number("offset")
        if evidence.name not in OF_A_LOSS or not ackers or partition is None or offset is None:
            return ()
        at, acker = ackers[0]
        key = partition, offset, at.begin
        if key not in self._fates:
            self._fates[key] = tuple(self._lost_copies(partition, offset, at, acker.holders or ()))
        return self._fates[key]

    def _lost_copies(
        self, partition: int, offset: int, at: Found, had_it: tuple[str, ...]
    ) -> Iterable[TraceLine]:
        firsts: dict[str, tuple[Found, TraceLine]] = {}
        for word in ("truncate", "start"):
            left = set(had_it)
            for found, line in self.files.after(at.begin, partition, word) if left else ():
                node, end = line.word("node"), line.whole_number("to" if word == "truncate" else "leo")
                if node in left and end is not None and end <= offset:
                    left.discard(node)
                    if node not in firsts or found.begin < firsts[node][0].begin:
                        firsts[node] = found, line
                if not left:
                    break
        for found, line in sorted(firsts.values(), key=lambda each: each[0].begin)[:FATES]:
            yield self.files.numbered(found, line.fields)

    def elections(self, evidence: Evidence) -> tuple[TraceLine, ...]:
        """Those that the finding may be a case of."""
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
        """What each replica holds at the offset in the end."""
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
        begins, ends = (value if type(value) is int else None for value in (
            row.get("log_start"), row.get("leo")))
        expected = (begins is None or begins <= offset) and (ends is None or offset < ends)
        return Copy(
            node=node, leads=leads, readable=self.files.readable(node), begins=begins, ends=ends,
            record=self.files.record(node, partition, offset, expected=expected),
        )

    def skipped(self, evidence: Evidence) -> tuple[int, Record] | None:
        """A record of this run that the leader's final log holds between two reads."""
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
        """After the send: what permits its loss; of a loss that nothing permits, what took data."""
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
        return tuple(seen[:FATES]) or asked


def is_perhaps(found: Json, unknown: Sequence[Json]) -> bool:
    """Whether the judge says that it may be otherwise: then the name and its cause are among the unknown."""
    cause = found.get("permitted_by")
    return cause is not None and any(
        found["name"] in entry["names"] and f"whether {cause} covers" in str(entry["reason"])
        for entry in unknown)


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def written(evidence: Evidence) -> int | None:
    """The value of the record of the example's epoch, if some log still has it."""
    epoch = evidence.number("epoch")
    records = [copy.record for copy in evidence.copies if copy.record is not None]
    return next((one.value for one in records if epoch is not None and one.epoch == epoch), None)


def reaches(line: TraceLine, name: str, least: int) -> bool:
    """Whether the field is a number, and not below that."""
    number = line.whole_number(name)
    return number is not None and number >= least


def holders(lines: Iterable[TraceLine], offset: int) -> tuple[str, ...]:
    """Who has appended the offset in these lines."""
    nodes: dict[str, None] = {}
    for line in lines:
        first, count = line.whole_number("offset"), line.whole_number("count")
        if line.event == "append" and first is not None and count is not None and (
                first <= offset < first + count):
            nodes[line.word("node")] = None
    return tuple(sorted(nodes))


def leader_of(about: Json, partition: int) -> str | None:
    leader = mapping(mapping(about.get("leaders")).get(str(partition))).get("leader")
    return leader if isinstance(leader, str) else None


def replicas_of(about: Json, partition: int) -> list[str]:
    described = mapping(mapping(about.get("partitions")).get(str(partition)))
    return [str(node) for node in listed(described.get("replicas"))]


def concerned(op: Op, partition: int) -> bool:
    """Whether an election that was asked for was of this partition."""
    fault = op.fault or {}
    partitions = fault.get("partitions", fault.get("partition"))
    return partitions is None or partition in (partitions if isinstance(partitions, list) else [partitions])
