"""Chooses a finding's steps for the HTML report: four to eight lines of trace and history, as sentences.

Rules
1. A step's sentence is that of `show` for the same line (trace_text.py, finding_narrative.py, phrases.py).
2. `candidates` proposes steps with weights: the finding's ack, the line to blame, the loss of each copy, the
   election of a leader without the record, the record in its place; then the faults before the line to blame.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.explain import EXPLANATIONS
from floodmark.checkers.text.semantics import FACTS
from floodmark.harness.op import Op
from floodmark.harness.report.finding_evidence import began
from floodmark.harness.report.finding_narrative import meaning, relevant_facts
from floodmark.harness.report.html.spans import DOWN
from floodmark.harness.report.html.traced import Shown
from floodmark.harness.report.model import Course, Evidence, TraceLine, int_in, text
from floodmark.harness.report.phrases import Record, fault_text, seconds
from floodmark.harness.report.record_story import short
from floodmark.harness.report.trace_text import clause_of

STEPS, FEW = 8, 4
CURES = {  # how Kafka's protocol avoids it today, by the step's event
    "high-watermark": "Since KIP-101 a follower asks the leader where its last epoch ended "
    "(OffsetsForLeaderEpoch) and truncates only what comes after that.",
    "unclean": "A clean election chooses from the ISR; if none of its members is alive, the partition waits.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One of the instants that matter for a finding."""

    time_ns: int
    name: str
    sentence: str
    weight: int  # the lower, the more it matters
    number: int | None = None  # of its line in the trace, from 1
    index: int | None = None  # of its line in the history, from 0
    cure: str = ""


def steps_of(course: Course, shown: Shown | None) -> list[Step]:
    """The steps that matter most, at most STEPS, in the order of time."""
    found: dict[tuple[str, int | None], Step] = {}
    for step in candidates(course, shown):
        key = ("trace", step.number) if step.number is not None else ("history", step.index)
        if key not in found or step.weight < found[key].weight:
            found[key] = step
    for line in partition_events(shown) if shown is not None and len(found) < FEW else ():
        found.setdefault(("trace", line.number), step_of(course.evidence, line, name_of(line), 5))
    chosen = sorted(found.values(), key=lambda step: (step.weight, step.time_ns))[:STEPS]
    return sorted(chosen, key=lambda step: (step.time_ns, step.number or 0))


def partition_events(shown: Shown) -> Iterator[TraceLine]:
    """Yields the partition's role changes and truncations, for a finding with few steps of its own."""
    for event in ("elect", "truncate", "become_leader", "start"):
        yield from of_the_event(shown, event)


def candidates(course: Course, shown: Shown | None) -> Iterator[Step]:
    evidence, blamed = course.evidence, course.evidence.event
    for rival in (evidence, *course.rivals):
        for ack_event in rival.ack_events[:1]:
            yield step_of(evidence, ack_event.line, "acked", 0)
    if blamed is not None:
        yield step_of(evidence, blamed, name_of(blamed), 0)
    for line in evidence.copy_losses:
        yield step_of(evidence, line, name_of(line), 1)
    for line in course.changes:
        began_there = line.event == "become_leader" and blamed is not None and line.node == blamed.node
        if line.event == "elect":
            yield step_of(evidence, line, name_of(line), 2)
        elif line.event == "truncate" or began_there:
            yield step_of(evidence, line, name_of(line), 3)
    if shown is not None:
        for line in appends_there(evidence, shown):
            yield step_of(evidence, line, f"{line.node} appends there", 1)
    if shown is not None and not evidence.ack_events:
        yield from (step_of(evidence, line, name_of(line), 3) for line in of_the_event(shown, "elect"))
    if shown is not None and (line_over := overwriting(evidence, shown)) is not None:
        yield step_of(evidence, line_over, f"{line_over.node} appends there", 2)
    before = [
        op for op in course.strikes if blamed is None or began(op) <= (blamed.whole_number("time") or 0)
    ]
    for op in before[-6:]:
        yield Step(
            time_ns=began(op),
            name=short(op),
            weight=2 if op.f in DOWN else 4,
            index=op.index,
            sentence=f"At {seconds(began(op))} the nemesis: {fault_text(op)} (history.jsonl:{op.index + 1}).",
        )
    if not evidence.ack_events:
        yield from (op_step(op) for op in evidence.ops[:3])


def op_step(op: Op) -> Step:
    """The step of a client's op, for what no line of the trace shows."""
    records: list[Record] = [*(op.sends or ()), *(op.reads or ())]
    outcome = f"{records[0].value} at offset {records[0].offset}" if records else op.f
    return Step(
        time_ns=op.time,
        name=f"{op.f} {op.type}",
        weight=2,
        index=op.index,
        sentence=f"At {seconds(op.time)} process {op.process}: {op.f} {op.type}, {outcome} "
        f"(history.jsonl:{op.index + 1}).",
    )


def step_of(evidence: Evidence, line: TraceLine, name: str, weight: int) -> Step:
    sentence = f"{clause_of(line)}{meaning(evidence, line)}."
    return Step(
        time_ns=line.whole_number("time") or 0,
        name=name,
        weight=weight,
        number=line.number,
        sentence=sentence[:1].upper() + sentence[1:],
        cure=cure_of(evidence, line),
    )


def cure_of(evidence: Evidence, line: TraceLine) -> str:
    """How the protocol avoids this; for the line to blame at least the law that it broke; else empty."""
    if line.event == "truncate" and line.fields.get("cause") == "hw":
        return CURES["high-watermark"]
    if line.event == "elect" and line.fields.get("clean") is False:
        return CURES["unclean"]
    blamed = evidence.event
    if blamed is None or blamed.number != line.number:
        return ""
    fact = next(relevant_facts(evidence), None)
    explained = EXPLANATIONS.get(evidence.name)
    return FACTS[fact].holds if fact is not None else f"{explained.law}." if explained is not None else ""


def name_of(line: TraceLine) -> str:
    """A short name for a step's button: `n3 truncates`."""
    node = line.name_in("node")
    if line.event == "elect":
        leader = line.fields.get("leader")
        return f"{leader} is elected" if leader else "no leader is left"
    return {
        "truncate": f"{node} truncates",
        "become_leader": f"{node} begins to lead",
        "become_follower": f"{node} follows {line.name_in('leader')}",
        "start": f"{node} starts",
        "ack": f"{node} acks",
        "isr": "the ISR changes",
        "append": f"{node} appends",
        "hw": f"{node} moves its HW",
    }.get(line.event, f"{node}: {line.event}")


def appends_there(evidence: Evidence, shown: Shown) -> Iterator[TraceLine]:
    """Yields, for logs that differ, the appends at the offset, one for each node and epoch."""
    offset, seen = evidence.number("offset"), set[tuple[str, int | None]]()
    if evidence.name not in (names.DIVERGED, names.EPOCH_LINEAGE, names.TWO_LEADERS) or offset is None:
        return
    for line in of_the_event(shown, "append"):
        first, count = line.whole_number("offset"), line.whole_number("count")
        whose = line.name_in("node"), line.whole_number("epoch")
        if first is not None and count is not None and first <= offset < first + count and whose not in seen:
            seen.add(whose)
            yield line


def of_the_event(shown: Shown, event: str) -> Iterator[TraceLine]:
    """Yields the partition's lines of that event."""
    yield from (TraceLine(number=number, fields=line) for number, line in shown.events
                if text(line, "event") == event)  # fmt: skip


def overwriting(evidence: Evidence, shown: Shown) -> TraceLine | None:
    """The first append of a later epoch at the offset of an acked record."""
    offset = evidence.number("offset")
    acked = next((one.line.whole_number("epoch") for one in evidence.ack_events), None)
    since = next((one.line.whole_number("time") for one in evidence.ack_events), None)
    if offset is None or acked is None or since is None:
        return None
    for number, line in shown.events:
        first, count = int_in(line, "offset"), int_in(line, "count")
        if (
            text(line, "event") == "append"
            and (int_in(line, "time") or 0) > since
            and first is not None
            and count is not None
            and first <= offset < first + count
            and (int_in(line, "epoch") or 0) > acked
            and text(line, "role") == "leader"
        ):
            return TraceLine(number=number, fields=line)
    return None
