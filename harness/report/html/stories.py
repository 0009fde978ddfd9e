"""Builds the log viewer's data for one finding (its story): the logs before it, every event of its partition,
the steps that matter (steps.py), and the values and acks around its record.

Rules
1. The events begin a few before the first step and end a few after the last; the logs are those before the
   first event.
2. Without a trace there are no events: the viewer shows the final dumps.
"""

import copy
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floodmark.harness.faults import FAULTS, MENDS_ROLE
from floodmark.harness.report.finding_evidence import leader_of, replicas_of
from floodmark.harness.report.html.clients import Acked, Near
from floodmark.harness.report.html.replica_log import ReplicaLog
from floodmark.harness.report.html.steps import Step, steps_of
from floodmark.harness.report.html.traced import Focus, Shown
from floodmark.harness.report.model import Course, Evidence, Line, TraceLine, int_in, items, text
from floodmark.harness.report.phrases import cut_text, seconds
from floodmark.harness.report.run_files import RunFiles, fields_of, place_of
from floodmark.harness.report.trace_text import clause_of

Json = Mapping[str, Any]  # an object of run.json or verdict.json

AROUND = 200  # offsets on each side of the finding whose values are looked up
MARGIN_NS = 300_000_000
AFTER_NS = 1_500_000_000
UNTRACED = "The final dumps. A trace would have shown event by event how it happened."
NO_STEPS = "The final dumps: no line of the trace is known to be about the finding."
IN_THE_END = "The final dumps at the log's end."
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
    """The partition and the time whose events are all wanted; None if the time is unknown."""
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
    """The range of offsets whose records are looked up; without an offset, the end of the log."""
    partition, offset = evidence.number("partition"), evidence.number("offset")
    if partition is None:
        return None
    if offset is None:
        offset = end_of(files, partition)
    return partition, max(0, offset - AROUND), offset + AROUND


def end_of(files: RunFiles, partition: int) -> int:
    """The highest LEO of a replica's row."""
    ends = [int_in(dict(row), "leo") or 0 for (_, of), row in files.replicas.items() if of == partition]
    return max(ends, default=0)


# -- the story as the viewer reads it -----------------------------------------------------------------------


def story(
    course: Course, shown: Shown | None, files: RunFiles, acked: Sequence[Acked], nemesis: Sequence[Line]
) -> dict[str, Any] | None:
    """The story of a course; None if its finding is about no partition, the replicas are unknown, or there is
    neither a trace of it nor a dump."""
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
    ack_rows = acks_of(acked, shown, partition, values)
    values |= {f"{offset}:{epoch}": value for offset, epoch, _, value in ack_rows if epoch is not None}
    traced = bool(steps)
    replicas = [replica(node, logs.get(node), ups.get(node, ""))
                for node in replicas_of(evidence.about, partition)] \
        if traced else final_replicas(files, evidence.about, near)
    return {
        "name": evidence.name,
        "partition": partition,
        "offset": evidence.number("offset"),
        "value": evidence.number("value"),
        "traced": traced,
        "replicas": replicas,
        "events": [compact(event) for event in events[first:last]] if traced else [],
        "steps": [stepped(step, place - first) for step, place in zip(steps, places, strict=True)],
        "opens": opens_at(evidence, steps),
        "values": values,
        "acked": ack_rows,
        "said": "" if traced else UNTRACED if shown is None or not shown.events else NO_STEPS,
    } if replicas else None


def final_story(files: RunFiles, about: Json, partition: int) -> dict[str, Any] | None:
    """A story without events: the end of a partition's logs by the final dumps. None: there is no dump."""
    end = end_of(files, partition)
    near = partition, max(0, end - AROUND), end + 1
    replicas = final_replicas(files, about, near)
    return {
        "name": "", "partition": partition, "offset": None, "value": None, "traced": False, "events": [],
        "steps": [], "opens": 0, "acked": [], "said": IN_THE_END,
        "replicas": replicas, "values": values_near(files, about, near),
    } if replicas else None  # fmt: skip


def stepped(step: Step, place: int) -> dict[str, Any]:
    return {"t": step.time_ns / 1e6, "name": step.name, "at": place, "text": step.sentence, "cure": step.cure}


def opens_at(evidence: Evidence, steps: Sequence[Step]) -> int:
    """The step to open with: the line to blame, or the loss of a copy; else the last step."""
    numbers = [line.number for line in (evidence.event, *evidence.copy_losses) if line is not None]
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
    """The trace's events and the nemesis's acts on these nodes, in the order of time."""
    events = [{**line, "line": number} for number, line in shown.events]
    for line in nemesis:
        fields = line.get("fault")
        nodes = [str(node) for node in items(fields, "nodes")] if isinstance(fields, dict) else []
        f, began = text(line, "f"), int_in(fields, "began") if isinstance(fields, dict) else None
        time = began if began is not None and f not in MENDS_ROLE else int_in(line, "time")
        if time is None or not shown.focus.since_ns <= time <= shown.focus.until_ns:
            continue
        events += [
            {"time": time, "node": node, "event": "nemesis", "f": f, "index": int_in(line, "index")}
            for node in nodes
            if node in here
        ]
    return sorted(events, key=lambda event: int_in(event, "time") or 0)


def place_in(events: Sequence[Line], step: Step) -> int:
    """The position of the event after which the step has happened."""
    for at, event in enumerate(events):
        if step.number is not None and event.get("line") == step.number:
            return at
        if step.number is None and step.index is not None and event.get("index") == step.index:
            return at
    later = (at for at, event in enumerate(events) if (int_in(event, "time") or 0) > step.time_ns)
    return max(0, next(later, len(events)) - 1)


def advance(logs: dict[str, ReplicaLog], ups: dict[str, str], event: Line) -> None:
    """Applies one event to the logs and to the nodes' state; viewer.js continues from there."""
    node = text(event, "node")
    if text(event, "event") == "nemesis":
        f = text(event, "f")
        ends = FAULTS[f].undone_by if f in FAULTS else None
        ups[node] = "" if f in MENDS_ROLE else MENDS_ROLE.get(ends or "", ups.get(node, ""))
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
    """An event with its sentence, as the viewer needs it."""
    head = {
        "t": round((int_in(event, "time") or 0) / 1e6, 3),
        "n": text(event, "node"),
        "e": text(event, "event"),
    }
    if head["e"] == "nemesis":
        return {
            **head,
            "f": text(event, "f"),
            "x": f"at {seconds(int_in(event, 'time') or 0)} the nemesis: {text(event, 'f')} {head['n']}",
        }
    line = TraceLine(number=int_in(event, "line"), fields=event)
    kept = {key: event[key] for key in KEPT if key in event}
    return {
        **head,
        **kept,
        "seq": int_in(event, "seq"),
        "line": int_in(event, "line"),
        "x": cut_text(clause_of(line), 300),
    }


# -- values and acks ----------------------------------------------------------------------------------------


def values_near(files: RunFiles, about: Json, near: Near) -> dict[str, int | None]:
    """The values in the final logs by `offset:epoch`."""
    values: dict[str, int | None] = {}
    for node in replicas_of(about, near[0]):
        for row in rows_near(files, node, near):
            offset, epoch = int_in(row, "offset"), int_in(row, "epoch")
            if offset is not None and epoch is not None:
                values.setdefault(f"{offset}:{epoch}", int_in(row, "value"))
    return values


def rows_near(files: RunFiles, node: str, near: Near) -> Iterator[Line]:
    """Yields the entries of a node's final dump in that range."""
    if not files.readable(node):
        return
    dump = files.dump(node)
    found = dump.first_at_or_above(place_of, (near[0], near[1]))
    for each in dump.lines(found.begin) if found is not None else ():
        row = fields_of(each.line)
        if row is None:
            continue
        if int_in(row, "partition") != near[0] or (int_in(row, "offset") or 0) >= near[2]:
            return
        yield row


def final_replicas(files: RunFiles, about: Json, near: Near) -> list[dict[str, Any]]:
    """The replicas by their final dumps near the finding, and by their rows of replicas.jsonl. One without a
    dump, or of which neither says anything, is not drawn: nobody saw its log."""
    partition = near[0]
    led = leader_of(about, partition)
    rows = []
    for node in replicas_of(about, partition):
        row, entries = dict(files.replicas.get((node, partition), {})), list(rows_near(files, node, near))
        if not files.readable(node) or not (row or entries):
            continue
        log: list[tuple[int, int, int]] = []
        start, leo = int_in(row, "log_start") or 0, int_in(row, "leo")
        if start < near[1]:
            log.append((-1, start, near[1]))
        for entry in entries:
            offset, epoch = int_in(entry, "offset") or 0, int_in(entry, "epoch")
            epoch = -1 if epoch is None else epoch
            if log and log[-1][0] == epoch and log[-1][2] == offset:
                log[-1] = epoch, log[-1][1], offset + 1
            else:
                log.append((epoch, offset, offset + 1))
        end = log[-1][2] if log else 0
        if leo is not None and leo > end >= near[2]:
            log.append((-1, end, leo))
        role = "leader" if node == led else "follower" if led else ""
        rows.append(
            {
                "node": node,
                "log": log,
                "cut": [],
                "leo": end if leo is None else leo,
                "hw": int_in(row, "hw"),
                "epoch": int_in(row, "epoch"),
                "role": role,
                "up": "down" if row.get("running") is False else "",
            }
        )
    return rows


def acks_of(
    acked: Sequence[Acked], shown: Shown | None, partition: int, values: Mapping[str, int | None]
) -> list[tuple[int, int | None, float, int]]:
    """(offset, epoch, ms, value) of each acked record near the finding; the time is that of the leader's ack
    in the trace, else of the client's answer."""
    lines = [line for _, line in shown.events if text(line, "event") == "ack"] if shown is not None else []
    times = [int_in(line, "time") or 0 for line in lines]
    by_value = {(int(key.split(":")[0]), value): int(key.split(":")[1]) for key, value in values.items()}
    ack_rows = []
    for one in acked:
        if one.partition != partition:
            continue
        between = lines[bisect_left(times, one.began_ns) : bisect_right(times, one.ended_ns)]
        line = next((each for each in between if (int_in(each, "offset") or -1) >= one.offset), None)
        time = one.ended_ns if line is None else int_in(line, "time") or 0
        epoch = None if line is None else int_in(line, "epoch")
        epoch = by_value.get((one.offset, one.value)) if epoch is None else epoch
        ack_rows.append((one.offset, epoch, round(time / 1e6, 3), one.value))
    return ack_rows
