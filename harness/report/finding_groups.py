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

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.blame_words import knows_blame
from floodmark.harness.report.finding_evidence import Gathering
from floodmark.harness.report.model import HISTORY, TRACE, Follower, Json, text_of
from floodmark.harness.report.trace_text import listed

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
_REMARKS = re.compile(r" \((?:index [\d, ]+|[^()]+, seq \d+ of its trace)\)")


@dataclass(slots=True, kw_only=True)
class Event:
    """One thing that happened: the gravest group of findings, and the groups that belong to it."""

    root: Json
    followers: list[Follower] = field(default_factory=list)
    offsets: set[Place] = field(default_factory=set)
    values: set[Place] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)  # of the trace, from 0


def group_findings(gathering: Gathering, findings: Sequence[Json]) -> list[Event]:
    """The events; findings must be in order, the gravest first."""
    events: list[Event] = []
    for found in findings:
        event = next((event for event in events if belongs_to(gathering, event, found)), None)
        if event is None:
            events.append(begin_group(found))
        else:
            event.followers.append(Follower(found=found, clause=clause(found), places=places(found)))
    return events


def begin_group(found: Json) -> Event:
    event = Event(root=found)
    for example in examples_of(found):
        partition = int_of(example, "partition")
        for key, kept in (("offset", event.offsets), ("value", event.values)):
            number = int_of(example, key)
            if partition is not None and number is not None:
                kept.add((partition, number))
        line = int_of(example, "event")
        event.lines |= set() if line is None else {line}
    return event


def belongs_to(gathering: Gathering, event: Event, found: Json) -> bool:
    root, examples = event.root, examples_of(found)
    if found["name"] not in OF_ONE_EVENT.get(root["name"], ()) or not examples:
        return False
    if (found["class"], found.get("permitted_by")) != (root["class"], root.get("permitted_by")):
        return False
    return all(is_about(gathering, event, str(found["name"]), example) for example in examples)


def is_about(gathering: Gathering, event: Event, name: str, example: Json) -> bool:
    """Whether an example of a finding called `name` is about the event's record, place or line."""
    partition, line = int_of(example, "partition"), int_of(example, "event")
    offset, value = int_of(example, "offset"), int_of(example, "value")
    if partition is None:
        return False
    if line is not None and line in event.lines:
        return True
    if (offset is not None and (partition, offset) in event.offsets) or (
            value is not None and (partition, value) in event.values):
        return True
    if name == names.UNCLEAN_ELECTION and line is not None and is_election(gathering, line, event):
        return True
    if name in _SKIPS and offset is not None:
        return passed_over(gathering, example, partition, offset, event)
    if offset is not None and event.root["count"] > len(examples_of(event.root)):
        # Only the first of its places are named: any later offset is taken to be one of them.
        return bool(event.offsets) and (partition, offset) > max(event.offsets)
    return line is not None and truncates(gathering, line, partition, event)


def is_election(gathering: Gathering, line: int, event: Event) -> bool:
    """Whether a line of the trace is the election of the leader that one of the event's lines names."""
    elect = gathering.files.event(line + 1)
    if elect is None or elect.event != "elect":
        return False
    chosen = [elect.fields.get(key) for key in ("leader", "epoch", "partition")]
    lines = filter(None, (gathering.files.event(number + 1) for number in event.lines))
    return any(chosen == [role.fields.get(key) for key in ("node", "epoch", "partition")]
               for role in lines if role.event == "become_leader")


def passed_over(gathering: Gathering, example: Json, partition: int, offset: int, event: Event) -> bool:
    """Whether all offsets that a consumer passed over belong to the event: what is lost cannot be read."""
    ops = [gathering.files.op(index) for index in items(example, "ops") if type(index) is int]
    before = [read.offset for op in ops if op is not None for read in op.reads or ()
              if read.partition == partition and read.offset is not None and read.offset < offset]
    if not before or offset - max(before) > len(event.offsets) + 1:
        return False
    return all((partition, each) in event.offsets for each in range(max(before) + 1, offset))


def truncates(gathering: Gathering, line: int, partition: int, event: Event) -> bool:
    """Whether a line of the trace is a truncation that removed one of the event's offsets."""
    cut = gathering.files.event(line + 1)
    if cut is None or cut.event != "truncate":
        return False
    first, behind = cut.whole_number("to"), cut.whole_number("from")
    return first is not None and behind is not None and any(
        each == partition and first <= offset < behind for each, offset in event.offsets)


# -- text ---------------------------------------------------------------------------------------------------


def clause(found: Json) -> str:
    """A clause that says what the finding is about the event's record."""
    examples = examples_of(found)
    nodes = sorted({str(node) for example in examples for node in items(example, "nodes")})
    if found["name"] in _CLAUSES and nodes:
        return _CLAUSES[found["name"]].format(listed(nodes))
    text = text_of(examples[0]) if examples else ""
    text = text.split("; ")[0] if found["name"] == names.SAW_THEN_LOST else text
    return _REMARKS.sub("", text).rstrip(".")


def places(found: Json) -> str:
    """`trace.jsonl:58, 64`: the lines to blame; if there are none, the clients' ops. For examples whose blame
    is on an earlier line, `n1, seq 58; n2, seq 64`: the lines that show them."""
    examples = examples_of(found)
    own = [f"{line['node']}, seq {line['seq']}" for example in examples
           if knows_blame(example) and (line := example["blame"].get("shown_by"))]
    events = {line + 1 for example in examples
              if not knows_blame(example) and (line := int_of(example, "event")) is not None}
    ops = {index + 1 for example in examples[:1] for index in items(example, "ops") if type(index) is int}
    in_trace = found["name"] in _CAUSES and bool(events or own)
    file, numbers = (TRACE, events) if in_trace else (HISTORY, ops)
    shown = ", ".join(map(str, sorted(numbers)[:PLACES])) + (", ..." if len(numbers) > PLACES else "")
    lines = list(dict.fromkeys(own))
    return "; ".join([*([f"{file}:{shown}"] if numbers else []), *lines[:PLACES],
                      *(["..."] if len(lines) > PLACES else [])])


def examples_of(found: Json) -> list[Json]:
    return [example for example in items(found, "examples") if isinstance(example, Mapping)]


def items(fields: Json, key: str) -> list[Any]:
    value = fields.get(key)
    return list(value) if isinstance(value, list | tuple) else []


def int_of(fields: Json, key: str) -> int | None:
    value = fields.get(key)
    return value if type(value) is int else None
