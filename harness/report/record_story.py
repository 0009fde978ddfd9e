"""Summarises what happened to a record in five lines: the ack, the faults, truncations, elections, and the
loss. It also finds the lines of the trace between the first and the last of these.

Rules
1. A line is only written with evidence: without a trace there are no lines on truncations and elections.
2. Each line fits a terminal of WIDE columns; of many items it has the first few, and the number of the
   others.
"""

import re
from collections.abc import Sequence

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.faults import OF_LINKS, UNSEEN
from floodmark.harness.op import Op, Send, Type
from floodmark.harness.report.finding_evidence import OF_A_LOSS, Gathering, replicas_of
from floodmark.harness.report.finding_narrative import (
    conclusive_ops,
    what_happened,
    who_has_it_now,
)
from floodmark.harness.report.model import HISTORY, AckEvent, Course, Evidence, Part, TraceLine
from floodmark.harness.report.phrases import cut_text, seconds
from floodmark.harness.report.trace_text import listed, number
from floodmark.harness.verdict import BUG

WITHOUT = "without it: its log ended at {}"
WIDE = 120
HEAD = 13  # columns before the text
BEFORE_NS = 3_000_000_000  # if no op leads to the event, the story begins so long before it
AT_AN_OFFSET = frozenset({  # findings that the logs' entries at one offset show best
    names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS, names.DIVERGED, names.UNDER_REPLICATED,
    names.LEADER_INCOMPLETE, names.CANDIDATE_INCOMPLETE, names.UNSAFE_TRUNCATION, names.ACK_RULE,
})  # fmt: skip
_PLACE = re.compile(r" \(logs/[^()]+\)")


def course_of(gathering: Gathering, evidence: Evidence) -> Course:
    """The course of a finding, for the summary and for the timeline."""
    rivals = rivals_of(gathering, evidence)
    since = min((time for one in (evidence, *rivals) if (time := since_of(one)) is not None), default=None)
    until = until_of(evidence)
    partition = evidence.number("partition")
    if since is None:
        return Course(evidence=evidence, rivals=rivals, since_ns=None, until_ns=until)
    here = set(replicas_of(evidence.about, partition)) if partition is not None else set()
    acts = [op for op in gathering.files.nemesis if concerns(op, here)]
    changes = gathering.files.changes(since, until, partition) if partition is not None else []
    return Course(
        evidence=evidence, rivals=rivals, since_ns=since, until_ns=until, changes=tuple(changes),
        promised=bool(rivals or evidence.ack_events or conclusive_ops(evidence)),
        strikes=tuple(op for op in acts if since <= began(op) and (until is None or began(op) <= until)),
        before=tuple(op for op in acts if began(op) < since))


def rivals_of(gathering: Gathering, evidence: Evidence) -> tuple[Evidence, ...]:
    """For logs that differ at an offset: the evidence of each record there that was acked."""
    if evidence.name not in (names.DIVERGED, names.EPOCH_LINEAGE):
        return ()
    values = {copy.record.value for copy in evidence.copies if copy.record is not None} - {None}
    found = [gathering.evidence_for(evidence.found, {**evidence.example, "value": value, "ops": []})
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


def began(op: Op) -> int:
    """The time when an act of the nemesis began: its effects come after that, its line at its end."""
    value = (op.fault or {}).get("began")
    return value if type(value) is int and 0 <= value <= op.time else op.time


def concerns(op: Op, here: set[str]) -> bool:
    """Whether an act is about nodes that have a replica of the partition, or about no particular nodes."""
    nodes = (op.fault or {}).get("nodes")
    return op.f not in UNSEEN and (  # the fault that a failpoint triggers has a line of its own
        not here or not isinstance(nodes, list) or not nodes or not here.isdisjoint(map(str, nodes)))


# -- the summary --------------------------------------------------------------------------------------------


def summary(course: Course) -> list[Part]:
    """The heads and lines of the summary, none longer than WIDE with its head. Empty if there is nothing but
    the finding itself, which has its own paragraph."""
    evidence = course.evidence
    begins = ("acked", acks) if (acks := acked(course)) else ("seen", seen(evidence))
    lines = [begins, ("struck", struck(course)), ("truncated", truncated(evidence)),
             ("elected", elected(course)), last(evidence)]
    shown = [(head, cut_text(line, WIDE - HEAD)) for head, line in lines if line]
    return shown if any(head != "struck" for head, _ in shown[:-1]) else []


def heads_covered_by_summary(course: Course) -> frozenset[str]:
    """The heads of the paragraph's parts that the summary covers completely."""
    heads = dict(summary(course))
    return frozenset(part for part, is_so in (
        ("when", "acked" in heads and len(conclusive_ops(course.evidence)) <= 1),
        ("held", "gone" in heads or "now" in heads), ("copies", "truncated" in heads)) if is_so)


def acked(course: Course) -> str:
    """`0.970 s 3 at offset 3 of partition 0, by leader n1, epoch 0, ISR n1 n2 n3 (trace.jsonl:55)`; where
    logs differ, each record that was acked there."""
    acks: list[str] = []
    rivals = [one for one in course.rivals if first_ack(one)[0] is not None]
    for evidence in rivals or (course.evidence,):
        op, send = first_ack(evidence)
        ack_event = acker_of(evidence, op)
        where = record(evidence, send)
        if acks and send is not None:
            where = f"{send.value} there"
        if ack_event is not None:
            who = by(ack_event) if not rivals[1:] else f"epoch {number(ack_event.line, 'epoch')}"
            acks.append(f"{when(ack_event.line)}{where}, {who} ({place(ack_event.line, first=not acks)})")
        elif op is not None:
            who = "" if acks else f", to process {op.process}"
            acks.append(f"{seconds(op.time)} {where}{who} ({HISTORY}:{op.index + 1})")
    return fitting(acks)


def seen(evidence: Evidence) -> str:
    """`0.580 s process 4 read 3 at offset 3 of partition 0 (history.jsonl:12)`, for a record without an
    ack."""
    for op in evidence.ops:
        for one in op.reads or ():
            if evidence.concerns(one.partition, one.offset, one.value):
                return (f"{seconds(op.time)} process {op.process} read {one.value} at offset {one.offset} of "
                        f"partition {one.partition} ({HISTORY}:{op.index + 1})")
    return ""


def first_ack(evidence: Evidence) -> tuple[Op | None, Send | None]:
    """The first of the finding's ops that acked its record, or, if its value is unknown, a record there."""
    value = evidence.number("value")
    for op in sorted(conclusive_ops(evidence), key=lambda op: op.index):
        for send in (op.sends or ()) if op.type is Type.OK else ():
            if evidence.concerns(send.partition, send.offset, send.value) and value in (None, send.value):
                return op, send
    return None, None


def acker_of(evidence: Evidence, op: Op | None) -> AckEvent | None:
    """The trace's line for that ack; for a record that only the trace knows, its first ack or the event."""
    event = evidence.event
    if op is None and event is not None and event.event == "ack":
        return AckEvent(line=event, appended_by=None, index=None)
    index = None if op is None else op.index
    return next((one for one in evidence.ack_events if one.index == index), None)


def by(ack_event: AckEvent) -> str:
    """The leader, its epoch and ISR, and which members had the record if not all did."""
    line, isr, having = ack_event.line, ack_event.line.names("isr"), ack_event.appended_by
    acks = line.fields.get("acks")
    text = f"by leader {line.node}, epoch {number(line, 'epoch')}"
    text += "" if acks == "all" else f", acks={acks}"
    text += f", ISR {' '.join(isr)}{' alone' if len(isr) == 1 else ''}"
    if having is None or not having or set(having) >= set(isr):
        return text
    return f"{text}; only {' '.join(sorted(set(having) & set(isr))) or 'others'} had it"


def when(line: TraceLine) -> str:
    time = line.whole_number("time")
    return "" if time is None else f"{seconds(time)} "


def record(evidence: Evidence, send: Send | None) -> str:
    """`3 at offset 3 of partition 0`."""
    value = evidence.number("value") if send is None else send.value
    offset = evidence.number("offset") if send is None or send.offset is None else send.offset
    parts = [] if value is None else [str(value)]
    parts += [] if offset is None else [f"offset {offset}" if value is None else f"at offset {offset}"]
    return " ".join([*parts, f"of partition {evidence.number('partition')}"])


def struck(course: Course) -> str:
    """`0.976 s kill n1; 0.977 s pause n2`, as many as fit; if nothing struck since, the acts before."""
    acts = [f"{seconds(began(op))} {short(op)}" for op in course.strikes]
    if acts or course.since_ns is None or not course.promised:
        return fitting(acts)
    before = [f"{seconds(began(op))} {short(op)}" for op in course.before]
    return f"nothing since; before: {fitting(before, from_the_end=True)}" if before else "nothing"


def short(op: Op) -> str:
    """An act in short: its name, its nodes or kind, and what was lost."""
    fault = op.fault or {}
    nodes = fault.get("nodes")
    on = [str(node) for node in nodes] if isinstance(nodes, list) else []
    kind = [str(fault["kind"])] if isinstance(fault.get("kind"), str) else []
    parts = [op.f, *(kind if op.f in OF_LINKS and kind else [*on, *kind])]
    lost = fault.get("lost_records")
    lost_all = [f"lost {each}" for each in lost.values()] if isinstance(lost, dict) else []
    if fault.get("lost") is True:
        parts.append(f"({', '.join(lost_all)})" if len(lost_all) == 1 else "(data lost)")
    parts += ["(unclean)"] if fault.get("unclean") is True else []
    return " ".join(parts)


def truncated(evidence: Evidence) -> str:
    """Each truncation of the record, and each start without it, in order."""
    event = evidence.event
    lines = list(evidence.copy_losses)
    if event is not None and event.event == "truncate" and event.number not in [one.number for one in lines]:
        lines = sorted([*lines, event], key=lambda line: line.whole_number("time") or 0)
    in_full, in_brief = truncation_clauses(lines, reasons=True), truncation_clauses(lines, reasons=False)
    text = "; ".join(in_full)
    return text if len(text) <= WIDE - HEAD else fitting(in_brief)


def truncation_clauses(lines: Sequence[TraceLine], *, reasons: bool) -> list[str]:
    """A clause for each line; what is the same as in the clause before is not repeated."""
    clauses: list[str] = []
    previous = ""
    for line in lines:
        change = (f" from {number(line, 'from')} to {number(line, 'to')}" if line.event == "truncate" else
                f" started with LEO {number(line, 'leo')}")
        why = line.fields.get("why")
        change += f' "{why}"' if reasons and isinstance(why, str) and why else ""
        shown = change if change != previous else ""
        clauses.append(f"{when(line)}{line.node}{shown} ({place(line, first=not clauses)})")
        previous = change
    return clauses


def place(line: TraceLine, *, first: bool) -> str:
    """`trace.jsonl:58`; for the next one on the same line of a report `:64`."""
    return line.place if first or line.number is None else f":{line.number}"


def elected(course: Course) -> str:
    """The elections up to the first one whose leader lacked the record; of many the last few."""
    offset = course.evidence.number("offset")
    ends = {(line.name_in("node"), line.whole_number("epoch")): line.whole_number("leo")
            for line in course.changes if line.event == "become_leader"}
    clauses: list[str] = []
    chosen: set[object] = set()
    for line in course.changes:
        whose = line.name_in("leader" if line.event == "elect" else "node"), line.whole_number("epoch")
        end = ends.get(whose)
        lacked = course.promised and end is not None and offset is not None and end <= offset
        if line.event == "elect":
            chosen.add(whose)
            clauses.append(election(line, end if lacked else None, first=not clauses))
        elif line.event == "become_leader" and lacked and whose not in chosen:  # without an election
            clauses.append(f"{when(line)}{line.node} leads epoch {number(line, 'epoch')} again, "
                        f"{WITHOUT.format(end)} ({place(line, first=not clauses)})")
        else:
            continue
        if lacked:
            break
    return fitting(clauses, from_the_end=True)


def election(line: TraceLine, end: int | None, *, first: bool) -> str:
    """`0.588 s n3 for epoch 2, without it: its log ended at 3 (trace.jsonl:59)`."""
    unclean = ", an UNCLEAN election" if line.fields.get("clean") is False else ""
    leader = line.fields.get("leader")
    chosen = f"{leader} for epoch {number(line, 'epoch')}" if leader else "nobody"
    without = "" if end is None else f", {WITHOUT.format(end)}"
    return f"{when(line)}{chosen}{unclean}{without} ({place(line, first=first)})"


def last(evidence: Evidence) -> Part:
    """The last line: what was lost; for other findings, what the final logs have."""
    has_dumps = any(copy.readable for copy in evidence.copies)  # else the logs' contents are unknown
    in_the_end = final_copies(evidence) if has_dumps else ""
    if evidence.name != names.LOST_WRITE:
        shown = in_the_end if evidence.name in AT_AN_OFFSET else ""
        return ("now" if shown else "found", (shown or what_happened(evidence)).removesuffix("."))
    value, more = evidence.number("value"), int(evidence.found["count"]) - 1
    record = "acked record" + ("" if value is None else f" {value}")
    record = f"{more + 1} acked records" if more else record
    if evidence.found["class"] != BUG:
        record += f", permitted by {evidence.found.get('permitted_by')}"
    how = in_the_end or what_happened(evidence).partition(", but ")[2].removesuffix(".")
    return ("gone", f"{record}; {how}" if how else what_happened(evidence))


def final_copies(evidence: Evidence) -> str:
    """`offset 3: n3 (the leader) has 4 of epoch 2 (logs/n3.jsonl:4), n1 has nothing`, with one reference to a
    file."""
    text = who_has_it_now(evidence).replace(" in the end", ":", 1).removeprefix("at ")
    first = _PLACE.search(text)
    return text if first is None else text[:first.end()] + _PLACE.sub("", text[first.end():])


def fitting(items: Sequence[str], *, from_the_end: bool = False) -> str:
    """As many items as fit on a line, at least one, and the number of the others."""
    for shown in range(len(items), 0, -1):
        left = len(items) - shown
        parts = [*([f"{left} before"] if left else []), *items[-shown:]] if from_the_end else [
            *items[:shown], *([f"and {left} more"] if left else [])]
        line = "; ".join(parts)
        if len(line) <= WIDE - HEAD or shown == 1:
            return line
    return ""


# -- the timeline -------------------------------------------------------------------------------------------


def change_line(line: TraceLine, *, where: bool = False) -> str:
    """A line of the trace in the ops' format: seconds, node, change, place. where: with its partition."""
    time = line.whole_number("time") or 0
    of = f"p{number(line, 'partition')}: " if where else ""
    return f"{'':>8} {time / 1e9:9.3f} s  {line.name_in('node'):<16} {of}{change(line)} ({line.place})"


def change(line: TraceLine) -> str:
    epoch = f"epoch {number(line, 'epoch')}"
    isr = listed(line.names("isr"))
    cause = line.fields.get("cause")
    because = f" ({cause})" if isinstance(cause, str) else ""
    if line.event == "truncate":
        why = line.fields.get("why")
        quoted = f' "{why}"' if isinstance(why, str) and why else ""
        return f"truncated its log from {number(line, 'from')} to {number(line, 'to')} in {epoch}{quoted}"
    if line.event == "become_leader":
        return f"leads {epoch} with LEO {number(line, 'leo')}, HW {number(line, 'hw')}"
    if line.event == "elect":
        kind = "UNCLEAN election" if line.fields.get("clean") is False else "election"
        return f"{kind}: {line.fields.get('leader') or 'nobody'} for {epoch}, ISR {isr}{because}"
    return f"ISR {isr} in {epoch}{because}"
