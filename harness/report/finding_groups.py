"""Groups the findings that are about one event: the gravest is its root, those that follow from it get a line
each.

Many checks see one loss: the record is gone, a reader had seen it, a replica truncated it, another became
leader without it. For a reader that is one event, not six.

Rules
1. A finding joins a graver one only if every example that is shown is about the same record, the same place,
   or the same line of the trace; a truncation also if it removed that place. When in doubt it stays alone.
2. Both must be of one class: a bug is never printed as part of what a setting permits, nor the reverse.
3. Only what can follow from the graver one, or lead to it, joins it (OF_ONE_EVENT).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.blame_words import knows_blame
from floodmark.checkers.text.words import without_lines
from floodmark.harness.report.finding_evidence import last_read_before
from floodmark.harness.report.model import (
    HISTORY,
    TRACE,
    Follower,
    Json,
    TraceLine,
    examples_of,
    int_in,
    items,
    text_of,
)
from floodmark.harness.report.run_files import RunFiles
from floodmark.harness.report.trace_text import listed, removes

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
    offsets: set[Place] = field(default_factory=set)
    values: set[Place] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)  # of the trace, from 0


def group_findings(files: RunFiles, findings: Sequence[Json]) -> list[Event]:
    """The events; findings must be in order, the gravest first."""
    events: list[Event] = []
    for found in findings:
        event = next((event for event in events if belongs_to(files, event, found)), None)
        if event is None:
            events.append(event_of(found))
        else:
            event.followers.append(Follower(found=found, clause=clause(found), places=places(found)))
    return events


def event_of(found: Json) -> Event:
    examples = examples_of(found)
    offsets, values = ({(partition, number) for one in examples
                        if (partition := int_in(one, "partition")) is not None
                        and (number := int_in(one, key)) is not None} for key in ("offset", "value"))
    lines = {line for one in examples if (line := int_in(one, "event")) is not None}
    return Event(root=found, offsets=offsets, values=values, lines=lines)


def belongs_to(files: RunFiles, event: Event, found: Json) -> bool:
    root, examples = event.root, examples_of(found)
    if found["name"] not in OF_ONE_EVENT.get(root["name"], ()) or not examples:
        return False
    if (found["class"], found.get("permitted_by")) != (root["class"], root.get("permitted_by")):
        return False
    return all(is_about(files, event, str(found["name"]), example) for example in examples)


def is_about(files: RunFiles, event: Event, name: str, example: Json) -> bool:
    """Whether an example of a finding called `name` is about the event's record, place or line."""
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
    if offset is not None and event.root["count"] > len(examples_of(event.root)):
        # Only the first of its places are named: any later offset is taken to be one of them.
        return bool(event.offsets) and (partition, offset) > max(event.offsets)
    return line is not None and any(of == partition and removes(line, each) for of, each in event.offsets)


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
