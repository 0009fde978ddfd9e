"""Measures how faults affected clients, over all runs of some campaigns: `floodmark campaign stats`."""

from collections.abc import Sequence
from pathlib import Path

import click

from floodmark.harness import catalog
from floodmark.harness.campaign.state import ABOUT, about_of, is_campaign, state_of
from floodmark.harness.commands.folder_arguments import chosen
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.report.campaign_figures import NO_NIGHT, tables
from floodmark.harness.report.phrases import many
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import refuse_nonempty, write_json
from floodmark.harness.run_location import Place
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_VALID

FORMAT = 1  # of --json


def show_stats(folders: Sequence[str], json_file: Path | None, parquet: Path | None) -> int:
    """Prints the tables on stdout, and the runs that could not be measured on stderr; then the exit code is
    4."""
    if parquet is not None:
        refuse_nonempty(parquet)
    runs = runs_of(chosen(folders))
    measures = catalog.measure([folder for _, folder in runs])
    answers = measures.answers({number: (night, folder.name) for number, (night, folder) in enumerate(runs)})
    click.echo(tables(answers))
    failures = {str(runs[number][1]): why for number, why in sorted(measures.failures.items())}
    for folder, why in failures.items():
        click.echo(harmless(f"not measured: {folder}: {why}"), err=True)
    if measures.unsaved:
        first = min(measures.unsaved)
        click.echo(harmless(f"the measures of {many(len(measures.unsaved), 'run')} could not be written and "
                            f"will be made again the next time: {measures.unsaved[first]}"), err=True)
    if json_file is not None:
        names = ("runs", "faults", "by_kind", "nights", "trend")
        write_json(json_file, {"format": FORMAT, **{name: getattr(answers, name) for name in names},
                               "not_measured": failures})
    if parquet is not None:
        answers.write(parquet)
    return EXIT_HARNESS if measures.failures else EXIT_VALID


def runs_of(folders: Sequence[Place]) -> list[tuple[str, Place]]:
    """The run folders that these folders name, each once and with its night: campaigns in the order of their
    begin, then the others. UsageError for a remote campaign; FloodmarkError if there is no run."""
    alone: list[tuple[str, Place]] = []
    nights: list[tuple[str, list[tuple[str, Place]]]] = []
    for folder in folders:
        if not isinstance(folder, Path):
            if (folder / ABOUT).exists():
                raise UsageError(f"{folder} is a remote campaign, and remote journals are not read: "
                                 f"name its runs, {folder}/runs/*")
            alone.append((NO_NIGHT, folder))
        elif is_campaign(folder):
            began, at = str(about_of(folder).get("began")), folder.resolve()
            nights.append((began, [(f"{at.name} {began[:10]}", at / run.folder)
                                   for run in state_of(folder).runs("judged IS NOT NULL")]))
        else:
            alone.append((NO_NIGHT, folder.resolve()))
    every = [run for _, runs in sorted(nights, key=lambda night: night[0]) for run in runs] + alone
    if not every:
        raise FloodmarkError("there is no judged run in "
                             f"{', '.join(map(str, folders))}: there is nothing to measure")
    return list({folder: (night, folder) for night, folder in reversed(every)}.values())[::-1]
