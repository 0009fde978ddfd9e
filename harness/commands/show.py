"""Shows a run at a glance, the history around a finding, or the logs side by side: `floodmark show`.
Everything is read from the folder.
"""

from pathlib import Path

import click

from floodmark.harness.campaign.state import is_campaign
from floodmark.harness.errors import UsageError
from floodmark.harness.report.phrases import command_line
from floodmark.harness.report.run_files import RunFiles, read_about
from floodmark.harness.report.run_shown import check_partition, finding_text, glance_text, logs_text
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import latest_folder, open_run, real_folder
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
    click.echo(harmless(str(shown)))
    return EXIT_VALID
