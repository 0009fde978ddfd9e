"""Builds the log viewer's data for one finding, its story: the steps that matter, every event of its
partition around them with what it changes of its replica, and the values and acks around its record.

Rules
1. `candidates` proposes steps with weights: the finding's ack, the line to blame, the loss of each copy, the
   election of a leader without the record, the record in its place; then the faults before the line to blame.
   Four to eight are taken. Their sentences are those of `show` for the same lines.
2. The events begin a few before the first step and end a few after the last; the replicas are those before
   the first event. Logs are rebuilt by timeline.py; the viewer only applies what each event changes.
3. Without a trace there are no events: the viewer shows the final dumps.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.explain import EXPLANATIONS, FACTS
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS, MENDS_ROLE
from floodmark.harness.op import Op
from floodmark.harness.report.evidence import (
    Evidence,
    appends,
    began,
    leader_of,
    reaches,
    replicas_of,
)
from floodmark.harness.report.model import Json, Line, TraceLine, int_in, items, text
from floodmark.harness.report.narrative import meaning, relevant_facts, short
from floodmark.harness.report.phrases import Record, clause_of, cut_text, fault_text, seconds
from floodmark.harness.report.run_files import RunFiles
from floodmark.harness.report.timeline import DOWN, ReplicaLog, Shown

if TYPE_CHECKING:
    from floodmark.checkers.stats.seen import Acked, Near

STEPS, FEW = 8, 4
LEAD, TAIL = 15, 25  # events shown before the first step and after the last
AROUND = 200  # offsets on each side of the finding whose values are looked up
MARGIN_NS, AFTER_NS = 300_000_000, 1_500_000_000
UNTRACED = "The final dumps. A trace would have shown event by event how it happened."
NO_STEPS = "The final dumps: no line of the trace is known to be about the finding."
IN_THE_END = "The final dumps at the log's end."
CURES = {  # how Kafka's protocol avoids it today, by the step's event
    "truncate hw": "Since KIP-101 a follower asks the leader where its last epoch ended "
    "(OffsetsForLeaderEpoch) and truncates only what comes after that.",
    "unclean": "A clean election chooses from the ISR; if none of its members is alive, the partition waits.",
}
STEP_NAMES = {  # on a step's button
    "truncate": "{node} truncates", "become_leader": "{node} begins to lead", "start": "{node} starts",
    "become_follower": "{node} follows {leader}", "ack": "{node} acks", "isr": "the ISR changes",
    "append": "{node} appends", "hw": "{node} moves its HW",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One of the instants that matter for a finding."""

    time_ns: int
    name: str
    sentence: str
    weight: int  # the lower, the more it matters
    line: tuple[str, int]  # `trace` and its number from 1, or `history` and its index
    cure: str = ""


def shown_of(evidence: Evidence) -> Shown | None:
    """The partition and the time whose events are all wanted; None if the time is unknown."""
    partition, times = evidence.partition, [op.time for op in evidence.ops]
    since = evidence.since_ns if evidence.since_ns is not None else min(times, default=None)
    if partition is None or since is None:
        return None
    known = [time for time in (evidence.until_ns, max(times, default=None)) if time is not None]
    until = max(known, default=since)
    return Shown(partition=partition, since_ns=since - MARGIN_NS, until_ns=until + AFTER_NS)


def near_of(files: RunFiles, partition: int | None, offset: int | None) -> "Near | None":
    """The offsets whose records are looked up; without an offset, at the log's end: the highest LEO."""
    if partition is None:
        return None
    ends = [int_in(row, "leo") or 0 for (_, of), row in files.replicas.items() if of == partition]
    middle = max(ends, default=0) if offset is None else offset
    return partition, max(0, middle - AROUND), middle + AROUND


def story(evidence: Evidence, shown: Shown | None, files: RunFiles, acked: "Sequence[Acked]"
          ) -> Json | None:
    """None if the finding is about no partition, or there is neither a trace of it nor a dump."""
    near = near_of(files, evidence.partition, evidence.offset)
    if near is None or not replicas_of(evidence.about, near[0]):
        return None
    events = shown.events if shown is not None else []
    steps = steps_of(evidence, events) if events else []
    dumps = {node: rows_near(files, node, near) for node in replicas_of(evidence.about, near[0])}
    values = values_in(dumps)
    ack_rows = acks_of(acked, events, near[0], values)
    values |= {f"{offset}:{epoch}": value for offset, epoch, _, value in ack_rows if epoch is not None}
    at = {step.line[1]: at for at, step in reversed(list(enumerate(steps))) if step.line[0] == "trace"}
    told: dict[str, Any] = {
        "name": evidence.name, "partition": near[0], "offset": evidence.offset,
        "value": evidence.value, "values": values, "acked": ack_rows,
        # The step to open with: the line to blame, or the loss of a copy; else the last step.
        "opens": next((at[line.number] for line in (evidence.event, *evidence.copy_losses)
                       if line is not None and line.number in at), max(0, len(steps) - 1)),
        "said": "", "traced": bool(steps),
    }  # fmt: skip
    if shown is not None and steps:
        return {**told, **replayed(shown, merged(shown, files.nemesis, dumps), steps, list(dumps))}
    replicas = final_replicas(files, evidence.about, near, dumps)
    said = NO_STEPS if events else UNTRACED
    return {**told, "said": said, "replicas": replicas, "events": [], "steps": []} if replicas else None


def final_story(files: RunFiles, about: Json, partition: int) -> Json | None:
    """A story without events: the end of a partition's logs by the final dumps. None: there is no dump."""
    _, first, behind = near_of(files, partition, None) or (partition, 0, 0)
    near = partition, first, behind - AROUND + 1
    dumps = {node: rows_near(files, node, near) for node in replicas_of(about, partition)}
    replicas = final_replicas(files, about, near, dumps)
    return {
        "name": "", "partition": partition, "offset": None, "value": None, "traced": False, "events": [],
        "steps": [], "opens": 0, "acked": [], "said": IN_THE_END,
        "replicas": replicas, "values": values_in(dumps),
    } if replicas else None  # fmt: skip


# -- the steps ----------------------------------------------------------------------------------------------

def steps_of(evidence: Evidence, events: Sequence[TraceLine]) -> list[Step]:
    """The steps that matter most, at most STEPS, in the order of time. events: those of its partition."""
    found: dict[tuple[str, int], Step] = {}
    for step in candidates(evidence, events):
        if step.line not in found or step.weight < found[step.line].weight:
            found[step.line] = step
    if len(found) < FEW:  # then also the partition's role changes and truncations
        for event in ("elect", "truncate", "become_leader", "start"):
            for line in of_event(events, event):
                step = step_of(evidence, line, 5)
                found.setdefault(step.line, step)
    chosen = sorted(found.values(), key=lambda step: (step.weight, step.time_ns))[:STEPS]
    return sorted(chosen, key=lambda step: (step.time_ns, step.line))


def candidates(evidence: Evidence, events: Sequence[TraceLine]) -> Iterator[Step]:
    blamed = evidence.event
    for rival in (evidence, *evidence.rivals):
        for ack_event in rival.ack_events[:1]:
            yield step_of(evidence, ack_event.line, 0, "acked")
    if blamed is not None:
        yield step_of(evidence, blamed, 0)
    for line in evidence.copy_losses:
        yield step_of(evidence, line, 1)
    for line in evidence.changes:
        began_there = line.event == "become_leader" and blamed is not None and line.node == blamed.node
        if line.event in ("elect", "truncate") or began_there:
            yield step_of(evidence, line, 2 if line.event == "elect" else 3)
    there = [line for line in events if appends(line, evidence.offset)]
    firsts: dict[tuple[str, int | None], TraceLine] = {}  # where logs differ, one for each node and epoch
    for line in there if evidence.name in (names.DIVERGED, names.EPOCH_LINEAGE, names.TWO_LEADERS) else ():
        firsts.setdefault((line.name_in("node"), line.whole_number("epoch")), line)
    yield from (step_of(evidence, line, 1, f"{line.node} appends there") for line in firsts.values())
    if not evidence.ack_events:
        yield from (step_of(evidence, line, 3) for line in of_event(events, "elect"))
    overwriting = (  # of a leader in a later epoch than the ack
        line for ack in evidence.ack_events[:1] for line in there if line.name_in("role") == "leader"
        and all((known := ack.line.whole_number(field)) is not None
                and (line.whole_number(field) or 0) > known for field in ("epoch", "time")))
    for line in islice(overwriting, 1):
        yield step_of(evidence, line, 2, f"{line.node} appends there")
    strikes = evidence.strikes()
    if blamed is not None:
        strikes = [op for op in strikes if began(op) <= (blamed.whole_number("time") or 0)]
    for op in strikes[-6:]:
        yield Step(
            time_ns=began(op), name=short(op), weight=2 if op.f in DOWN else 4, line=("history", op.index),
            sentence=f"At {seconds(began(op))} the nemesis: {fault_text(op)} (history.jsonl:{op.index + 1}).")
    for op in evidence.ops[:3] if not evidence.ack_events else ():  # no line of the trace shows them
        records: list[Record] = [*(op.sends or ()), *(op.reads or ())]
        outcome = f"{records[0].value} at offset {records[0].offset}" if records else op.f
        yield Step(
            time_ns=op.time, name=f"{op.f} {op.type}", weight=2, line=("history", op.index),
            sentence=f"At {seconds(op.time)} process {op.process}: {op.f} {op.type}, {outcome} "
            f"(history.jsonl:{op.index + 1}).")


def step_of(evidence: Evidence, line: TraceLine, weight: int, name: str = "") -> Step:
    """The step of a line of the trace; its name by default says the event: `n3 truncates`."""
    # Of a line before the promise, or if none is known, nobody knows whether the record was there to lack.
    is_blamed = evidence.event is not None and evidence.event.number == line.number
    promised = (evidence.ack_events or evidence.conclusive_ops) and (
        line.whole_number("time") or 0) >= (evidence.promised_ns or 0)
    sentence = f"{clause_of(line)}{meaning(evidence, line) if is_blamed or promised else ''}."
    node, leader = line.name_in("node"), line.fields.get("leader")
    if line.event == "elect":
        named = f"{leader} is elected" if leader else "no leader is left"
    else:
        named = STEP_NAMES.get(line.event, "{node}: {event}").format(
            node=node, leader=line.name_in("leader"), event=line.event)
    # How the protocol avoids this; for the line to blame at least the law that it broke.
    cure = CURES.get(f"{line.event} {line.fields.get('cause')}", "")
    if line.event == "elect" and line.fields.get("clean") is False:
        cure = CURES["unclean"]
    elif not cure and is_blamed:
        fact, explained = next(relevant_facts(evidence), None), EXPLANATIONS.get(evidence.name)
        cure = FACTS[fact].holds if fact is not None else f"{explained.law}." if explained is not None else ""
    return Step(time_ns=line.whole_number("time") or 0, name=name or named, weight=weight, cure=cure,
                line=("trace", line.number), sentence=sentence[:1].upper() + sentence[1:])


def of_event(events: Sequence[TraceLine], event: str) -> Iterator[TraceLine]:
    return (line for line in events if line.event == event)


# -- the events ---------------------------------------------------------------------------------------------

def merged(shown: Shown, nemesis: Sequence[Op], here: Mapping[str, Any]) -> list[Line]:
    """The trace's events and the nemesis's acts on these nodes, in order, each `of` a line, as in Step."""
    events = [{**line.fields, "of": ("trace", line.number)} for line in shown.events]
    for op in nemesis:
        time = op.time if op.f in MENDS_ROLE else began(op)
        if shown.since_ns <= time <= shown.until_ns:
            events += [
                {"time": time, "node": str(node), "event": "nemesis", "f": op.f, "of": ("history", op.index)}
                for node in items(op.fault or {}, "nodes") if str(node) in here]  # fmt: skip
    return sorted(events, key=lambda event: int_in(event, "time") or 0)


def replayed(
    shown: Shown, events: Sequence[Line], steps: Sequence[Step], nodes: Sequence[str]
) -> dict[str, Any]:
    """The replicas, the events and the steps as the viewer reads them."""
    places = [place_in(events, step) for step in steps]
    first, last = max(0, min(places) - LEAD), min(len(events), max(places) + TAIL)
    logs = {node: (shown.logs or {}).get(node) or ReplicaLog() for node in nodes}
    states = {node: state_of(node, logs[node], "") for node in nodes}
    begin, drawn = list(states.values()), list[Line]()
    for at, event in enumerate(events[:last]):
        begin = list(states.values()) if at == first else begin
        node, changes = text(event, "node"), dict[str, Any]()
        if node in states:
            up = up_after(event, states[node]["up"])
            if text(event, "event") != "nemesis":
                logs[node].apply(event)
            before, states[node] = states[node], state_of(node, logs[node], up)
            changes = changed(before, states[node])
        drawn += [{**compact(event), **changes}] if at >= first else []
    return {"replicas": begin, "events": drawn, "steps": [
        {"t": step.time_ns / 1e6, "name": step.name, "at": place - first, "text": step.sentence,
         "cure": step.cure}
        for step, place in zip(steps, places, strict=True)]}


def place_in(events: Sequence[Line], step: Step) -> int:
    """The position of the event after which the step has happened."""
    its_own = (at for at, event in enumerate(events) if event["of"] == step.line)
    later = (at - 1 for at, event in enumerate(events) if (int_in(event, "time") or 0) > step.time_ns)
    return next(its_own, max(0, next(later, len(events) - 1)))


def up_after(event: Line, up: str) -> str:
    """Whether the event's node is `down` or `paused` then; empty: neither."""
    f = text(event, "f")
    if text(event, "event") == "start":
        return "" if up == "down" else up
    if text(event, "event") != "nemesis" or f not in FAULTS:
        return up
    if f in MENDS_ROLE:  # a dead process is not resumed, but started
        return up if (f, up) == ("resume", "down") else ""
    role = MENDS_ROLE.get(FAULTS[f].undone_by or "", up)
    return up if (role, up) == ("paused", "down") else role


def state_of(node: str, log: ReplicaLog, up: str) -> dict[str, Any]:
    return {"node": node, "log": list(log.log), "cut": list(log.cut), "leo": log.leo, "hw": log.hw,
            "epoch": log.epoch, "role": log.role, "up": up}  # fmt: skip


def changed(before: Json, after: Json) -> dict[str, Any]:
    """What differs; of the log, how many ranges stay, and the ranges after these."""
    differs = {key: value for key, value in after.items() if value != before[key]}
    if "log" in differs:
        pairs = zip(before["log"], after["log"], strict=False)
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        differs["log"] = [same, *after["log"][same:]]
    return differs


def compact(event: Line) -> dict[str, Any]:
    """An event with its sentence, as the viewer needs it."""
    time, node, name = int_in(event, "time") or 0, text(event, "node"), text(event, "event")
    head = {"t": round(time / 1e6, 3), "n": node, "e": name}
    if name == "nemesis":
        return {**head, "x": f"at {seconds(time)} the nemesis: {text(event, 'f')} {node}"}
    line = TraceLine(number=event["of"][1], fields=event)
    if isinstance(event.get("isr"), list) and name not in ("ack", "isr_proposed"):
        head["isr"] = event["isr"]
    return {**head, "seq": int_in(event, "seq"), "line": line.number, "x": cut_text(clause_of(line), 300)}


# -- values and acks ----------------------------------------------------------------------------------------

def values_in(dumps: Mapping[str, Sequence[Line]]) -> dict[str, int | None]:
    """The values in the final logs by `offset:epoch`."""
    values: dict[str, int | None] = {}
    for row in (row for rows in dumps.values() for row in rows):
        offset, epoch = int_in(row, "offset"), int_in(row, "epoch")
        if offset is not None and epoch is not None:
            values.setdefault(f"{offset}:{epoch}", int_in(row, "value"))
    return values


def rows_near(files: RunFiles, node: str, near: "Near") -> list[Line]:
    """The entries of a node's final dump in that range; empty if there is none."""
    with suppress(FloodmarkError):
        return [row for _, row in files.entries(node, near[0], range(*near[1:]))]
    return []


def final_replicas(
    files: RunFiles, about: Json, near: "Near", dumps: Mapping[str, Sequence[Line]]
) -> list[dict[str, Any]]:
    """The replicas by their final dumps near the finding, and by their rows of replicas.jsonl. One without a
    dump, or of which neither says anything, is not drawn: nobody saw its log."""
    partition, first, behind = near
    led = leader_of(about, partition)
    replicas = []
    for node, entries in dumps.items():
        row = files.replicas.get((node, partition), {})
        if not files.readable(node) or not (row or entries):
            continue
        start, leo = int_in(row, "log_start") or 0, int_in(row, "leo")
        log: list[tuple[int, int, int]] = [(-1, start, first)] if start < first else []
        for entry in entries:
            offset, epoch = int_in(entry, "offset") or 0, int_in(entry, "epoch")
            epoch = -1 if epoch is None else epoch
            if log and log[-1][0] == epoch and log[-1][2] == offset:
                log[-1] = epoch, log[-1][1], offset + 1
            else:
                log.append((epoch, offset, offset + 1))
        end = log[-1][2] if log else 0
        if leo is not None and leo > end >= behind:
            log.append((-1, end, leo))
        replicas.append({
            "node": node, "log": log, "cut": [], "leo": end if leo is None else leo, "hw": int_in(row, "hw"),
            "epoch": int_in(row, "epoch"), "role": "leader" if node == led else "follower" if led else "",
            "up": "down" if row.get("running") is False else "",
        })  # fmt: skip
    return replicas


def acks_of(
    acked: "Sequence[Acked]", events: Sequence[TraceLine], partition: int, values: Mapping[str, int | None]
) -> list[tuple[int, int | None, float, int]]:
    """(offset, epoch, ms, value) of each acked record near the finding; the time is that of the leader's ack
    in the trace, else of the client's answer."""
    lines = list(of_event(events, "ack"))
    times = [line.whole_number("time") or 0 for line in lines]
    by_value = {(int(key.split(":")[0]), value): int(key.split(":")[1]) for key, value in values.items()}
    ack_rows = []
    for one in acked:
        if one.partition != partition:
            continue
        between = lines[bisect_left(times, one.began_ns) : bisect_right(times, one.ended_ns)]
        line = next((each for each in between if reaches(each, "offset", one.offset)), None)
        time = one.ended_ns if line is None else line.whole_number("time") or 0
        epoch = None if line is None else line.whole_number("epoch")
        epoch = by_value.get((one.offset, one.value)) if epoch is None else epoch
        ack_rows.append((one.offset, epoch, round(time / 1e6, 3), one.value))
    return ack_rows
