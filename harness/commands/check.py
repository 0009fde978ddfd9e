"""Judges saved run folders, all in one call: `floodmark check` reports on all, `floodmark rejudge` prints
what differs from the saved verdicts.

Rules
1. A new verdict replaces the saved one atomically; rejudge keeps the saved one if nothing could be judged (no
   run.json, a failed judge).
2. Runs that a campaign has shrunk have nothing to be judged again: rejudge leaves them out, and refuses where
   there are no others.
3. rejudge prints new and missing findings, changes of class or count, and what became unknown or no longer
   is. Its exit code is that of `check` for the new verdicts.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from floodmark.checkers.judge import report
from floodmark.harness import catalog
from floodmark.harness.commands.folder_arguments import chosen_runs
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.pipeline import Gate, judge, judge_and_report, write_verdicts
from floodmark.harness.report import verdict_text
from floodmark.harness.report.model import Json
from floodmark.harness.report.phrases import number_of
from floodmark.harness.report.run_files import kept_verdict, read_verdict
from floodmark.harness.report.run_page import write_page_if_invalid
from floodmark.harness.report.run_summary import Ruling, ruling, summary
from floodmark.harness.report.safe_text import escape_controls, escaped_data
from floodmark.harness.report.verdict_text import UNSAVED, about_of, changes, read_about
from floodmark.harness.run import RunAt
from floodmark.harness.run_location import Place, is_named
from floodmark.harness.spark_options import HERE, Workers
from floodmark.harness.verdict import worst


def check_folders(folders: Sequence[str | Path], gate: Gate, workers: Workers = HERE, *,
                  keep_parquet: bool = False) -> int:
    """Judges all runs (patterns too, and folders of runs) in one call; returns the worst exit code."""
    runs = chosen_runs(folders, workers)
    codes = judge_and_report(runs, gate, workers)
    if keep_parquet:
        keep_parquet_copies(runs)
    if catalog.prepare_next_judge():
        click.echo("in the background a cache is made so that Spark starts faster next time (once; 70 MB)",
                   err=True)
    return worst(codes)


def keep_parquet_copies(folders: Sequence[Place]) -> None:
    """Writes a history.parquet next to each big local history; an error is only reported."""
    for folder in folders:
        if isinstance(folder, Path):
            try:
                catalog.keep_parquet(RunAt(folder=folder).history_path)
            except OSError as error:
                message = f"{folder}: history.parquet could not be written: {error.strerror}"
                click.echo(escape_controls(message), err=True)


def rejudge_folders(folders: Sequence[str | Path], gate: Gate, workers: Workers = HERE) -> int:
    """Judges these runs, prints what changed, and writes the verdicts; returns the worst exit code."""
    found = chosen_runs(folders, workers)
    runs = tuple(run for run in found if kept_verdict(RunAt(folder=run)) is None) or found
    if len(runs) < len(found):
        click.echo(f"left out: {number_of(len(found) - len(runs), 'run')} that a campaign has shrunk: the "
                   "verdict stays; campaign run --keep keeps whole runs", err=True)
    saved = [verdict_before(folder) for folder in runs]
    judged = judge(runs, workers, what=number_of(len(runs), "run"), again=True)
    rulings, differing = [], 0
    for before, one in zip(saved, judged, strict=True):
        folder, counted = one.folder, bool(one.verdict.counts)
        now = escaped_data(report.as_json(one.verdict))
        lines = [*changes(before, now)] if counted else [
            *verdict_text.unknowns(now["unknown"]), "  nothing was judged: the saved verdict stays"]
        differing += bool(lines)
        then = None if before is None else ruling(before, read_about(folder), gate.policy)
        rulings.append(ruling(now, about_of(folder, one.verdict), gate.policy,
                              failed=UNSAVED if one.unsaved else ()))
        if counted:
            write_page_if_invalid(folder, rulings[-1], now, renew=True)
        click.echo("\n".join([heading(folder, then, rulings[-1], lines), *lines]))
        click.echo(escape_controls(str(folder)))
    codes = [each.code for each in rulings] + write_verdicts(judged, gate)
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
        click.echo(f"floodmark: {escape_controls(str(error))}", err=True)
        return None


def heading(folder: Place, before: Ruling | None, now: Ruling, lines: Sequence[str]) -> str:
    """`NAME: was valid, is INVALID`, both by the options of this call."""
    was = "no verdict was saved, is " if before is None else f"was {before.heading}, is " if (
        before.word != now.word) else "still " if lines else "unchanged, "
    return f"{escape_controls(folder.resolve().name)}: {was}{now.heading}"
