"""Tells what became of a record, in five lines at most: by whom it was acked, what struck, who truncated it,
who was elected, what is gone. And has the lines of the trace between the first and the last of these.

Rules
1. A line stands where the files bear it: without a trace nobody is said to have cut or elected anything.
2. Each line fits a terminal of WIDE columns; of many things the first few are named, and how many more.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.op import Op, Send, Type
from floodmark.harness.reports.finding_evidence import OF_A_LOSS, Acker, Evidence, Gathering, replicas_of
from floodmark.harness.reports.finding_narrative import (
    HISTORY,
    Part,
    blame_of,
    telling_ops,
    what_happened,
    who_has_it_now,
)
from floodmark.harness.reports.phrases import cut_text, seconds
from floodmark.harness.reports.trace_text import TraceLine, listed, number
from floodmark.harness.verdict import BUG

WITHOUT = "without it: its log ended at {}"
WIDE = 120
HEAD = 13  # columns before the words
BEFORE_NS = 3_000_000_000  # of an event that no op leads to, what came so long before it
AT_AN_OFFSET = frozenset({  # findings that what the logs hold at one offset tells best
    names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS, names.DIVERGED, names.UNDER_REPLICATED,
    names.LEADER_INCOMPLETE, names.CANDIDATE_INCOMPLETE, names.UNSAFE_TRUNCATION, names.ACK_RULE,
})  # fmt: skip
_PLACE = re.compile(r" \(logs/[^()]+\)")
_QUIET = frozenset({"arm", "release"})  # a failpoint is no fault: what it does has a line of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A finding's event from its promise to its end."""

    evidence: Evidence
    rivals: tuple[Evidence, ...] = ()  # of logs that part: the records in question, the first acked first
    since_ns: int | None  # None: nobody knows when
    until_ns: int | None  # None: not before the run's end, or nobody knows
    promised: bool = False  # a client was told something, and that is when the time begins
    strikes: tuple[Op, ...] = ()  # set about in that time
    before: tuple[Op, ...] = ()  # and before it
    changes: tuple[TraceLine, ...] = ()  # the trace's truncations, elections and ISR changes in that time


def course_of(gathering: Gathering, evidence: Evidence) -> Course:
    """Looked up once for the summary and for the timeline."""
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
        promised=bool(rivals or evidence.ackers or telling_ops(evidence)),
        strikes=tuple(op for op in acts if since <= began(op) and (until is None or began(op) <= until)),
        before=tuple(op for op in acts if began(op) < since))


def rivals_of(gathering: Gathering, evidence: Evidence) -> tuple[Evidence, ...]:
    """Where logs part at an offset: of each record that some log has there, by whom and when it was acked."""
    if evidence.name not in (names.DIVERGED, names.EPOCH_LINEAGE):
        return ()
    values = {copy.record.value for copy in evidence.copies if copy.record is not None} - {None}
    found = [gathering.of(evidence.found, {**evidence.example, "value": value, "ops": []})
             for value in sorted(value for value in values if value is not None)]
    return tuple(sorted((one for one in found if since_of(one) is not None and telling_ops(one)),
                        key=lambda one: since_of(one) or 0))


def since_of(evidence: Evidence) -> int | None:
    """When the promise was given; of an event that no op leads to, a little before it."""
    times = [time for one in evidence.ackers[:1] if (time := one.line.whole_number("time")) is not None]
    times += [op.time for op in telling_ops(evidence)]
    if times:
        return min(times)
    event = None if evidence.event is None else evidence.event.whole_number("time")
    return None if event is None else event - BEFORE_NS


def until_of(evidence: Evidence) -> int | None:
    """When the last copy went, or the line to blame was written, or the last op named was over."""
    if evidence.name in OF_A_LOSS and not evidence.fates:
        return None
    if evidence.name in names.GUILTY and blame_of(evidence):
        return None  # the line to blame came before what shows the finding
    lines = [*evidence.fates, *([evidence.event] if evidence.event is not None else [])]
    times = [time for line in lines if (time := line.whole_number("time")) is not None]
    return max(times, default=max((op.time for op in evidence.ops[1:]), default=None))


def began(op: Op) -> int:
    """When an act of the nemesis was set about: what it brings about comes after that, and its line later."""
    value = (op.fault or {}).get("began")
    return value if type(value) is int and 0 <= value <= op.time else op.time


def concerns(op: Op, here: set[str]) -> bool:
    """Whether an act is of nodes that hold the partition, or of no nodes in particular."""
    nodes = (op.fault or {}).get("nodes")
    return op.f not in _QUIET and (
        not here or not isinstance(nodes, list) or not nodes or not here.isdisjoint(map(str, nodes)))


# -- the summary --------------------------------------------------------------------------------------------


def summary(course: Course) -> list[Part]:
    """Heads and lines, none longer than WIDE with its head. None at all where there is no course of events,
    but the finding alone, which its own paragraph tells."""
    evidence = course.evidence
    begins = ("acked", acks) if (acks := acked(course)) else ("seen", seen(evidence))
    lines = [begins, ("struck", struck(course)), ("truncated", truncated(evidence)),
             ("elected", elected(course)), last(evidence)]
    told = [(head, cut_text(line, WIDE - HEAD)) for head, line in lines if line]
    return told if any(head != "struck" for head, _ in told[:-1]) else []


def heads_told_in_summary(course: Course) -> frozenset[str]:
    """The heads of those parts of the finding's paragraph that the summary has told in full."""
    heads = dict(summary(course))
    return frozenset(part for part, is_so in (
        ("when", "acked" in heads and len(telling_ops(course.evidence)) <= 1),
        ("held", "gone" in heads or "now" in heads), ("copies", "truncated" in heads)) if is_so)


def acked(course: Course) -> str:
    """`0.970 s 3 at offset 3 of partition 0, by leader n1, epoch 0, ISR n1 n2 n3 (trace.jsonl:55)`; where
    logs part, each record that was acked there."""
    acks: list[str] = []
    rivals = [one for one in course.rivals if first_ack(one)[0] is not None]
    for evidence in rivals or (course.evidence,):
        op, send = first_ack(evidence)
        acker = acker_of(evidence, op)
        what = record(evidence, send)
        if acks and send is not None:
            what = f"{send.value} there"
        if acker is not None:
            who = by(acker) if not rivals[1:] else f"epoch {number(acker.line, 'epoch')}"
            acks.append(f"{when(acker.line)}{what}, {who} ({place(acker.line, first=not acks)})")
        elif op is not None:
            who = "" if acks else f", to process {op.process}"
            acks.append(f"{seconds(op.time)} {what}{who} ({HISTORY}:{op.index + 1})")
    return fitting(acks)


def seen(evidence: Evidence) -> str:
    """`0.580 s process 4 read 3 at offset 3 of partition 0 (history.jsonl:12)`: of what nobody was acked."""
    for op in evidence.ops:
        for one in op.reads or ():
            if evidence.concerns(one.partition, one.offset, one.value):
                return (f"{seconds(op.time)} process {op.process} read {one.value} at offset {one.offset} of "
                        f"partition {one.partition} ({HISTORY}:{op.index + 1})")
    return ""


def first_ack(evidence: Evidence) -> tuple[Op | None, Send | None]:
    """The first of the finding's ops that acked its record; of one of no known value, what stood there."""
    value = evidence.number("value")
    for op in sorted(telling_ops(evidence), key=lambda op: op.index):
        for send in (op.sends or ()) if op.type is Type.OK else ():
            if evidence.concerns(send.partition, send.offset, send.value) and value in (None, send.value):
                return op, send
    return None, None


def acker_of(evidence: Evidence, op: Op | None) -> Acker | None:
    """The line of the trace for that ack; for a record that only the trace knows the first, or the event."""
    event = evidence.event
    if op is None and event is not None and event.event == "ack":
        return Acker(line=event, holders=None, index=None)
    index = None if op is None else op.index
    return next((one for one in evidence.ackers if one.index == index), None)


def by(acker: Acker) -> str:
    """The leader, its epoch, who was in its ISR, and whether they had the record."""
    line, isr, holders = acker.line, acker.line.names("isr"), acker.holders
    acks = line.fields.get("acks")
    told = f"by leader {line.node}, epoch {number(line, 'epoch')}"
    told += "" if acks == "all" else f", acks={acks}"
    told += f", ISR {' '.join(isr)}{' alone' if len(isr) == 1 else ''}"
    if holders is None or not holders or set(holders) >= set(isr):
        return told
    return f"{told}; only {' '.join(sorted(set(holders) & set(isr))) or 'others'} had it"


def when(line: TraceLine) -> str:
    time = line.whole_number("time")
    return "" if time is None else f"{seconds(time)} "


def record(evidence: Evidence, send: Send | None) -> str:
    """`3 at offset 3 of partition 0`."""
    value = evidence.number("value") if send is None else send.value
    offset = evidence.number("offset") if send is None or send.offset is None else send.offset
    words = [] if value is None else [str(value)]
    words += [] if offset is None else [f"offset {offset}" if value is None else f"at offset {offset}"]
    return " ".join([*words, f"of partition {evidence.number('partition')}"])


def struck(course: Course) -> str:
    """`0.976 s kill n1; 0.977 s pause n2`, as many as fit; where nothing struck since, what did before."""
    acts = [f"{seconds(began(op))} {short(op)}" for op in course.strikes]
    if acts or course.since_ns is None or not course.promised:
        return fitting(acts)
    before = [f"{seconds(began(op))} {short(op)}" for op in course.before]
    return f"nothing since; before: {fitting(before, from_the_end=True)}" if before else "nothing"


def short(op: Op) -> str:
    """What and whom, and what was lost with it."""
    fault = op.fault or {}
    nodes = fault.get("nodes")
    on = [str(node) for node in nodes] if isinstance(nodes, list) else []
    kind = [str(fault["kind"])] if isinstance(fault.get("kind"), str) else []
    words = [op.f, *(kind if op.f in ("cut", "packet") and kind else [*on, *kind])]
    lost = fault.get("lost_records")
    lost_all = [f"lost {each}" for each in lost.values()] if isinstance(lost, dict) else []
    if fault.get("lost") is True:
        words.append(f"({', '.join(lost_all)})" if len(lost_all) == 1 else "(data lost)")
    words += ["(unclean)"] if fault.get("unclean") is True else []
    return " ".join(words)


def truncated(evidence: Evidence) -> str:
    """Each copy that was cut off, or was not there when its node came back, in order."""
    event = evidence.event
    lines = list(evidence.fates)
    if event is not None and event.event == "truncate" and event.number not in [one.number for one in lines]:
        lines = sorted([*lines, event], key=lambda line: line.whole_number("time") or 0)
    in_full, in_brief = cuts_of(lines, whys=True), cuts_of(lines, whys=False)
    whole = "; ".join(in_full)
    return whole if len(whole) <= WIDE - HEAD else fitting(in_brief)


def cuts_of(lines: Sequence[TraceLine], *, whys: bool) -> list[str]:
    """A clause each; what is as in the clause before is not said again."""
    told: list[str] = []
    said = ""
    for line in lines:
        what = (f" from {number(line, 'from')} to {number(line, 'to')}" if line.event == "truncate" else
                f" started with LEO {number(line, 'leo')}")
        why = line.fields.get("why")
        what += f' "{why}"' if whys and isinstance(why, str) and why else ""
        told.append(f"{when(line)}{line.node}{what if what != said else ''} ({place(line, first=not told)})")
        said = what
    return told


def place(line: TraceLine, *, first: bool) -> str:
    """`trace.jsonl:58`, and on the same line of a report then `:64`."""
    return line.place if first or line.number is None else f":{line.number}"


def elected(course: Course) -> str:
    """The elections up to the first whose leader lacked the record; of many the last few."""
    offset = course.evidence.number("offset")
    ends = {(line.word("node"), line.whole_number("epoch")): line.whole_number("leo")
            for line in course.changes if line.event == "become_leader"}
    told: list[str] = []
    chosen: set[object] = set()
    for line in course.changes:
        whose = line.word("leader" if line.event == "elect" else "node"), line.whole_number("epoch")
        end = ends.get(whose)
        lacked = course.promised and end is not None and offset is not None and end <= offset
        if line.event == "elect":
            chosen.add(whose)
            told.append(election(line, end if lacked else None, first=not told))
        elif line.event == "become_leader" and lacked and whose not in chosen:  # nobody else was elected
            told.append(f"{when(line)}{line.node} leads epoch {number(line, 'epoch')} again, "
                        f"{WITHOUT.format(end)} ({place(line, first=not told)})")
        else:
            continue
        if lacked:
            break
    return fitting(told, from_the_end=True)


def election(line: TraceLine, end: int | None, *, first: bool) -> str:
    """`0.588 s n3 for epoch 2, without it: its log ended at 3 (trace.jsonl:59)`."""
    unclean = ", an UNCLEAN election" if line.fields.get("clean") is False else ""
    leader = line.fields.get("leader")
    chosen = f"{leader} for epoch {number(line, 'epoch')}" if leader else "nobody"
    without = "" if end is None else f", {WITHOUT.format(end)}"
    return f"{when(line)}{chosen}{unclean}{without} ({place(line, first=first)})"


def last(evidence: Evidence) -> Part:
    """What is gone; of what is not lost, what the logs hold in the end."""
    looked = any(copy.readable for copy in evidence.copies)  # else nobody can tell what the logs hold
    in_the_end = held_now(evidence) if looked else ""
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


def held_now(evidence: Evidence) -> str:
    """`offset 3: n3 (the leader) has 4 of epoch 2 (logs/n3.jsonl:4), n1 has nothing`: one place is enough."""
    text = who_has_it_now(evidence).replace(" in the end", ":", 1).removeprefix("at ")
    first = _PLACE.search(text)
    return text if first is None else text[:first.end()] + _PLACE.sub("", text[first.end():])


def fitting(items: Sequence[str], *, from_the_end: bool = False) -> str:
    """As many as fit on a line, at least one, and how many more."""
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
    """A line of the trace among the ops: seconds, who, what, where; of which partition, where that is not
    said."""
    time = line.whole_number("time") or 0
    of = f"p{number(line, 'partition')}: " if where else ""
    return f"{'':>8} {time / 1e9:9.3f} s  {line.word('node'):<16} {of}{change(line)} ({line.place})"


def change(line: TraceLine) -> str:
    epoch = f"epoch {number(line, 'epoch')}"
    isr = listed(line.names("isr"))
    cause = line.fields.get("cause")
    because = f" ({cause})" if isinstance(cause, str) else ""
    if line.event == "truncate":
        why = line.fields.get("why")
        quoted = f' "{why}"' if isinstance(why, str) and why else ""
        return f"cut its log {number(line, 'from')} to {number(line, 'to')} in {epoch}{quoted}"
    if line.event == "become_leader":
        return f"leads {epoch} with LEO {number(line, 'leo')}, HW {number(line, 'hw')}"
    if line.event == "elect":
        kind = "UNCLEAN election" if line.fields.get("clean") is False else "election"
        return f"{kind}: {line.fields.get('leader') or 'nobody'} for {epoch}, ISR {isr}{because}"
    return f"ISR {isr} in {epoch}{because}"
