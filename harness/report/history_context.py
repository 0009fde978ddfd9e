"""Prints the history around a finding: the ops about it, and the faults between the promise and its breach.

Theory. A finding names lines of the history, or a place in a log, or both. The ops about it are those lines
and every other op with its value or its place. The promise is the first of the lines named (else the first op
about it); the breach is the first later op that saw another record at that place. If no client saw one, only
the final logs show the breach, and any fault since the promise may be the cause.
The history is read once, and only lines that may matter are parsed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import click

from floodmark.harness import history
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import LASTING, undoes
from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.report.finding_evidence import began
from floodmark.harness.report.model import Course, TraceLine
from floodmark.harness.report.phrases import Record, many, op_line, seconds, where_struck
from floodmark.harness.report.safe_text import harmless, harmless_op
from floodmark.harness.report.trace_text import change_line
from floodmark.harness.run import Run

NEIGHBOURS = 1  # lines shown before and after each line that the finding names
SLOW_NS = 50_000_000  # a fault that took longer from its begin to its effect is shown with both times
SHOWN_HEAD, SHOWN_TAIL = 16, 8  # of more lines than these the middle is left out
_FAULT = re.compile(rb'"process": ?-1\b')


@dataclass(frozen=True, slots=True, kw_only=True)
class Focus:
    """The record, place and ops that a finding is about."""

    partition: int | None
    offset: int | None
    value: int | None
    ops: frozenset[int]
    processes: frozenset[int] = frozenset()

    def matches(self, record: Record) -> bool:
        """Whether this send or read is about the same record or the same place."""
        if record.partition != self.partition:
            return False
        return (self.value is not None and record.value == self.value) or (
            self.offset is not None and record.offset == self.offset)

    def concerns(self, op: Op) -> bool:
        if op.index in self.ops or op.process in self.processes:
            return True
        return any(map(self.matches, records_of(op)))

    def shown_by(self, op: Op) -> int | None:
        """The value that this op got for the place: by an ack, or by a read of any outcome."""
        for record in records_of(op) if op.type is Type.OK or op.reads else ():
            if self.offset is not None and (record.partition, record.offset) == (self.partition, self.offset):
                return record.value
        return None

    def pattern(self) -> re.Pattern[bytes]:
        """A pattern that every line that may matter contains."""
        near = {index + away for index in self.ops for away in range(-NEIGHBOURS, NEIGHBOURS + 1)}
        places: dict[str, set[int]] = {
            "index": near, "process": {NEMESIS, *self.processes},
            "value": set() if self.value is None else {self.value},
            "offset": set() if self.offset is None else {self.offset},
        }
        fields = [f'"{name}": ?(?:{"|".join(map(str, sorted(numbers)))})\\b'
                for name, numbers in places.items() if numbers]
        return re.compile("|".join(fields).encode())


def records_of(op: Op) -> tuple[Record, ...]:
    return (*(op.sends or ()), *(op.reads or ()))


@dataclass(slots=True, kw_only=True)
class Story:
    """The lines to show, each with its mark; the promise and the breach among them."""

    lines: list[tuple[str, Op | TraceLine]] = field(default_factory=list)
    in_force: dict[tuple[str, str], Op] = field(default_factory=dict)  # at the time of the promise
    promise: Op | None = None
    breach: Op | None = None
    after: int = 0  # acts of the nemesis left out because they came after the finding's last event
    value: int | None = None  # the value at the place: the finding's, else the first that an op got

    def add_op(self, op: Op, focus: Focus, force: Mapping[tuple[str, str], Op]) -> None:
        """Adds an op that is about the finding; ops come in the history's order."""
        self.lines.append((">", op))
        if focus.ops and self.promise is None and op.index not in focus.ops:
            return  # it came before the first line that the finding names
        shown = focus.shown_by(op)
        if self.promise is None:
            self.in_force, self.promise = dict(force), op
            self.value = focus.value if focus.ops else shown
        elif self.promise.type is Type.INVOKE and op.process == self.promise.process:
            self.promise = op  # its completion: the ack is the promise, not the request
        self.value = shown if self.value is None else self.value
        if self.breach is None and shown is not None and shown != self.value:
            self.breach = op


    def add_trace(self, course: Course) -> None:
        """Inserts the trace's lines between the promise and the breach in the order of time, and drops the
        acts of the nemesis after the finding's last event. An act is placed at its begin, before its
        effects."""
        if self.promise is None:
            return
        end = None if self.breach is None else self.breach.time
        traced = [("~", line) for line in course.changes if (time := line.whole_number("time")) is not None
                and self.promise.time <= time and (end is None or time <= end)]
        last = course.until_ns
        kept = [one for one in self.lines if one[0] != "!" or last is None or moment(one[1]) <= last]
        self.after = len(self.lines) - len(kept)
        self.lines = sorted([*kept, *traced], key=lambda one: moment(one[1]))


def moment(line: Op | TraceLine) -> int:
    """When it happened; for an act of the nemesis, when it began."""
    if isinstance(line, TraceLine):
        return line.whole_number("time") or 0
    return began(line)


def focus_of(example: Mapping[str, Any], about: Mapping[str, Any]) -> Focus:
    """The focus of one example; if it names only a partition, the focus is on settling's probe processes."""
    named = {key: example.get(key) for key in ("partition", "offset", "value")}
    numbers = {key: value for key, value in named.items() if type(value) is int}
    ops = frozenset(index for index in example.get("ops") or () if type(index) is int)
    probes = (about.get("settle") or {}).get("processes") or ()
    placed = bool(ops) or "offset" in numbers or "value" in numbers or "partition" not in numbers
    return Focus(partition=numbers.get("partition"), offset=numbers.get("offset"),
                 value=numbers.get("value"), ops=ops,
                 processes=frozenset() if placed else frozenset(probes))


def read_story(run: Run, focus: Focus) -> Story:
    """Reads the history once and collects the lines to show."""
    story, force = Story(), dict[tuple[str, str], Op]()
    near = {index + away for index in focus.ops for away in range(-NEIGHBOURS, NEIGHBOURS + 1)}
    for op in matching_ops(run, focus.pattern()):
        if op.process == NEMESIS:
            update_faults_in_force(op, force)
            if story.promise is not None and story.breach is None:
                story.lines.append(("!", op))
        elif focus.concerns(op):
            story.add_op(op, focus, force)
        elif op.index in near:
            story.lines.append((" ", op))
    return story


def update_faults_in_force(op: Op, force: dict[tuple[str, str], Op]) -> None:
    """Updates the faults in force, by their f and node, with one op of the nemesis."""
    nodes = [str(node) for node in (op.fault or {}).get("nodes") or ("",)] if op.f != "heal" else []
    for key in [key for key in force if undoes(op.f, nodes, *key)]:
        del force[key]
    if op.f in LASTING:
        for node in nodes:
            force[op.f, node] = op


def matching_ops(run: Run, pattern: re.Pattern[bytes]) -> Iterator[Op]:
    """Yields the ops of the lines that match; a line that is no op is reported on stderr and skipped."""
    try:
        with run.open(run.history_path) as file:
            for number, line in enumerate(file, 1):
                if pattern.search(line):
                    try:
                        yield harmless_op(line, history.decode_op(line))
                    except ValueError as error:
                        if line.endswith(b"\n"):
                            message = f"floodmark: {run.history_path}:{number}: {error}"
                            click.echo(harmless(message), err=True)
    except OSError as error:
        raise FloodmarkError(f"cannot read the history {run.history_path}: {error.strerror}") from error


def faults_of(run: Run) -> Iterator[Op]:
    """Yields the nemesis's ops in order."""
    return (op for op in matching_ops(run, _FAULT) if op.process == NEMESIS)


# -- output -------------------------------------------------------------------------------------------------


def show_story(story: Story, focus: Focus, *, in_brief: bool) -> None:
    """Prints since when, and the lines: `>` about the finding, `!` faults in between (in_brief: only `>`)."""
    if story.promise is None:
        source = "run.json" if focus.offset is None else "the final logs"
        click.echo(f"  since: no line of the history is about it; it is in {source}")
        return
    since = f"  since: {seconds(story.promise.time)} (index {story.promise.index})"
    if story.breach is not None:
        since += f"; at {seconds(story.breach.time)} (index {story.breach.index}) another record was there"
    elif focus.offset is not None and not focus.processes:
        since += "; no client saw another record there"
    click.echo(since)
    if story.in_force:
        in_force = ", ".join(f"{f} {node}".rstrip() for f, node in story.in_force)
        click.echo(f"  in force then: {in_force}")
    traced = any(mark == "~" for mark, _ in story.lines)
    since = f", ! struck since{', ~ from the trace' if traced else ''}"
    click.echo(f"  history (> about it{'' if in_brief else since}):")
    for mark, line in shortened([line for line in story.lines if not in_brief or line[0] == ">"]):
        if line is None:
            click.echo(f"    {'...':>8} {mark}")
        elif isinstance(line, TraceLine):
            click.echo(f"  {mark} {click.style(change_line(line), fg='cyan')}")
        else:
            text = act_line(line) + where_struck(line, focus.partition) if mark == "!" else (
                op_line(line, focus.matches))
            click.echo(f"  {mark} {click.style(text, fg='yellow') if mark == '!' else text}")
    if story.after:
        click.echo(f"    {many(story.after, 'act')} of the nemesis after that left out")


def act_line(op: Op) -> str:
    """A fault's line: when it began; if its effect came much later, also when that was."""
    line = op_line(replace(op, time=began(op)))
    return line if op.time - began(op) < SLOW_NS else f"{line} (in effect at {seconds(op.time)})"


def shortened(lines: list[tuple[str, Op | TraceLine]]) -> Iterator[tuple[str, Op | TraceLine | None]]:
    """All lines; of very many the first and the last."""
    if len(lines) <= SHOWN_HEAD + SHOWN_TAIL + 1:
        yield from lines
        return
    yield from lines[:SHOWN_HEAD]
    yield f"{len(lines) - SHOWN_HEAD - SHOWN_TAIL} more lines", None
    yield from lines[-SHOWN_TAIL:]
