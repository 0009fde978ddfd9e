"""Shows the history around a finding: the ops about it, and the faults between the promise and its breach.

Theory. A finding names lines of the history, or a place in a log, or both. The ops about it are those lines
and every other op with its value or its place. The promise is the first of the lines named (else the first op
about it); the breach is the first later op that saw another record at that place. If no client saw one, only
the final logs show the breach, and any fault since the promise may be the cause.
The history is searched once, and only lines that may matter are parsed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import click

from floodmark.harness import history
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import LASTING, undoes
from floodmark.harness.op import NEMESIS, Op, Read, Send, Type
from floodmark.harness.report.finding_evidence import began
from floodmark.harness.report.model import Course, Evidence, TraceLine, items, mapping
from floodmark.harness.report.phrases import many, op_line, seconds, where_struck
from floodmark.harness.report.run_files import LineFile
from floodmark.harness.report.safe_text import harmless, harmless_op
from floodmark.harness.report.trace_text import change_line

NEIGHBOURS = 1  # lines shown before and after each line that the finding names
SLOW_NS = 50_000_000  # a fault that took longer from its begin to its effect is shown with both times
SHOWN_HEAD, SHOWN_TAIL = 16, 8  # of more lines than these the middle is left out


@dataclass(slots=True, kw_only=True)
class Story:
    """The lines to show, each with its mark (> about the finding, ! a fault, ~ of the trace); the promise and
    the breach among them."""

    lines: list[tuple[str, Op | TraceLine]] = field(default_factory=list)
    in_force: list[tuple[str, str]] = field(default_factory=list)  # faults and nodes, at the promise's time
    promise: Op | None = None
    breach: Op | None = None
    after: int = 0  # acts of the nemesis left out because they came after the finding's last event


def read_story(file: LineFile, evidence: Evidence) -> Story:
    """Collects the lines of the history to show."""
    story, force = Story(), list[tuple[str, str]]()
    named, processes = set(evidence.indexes), probes_of(evidence)
    near = {index + away for index in named for away in range(-NEIGHBOURS, NEIGHBOURS + 1)}
    value: int | None = None  # at the place: the finding's, else the first that an op got
    for op in ops_of(file, pattern_of(evidence, near, processes)):
        if op.process == NEMESIS:
            force = in_force_after(op, force)
            story.lines += [("!", op)] if story.promise is not None and story.breach is None else []
            continue
        if not (op.index in named or op.process in processes or any(map(evidence.concerns, records_of(op)))):
            story.lines += [(" ", op)] if op.index in near else []
            continue
        story.lines.append((">", op))
        if named and story.promise is None and op.index not in named:
            continue  # it came before the first line that the finding names
        shown = shown_by(op, evidence)
        if story.promise is None:
            story.in_force, story.promise = force, op
            value = evidence.value if named else shown
        elif story.promise.type is Type.INVOKE and op.process == story.promise.process:
            story.promise = op  # its completion: the ack is the promise, not the request
        value = shown if value is None else value
        if story.breach is None and shown is not None and shown != value:
            story.breach = op
    return story


def probes_of(evidence: Evidence) -> set[int]:
    """If the example names only a partition: the processes that probed it while the cluster settled."""
    placed = evidence.indexes or evidence.offset is not None or evidence.value is not None
    probes = mapping(evidence.about, "settle").get("processes") or ()
    return set() if placed or evidence.partition is None else set(probes)


def pattern_of(evidence: Evidence, near: set[int], processes: set[int]) -> re.Pattern[bytes]:
    """A pattern that every line that may matter contains."""
    places: dict[str, set[int | None]] = {"index": {*near}, "process": {NEMESIS, *processes},
                                          "value": {evidence.value}, "offset": {evidence.offset}}
    numbers = {name: "|".join(str(one) for one in some if one is not None) for name, some in places.items()}
    fields = (f'"{name}": ?(?:{some})\\b' for name, some in numbers.items() if some)
    return re.compile("|".join(fields).encode())


def shown_by(op: Op, evidence: Evidence) -> int | None:
    """The value that this op got for the place: by an ack, or by a read of any outcome."""
    place = evidence.partition, evidence.offset
    records = records_of(op) if op.type is Type.OK or op.reads else ()
    return next((one.value for one in records
                 if one.offset is not None and (one.partition, one.offset) == place), None)


def records_of(op: Op) -> tuple[Send | Read, ...]:
    return (*(op.sends or ()), *(op.reads or ()))


def with_trace(story: Story, course: Course) -> Story:
    """The story with the trace's lines between the promise and the breach, in the order of time, and without
    the nemesis's acts after the finding's last event. An act is placed at its begin, before its effects."""
    if story.promise is None:
        return story
    since, last = story.promise.time, course.until_ns
    until = None if story.breach is None else story.breach.time
    traced = [("~", line) for line in course.changes if (time := line.whole_number("time")) is not None
              and since <= time and (until is None or time <= until)]
    kept = [one for one in story.lines if one[0] != "!" or last is None or moment(one[1]) <= last]
    return replace(story, after=len(story.lines) - len(kept),
                   lines=sorted([*kept, *traced], key=lambda one: moment(one[1])))


def moment(line: Op | TraceLine) -> int:
    """When it happened; for an act of the nemesis, when it began."""
    return line.whole_number("time") or 0 if isinstance(line, TraceLine) else began(line)


def in_force_after(op: Op, force: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The faults in force, each with its node, after one op of the nemesis."""
    nodes = [str(node) for node in items(op.fault or {}, "nodes") or ("",)] if op.f != "heal" else []
    left = [one for one in force if not undoes(op.f, nodes, *one)]
    return left + [(op.f, node) for node in nodes if op.f in LASTING and (op.f, node) not in left]


def ops_of(file: LineFile, pattern: re.Pattern[bytes]) -> Iterator[Op]:
    """Yields the ops of the lines that match; a line that is no op is reported on stderr and skipped."""
    for found in file.containing(pattern):
        try:
            yield harmless_op(found.line, history.decode_op(found.line))
        except ValueError as error:
            if found.line.endswith(b"\n"):
                message = f"floodmark: {file.path}:{file.number_of(found.begin)}: {error}"
                click.echo(harmless(message), err=True)
    if file.trouble is not None:
        raise FloodmarkError(f"cannot read the history {file.path}: {file.trouble.strerror}")


# -- output -------------------------------------------------------------------------------------------------


def story_text(story: Story, evidence: Evidence, *, in_brief: bool) -> Iterator[str]:
    """Yields since when, and the lines: `>` about the finding, `!` faults in between (in_brief: only `>`)."""
    if story.promise is None:
        source = "run.json" if evidence.offset is None else "the final logs"
        yield f"  since: no line of the history is about it; it is in {source}"
        return
    since = f"  since: {seconds(story.promise.time)} (index {story.promise.index})"
    if story.breach is not None:
        since += f"; at {seconds(story.breach.time)} (index {story.breach.index}) another record was there"
    elif evidence.offset is not None:
        since += "; no client saw another record there"
    yield since
    if story.in_force:
        yield f"  in force then: {', '.join(f'{f} {node}'.rstrip() for f, node in story.in_force)}"
    traced = ", ~ from the trace" if any(mark == "~" for mark, _ in story.lines) else ""
    yield f"  history (> about it{'' if in_brief else f', ! struck since{traced}'}):"
    shown = [line_text(mark, line, evidence) for mark, line in story.lines if not in_brief or mark == ">"]
    if len(shown) > SHOWN_HEAD + SHOWN_TAIL + 1:
        left_out = f"    {'...':>8} {len(shown) - SHOWN_HEAD - SHOWN_TAIL} more lines"
        shown = [*shown[:SHOWN_HEAD], left_out, *shown[-SHOWN_TAIL:]]
    yield from shown
    if story.after:
        yield f"    {many(story.after, 'act')} of the nemesis after that left out"


def line_text(mark: str, line: Op | TraceLine, evidence: Evidence) -> str:
    if isinstance(line, TraceLine):
        return f"  {mark} {click.style(change_line(line), fg='cyan')}"
    if mark == "!":
        return f"  {mark} {click.style(act_line(line) + where_struck(line, evidence.partition), fg='yellow')}"
    return f"  {mark} {op_line(line, evidence.concerns)}"


def act_line(op: Op) -> str:
    """A fault's line: when it began; if its effect came much later, also when that was."""
    line = op_line(replace(op, time=began(op)))
    return line if op.time - began(op) < SLOW_NS else f"{line} (in effect at {seconds(op.time)})"
