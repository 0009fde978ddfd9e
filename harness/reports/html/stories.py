"""The story of one finding for the log viewer: the logs before it, every event of its partition, the steps
that matter (steps.py), and the values and acks around its record.

Rules
1. Events begin some before the first step and end some behind the last; up to there the logs are followed.
2. Without a trace there are no events: the viewer shows what the dumps hold in the end.
"""

import copy
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floodmark.harness.reports.finding_evidence import Evidence, leader_of, replicas_of
from floodmark.harness.reports.html.clients import Acked, Near
from floodmark.harness.reports.html.lines import Line, items, text, whole
from floodmark.harness.reports.html.replica_log import ReplicaLog
from floodmark.harness.reports.html.spans import DOWN
from floodmark.harness.reports.html.steps import Step, steps_of
from floodmark.harness.reports.html.traced import Focus, Shown
from floodmark.harness.reports.phrases import cut_text, seconds
from floodmark.harness.reports.record_story import Course
from floodmark.harness.reports.run_files import RunFiles, fields_of, place_of
from floodmark.harness.reports.trace_text import TraceLine, clause_of

Json = Mapping[str, Any]  # an object of run.json or verdict.json

AROUND = 200  # offsets on each side of the finding whose values are looked up
MARGIN_NS = 300_000_000
AFTER_NS = 1_500_000_000
UNTRACED = "What the final dumps hold. A trace would have shown how it came about, event by event."
NO_STEPS = "What the final dumps hold: no line of the trace is known to have to do with it."
IN_THE_END = "What the final dumps hold at the log's end."
LEAD, TAIL = 15, 25  # events shown before the first step and after the last
KEPT = (
    "offset",
    "count",
    "epochs",
    "from",
    "to",
    "why",
    "leader",
    "follower",
    "isr",
    "broker",
    "epoch",
    "leo",
    "hw",
    "role",
    "clean",
    "log_start",
)


def focus_of(course: Course) -> Focus | None:
    """The time in which all events are wanted; None where nobody knows when it was."""
    partition, evidence = course.evidence.number("partition"), course.evidence
    times = [op.time for op in evidence.ops]
    since = course.since_ns if course.since_ns is not None else min(times, default=None)
    if partition is None or since is None:
        return None
    known = [time for time in (course.until_ns, max(times, default=None)) if time is not None]
    return Focus(
        partition=partition, since_ns=since - MARGIN_NS, until_ns=max(known, default=since) + AFTER_NS
    )


def near_of(evidence: Evidence, files: RunFiles) -> Near | None:
    """Where the records are looked at one by one; without an offset the end of the log."""
    partition, offset = evidence.number("partition"), evidence.number("offset")
    if partition is None:
        return None
    if offset is None:
        offset = end_of(files, partition)
    return partition, max(0, offset - AROUND), offset + AROUND


def end_of(files: RunFiles, partition: int) -> int:
    """The highest LEO that a replica told."""
    ends = [whole(dict(row), "leo") or 0 for (_, of), row in files.replicas.items() if of == partition]
    return max(ends, default=0)


# -- the story as the viewer reads it -----------------------------------------------------------------------


def story(
    course: Course, shown: Shown | None, files: RunFiles, acked: Sequence[Acked], nemesis: Sequence[Line]
) -> dict[str, Any] | None:
    """None where the finding is of no partition, or of one whose replicas nobody knows."""
    evidence = course.evidence
    partition, near = evidence.number("partition"), near_of(evidence, files)
    if partition is None or near is None or not replicas_of(evidence.about, partition):
        return None
    steps = steps_of(course, shown) if shown is not None and shown.events else []
    events = merged(shown, nemesis, replicas_of(evidence.about, partition)) if shown is not None else []
    places = [place_in(events, step) for step in steps]
    first = max(0, min(places, default=0) - LEAD)
    last = min(len(events), max(places, default=len(events)) + TAIL)
    logs = {node: copy.deepcopy(log) for node, log in (shown.logs if shown is not None else {}).items()}
    ups = dict.fromkeys(replicas_of(evidence.about, partition), "")
    for event in events[:first]:
        advance(logs, ups, event)
    values = values_near(files, evidence.about, near)
    told_acks = acks_of(acked, shown, partition, values)
    values |= {f"{offset}:{epoch}": value for offset, epoch, _, value in told_acks if epoch is not None}
    traced = bool(steps)
    return {
        "name": evidence.name,
        "partition": partition,
        "offset": evidence.number("offset"),
        "value": evidence.number("value"),
        "traced": traced,
        "replicas": [
            replica(node, logs.get(node), ups.get(node, ""))
            for node in replicas_of(evidence.about, partition)
        ]
        if traced
        else final_replicas(files, evidence.about, near),
        "events": [compact(event) for event in events[first:last]] if traced else [],
        "steps": [stepped(step, place - first) for step, place in zip(steps, places, strict=True)],
        "opens": opens_at(evidence, steps),
        "values": values,
        "acked": told_acks,
        "said": "" if traced else UNTRACED if shown is None or not shown.events else NO_STEPS,
    }


def final_story(files: RunFiles, about: Json, partition: int) -> dict[str, Any]:
    """A partition that no story is of, as its dumps have it at its end."""
    end = end_of(files, partition)
    near = partition, max(0, end - AROUND), end + 1
    return {
        "name": "", "partition": partition, "offset": None, "value": None, "traced": False, "events": [],
        "steps": [], "opens": 0, "acked": [], "said": IN_THE_END,
        "replicas": final_replicas(files, about, near), "values": values_near(files, about, near),
    }  # fmt: skip


def stepped(step: Step, place: int) -> dict[str, Any]:
    return {"t": step.time_ns / 1e6, "name": step.name, "at": place, "text": step.sentence, "cure": step.cure}


def opens_at(evidence: Evidence, steps: Sequence[Step]) -> int:
    """The step of the line to blame, or of the last copy that went; else the last step."""
    numbers = [line.number for line in (evidence.event, *evidence.fates) if line is not None]
    return next(
        (
            at
            for number in numbers
            for at, step in enumerate(steps)
            if step.number == number and number is not None
        ),
        max(0, len(steps) - 1),
    )


def merged(shown: Shown, nemesis: Sequence[Line], here: Sequence[str]) -> list[Line]:
    """The trace's events and what the nemesis did to the processes of these nodes, in the order of time."""
    events = [{**line, "line": number} for number, line in shown.events]
    for line in nemesis:
        fields = line.get("fault")
        nodes = [str(node) for node in items(fields, "nodes")] if isinstance(fields, dict) else []
        f, told_began = text(line, "f"), whole(fields, "began") if isinstance(fields, dict) else None
        time = told_began if told_began is not None and f not in ("start", "resume") else whole(line, "time")
        if time is None or not shown.focus.since_ns <= time <= shown.focus.until_ns:
            continue
        events += [
            {"time": time, "node": node, "event": "nemesis", "f": f, "index": whole(line, "index")}
            for node in nodes
            if node in here
        ]
    return sorted(events, key=lambda event: whole(event, "time") or 0)


def place_in(events: Sequence[Line], step: Step) -> int:
    """The event after which the step has happened."""
    for at, event in enumerate(events):
        if step.number is not None and event.get("line") == step.number:
            return at
        if step.number is None and step.index is not None and event.get("index") == step.index:
            return at
    later = (at for at, event in enumerate(events) if (whole(event, "time") or 0) > step.time_ns)
    return max(0, next(later, len(events)) - 1)


def advance(logs: dict[str, ReplicaLog], ups: dict[str, str], event: Line) -> None:
    """The state after one event, as viewer.js goes on from there."""
    node = text(event, "node")
    if text(event, "event") == "nemesis":
        f = text(event, "f")
        ups[node] = (
            "down"
            if f in DOWN
            else "paused"
            if f == "pause"
            else ""
            if f in ("start", "resume")
            else ups.get(node, "")
        )
    elif node in ups:
        ups[node] = "" if ups[node] == "down" and text(event, "event") == "start" else ups[node]
        logs.setdefault(node, ReplicaLog()).apply(event)


def replica(node: str, log: ReplicaLog | None, up: str) -> dict[str, Any]:
    log = log or ReplicaLog()
    return {
        "node": node,
        "log": log.log,
        "cut": log.cut,
        "leo": log.leo,
        "hw": log.hw,
        "epoch": log.epoch,
        "role": log.role,
        "up": up,
    }


def compact(event: Line) -> dict[str, Any]:
    """An event as the viewer needs it, with its sentence."""
    told_line = {
        "t": round((whole(event, "time") or 0) / 1e6, 3),
        "n": text(event, "node"),
        "e": text(event, "event"),
    }
    if told_line["e"] == "nemesis":
        return {
            **told_line,
            "f": text(event, "f"),
            "x": f"at {seconds(whole(event, 'time') or 0)} the nemesis: {text(event, 'f')} {told_line['n']}",
        }
    line = TraceLine(number=whole(event, "line"), fields=event)
    kept = {key: event[key] for key in KEPT if key in event}
    return {
        **told_line,
        **kept,
        "seq": whole(event, "seq"),
        "line": whole(event, "line"),
        "x": cut_text(clause_of(line), 300),
    }


# -- values and acks ----------------------------------------------------------------------------------------


def values_near(files: RunFiles, about: Json, near: Near) -> dict[str, int | None]:
    """offset:epoch -> value, as the final logs have it."""
    values: dict[str, int | None] = {}
    for node in replicas_of(about, near[0]):
        for row in rows_near(files, node, near):
            offset, epoch = whole(row, "offset"), whole(row, "epoch")
            if offset is not None and epoch is not None:
                values.setdefault(f"{offset}:{epoch}", whole(row, "value"))
    return values


def rows_near(files: RunFiles, node: str, near: Near) -> Iterator[Line]:
    """The entries of a node's final dump there."""
    if not files.readable(node):
        return
    dump = files.dump(node)
    found = dump.first_at_or_above(place_of, (near[0], near[1]))
    for each in dump.lines_from(found.begin, dump.size()) if found is not None else ():
        row = fields_of(each.line)
        if row is None:
            continue
        if whole(row, "partition") != near[0] or (whole(row, "offset") or 0) >= near[2]:
            return
        yield row


def final_replicas(files: RunFiles, about: Json, near: Near) -> list[dict[str, Any]]:
    """What the dumps hold near the finding, and what each replica believed."""
    partition = near[0]
    led = leader_of(about, partition)
    told_rows = []
    for node in replicas_of(about, partition):
        row = dict(files.replicas.get((node, partition), {}))
        log: list[tuple[int, int, int]] = []
        start, leo = whole(row, "log_start") or 0, whole(row, "leo")
        if start < near[1]:
            log.append((-1, start, near[1]))
        for entry in rows_near(files, node, near):
            offset, epoch = whole(entry, "offset") or 0, whole(entry, "epoch")
            epoch = -1 if epoch is None else epoch
            if log and log[-1][0] == epoch and log[-1][2] == offset:
                log[-1] = epoch, log[-1][1], offset + 1
            else:
                log.append((epoch, offset, offset + 1))
        end = log[-1][2] if log else 0
        if leo is not None and leo > end >= near[2]:
            log.append((-1, end, leo))
        role = "leader" if node == led else "follower" if led else ""
        told_rows.append(
            {
                "node": node,
                "log": log,
                "cut": [],
                "leo": end if leo is None else leo,
                "hw": whole(row, "hw"),
                "epoch": whole(row, "epoch"),
                "role": role,
                "up": "down" if row.get("running") is False else "",
            }
        )
    return told_rows


def acks_of(
    acked: Sequence[Acked], shown: Shown | None, partition: int, values: Mapping[str, int | None]
) -> list[tuple[int, int | None, float, int]]:
    """(offset, epoch, ms, value) of each acked record near the finding; when the leader acked it, where the
    trace tells, else when the client learnt of it."""
    lines = [line for _, line in shown.events if text(line, "event") == "ack"] if shown is not None else []
    times = [whole(line, "time") or 0 for line in lines]
    by_value = {(int(key.split(":")[0]), value): int(key.split(":")[1]) for key, value in values.items()}
    told_acks = []
    for one in acked:
        if one.partition != partition:
            continue
        between = lines[bisect_left(times, one.began_ns) : bisect_right(times, one.ended_ns)]
        line = next((each for each in between if (whole(each, "offset") or -1) >= one.offset), None)
        time = one.ended_ns if line is None else whole(line, "time") or 0
        epoch = None if line is None else whole(line, "epoch")
        epoch = by_value.get((one.offset, one.value)) if epoch is None else epoch
        told_acks.append((one.offset, epoch, round(time / 1e6, 3), one.value))
    return told_acks
