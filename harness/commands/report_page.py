"""Writes the page of a run, or of a campaign, as one HTML file: `floodmark report`."""

from pathlib import Path

import click

from floodmark.harness.campaign.state import is_campaign
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.report.night import write_index
from floodmark.harness.report.run_page import write_report
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import Run, latest_folder, real_folder, runs_inside
from floodmark.harness.verdict import EXIT_VALID


def report_page(folder: Path | None, out: Path | None, ledger: Path | None) -> int:
    """Writes the page and prints its path; the exit code is 0 if it was written."""
    folder = latest_folder() if folder is None else real_folder(folder)
    if not folder.exists():
        raise UsageError(f"{folder} does not exist")
    run = Run(folder=folder)
    if is_campaign(folder):
        page = write_index(folder, out, ledger_path=ledger)
    elif not run.has(run.about_path):
        raise FloodmarkError(f"{folder} is neither a run folder (it has no run.json) nor a campaign's (it "
                             f"has no campaign.json){runs_inside(folder)}")
    elif ledger is not None:
        raise UsageError(f"--ledger is for a campaign's folder; {folder} is a run's")
    else:
        page = write_report(folder, out)
    click.echo(harmless(str(page)))
    return EXIT_VALID
