"""Judges saved folders again, and prints what differs from the saved verdicts: `floodmark rejudge`.

Rules
1. All folders are judged in one call. A new verdict replaces the saved one atomically; if nothing could be
   judged (no run.json, a failed judge) the saved one stays.
2. It prints new and missing findings, changes of class or count, and what became unknown or no longer is. The
   exit code is that of `check` for the new verdicts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from floodmark.checkers.judge import report
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.pipeline import Gate, announce_judge, judge, write_verdicts
from floodmark.harness.reports import verdict_text
from floodmark.harness.reports.gate_outcomes import UNSAVED, about_of, read_about
from floodmark.harness.reports.phrases import many
from floodmark.harness.reports.run_outcome import Ruling, ruling, summary
from floodmark.harness.reports.run_page import write_page_if_invalid
from floodmark.harness.reports.safe_text import harmless, harmless_data
from floodmark.harness.reports.saved_verdict import read_verdict
from floodmark.harness.reports.verdict_changes import changes
from floodmark.harness.run import RunAt
from floodmark.harness.run_location import Place, is_named
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
    if not is_named(run.verdict_path):
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
