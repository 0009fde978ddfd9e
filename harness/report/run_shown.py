"""Shows a run at a glance, and a finding with its history, from the run's folder. Only findings need a
verdict: runs that were not judged yet can be shown too.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from floodmark.checkers.text.explain import allowed_by, known_findings
from floodmark.harness.errors import UsageError, nearest
from floodmark.harness.op import NEMESIS
from floodmark.harness.report import reproduce_command
from floodmark.harness.report.broker_exits import died_unquoted
from floodmark.harness.report.case_names import guarantee_texts
from floodmark.harness.report.finding_evidence import began
from floodmark.harness.report.finding_narrative import narrate_finding
from floodmark.harness.report.history_context import (
    act_line,
    ops_of,
    read_story,
    story_text,
    with_trace,
)
from floodmark.harness.report.logs_side_by_side import AROUND, logs_text
from floodmark.harness.report.model import SHOWN_EXAMPLES, Evidence, Json, Reading, mapping
from floodmark.harness.report.phrases import class_text, many, with_heads
from floodmark.harness.report.run_files import OF_NEMESIS, RunFiles
from floodmark.harness.report.run_outcome import ruling
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.report.saved_verdict import LEFT_OF_SHRUNK, read_verdict
from floodmark.harness.report.trace_text import change_line
from floodmark.harness.report.verdict_text import (
    findings_text,
    gathering_of,
    ran_text,
    reading_of,
    struck_text,
    summarised,
)
from floodmark.harness.run import SHRUNK, Run
from floodmark.harness.run_location import is_named
from floodmark.harness.verdict import BUG

LINES_SHOWN = 40  # of the nemesis's acts, and of the trace's lines if they are not more


# -- at a glance --------------------------------------------------------------------------------------------


def glance_text(run: Run, about: Json, shown: Path) -> Iterator[str]:
    """Yields what ran, what struck it, and the verdict."""
    verdict = read_verdict(run) if is_named(run.verdict_path) else None
    word = ruling(verdict, about).heading if verdict else click.style("not judged yet", bold=True)
    reading = reading_of(shown, verdict or {}, about)
    yield f"{harmless(run.folder.name)}: {word}"
    yield from summarised(reading)
    yield f"  ran        {ran_text(about)}"
    yield f"  ended      {ending(about)}"
    yield from (f"  died       {sentence}" for sentence in died_unquoted(run, about, verdict or {}))
    yield from struck_text(reading) or ["  struck by  nothing"]
    if about.get(SHRUNK) is True:
        yield f"  shrunk     {LEFT_OF_SHRUNK}"
    else:
        yield from timeline_text(run, about, reading)
    if verdict is None:
        yield f"  judge      {harmless(shlex.join(['floodmark', 'check', str(shown)]))}"
    else:
        yield from findings_text(shown, verdict, about, reading)


def timeline_text(run: Run, about: Json, reading: Reading) -> Iterator[str]:
    """Yields what happened around the worst finding; if no op is about it, all acts of the nemesis."""
    files, course = RunFiles(run), reading.course
    if course is not None:
        story = read_story(files.history, course.evidence)
        if story.promise is not None:
            yield from story_text(with_trace(story, course), course.evidence, in_brief=False)
            return
    acts = [op for op in ops_of(files.history, OF_NEMESIS) if op.process == NEMESIS]
    changes = files.changes(min(map(began, acts)), None, None) if acts else []
    if len(acts) + len(changes) <= LINES_SHOWN:
        timed = [*((began(op), f"  ! {act_line(op)}") for op in acts),
                 *((line.whole_number("time") or 0, f"  ~ {change_line(line, where=True)}")
                   for line in changes)]
        yield from (line for _, line in sorted(timed, key=lambda one: one[0]))
        return
    yield from (f"  ! {act_line(op)}" for op in acts[:LINES_SHOWN])
    if len(acts) > LINES_SHOWN:
        yield f"    ... and {len(acts) - LINES_SHOWN} more"


def ending(about: Json) -> str:
    """How the run ended, and whether the cluster settled."""
    why, missed = mapping(about, "settle").get("why"), about.get("missed")
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
        yield f"{click.style(name, bold=True)}: {many(found['count'], 'finding')}, {class_text(found)}"
        yield f"  whose fault: {blame(found, about)}"
        yield from examples_text(run, about, verdict, found)
    for entry in reasons:
        yield (f"{name}: {click.style('cannot tell', fg='yellow')} whether there is "
               f"{'more' if groups else 'any'}: {entry['reason']}")
    once_more = reproduce_command.reproduce_command(run.folder, about, name) if groups else None
    yield f"\nwhy    floodmark explain {name}"
    if once_more:
        yield f"again  {harmless(once_more)}"


def blame(found: Json, about: Json) -> str:
    """One sentence on who broke which guarantee."""
    if found["class"] != BUG:
        return f"nobody's: {allowed_by(found['permitted_by'])}"
    promised = ", ".join(guarantee_texts(about)) or "its guarantees"
    return f"the cluster's (rules {about.get('rules', '?')}): with {promised} no fault that struck permits it"


def examples_text(run: Run, about: Json, verdict: Json, found: Json) -> Iterator[str]:
    """Yields each example with its paragraph and its history; the logs once for neighbouring offsets."""
    gathering, shown_before = gathering_of(run, verdict, about), list[Evidence]()
    pictured: set[tuple[int, int]] = set()
    for number, example in enumerate((found.get("examples") or ())[:SHOWN_EXAMPLES], 1):
        evidence = gathering.evidence_for(found, example)
        (_, what), *parts = narrate_finding(evidence, shown_before)
        yield from ["", f"{number}. {what}", *with_heads(parts, indent=2)]
        shown_before.append(evidence)
        partition, offset = evidence.partition, evidence.offset
        seen_already = partition is not None and offset is not None and (partition, offset) in pictured
        story = with_trace(read_story(gathering.files.history, evidence), gathering.course_of(evidence))
        yield from story_text(story, evidence, in_brief=seen_already)
        if partition is not None and offset is not None and not seen_already:
            yield from logs_text(gathering.files, about, partition, offset)
            pictured |= {(partition, offset + away) for away in range(-AROUND, AROUND + 1)}
