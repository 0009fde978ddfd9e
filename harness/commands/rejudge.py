"""Judges saved folders again, and prints what differs from the saved verdicts: `floodmark rejudge`.

Rules
1. All folders are judged in one call. A new verdict replaces the saved one atomically; if nothing could be
   judged (no run.json, a failed judge) the saved one stays.
2. It prints new and missing findings, changes of class or count, and what became unknown or no longer is. The
   exit code is that of `check` for the new verdicts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from floodmark.checkers.judge import report
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.pipeline import Gate, announce_judge, judge, write_verdicts
from floodmark.harness.reports import verdict_text
from floodmark.harness.reports.gate_outcomes import UNSAVED, about_of, read_about
from floodmark.harness.reports.phrases import class_text, many
from floodmark.harness.reports.run_outcome import Ruling, ruling, summary
from floodmark.harness.reports.run_page import write_page_if_invalid
from floodmark.harness.reports.safe_text import harmless, harmless_data
from floodmark.harness.reports.saved_verdict import read_verdict
from floodmark.harness.run import RunAt
from floodmark.harness.run_location import Place
from floodmark.harness.spark_options import HERE, Workers
from floodmark.harness.verdict import worst

Json = Mapping[str, Any]  # an object of run.json or verdict.json


def rejudge_folders(folders: Sequence[Place], through: Gate, workers: Workers = HERE) -> int:
    """Judges these runs, prints what changed, and writes the verdicts; returns the worst exit code."""
    saved = [verdict_before(folder) for folder in folders]
    announce_judge(many(len(folders), "run"))
    judged = judge(folders, workers, again=True)
    rulings, differing = [], 0
    for before, one in zip(saved, judged, strict=True):
        folder, counted = one.folder, bool(one.verdict.counts)
        now = harmless_data(report.as_json(one.verdict))
        lines = changes(before, now) if counted else [
            *verdict_text.unknowns(now["unknown"]), "  nothing was judged: the saved verdict stays"]
        differing += bool(lines)
        then = None if before is None else ruling(before, read_about(folder), through.policy)
        rulings.append(ruling(now, about_of(folder, one.verdict), through.policy,
                              failed=UNSAVED if one.unsaved else ()))
        if counted:
            write_page_if_invalid(folder, rulings[-1], now, renew=True)
        click.echo("\n".join([heading(folder, then, rulings[-1], lines), *lines]))
        click.echo(harmless(str(folder)))
    codes = [each.code for each in rulings] + write_verdicts(judged, through)
    click.echo(summary(rulings) + f"; {differing} changed", err=True)
    return worst(codes)


def verdict_before(folder: Place) -> Json | None:
    """The saved verdict; None if there is none, or it cannot be read, which is reported on stderr."""
    run = RunAt(folder=folder)
    if not run.names(run.verdict_path):
        return None
    try:
        return read_verdict(run)
    except FloodmarkError as error:
        click.echo(f"floodmark: {harmless(str(error))}", err=True)
        return None


def heading(folder: Place, before: Ruling | None, now: Ruling, lines: Sequence[str]) -> str:
    """`NAME: was valid, is INVALID`, both by the options of this call."""
    name = harmless(folder.resolve().name)
    if before is None:
        return f"{name}: no verdict was saved, is {now.heading}"
    if before.word != now.word:
        return f"{name}: was {before.heading}, is {now.heading}"
    return f"{name}: {'still ' if lines else 'unchanged, '}{now.heading}"


# -- what changed: pure -------------------------------------------------------------------------------------


def changes(before: Json | None, now: Json) -> list[str]:
    """A line for each difference between two verdicts."""
    then: Json = before if before is not None else {"findings": [], "unknown": []}
    return [*_findings(then, now), *_unknowns(then, now)]


def _findings(then: Json, now: Json) -> Iterator[str]:
    names = sorted({found["name"] for verdict in (then, now) for found in verdict["findings"]})
    for name in names:
        was, has = _groups(then, name), _groups(now, name)
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


def _groups(verdict: Json, name: str) -> dict[tuple[str, str | None], Json]:
    """The groups of a finding by class and permission."""
    return {(found["class"], found["permitted_by"]): found
            for found in verdict["findings"] if found["name"] == name}


def _unknowns(then: Json, now: Json) -> Iterator[str]:
    """Yields, for each reason, the checks that became unknown, and those that no longer are."""
    was, has = _by_reason(then), _by_reason(now)
    for reason in sorted(was.keys() | has.keys()):
        lifted = was.get(reason, Counter()) - has.get(reason, Counter())
        added = has.get(reason, Counter()) - was.get(reason, Counter())
        if added:
            yield f"  unknown    {verdict_text.shortened(sorted(added))}: {reason}"
        if lifted:
            yield f"  known now  {verdict_text.shortened(sorted(lifted))}: no longer for: {reason}"


def _by_reason(verdict: Json) -> dict[str, Counter[str]]:
    reasons: dict[str, Counter[str]] = {}
    for entry in verdict.get("unknown") or ():
        reasons.setdefault(entry["reason"], Counter()).update(set(entry["names"]))
    return reasons
