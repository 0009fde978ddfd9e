"""Prints a run at a glance, and the history of a finding, from the run's folder. Only findings need a
verdict: runs that were not judged yet can be shown too.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.text.explain import known_findings
from floodmark.harness.errors import UsageError, nearest
from floodmark.harness.report import reproduce_command
from floodmark.harness.report.broker_exits import died_unquoted
from floodmark.harness.report.case_names import guarantee_texts
from floodmark.harness.report.finding_evidence import began
from floodmark.harness.report.finding_narrative import narrate_finding
from floodmark.harness.report.history_context import act_line, faults_of, focus_of, read_story, show_story
from floodmark.harness.report.logs_side_by_side import AROUND, show_logs
from floodmark.harness.report.model import Evidence, Json, Reading
from floodmark.harness.report.phrases import PERMITS, class_text, many
from floodmark.harness.report.run_files import RunFiles
from floodmark.harness.report.run_outcome import ruling
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.report.saved_verdict import LEFT_OF_SHRUNK, read_verdict
from floodmark.harness.report.trace_text import change_line
from floodmark.harness.report.verdict_text import (
    gathering_of,
    left_undone,
    looked_at,
    next_commands,
    paragraph,
    ran_text,
    reading_of,
    struck_text,
    summarised,
    unknowns,
    with_heads,
)
from floodmark.harness.run import SHRUNK, Run
from floodmark.harness.run_location import is_named
from floodmark.harness.verdict import BUG

EXAMPLES = 3  # of a finding
LINES_SHOWN = 40  # of the nemesis's acts, and of the trace's lines if they are not more


# -- at a glance --------------------------------------------------------------------------------------------


def show_glance(run: Run, about: Mapping[str, Any], shown: Path) -> None:
    """Prints what ran, what struck it, and the verdict."""
    verdict = read_verdict(run) if is_named(run.verdict_path) else None
    word = ruling(verdict, about).heading if verdict else click.style("not judged yet", bold=True)
    click.echo(f"{harmless(run.folder.name)}: {word}")
    reading = reading_of(shown, verdict or {}, about)
    for line in summarised(reading):
        click.echo(line)
    click.echo(f"  ran        {ran_text(about)}")
    click.echo(f"  ended      {ending(about)}")
    for sentence in died_unquoted(run, about, verdict or {}):
        click.echo(f"  died       {sentence}")
    click.echo("\n".join(struck_text(reading) or ["  struck by  nothing"]))
    if about.get(SHRUNK) is True:
        click.echo(f"  shrunk     {LEFT_OF_SHRUNK}")
    else:
        show_timeline(run, about, verdict, reading)
    if verdict is None:
        click.echo(f"  judge      {harmless(shlex.join(['floodmark', 'check', str(shown)]))}")
        return
    for event in reading.accounts:
        click.echo(paragraph(event))
    for text in unknowns(verdict.get("unknown") or ()):
        click.echo(text)
    for checks in left_undone(verdict):
        click.echo(f"  not made   {checks}")
    click.echo(f"  looked at  {looked_at(verdict.get('counts') or {})}")
    for line in next_commands(shown, verdict, about):
        click.echo(harmless(line))


def show_timeline(run: Run, about: Json, verdict: Json | None, reading: Reading) -> None:
    """Prints what happened around the worst finding; if no op is about it, all acts of the nemesis."""
    examples = reading.accounts[0].found.get("examples") if reading.accounts else None
    if verdict is not None and examples:
        found, focus = reading.accounts[0].found, focus_of(examples[0], about)
        story = read_story(run, focus)
        if story.promise is not None:
            gathering = gathering_of(run, verdict, about)
            story.add_trace(gathering.course_of(gathering.evidence_for(found, examples[0])))
            show_story(story, focus, in_brief=False)
            return
    acts = list(faults_of(run))
    changes = RunFiles(run).changes(min(map(began, acts)), None, None) if acts else []
    if len(acts) + len(changes) <= LINES_SHOWN:
        timed = sorted([*((began(op), f"  ! {act_line(op)}") for op in acts),
                       *((line.whole_number("time") or 0, f"  ~ {change_line(line, where=True)}")
                         for line in changes)], key=lambda one: one[0])
        for _, line in timed:
            click.echo(line)
        return
    for op in acts[:LINES_SHOWN]:
        click.echo(f"  ! {act_line(op)}")
    if len(acts) > LINES_SHOWN:
        click.echo(f"    ... and {len(acts) - LINES_SHOWN} more")


def ending(about: Mapping[str, Any]) -> str:
    """How the run ended, and whether the cluster settled."""
    ended = about.get("ended", "the harness was killed: run.json lacks its end")
    why = (about.get("settle") or {}).get("why")
    settled = "settled" if about.get("settled") is True else f"not settled{f': {why}' if why else ''}"
    residue = about.get("residue")
    missed = about.get("missed") or ()
    parts = [str(ended), settled]
    parts += [f"left behind: {residue}"] if residue else []
    parts += [f"moments of the schedule that never came: {', '.join(map(str, missed))}"] if missed else []
    return "; ".join(parts)


# -- a finding ----------------------------------------------------------------------------------------------


def show_finding(run: Run, about: Mapping[str, Any], name: str) -> None:
    """Prints the first examples of the finding: whose fault, since when, which faults, and the logs."""
    verdict = read_verdict(run)
    groups = [found for found in verdict["findings"] if found["name"] == name]
    reasons = [entry for entry in verdict.get("unknown") or () if name in entry["names"]]
    if not groups and name not in known_findings():
        raise UsageError(f"no finding is called {name!r}; {nearest(name, known_findings())}")
    if not groups and not reasons:
        there = sorted({found["name"] for found in verdict["findings"]})
        raise UsageError(f"{run.folder} has no finding {name!r}; it has: {', '.join(there) or 'none'}")
    for found in groups:
        click.echo(f"{click.style(name, bold=True)}: {many(found['count'], 'finding')}, {class_text(found)}")
        click.echo(f"  whose fault: {blame(found, about)}")
        show_examples(run, about, verdict, found)
    for entry in reasons:
        click.echo(f"{name}: {click.style('cannot tell', fg='yellow')} whether there is "
                   f"{'more' if groups else 'any'}: {entry['reason']}")
    once_more = reproduce_command.reproduce_command(run.folder, about, name) if groups else None
    click.echo(f"\nwhy    floodmark explain {name}")
    if once_more:
        click.echo(f"again  {harmless(once_more)}")


def blame(found: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """One sentence on who broke which guarantee."""
    if found["class"] != BUG:
        return f"nobody's: {PERMITS.get(str(found['permitted_by']), 'the configuration allows it')}"
    promised = ", ".join(guarantee_texts(about)) or "its guarantees"
    return f"the cluster's (rules {about.get('rules', '?')}): with {promised} no fault that struck permits it"


def show_examples(run: Run, about: Json, verdict: Json, found: Json) -> None:
    """Prints each example with its paragraph and its history; the logs once for neighbouring offsets."""
    gathering, shown_before = gathering_of(run, verdict, about), list[Evidence]()
    pictured: set[tuple[int, int]] = set()
    for number, example in enumerate((found.get("examples") or ())[:EXAMPLES], 1):
        evidence = gathering.evidence_for(found, example)
        (_, what), *parts = narrate_finding(evidence, shown_before)
        click.echo("\n".join(["", f"{number}. {what}", *with_heads(parts, indent=2)]))
        shown_before.append(evidence)
        focus = focus_of(example, about)
        partition, offset = focus.partition, focus.offset
        seen_already = partition is not None and offset is not None and (partition, offset) in pictured
        story = read_story(run, focus)
        story.add_trace(gathering.course_of(evidence))
        show_story(story, focus, in_brief=seen_already)
        if partition is not None and offset is not None and not seen_already:
            show_logs(run, about, partition, offset)
            pictured |= {(partition, offset + away) for away in range(-AROUND, AROUND + 1)}
