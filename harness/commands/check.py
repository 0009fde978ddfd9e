"""Judges saved run folders, writes each verdict into its folder, and reports on all: `floodmark check`."""

from collections.abc import Sequence
from pathlib import Path

import click

from floodmark.harness import catalog
from floodmark.harness.commands.folder_arguments import chosen_runs
from floodmark.harness.pipeline import Gate, judge_and_report
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.run import RunAt
from floodmark.harness.run_location import Place
from floodmark.harness.spark_options import HERE, Workers
from floodmark.harness.verdict import worst


def check_folders(
    words: Sequence[str | Path], through: Gate, workers: Workers = HERE, *, keep_parquet: bool = False
) -> int:
    """Judges all runs (patterns too, and folders of runs) in one call of the judge; returns the worst exit
    code."""
    folders = chosen_runs(words, workers)
    codes = judge_and_report(folders, through, workers)
    if keep_parquet:
        keep_parquet_copies(folders)
    if catalog.prepare_next_judge():
        click.echo("in the background a cache is made so that Spark starts faster next time (once; 170 MB)",
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
                click.echo(harmless(message), err=True)
