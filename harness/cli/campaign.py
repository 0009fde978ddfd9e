"""The command line of campaigns: options and help, nothing else."""

from pathlib import Path
from typing import Any

import click

from floodmark.harness.cli.options import RUN_FOLDER, exits, file_option

PLAN_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
LEDGER_FILE = click.Path(path_type=Path, dir_okay=False)
junit_option = file_option(
    "--junit", "junit_file",
    "Write a JUnit report, a test case for each signature and each case of the plan, to FILE.")
markdown_option = file_option(
    "--markdown", "markdown_file", "Write a page, fit for a GitHub step summary, to FILE.")


@click.group()
def campaign() -> None:
    """Nights of runs: what they find, how often, since when, and whether it comes again."""


@campaign.command("run")
@click.argument("plan_file", metavar="[PLAN.toml]", required=False, type=PLAN_FILE)
@click.option("--preset", metavar="NAME", show_default="none: PLAN.toml is the plan",
              help="smoke, nightly, soak or zoo, instead of a plan.")
@click.option("--for", "budget", metavar="TIME", show_default="what the plan says",
              help="How long, all in all: 90s, 20min, 4h.")
@click.option("--out", type=RUN_FOLDER, show_default="histories/runs/campaign-TIME",
              help="The campaign's folder, absent or empty.")
@click.option("--seed", type=int, show_default="drawn", help="Same plan and seed, same runs.")
@click.option("--runs", type=click.IntRange(1), show_default="as many as there is time for",
              envvar="FLOODMARK_RUNS",
              help="At most so many, reproductions not counted; the environment's FLOODMARK_RUNS, too.")
@click.option("--ledger", type=LEDGER_FILE, show_default="ledger.json beside the campaign's folder",
              help="What all campaigns know of each signature.")
@click.option("--keep", is_flag=True, help="Keep valid runs whole, too.")
@junit_option
@markdown_option
@exits
def campaign_run(junit_file: Path | None, markdown_file: Path | None, **options: Any) -> int:
    """Run a campaign: a matrix of systems, loads and faults, for as long as there is time.

    Exit codes: 1 a bug was found that is not marked as known, or a run broke a gate of the plan; 4 the
    harness failed in a run; 3 of a run nobody can tell; 0 none of these.
    """
    from floodmark.harness.commands.campaign import CampaignOptions, Reports, run_campaign

    reports = Reports(junit_file=junit_file, markdown_file=markdown_file)
    return run_campaign(CampaignOptions(reports=reports, **options))


@campaign.command("resume")
@click.argument("folder", type=RUN_FOLDER)
@click.option("--for", "budget", metavar="TIME", show_default="as before",
              help="How long, all in all, with what is behind it: more makes a campaign go on whose time was "
                   "over.")
@click.option("--runs", type=click.IntRange(1), show_default="as before",
              help="At most so many, with those that are made; reproductions not counted.")
@click.option("--ledger", type=LEDGER_FILE, show_default="as before",
              help="Another one, from now on; it learns all that this campaign has found.")
@junit_option
@markdown_option
@exits
def campaign_resume(folder: Path, junit_file: Path | None, markdown_file: Path | None, **changes: Any) -> int:
    """Go on with the campaign in FOLDER, however it ended. Plan, seed, ledger and bounds are remembered.

    A run on which the judge itself failed is judged once more. Exit codes as of run.
    """
    from floodmark.harness.commands.campaign import Changes, Reports, resume_campaign

    reports = Reports(junit_file=junit_file, markdown_file=markdown_file)
    return resume_campaign(folder, reports, Changes(**changes))


@campaign.command("diff")
@click.argument("before", type=RUN_FOLDER)
@click.argument("after", type=RUN_FOLDER)
@click.option("--ledger", type=LEDGER_FILE, show_default="that of AFTER",
              help="Where known signatures are marked.")
@exits
def campaign_diff(before: Path, after: Path, ledger: Path | None) -> int:
    """Say what the campaign AFTER found otherwise than BEFORE: new, gone, more or less frequent (by Fisher's
    exact test).

    Exits 1 if AFTER has a bug that BEFORE has not and that is not marked as known.
    """
    from floodmark.harness.commands.campaign_diff import diff_campaigns

    return diff_campaigns(before, after, ledger)


@campaign.command("mark")
@click.argument("signature")
@click.option("--ledger", type=LEDGER_FILE, default=Path("histories/runs/ledger.json"), show_default=True,
              help="The ledger that has it.")
@click.option("--known", metavar="REASON", help="It is known: campaigns list it and pass.")
@click.option("--not-known", "unknown", is_flag=True, help="It is not known any more.")
@click.option("--note", metavar="TEXT", help="A note beside it.")
@exits
def campaign_mark(signature: str, ledger: Path, known: str | None, unknown: bool, note: str | None) -> int:
    """Mark a SIGNATURE (its id, or how it begins) as known, or put a note beside it."""
    from floodmark.harness.commands.campaign import mark

    return mark(ledger, signature, known=known, unknown=unknown, note=note)


@campaign.command("plan")
@click.argument("preset")
@exits
def campaign_plan(preset: str) -> int:
    """Print a preset (smoke, nightly, soak, zoo), to be copied and edited."""
    from floodmark.harness.commands.campaign import show_plan

    return show_plan(preset)


@campaign.command("stats")
@click.argument("folders", metavar="FOLDER...", nargs=-1, required=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False),
              help="Write all figures to a JSON file.")
@click.option("--parquet", type=RUN_FOLDER,
              help="Write runs.parquet and faults.parquet into this folder, absent or empty.")
@exits
def campaign_stats(folders: tuple[str, ...], json_file: Path | None, parquet: Path | None) -> int:
    """Say what faults cost clients: availability and latency by kind of fault, the runs, the nights.

    FOLDER is a campaign's folder, of which all runs count, or a run folder (a pattern of them, or an address
    such as hdfs://host/nights/monday/runs/*). Each run is measured once and
    keeps its figures (measures.parquet). Exits 4 if a run could not be measured; the others count.
    """
    from floodmark.harness.commands.campaign_stats import show_stats

    return show_stats(folders, json_file, parquet)
