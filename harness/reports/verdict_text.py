"""Prints a verdict: what happened, whose fault it is, what cannot be told, and the next command to type.

`check`, `run`, `demo` and `show` all say it with these words; what they print is made from the folder alone,
so that a report of last night reads like one of now. A group of findings gets a paragraph about its worst
example, made from the few lines of the run's files that concern it (finding_narrative.py).
"""

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.laws import finding_names as checks
from floodmark.checkers.text.blame_words import split_blame
from floodmark.harness.reports import reproduce_command
from floodmark.harness.reports.case_names import promises
from floodmark.harness.reports.finding_evidence import Evidence, Gathering
from floodmark.harness.reports.finding_groups import Follower, group_findings
from floodmark.harness.reports.finding_narrative import Part, narrate_finding
from floodmark.harness.reports.phrases import cut_text, many, told_class
from floodmark.harness.reports.record_story import WIDE, Course, course_of, heads_told_in_summary, summary
from floodmark.harness.reports.run_files import RunFiles
from floodmark.harness.reports.run_outcome import Ruling, ruling
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.reports.schedule_outcome import Strikes, strikes_of, strikes_text
from floodmark.harness.run import Run, RunAt
from floodmark.harness.run_location import Place
from floodmark.harness.verdict import BUG

GRAVEST = (  # what clients suffered, then what the logs are, then how it came about, then what may still come
    checks.LOST_WRITE, checks.DIVERGED, checks.SAW_THEN_LOST, checks.INCONSISTENT_OFFSETS, checks.G1A,
    checks.PHANTOM, checks.DUPLICATE, checks.UNSEEN, checks.BROKER_DIED, checks.STUCK, "",
    checks.EPOCH_LINEAGE, checks.MALFORMED_LOG, checks.UNDER_REPLICATED, checks.UNSAFE_TRUNCATION,
    checks.UNCLEAN_ELECTION, checks.LEADER_INCOMPLETE, checks.RECOVERY_LOSS, checks.ACK_RULE,
    checks.UNSAFE_ISR, checks.READ_ABOVE_HW, checks.END_OFFSET_AHEAD, checks.TWO_LEADERS,
    checks.HW_REGRESSED, checks.EPOCH_REGRESSED, checks.CANDIDATE_INCOMPLETE,
)  # fmt: skip
LISTED = 3  # examples of one finding
WIDTH = 110
SAME_EVENT = "the same, as other checks saw it"
ALL_OF_THEM = 8  # more names than these are not spelt out

Json = Mapping[str, Any]  # an object of run.json or verdict.json


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An event: the group of findings that stands for it, the paragraph about the worst of that group, and
    the groups that belong to it."""

    found: Json
    parts: tuple[Part, ...] = ()
    followers: tuple[Follower, ...] = ()
    told_above: frozenset[str] = frozenset()  # heads of the parts that the summary above the report tells

    @property
    def shown(self) -> tuple[Part, ...]:
        """The parts that the summary has not told."""
        return tuple(part for part in self.parts if part[0] not in self.told_above)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a report takes from the files of a run: read once, told in every form."""

    accounts: tuple[Account, ...]  # the worst event first
    summary: tuple[Part, ...] = ()  # of the worst, in five lines at most
    strikes: Strikes = field(default_factory=Strikes)
    gathering: Gathering | None = None  # what it was taken with, for further questions; None: of no files


def reading_of(folder: Place, verdict: Json, about: Json | None) -> Reading:
    """Without run.json, or where its files lie far away, the sentences of the verdict alone."""
    findings = worst_first(verdict.get("findings") or ())
    if about is None or not isinstance(folder, Path):
        return Reading(accounts=tuple(Account(found=found) for found in findings))
    gathering = gathering_of(RunAt(folder=folder), verdict, about)
    accounts = list(told_findings(gathering, findings))
    course = course_of_the_worst(gathering, findings)
    lines = summary(course) if course is not None else []
    if course is not None:
        accounts[0] = replace(accounts[0], told_above=heads_told_in_summary(course))
    return Reading(accounts=tuple(accounts), summary=tuple(lines),
                   strikes=strikes_of(gathering.files.nemesis, about), gathering=gathering)


def course_of_the_worst(gathering: Gathering, findings: Sequence[Json]) -> Course | None:
    """What led to the worst finding; None where there is none, or no example of it."""
    examples = (findings[0].get("examples") or ()) if findings else ()
    return course_of(gathering, gathering.of(findings[0], examples[0])) if examples else None


def report(folder: Place, verdict: Json, about: Json | None, *, ruled: Ruling | None = None,
           reading: Reading | None = None) -> str:
    """What came of the run, what happened in a few lines, a paragraph an event, what is unknown and why, what
    was looked at, what to type next. `ruled`: where the gate's options count."""
    reading = reading_of(folder, verdict, about) if reading is None else reading
    parts = [f"{harmless(folder.resolve().name)}: {(ruled or ruling(verdict, about)).heading}"]
    parts += summarised(reading)
    parts += [f"  ran        {ran_text(about)}", *struck_text(reading)] if about else []
    parts += map(paragraph, reading.accounts)
    parts += unknowns(verdict.get("unknown") or ())
    parts += [f"  not made   {told}" for told in left_undone(verdict)]
    parts.append(f"  looked at  {looked_at(verdict.get('counts') or {})}")
    parts += next_commands(folder, verdict, about)
    return "\n".join(parts)


def summarised(reading: Reading) -> list[str]:
    """The five lines, each behind its head."""
    return [f"  {click.style(f'{head:<9}', bold=True)}  {line}" for head, line in reading.summary]


def ran_text(about: Json) -> str:
    """What was run, with which promises."""
    words = [f"{about.get('cluster', 'some')} cluster of {len(about.get('nodes') or ())}",
             *(f"{name} {about.get(name, '?')}" for name in ("rules", "workload") if about.get(name, "?")),
             *promises(about)]
    return ", ".join([*words, f"seed {about.get('seed', '?')}"])


def struck_text(reading: Reading) -> list[str]:
    """What struck, in one line; none where nothing was to."""
    told = strikes_text(reading.strikes)
    return [f"  struck by  {told}"] if told else []


# -- findings -----------------------------------------------------------------------------------------------


def told_findings(gathering: Gathering, findings: Sequence[Json]) -> Iterator[Account]:
    """Every event with its paragraph; what is told of one is not told again of the next."""
    told: list[Evidence] = []
    for event in group_findings(gathering, findings):
        examples = event.root.get("examples") or ()
        evidence = gathering.of(event.root, examples[0]) if examples else None
        parts = narrate_finding(evidence, told) if evidence is not None else ()
        yield Account(found=event.root, parts=parts, followers=tuple(event.followers))
        told += [evidence] if evidence is not None else []


def gathering_of(run: Run, verdict: Json, about: Json) -> Gathering:
    return Gathering(files=RunFiles(run), about=about, unknown=verdict.get("unknown") or ())


def paragraph(account: Account) -> str:
    """What was found: the worst of it at length, the next few in a sentence each, how many more; and what is
    part of the same event, a line each."""
    found, parts = account.found, account.shown
    name = click.style(found["name"], bold=True)
    lines = [f"  {name}: {many(found['count'], 'finding')}, {told_class(found)}", *with_heads(parts)]
    also = others(found, parts)
    lines += with_heads([("also", other) for other in also]) if parts else [f"    {other}" for other in also]
    lines += [f"    ... and {left_out(found)} more"] if left_out(found) else []
    return "\n".join([*lines, *followed(account.followers)])


def followed(followers: Sequence[Follower]) -> Iterator[str]:
    """`saw-then-lost  2 was read at offset 1 (history.jsonl:6)`: names below one another."""
    if followers:
        yield f"    {SAME_EVENT}:"
    width = max((len(one.head) for one in followers), default=0)
    for one in followers:
        where = f" ({one.places})" if one.places else ""
        room = WIDE - 6 - width - 2
        line = one.clause + where if len(one.clause + where) <= room else cut_text(one.clause, room)
        yield f"      {one.head:<{width}}  {line}"


def others(found: Json, parts: Sequence[Part]) -> list[str]:
    """The sentences of the examples that have no paragraph."""
    examples = (found.get("examples") or ())[1 if parts else 0:LISTED]
    return [split_blame(str(example.get("text") or dict(example)))[0] for example in examples]


def left_out(found: Json) -> int:
    return int(found["count"]) - min(LISTED, len(found.get("examples") or ()))


def with_heads(parts: Iterable[Part], indent: int = 4) -> Iterator[str]:
    """Sentences behind their heads, in lines of WIDTH."""
    for head, sentence in parts:
        first = f"{' ' * indent}{head:<7}"
        yield textwrap.fill(sentence, WIDTH, initial_indent=first, subsequent_indent=" " * len(first),
                            break_on_hyphens=False, break_long_words=False)


def unknowns(entries: Sequence[Json]) -> Iterator[str]:
    """What the judge may have missed, the reasons for the same checks together."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        reasons.setdefault(tuple(entry["names"]), []).append(entry["reason"])
    for names, told in reasons.items():
        yield "\n".join([f"  {click.style('cannot tell', fg='yellow')}: {shortened(names)}",
                         *(f"    {reason}" for reason in told)])


def left_undone(verdict: Json) -> list[str]:
    """The checks that were not made, each reason behind its checks, on one line; nothing if all were made."""
    told = [f"{shortened(entry['names'])}: {entry['reason']}" for entry in verdict.get("not_made") or ()]
    return ["; ".join(told)] if told else []


def shortened(names: Sequence[str]) -> str:
    """The names, or that they are all of them."""
    if set(names) >= set(checks.MADE):
        return "everything"
    if len(names) <= ALL_OF_THEM:
        return ", ".join(names)
    if set(names) >= set(checks.OF_THE_HISTORY):
        return "whatever the history tells (verdict.json names the checks)"
    return f"{', '.join(names[:ALL_OF_THEM])} and {len(names) - ALL_OF_THEM} more (verdict.json has all)"


def looked_at(counts: Json) -> str:
    """The counts on one line."""
    if not counts:
        return "nothing"
    records = ", ".join(f"{node} {number}" for node, number in (counts.get("records") or {}).items())
    torn = f", {counts['torn']} half line ignored" if counts.get("torn") else ""
    ops = ", ".join(f"{counts.get(name, 0)} {name}" for name in ("ok", "fail", "info"))
    acked = many(counts.get("acked", 0), "acked record")
    return (f"{many(counts.get('ops', 0), 'line')} of history ({ops}), {acked}{torn}; "
            f"records in the final logs: {records or 'none'}")


# -- what next ----------------------------------------------------------------------------------------------


def next_commands(folder: Place, verdict: Json, about: Json | None) -> list[str]:
    """Where there is something to be looked into: how to look, what it means, how to see it again."""
    findings = worst_first(verdict.get("findings") or ())
    if about is None or not isinstance(folder, Path) or (not findings and verdict.get("valid") is True):
        return []  # a far run must be copied here before it can be shown or had again
    look = ["floodmark", "show", str(folder)]
    if not findings:
        return [f"  look       {harmless(shlex.join(look))}"]
    name = str(findings[0]["name"])
    typed = [("look", shlex.join([*look, "--finding", name])), ("why", f"floodmark explain {name}")]
    once_more = reproduce_command.reproduce_command(folder, about) if findings[0]["class"] == BUG else None
    typed += [("again", once_more)] if once_more else []
    return [f"  {head:<9}  {harmless(command)}" for head, command in typed]


def worst_first(findings: Sequence[Json]) -> list[Json]:
    """Bugs before what is permitted; the gravest first, what came of it after it; else by name."""
    return sorted(findings, key=lambda found: (found["class"] != BUG, gravity(found["name"]), found["name"]))


def gravity(name: str) -> int:
    """The lower the graver; names that are not listed are about orders, as clients saw them."""
    return GRAVEST.index(name if name in GRAVEST else "")
