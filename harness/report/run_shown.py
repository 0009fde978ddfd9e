"""Shows a run at a glance, a finding with the history around it, and the replicas' final logs side by side,
from the run's folder. Only findings need a verdict: runs that were not judged yet can be shown too.

Theory. A finding names lines of the history, or a place in a log, or both. The ops about it are those lines
and every other op with its value or its place. The promise is the first of the lines named (else the first op
about it); the breach is the first later op that saw another record at that place. If no client saw one, only
the final logs show the breach, and any fault since the promise may be the cause.
The history is searched once, and only lines that may matter are parsed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from floodmark.checkers.text.explain import allowed_by, known_findings
from floodmark.harness import history
from floodmark.harness.errors import FloodmarkError, UsageError, nearest
from floodmark.harness.faults import LASTING, undoes
from floodmark.harness.op import NEMESIS, Op, Read, Send, Type
from floodmark.harness.report import phrases, verdict_text
from floodmark.harness.report.evidence import Evidence, began, leader_of, replicas_of
from floodmark.harness.report.model import (
    MOST,
    SHOWN_EXAMPLES,
    Json,
    Reading,
    TraceLine,
    int_in,
    items,
    mapping,
    mended_ns,
    partitions_in,
)
from floodmark.harness.report.narrative import narrate_finding
from floodmark.harness.report.run_files import (
    LEFT_OF_SHRUNK,
    OF_NEMESIS,
    LineFile,
    RunFiles,
    died_unquoted,
    read_verdict,
)
from floodmark.harness.report.run_summary import guarantee_texts, is_kafka, ruling, system_text
from floodmark.harness.report.safe_text import escape_controls, escaped_op
from floodmark.harness.run import SHRUNK, Run
from floodmark.harness.run_location import is_named
from floodmark.harness.verdict import BUG

LINES_SHOWN = 40  # of the nemesis's acts, and of the trace's lines if they are not more


# -- at a glance --------------------------------------------------------------------------------------------

def glance_text(run: Run, about: Json, folder: Path) -> Iterator[str]:
    """Yields what ran, what struck it, and the verdict. folder: as printed commands name it."""
    verdict = read_verdict(run) if is_named(run.verdict_path) else None
    word = ruling(verdict, about).heading if verdict else click.style("not judged yet", bold=True)
    reading = verdict_text.reading_of(folder, verdict or {}, about)
    yield f"{escape_controls(run.folder.name)}: {word}"
    yield from verdict_text.summarised(reading)
    yield f"  ran        {verdict_text.ran_text(about)}"
    yield f"  ended      {ending(about)}"
    yield from (f"  died       {sentence}" for sentence in died_unquoted(run, about, verdict or {}))
    shrunk = about.get(SHRUNK) is True  # it has no history, which would show what struck
    yield from verdict_text.struck_text(reading) or ([] if shrunk else ["  struck by  nothing"])
    if shrunk:
        yield f"  shrunk     {LEFT_OF_SHRUNK}"
    else:
        yield from timeline_text(about, reading, reading.files or RunFiles(run))
    if verdict is None:
        yield f"  judge      {escape_controls(phrases.command_line('check', folder))}"
    else:
        yield from verdict_text.findings_text(reading)


def timeline_text(about: Json, reading: Reading, files: RunFiles) -> Iterator[str]:
    """Yields what happened around the worst finding; if no op is about it, all acts of the nemesis."""
    evidence = reading.evidence
    if evidence is not None and (story := read_story(evidence)).promise is not None:
        yield from story_text(story, evidence)
        return
    acts = [op for op in ops_of(files.history, OF_NEMESIS) if op.process == NEMESIS]
    changes = files.changes(min(map(began, acts)), last_ns=None, partition=None) if acts else []
    timed = [(began(op), f"  ! {act_line(op)}") for op in acts[:LINES_SHOWN]]
    if len(acts) + len(changes) <= LINES_SHOWN:
        timed += [(line.whole_number("time") or 0, f"  ~ {phrases.change_line(line, where=True)}")
                  for line in changes]
        timed.sort(key=lambda one: one[0])
    yield from (line for _, line in timed)
    if len(acts) > LINES_SHOWN:
        yield f"    ... and {len(acts) - LINES_SHOWN} more"


def ending(about: Json) -> str:
    """How the run ended, and whether the cluster settled."""
    why, missed = mapping(about, "settle").get("why"), items(about, "missed")
    parts = [str(about.get("ended", "the harness was killed: run.json lacks its end")),
             "settled" if about.get("settled") is True else f"not settled{f': {why}' if why else ''}"]
    parts += [f"left behind: {about['residue']}"] if about.get("residue") else []
    parts += [f"moments of the schedule that never came: {', '.join(map(str, missed))}"] if missed else []
    return "; ".join(parts)


# -- a finding ----------------------------------------------------------------------------------------------

def finding_text(run: Run, about: Json, name: str) -> Iterator[str]:
    """Yields the first examples of the finding: whose fault, since when, which faults, and the logs."""
    verdict = read_verdict(run)
    groups = [found for found in verdict["findings"] if found["name"] == name]
    reasons = [entry for entry in verdict.get("unknown") or () if name in entry["names"]]
    if not groups and name not in known_findings():
        raise UsageError(f"no finding is called {name!r}; {nearest(name, known_findings())}")
    if not groups and not reasons:
        there = sorted({found["name"] for found in verdict["findings"]})
        raise UsageError(f"{run.folder} has no finding {name!r}; it has: {', '.join(there) or 'none'}")
    for found in groups:
        yield f"{click.style(name, bold=True)}: {phrases.group_text(found)}"
        promised = ", ".join(guarantee_texts(about)) or "its guarantees"
        tested = f"rules {about.get('rules', '?')}" if not is_kafka(about) else system_text(about)
        whose = f"nobody's: {allowed_by(found['permitted_by'])}" if found["class"] != BUG else (
            f"the cluster's ({tested}): with {promised} no fault that struck permits it")
        yield f"  whose fault: {whose}"
        yield from examples_text(run, about, verdict, found)
    for entry in reasons:
        yield (f"{name}: {click.style('cannot tell', fg='yellow')} whether there is "
               f"{'more' if groups else 'any'}: {entry['reason']}")
    once_more = verdict_text.reproduce_command(run.folder, about, name) if groups else None
    yield f"\nwhy    floodmark explain {name}"
    if once_more:
        yield f"again  {escape_controls(once_more)}"


def examples_text(run: Run, about: Json, verdict: Json, found: Json) -> Iterator[str]:
    """Yields each example with its paragraph and its history; the logs once for neighbouring offsets."""
    shown_before = list[Evidence]()
    logs_shown: set[tuple[int, int]] = set()
    examples = verdict_text.evidence_of(RunFiles(run), verdict, about, found)[:SHOWN_EXAMPLES]
    for number, evidence in enumerate(examples, 1):
        (_, what), *parts = narrate_finding(evidence, shown_before)
        yield from ["", f"{number}. {what}", *phrases.with_heads(parts, indent=2)]
        shown_before.append(evidence)
        partition, offset = evidence.partition, evidence.offset
        place = None if partition is None or offset is None else (partition, offset)
        yield from story_text(read_story(evidence), evidence, in_brief=place in logs_shown)
        if place is not None and place not in logs_shown:
            yield from logs_text(evidence.files, about, *place)
            logs_shown |= {(place[0], place[1] + away) for away in range(-OFFSETS_AROUND, OFFSETS_AROUND + 1)}


LINES_AROUND = 1  # lines shown before and after each line that the finding names
SLOW_NS = 50_000_000  # a fault that took longer from its begin to its effect is shown with both times
FIRST_SHOWN, LAST_SHOWN = 16, 8  # of more lines than these the middle is left out


@dataclass(slots=True, kw_only=True)
class Story:
    """The lines to show, each with a mark (> about the finding, ! a fault, ~ of the trace)."""

    lines: list[tuple[str, Op | TraceLine]] = field(default_factory=list)
    in_force: list[tuple[str, str]] = field(default_factory=list)  # faults and nodes, at the promise's time
    promise: Op | None = None
    breach: Op | None = None
    later_acts: int = 0  # of the nemesis left out because they came after the finding's last event


def read_story(evidence: Evidence) -> Story:
    """Collects the lines of the history and the trace to show."""
    story, in_force = Story(), list[tuple[str, str]]()
    named, processes = set(evidence.indexes), set[int]()
    if not named and evidence.offset is evidence.value is None and evidence.partition is not None:
        probing = items(mapping(evidence.about, "settle"), "processes")  # they probed the partition
        processes |= {process for process in probing if type(process) is int}
    near = {index + away for index in named for away in range(-LINES_AROUND, LINES_AROUND + 1)}
    value: int | None = None  # at the place: the finding's, else the first that an op got
    for op in ops_of(evidence.files.history, pattern_of(evidence, near, processes)):
        if op.process == NEMESIS:
            nodes = [str(node) for node in items(op.fault or {}, "nodes") or ("",)] if op.f != "heal" else []
            in_force = [one for one in in_force if not undoes(op.f, nodes, *one)]
            in_force += [(op.f, node) for node in nodes if op.f in LASTING and (op.f, node) not in in_force]
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
            story.in_force, story.promise = in_force if op.time < mended_ns(evidence.about) else [], op
            value = evidence.value if named else shown
        elif story.promise.type is Type.INVOKE and op.process == story.promise.process:
            story.promise = op  # its completion: the ack is the promise, not the request
        value = shown if value is None else value
        if story.breach is None and shown is not None and shown != value:
            story.breach = op
    return with_trace(story, evidence)


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


def with_trace(story: Story, evidence: Evidence) -> Story:
    """The story with the trace's lines between the promise and the breach, in the order of time, and without
    the nemesis's acts after the finding's last event. An act is placed at its begin, before its effects."""
    if story.promise is None:
        return story

    def moment(line: Op | TraceLine) -> int:
        return line.whole_number("time") or 0 if isinstance(line, TraceLine) else began(line)

    since, last = story.promise.time, evidence.until_ns
    until = MOST if story.breach is None else story.breach.time
    traced = [("~", line) for line in evidence.changes
              if (time := line.whole_number("time")) is not None and since <= time <= until]
    kept = [one for one in story.lines if one[0] != "!" or last is None or moment(one[1]) <= last]
    return replace(story, later_acts=len(story.lines) - len(kept),
                   lines=sorted([*kept, *traced], key=lambda one: moment(one[1])))


def ops_of(file: LineFile, pattern: re.Pattern[bytes]) -> Iterator[Op]:
    """Yields the ops of matching lines; a line that is no op is reported on stderr, unless it is cut off."""
    for number, line in file.containing(pattern):
        try:
            yield escaped_op(line, history.decode_op(line))
        except ValueError as error:
            if line.endswith(b"\n"):
                message = f"floodmark: {file.path}:{number}: {error}"
                click.echo(escape_controls(message), err=True)
    if file.trouble is not None:
        raise FloodmarkError(f"cannot read the history {file.path}: {file.trouble.strerror}")


# -- output -------------------------------------------------------------------------------------------------

def story_text(story: Story, evidence: Evidence, *, in_brief: bool = False) -> Iterator[str]:
    """Yields since when, and the lines: `>` about the finding, `!` faults in between (in_brief: only `>`)."""
    if story.promise is None:
        source = ("trace.jsonl" if evidence.event is not None else
                  "run.json" if evidence.offset is None else "the final logs")
        yield f"  since: no line of the history is about it; it is in {source}"
        return
    since = f"  since: {phrases.seconds(story.promise.time)} (index {story.promise.index})"
    if story.breach is not None:
        at = phrases.seconds(story.breach.time)
        since += f"; at {at} (index {story.breach.index}) another record was there"
    elif evidence.offset is not None:
        since += "; no client saw another record there"
    yield since
    if story.in_force:
        yield f"  in force then: {', '.join(f'{f} {node}'.rstrip() for f, node in story.in_force)}"
    traced = ", ~ from the trace" if any(mark == "~" for mark, _ in story.lines) else ""
    yield f"  history (> about it{'' if in_brief else f', ! struck since{traced}'}):"
    shown = [line_text(mark, line, evidence) for mark, line in story.lines if not in_brief or mark == ">"]
    if len(shown) > FIRST_SHOWN + LAST_SHOWN + 1:
        left_out = f"    {'...':>8} {len(shown) - FIRST_SHOWN - LAST_SHOWN} more lines"
        shown = [*shown[:FIRST_SHOWN], left_out, *shown[-LAST_SHOWN:]]
    yield from shown
    if story.later_acts:
        yield f"    {phrases.number_of(story.later_acts, 'act')} of the nemesis after that left out"


def line_text(mark: str, line: Op | TraceLine, evidence: Evidence) -> str:
    if isinstance(line, TraceLine):
        return f"  {mark} {click.style(phrases.change_line(line), fg='cyan')}"
    if mark == "!":
        where = phrases.where_struck(line, evidence.partition)
        return f"  {mark} {click.style(act_line(line) + where, fg='yellow')}"
    return f"  {mark} {phrases.op_line(line, evidence.concerns)}"


def act_line(op: Op) -> str:
    """A fault's line: when it began; if its effect came much later, also when that was."""
    line = phrases.op_line(replace(op, time=began(op)))
    return line if op.time - began(op) < SLOW_NS else f"{line} (in effect at {phrases.seconds(op.time)})"


OFFSETS_AROUND = 3  # offsets before and after the one asked for
HEAD, COLUMN = 8, 12  # width of the first column, and the least of a node's
NOTHING = "-"


Cell = tuple[str, object]  # one replica's entry at one offset: epoch/value and its flaws; its CRC


def check_partition(about: Json, partition: int | None) -> int:
    """The partition to show; UsageError if the run lacks it, or if none is named and the run has several."""
    there = partitions_in(about)
    if partition is None and len(there) == 1:
        return there[0]
    valid = f"this run has: {', '.join(map(str, there)) or 'none'}"
    if partition is None:
        raise UsageError(f"--offset needs --partition; {valid}")
    if partition not in there:
        raise UsageError(f"no partition {partition}; {valid}")
    return partition


def logs_text(files: RunFiles, about: Json, partition: int, offset: int) -> Iterator[str]:
    """Yields a line for each offset, with a column for each node; then the LEO and HW (?: unknown)."""
    nodes, leader = replicas_of(about, partition), leader_of(about, partition)
    wanted = range(max(0, offset - OFFSETS_AROUND), offset + OFFSETS_AROUND + 1)
    columns = {node: cells_of(files, node, partition, wanted) for node in nodes}
    width = max([COLUMN, *(len(node) + 2 for node in nodes),
                 *(len(shown) + 2 for log in columns.values() for shown, _ in log.values())])
    starred = "; * leads" if leader in nodes else ""
    rows, trouble = files.replicas, files.replicas_file.trouble
    if trouble is not None and not isinstance(trouble, FileNotFoundError):
        raise FloodmarkError(f"cannot read {files.run.replicas_path}: {trouble.strerror}")
    yield f"  final logs of partition {partition}, as epoch/value{starred}:"
    yield table_row(" ", "offset", [node + ("*" if node == leader else "") for node in nodes], width)
    for at in wanted:
        cells = {node: columns[node].get(at) for node in nodes}
        if at == offset or any(cells.values()):
            texts = [cell[0] if cell else NOTHING for cell in cells.values()]
            yield table_row(">" if at == offset else " ", str(at), texts, width) + difference_remark(cells)
    for name in ("LEO", "HW"):
        ends = (int_in(rows.get((node, partition), {}), name.lower()) for node in nodes)
        yield table_row(" ", name, ["?" if end is None else str(end) for end in ends], width)
    if not any(offset in log for log in columns.values()):
        yield f"  no replica's dump has offset {offset}"


def table_row(mark: str, head: str, cells: Sequence[str], width: int) -> str:
    return f"  {mark} {head:>{HEAD}}" + "".join(f"{cell:>{width}}" for cell in cells)


def difference_remark(cells: Mapping[str, Cell | None]) -> str:
    """A remark if the replicas differ at an offset; also if only the bytes differ."""
    there = {node: cell for node, cell in cells.items() if cell is not None}
    remarks: list[str] = []
    if len({shown for shown, _ in there.values()}) > 1:
        remarks.append("they differ")
    elif len({crc for _, crc in there.values()}) > 1:
        crcs = ", ".join(f"{node} {crc}" for node, (_, crc) in there.items())
        remarks.append(f"their CRCs differ: {crcs}")
    lacking = [node for node in cells if node not in there]
    remarks += [f"not in {', '.join(lacking)}"] if lacking and there else []
    return click.style(f"   <- {'; '.join(remarks)}", fg="red") if remarks else ""


def cells_of(files: RunFiles, node: str, partition: int, wanted: range) -> dict[int, Cell]:
    """The entries of one node's dump at the wanted offsets; that it cannot be read is said on stderr."""
    try:
        rows = files.entries(node, partition, wanted, everywhere=True)
    except FloodmarkError as error:
        click.echo(escape_controls(f"floodmark: {error}"), err=True)
        return {}
    cells: dict[int, Cell] = {}
    for _, row in rows:
        value = "other" if row.get("value") is None else row["value"]  # control, or another producer's
        remarks = [word for word, is_so in (
            ("bad crc", row.get("crc_ok") is False), ("aborted", row.get("aborted") is True)) if is_so]
        cells[row["offset"]] = " ".join([f"{row.get('epoch')}/{value}", *remarks]), row.get("crc")
    return cells
