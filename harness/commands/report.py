"""`floodmark report`: the page of a run, one HTML file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from harness.commands.harmless import harmless
from harness.commands.show import latest
from harness.errors import FloodmarkError, UsageError
from harness.reports.html.facts import facts_of
from harness.reports.html.page import page_of
from harness.run import Run, write_whole
from harness.verdict import EXIT_VALID

REPORT = "report.html"


def report_run(folder: Path | None, out: Path | None) -> int:
    """Writes the page and names it; the exit code says only that it was written."""
    run = Run(folder=folder or latest())
    if not run.folder.exists():
        raise UsageError(f"{run.folder} does not exist")
    if not run.has(run.about_path):
        raise FloodmarkError(f"{run.folder} is no run folder: it has no run.json; name the folder of a run")
    file = run.folder / REPORT if out is None else out
    if file.is_dir():
        raise UsageError(f"--out: {file} is a folder; name a file to be (re)placed")
    click.echo(harmless(str(write_report(run.folder, file))))
    return EXIT_VALID


def write_report(folder: Path, file: Path | None = None, verdict: Mapping[str, Any] | None = None) -> Path:
    """The page of a run folder, whole or as it was before. FloodmarkError where it cannot be written."""
    file = folder / REPORT if file is None else file
    write_whole(file, page_of(facts_of(folder, verdict)))
    return file
