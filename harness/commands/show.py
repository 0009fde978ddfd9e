"""Shows a run at a glance, the history around a finding, or the logs side by side: `floodmark show`; and
writes the page of a run, or of a campaign, as one HTML file: `floodmark report`. Everything is read from the
folder.
"""

from pathlib import Path

import click

from floodmark.harness.campaign.state import is_campaign
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.report.phrases import command_line
from floodmark.harness.report.run_files import RunFiles, read_about
from floodmark.harness.report.run_shown import check_partition, finding_text, glance_text, logs_text
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.run import Run, latest_folder, open_run, real_folder, runs_inside
from floodmark.harness.verdict import EXIT_VALID


def show_run(folder: Path | None, *, finding: str | None, partition: int | None, offset: int | None) -> int:
    """Prints the requested part; without one, the run and its verdict at a glance."""
    shown = latest_folder() if folder is None else real_folder(folder)
    if is_campaign(shown):
        raise UsageError(f"{shown} is a campaign's folder: {command_line('report', shown)} shows it")
    run = open_run(shown)
    about = read_about(run)
    if finding is not None and offset is not None:
        raise UsageError("--finding and --offset exclude each other: leave one out")
    if partition is not None and offset is None:
        raise UsageError("--partition needs --offset: the place in that log")
    if offset is not None:
        lines = logs_text(RunFiles(run), about, check_partition(about, partition), offset)
    else:
        lines = finding_text(run, about, finding) if finding is not None else glance_text(run, about, shown)
    for line in lines:
        click.echo(line)
    click.echo(escape_controls(str(shown)))
    return EXIT_VALID


def report_page(folder: Path | None, out: Path | None, ledger: Path | None) -> int:
    """Writes the page and prints its path; the exit code is 0 if it was written."""
    from floodmark.harness.report.night import write_index  # a tenth of the time of `show`
    from floodmark.harness.report.run_page import write_report

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
    click.echo(escape_controls(str(page)))
    return EXIT_VALID
