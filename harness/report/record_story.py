"""Summarises what happened to a record in five lines: the ack, the faults, truncations, elections, and the
loss. Pure.

Rules
1. A line is only written with evidence: without a trace there are no lines on truncations and elections.
2. Each line fits a terminal of WIDE columns; of many items it has the first few, and the number of the
   others.
"""

from collections.abc import Sequence

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.faults import OF_LINKS
from floodmark.harness.op import Op, Send, Type
from floodmark.harness.report.finding_evidence import began, conclusive_ops
from floodmark.harness.report.finding_narrative import weak, what_happened, who_has_it_now
from floodmark.harness.report.model import (
    HISTORY,
    AckEvent,
    Course,
    Evidence,
    Part,
    TraceLine,
    items,
    mapping,
    text,
)
from floodmark.harness.report.phrases import cut_text, seconds
from floodmark.harness.report.trace_text import tell

WIDE = 120
HEAD = 13  # columns before the text
AT_AN_OFFSET = frozenset({  # findings that the logs' entries at one offset show best
    names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS, names.DIVERGED, names.UNDER_REPLICATED,
    names.LEADER_INCOMPLETE, names.CANDIDATE_INCOMPLETE, names.UNSAFE_TRUNCATION, names.ACK_RULE,
})  # fmt: skip
ACKER = "by leader {node}, epoch {epoch}{weak}, ISR {isr_words}{alone}"


def summary(course: Course) -> list[Part]:
    """The heads and lines of the summary, none longer than WIDE with its head. Empty if there is nothing but
    the finding itself, which has its own paragraph."""
    evidence = course.evidence
    begins = ("acked", acks) if (acks := acked(course)) else ("seen", seen(evidence))
    lines = [begins, ("struck", struck(course)), ("truncated", truncated(evidence)),
             ("elected", elected(course)), last(evidence)]
    shown = [(head, cut_text(line, WIDE - HEAD)) for head, line in lines if line]
    return shown if any(head != "struck" for head, _ in shown[:-1]) else []


def heads_covered_by(summary: Sequence[Part], course: Course) -> frozenset[str]:
    """The heads of the paragraph's parts that the summary covers completely."""
    heads = dict(summary)
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
        what = f"{send.value} there" if acks and send is not None else record(evidence, send)
        if ack_event is not None:
            who = tell("epoch {epoch}", ack_event.line) if rivals[1:] else by(ack_event)
            acks.append(at_line("{when}{what}, {who}", ack_event.line, not acks, what=what, who=who))
        elif op is not None:
            who = "" if acks else f", to process {op.process}"
            acks.append(f"{seconds(op.time)} {what}{who} ({HISTORY}:{op.index + 1})")
    return fitting(acks)


def at_line(template: str, line: TraceLine, first: bool, **more: object) -> str:
    """The clause and its line: `... (trace.jsonl:58)`; for a later one on the same line of a report
    `... (:64)`."""
    place = line.place if first or line.number is None else f":{line.number}"
    return tell(template + " ({place})", line, place=place, **more)


def seen(evidence: Evidence) -> str:
    """`0.580 s process 4 read 3 at offset 3 of partition 0 (history.jsonl:12)`, for a record without an
    ack."""
    for op in evidence.ops:
        for one in op.reads or ():
            if evidence.concerns(one):
                return (f"{seconds(op.time)} process {op.process} read {one.value} at offset {one.offset} of "
                        f"partition {one.partition} ({HISTORY}:{op.index + 1})")
    return ""


def first_ack(evidence: Evidence) -> tuple[Op | None, Send | None]:
    """The first of the finding's ops that acked its record, or, if its value is unknown, a record there."""
    value = evidence.value
    for op in sorted(conclusive_ops(evidence), key=lambda op: op.index):
        for send in (op.sends or ()) if op.type is Type.OK else ():
            if evidence.concerns(send) and value in (None, send.value):
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
    isr, having = {*ack_event.line.names("isr")}, {*(ack_event.appended_by or ())}
    text = tell(ACKER, ack_event.line, weak=weak(ack_event.line, ","))
    return text if not having or having >= isr else (
        f"{text}; only {' '.join(sorted(having & isr)) or 'others'} had it")


def record(evidence: Evidence, send: Send | None) -> str:
    """`3 at offset 3 of partition 0`."""
    value = evidence.value if send is None else send.value
    offset = evidence.offset if send is None or send.offset is None else send.offset
    parts = [] if value is None else [str(value)]
    parts += [] if offset is None else [f"offset {offset}" if value is None else f"at offset {offset}"]
    return " ".join([*parts, f"of partition {evidence.partition}"])


def struck(course: Course) -> str:
    """`0.976 s kill n1; 0.977 s pause n2`, as many as fit; if nothing struck since, the acts before."""
    acts, before = ([f"{seconds(began(op))} {short(op)}" for op in ops]
                    for ops in (course.strikes, course.before))
    if acts or course.since_ns is None or not course.promised:
        return fitting(acts)
    return f"nothing since; before: {fitting(before, from_the_end=True)}" if before else "nothing"


def short(op: Op) -> str:
    """An act in short: its name, its nodes or kind, and what was lost."""
    fault = op.fault or {}
    kind = [text(fault, "kind")] if isinstance(fault.get("kind"), str) else []
    parts = [op.f, *([] if op.f in OF_LINKS and kind else map(str, items(fault, "nodes"))), *kind]
    lost = [f"lost {each}" for each in mapping(fault, "lost_records").values()]
    if fault.get("lost") is True:
        parts.append(f"({lost[0]})" if len(lost) == 1 else "(data lost)")
    return " ".join([*parts, *(["(unclean)"] if fault.get("unclean") is True else [])])


def truncated(evidence: Evidence) -> str:
    """Each truncation of the record, and each start without it, in order; the reasons if they fit."""
    event, lines = evidence.event, list(evidence.copy_losses)
    if event is not None and event.event == "truncate" and event.number not in [one.number for one in lines]:
        lines = sorted([*lines, event], key=lambda line: line.whole_number("time") or 0)
    full = "; ".join(truncation_clauses(lines, "{why}"))
    return full if len(full) <= WIDE - HEAD else fitting(truncation_clauses(lines, ""))


def truncation_clauses(lines: Sequence[TraceLine], why: str) -> list[str]:
    """A clause for each line; what is the same as in the clause before is not repeated."""
    clauses: list[str] = []
    previous = ""
    for line in lines:
        change = " from {from} to {to}" if line.event == "truncate" else " started with LEO {leo}"
        change = tell(change + why, line)
        shown = change if change != previous else ""
        clauses.append(at_line("{when}{node}{shown}", line, not clauses, shown=shown))
        previous = change
    return clauses


def elected(course: Course) -> str:
    """The elections up to the first one whose leader lacked the record; of many the last few."""
    offset = course.evidence.offset
    ends = {(line.name_in("node"), line.whole_number("epoch")): line.whole_number("leo")
            for line in course.changes if line.event == "become_leader"}
    clauses: list[str] = []
    chosen: set[object] = set()
    for line in course.changes:
        whose = line.name_in("leader" if line.event == "elect" else "node"), line.whole_number("epoch")
        end = ends.get(whose)
        lacked = course.promised and end is not None and offset is not None and end <= offset
        without = f", without it: its log ended at {end}" if lacked else ""
        if line.event == "elect":
            chosen.add(whose)
            unclean = ", an UNCLEAN election" if line.fields.get("clean") is False else ""
            who = "{leader} for epoch {epoch}" if line.fields.get("leader") else "nobody"
            clauses.append(at_line("{when}" + who + "{unclean}{without}", line, not clauses,
                                   unclean=unclean, without=without))
        elif line.event == "become_leader" and lacked and whose not in chosen:  # without an election
            clauses.append(at_line("{when}{node} leads epoch {epoch} again{without}", line, not clauses,
                                   without=without))
        else:
            continue
        if lacked:
            break
    return fitting(clauses, from_the_end=True)


def last(evidence: Evidence) -> Part:
    """The last line: what was lost; for other findings, what the final logs have."""
    in_the_end, what = "", what_happened(evidence)
    if any(copy.readable for copy in evidence.copies):  # else the logs' contents are unknown
        in_the_end = f"offset {evidence.offset}: {who_has_it_now(evidence, places=1)}"
    if evidence.name != names.LOST_WRITE:
        shown = in_the_end if evidence.name in AT_AN_OFFSET else ""
        return ("now" if shown else "found", (shown or what).removesuffix("."))
    value, count = evidence.value, int(evidence.found["count"])
    lost = f"{count} acked records" if count > 1 else "acked record" + ("" if value is None else f" {value}")
    if not evidence.is_bug:
        lost += f", permitted by {evidence.found.get('permitted_by')}"
    how = in_the_end or what.partition(", but ")[2].removesuffix(".")
    return ("gone", f"{lost}; {how}" if how else what)


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
