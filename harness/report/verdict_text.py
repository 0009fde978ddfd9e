"""Formats a verdict as text: what happened, which event is to blame, what is unknown, and the next commands;
and what changed from one verdict of a run to another. `check`, `run`, `demo` and `show` print it. It is made
from the folder alone, so that the report of an old run is like that of a new one. A group of findings gets a
paragraph about its worst example, made from the few lines of the run's files that are about it
(narrative.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from floodmark.checkers.laws import finding_names as checks
from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.registered import CLUSTER, WORKLOAD
from floodmark.harness.report.case_names import guarantee_texts, is_kafka, system_text
from floodmark.harness.report.evidence import Evidence, group_findings
from floodmark.harness.report.model import Account, Json, Reading, examples_of, int_in, mapping
from floodmark.harness.report.narrative import WIDE, heads_covered_by, narrate_finding, summary
from floodmark.harness.report.phrases import class_text, command_line, cut_text, many, with_heads
from floodmark.harness.report.run_files import RunFiles
from floodmark.harness.report.run_outcome import Ruling, ruling
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.report.schedule_outcome import strikes_of, strikes_text
from floodmark.harness.run import Run, RunAt
from floodmark.harness.run_location import Place
from floodmark.harness.saved_run import SavedRun, read_saved, read_schedule
from floodmark.harness.schedule.entry import Schedule
from floodmark.harness.spec import OPTIONS
from floodmark.harness.verdict import BUG

GRAVEST = (  # what clients saw, then the state of the logs, then the causes, then what could have followed
    checks.LOST_WRITE, checks.DIVERGED, checks.SAW_THEN_LOST, checks.INCONSISTENT_OFFSETS, checks.G1A,
    checks.PHANTOM, checks.DUPLICATE, checks.UNSEEN, checks.BROKER_DIED, checks.STUCK,
    "",  # all others: orders that clients saw
    checks.EPOCH_LINEAGE, checks.MALFORMED_LOG, checks.UNDER_REPLICATED, checks.UNSAFE_TRUNCATION,
    checks.UNCLEAN_ELECTION, checks.LEADER_INCOMPLETE, checks.RECOVERY_LOSS, checks.ACK_RULE,
    checks.UNSAFE_ISR, checks.READ_ABOVE_HW, checks.END_OFFSET_AHEAD, checks.TWO_LEADERS,
    checks.HW_REGRESSED, checks.EPOCH_REGRESSED, checks.CANDIDATE_INCOMPLETE,
)  # fmt: skip
SAME_EVENT = "the same, as other checks saw it"
NAMES_SHOWN = 8  # of more names than these the rest is a number


def reading_of(folder: Place, verdict: Json, about: Json | None) -> Reading:
    """Reads what a report needs; without run.json, or if the files are remote, the verdict's sentences."""
    findings = worst_first(verdict.get("findings") or ())
    if about is None or not isinstance(folder, Path):
        return Reading(accounts=tuple(Account(found=found) for found in findings))
    files = RunFiles(RunAt(folder=folder))
    accounts, before = list[Account](), list[Evidence]()
    for event in group_findings((found, evidence_of(files, verdict, about, found)) for found in findings):
        evidence = event.examples[0] if event.examples else None
        parts = narrate_finding(evidence, before) if evidence is not None else ()
        accounts.append(
            Account(found=event.root, evidence=evidence, parts=parts, followers=tuple(event.followers)))
        before += [evidence] if evidence is not None else []
    worst = accounts[0].evidence if accounts else None
    course = worst.course if worst is not None else None
    lines = tuple(summary(course)) if course is not None else ()
    if course is not None:
        accounts[0] = replace(accounts[0], covered_above=heads_covered_by(lines, course))
    return Reading(accounts=tuple(accounts), course=course, summary=lines,
                   strikes=strikes_of(files.nemesis, about), files=files)


def evidence_of(files: RunFiles, verdict: Json, about: Json, found: Json) -> list[Evidence]:
    """The evidence of each example of a group of findings."""
    return [Evidence(files=files, about=about, unknown=verdict.get("unknown") or (), found=found,
                     example=example) for example in examples_of(found)]


def report(folder: Place, verdict: Json, about: Json | None, *, ruled: Ruling | None = None,
           reading: Reading | None = None) -> str:
    """The report: the outcome, a summary, a paragraph for each event, what is unknown and why, what was read,
    and the next commands. ruled: the outcome under the gate's options."""
    reading = reading_of(folder, verdict, about) if reading is None else reading
    ran = [f"  ran        {ran_text(about)}", *struck_text(reading)] if about else []
    return "\n".join([f"{harmless(folder.resolve().name)}: {(ruled or ruling(verdict, about)).heading}",
                      *summarised(reading), *ran, *findings_text(folder, verdict, about, reading)])


def findings_text(folder: Place, verdict: Json, about: Json | None, reading: Reading) -> Iterator[str]:
    """Yields the report from the findings on."""
    yield from map(paragraph, reading.accounts)
    yield from unknowns(verdict.get("unknown") or ())
    yield from (f"  not made   {checks_left}" for checks_left in left_undone(verdict))
    yield f"  looked at  {looked_at(verdict.get('counts') or {})}"
    yield from (f"  {head:<9}  {command}" for head, command in next_commands(folder, verdict, about))


def summarised(reading: Reading) -> list[str]:
    """The summary's lines, each after its head."""
    return [f"  {click.style(f'{head:<9}', bold=True)}  {line}" for head, line in reading.summary]


def ran_text(about: Json) -> str:
    """What was run, with the settings that decide what is guaranteed."""
    named = ("workload",) if is_kafka(about) else ("rules", "workload")
    parts = [system_text(about),
             *(f"{name} {about.get(name, '?')}" for name in named if about.get(name, "?")),
             *guarantee_texts(about)]
    return ", ".join([*parts, f"seed {about.get('seed', '?')}"])


def struck_text(reading: Reading) -> list[str]:
    """The faults that struck, in one line; empty if none was planned."""
    strikes = strikes_text(reading.strikes)
    return [f"  struck by  {strikes}"] if strikes else []


# -- findings -----------------------------------------------------------------------------------------------


def paragraph(account: Account) -> str:
    """The text of an event: the paragraph about the worst example, a sentence for each of the next few, the
    number of the others, and a line for each other group of the event."""
    found, followers = account.found, account.followers
    name = click.style(account.name, bold=True)
    lines = [f"  {name}: {many(found['count'], 'finding')}, {class_text(found)}", *with_heads(account.shown)]
    lines += with_heads([("also", other) for other in account.others]) if account.parts else [
        f"    {other}" for other in account.others]
    lines += [f"    ... and {account.left_out} more"] if account.left_out else []
    lines += [f"    {SAME_EVENT}:"] if followers else []
    width = max((len(one.head) for one in followers), default=0)
    for one in followers:
        line, room = one.clause + (f" ({one.places})" if one.places else ""), WIDE - 6 - width - 2
        line = line if len(line) <= room else cut_text(one.clause, room)
        lines.append(f"      {one.head:<{width}}  {line}")
    return "\n".join(lines)


def unknowns(entries: Sequence[Json]) -> Iterator[str]:
    """What the judge may have missed; reasons for the same checks are put together."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        reasons.setdefault(tuple(entry["names"]), []).append(entry["reason"])
    for names, why in reasons.items():
        yield "\n".join([f"  {click.style('cannot tell', fg='yellow')}: {shortened(names)}",
                         *(f"    {reason}" for reason in why)])


def left_undone(verdict: Json) -> list[str]:
    """The checks that were not made, each with its reason, on one line; empty if all were made."""
    reasons = [f"{shortened(entry['names'])}: {entry['reason']}" for entry in verdict.get("not_made") or ()]
    return ["; ".join(reasons)] if reasons else []


def shortened(names: Sequence[str]) -> str:
    """The names of checks; `everything` for all of them."""
    if set(names) >= set(checks.MADE):
        return "everything"
    if len(names) <= NAMES_SHOWN:
        return ", ".join(names)
    if set(names) >= set(checks.unknown_if(checks.If.BREACHED)):
        return "all checks of the history (verdict.json names them)"
    return f"{', '.join(names[:NAMES_SHOWN])} and {len(names) - NAMES_SHOWN} more (verdict.json has all)"


def looked_at(counts: Json, *, grouped: bool = False) -> str:
    """The verdict's counts on one line. grouped: write numbers as `1,234`."""
    if not counts:
        return "nothing"
    records = ", ".join(f"{node} {number:,}" if grouped and type(number) is int else f"{node} {number}"
                        for node, number in mapping(counts, "records").items())
    of = {name: int_in(counts, name) or 0 for name in ("ops", "ok", "fail", "info", "acked", "torn")}
    shown = {name: f"{number:,}" if grouped else str(number) for name, number in of.items()}
    lines, acked, torn = (f"{shown[name]} {noun}{'' if of[name] == 1 else 's'}" for name, noun in (
        ("ops", "line"), ("acked", "acked record"), ("torn", "incomplete line")))
    return (f"{lines} of history ({shown['ok']} ok, {shown['fail']} fail, {shown['info']} info), {acked}"
            f"{f', {torn} ignored' if of['torn'] else ''}; "
            f"{f'records in the final logs: {records}' if records else 'no final logs were collected'}")


# -- the next commands --------------------------------------------------------------------------------------


def next_commands(folder: Place, verdict: Json, about: Json | None) -> list[tuple[str, str]]:
    """The commands to type next, each with its head: show, explain, reproduce; empty if there is nothing to
    look into."""
    findings = worst_first(verdict.get("findings") or ())
    if about is None or not isinstance(folder, Path) or (not findings and verdict.get("valid") is True):
        return []  # a remote run must be copied here before it can be shown or reproduced
    if not findings:
        return [("look", harmless(command_line("show", folder)))]
    name = str(findings[0]["name"])
    once_more = reproduce_command(folder, about) if findings[0]["class"] == BUG else None
    return [("look", harmless(command_line("show", folder, "--finding", name))),
            ("why", f"floodmark explain {name}"), *([("again", harmless(once_more))] if once_more else [])]


def worst_first(findings: Sequence[Json]) -> list[Json]:
    """The findings in order: bugs before permitted ones, the gravest first, else by name."""
    return sorted(findings, key=lambda found: (
        found["class"] != BUG, GRAVEST.index(found["name"] if found["name"] in GRAVEST else ""),
        found["name"]))


def changes(before: Json | None, now: Json) -> Iterator[str]:
    """Yields a line for each difference between two verdicts."""
    then: Json = before if before is not None else {"findings": [], "unknown": []}
    for name in sorted({found["name"] for verdict in (then, now) for found in verdict["findings"]}):
        was, has = ({(found["class"], found["permitted_by"]): found for found in verdict["findings"]
                     if found["name"] == name} for verdict in (then, now))
        for group in sorted(was.keys() & has.keys(), key=str):
            if was[group]["count"] != has[group]["count"]:
                yield (f"  count      {name}, {class_text(has[group])}: was {was[group]['count']}, "
                       f"is {has[group]['count']}")
        gone = [was[group] for group in sorted(was.keys() - has.keys(), key=str)]
        new = [has[group] for group in sorted(has.keys() - was.keys(), key=str)]
        if len(gone) == len(new) == 1:
            yield (f"  class      {name}: was {class_text(gone[0])} ({gone[0]['count']}), is "
                   f"{class_text(new[0])} ({new[0]['count']})")
            continue
        for found in gone:
            yield f"  gone       {name}: {many(found['count'], 'finding')}, {class_text(found)}"
        for found in new:
            yield f"  new        {name}: {many(found['count'], 'finding')}, {class_text(found)}"
            yield from (f"               {example['text']}" for example in found.get("examples", ())[:1]
                        if example.get("text"))
    unknown = [{(entry["reason"], name) for entry in verdict.get("unknown") or () for name in entry["names"]}
               for verdict in (then, now)]
    for reason in sorted({reason for reason, _ in unknown[0] ^ unknown[1]}):
        lifted, added = (sorted(name for of, name in some if of == reason)
                         for some in (unknown[0] - unknown[1], unknown[1] - unknown[0]))
        if added:
            yield f"  unknown    {shortened(added)}: {reason}"
        if lifted:
            yield f"  known now  {shortened(lifted)}: no longer for: {reason}"


def reproduce_command(folder: Path, about: Mapping[str, Any], finding: str | None = None) -> str | None:
    """The command `floodmark reproduce ...`; None if the folder lacks what it needs."""
    run = Run(folder=folder)
    try:
        read_reproducible(about, str(folder))
    except FloodmarkError:
        return None  # a damaged run.json, or one of another version
    words = ("reproduce", folder, *(["--finding", finding] if finding else []))
    return command_line(*words) if run.has(run.history_path) else None


def read_reproducible(about: Mapping[str, Any], source: str) -> tuple[SavedRun, Schedule]:
    """What the run was, and its schedule. FloodmarkError if this floodmark cannot make it again."""
    saved = read_saved(about, source)
    for kind in ("rules", CLUSTER, WORKLOAD, "links", "acks"):
        name, names = getattr(saved.spec, kind), OPTIONS[kind].choices or catalog.names(kind)
        if name not in names:
            raise FloodmarkError(f"{source} cannot be reproduced: this floodmark has no {kind} {name!r}; "
                                 f"there are: {', '.join(names)}")
    usual = saved.spec.node_names
    if saved.nodes != usual:
        raise FloodmarkError(f"{source} cannot be reproduced: its nodes are {', '.join(saved.nodes)}, but "
                             f"a cluster of this size has {', '.join(usual)}")
    if not saved.spec.assignment:
        raise FloodmarkError(f"{source} cannot be reproduced: its run.json names no partition")
    return saved, read_schedule(about["schedule"], saved, source)
