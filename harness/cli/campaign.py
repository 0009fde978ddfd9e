"""Defines the commands `floodmark campaign ...`: only their options and help texts."""

from pathlib import Path

import click

from floodmark.harness.campaign.plan import KAFKA_VERSION, preset_text, presets
from floodmark.harness.cli.options import RUN_FOLDER, Time, calls, exits, file_option, out_option

PLAN_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
LEDGER_FILE = click.Path(path_type=Path, dir_okay=False)
READ_LEDGER = click.Path(path_type=Path, dir_okay=False, exists=True)
junit_option = file_option(
    "--junit", "junit_file",
    "Write a JUnit report, a test case for each signature and each case of the plan, to FILE.")
markdown_option = file_option(
    "--markdown", "markdown_file", "Write a page, fit for a GitHub step summary, to FILE.")
kafka_version_option = click.option(
    "--kafka", metavar="VERSION", show_default="for the reference broker",
    help=f"The preset {' or '.join(presets(KAFKA_VERSION))} for Apache Kafka of this version.")


@click.group()
def campaign() -> None:
    """Make many runs by a plan: what they find, how often, since when, and whether it can be reproduced."""


@campaign.command("run")
@click.argument("plan_file", metavar="[PLAN.toml]", required=False, type=PLAN_FILE)
@click.option("--preset", metavar="NAME", show_default="none: PLAN.toml is the plan",
              help=f"{', '.join(presets()[:-1])} or {presets()[-1]}, instead of a plan file.")
@kafka_version_option
@click.option("--for", "budget_s", metavar="TIME", type=Time(), show_default="what the plan says",
              help="The time for everything: 90s, 20min, 4h.")
@out_option("histories/runs/campaign-TIME", "The campaign's folder")
@click.option("--seed", type=int, show_default="drawn", help="The same plan and seed give the same runs.")
@click.option("--runs", type=click.IntRange(1), show_default="as many as there is time for",
              envvar="FLOODMARK_RUNS",
              help="At most so many, without reproductions; also set by the environment's FLOODMARK_RUNS.")
@click.option("--ledger", type=LEDGER_FILE, show_default="ledger.json beside the campaign's folder",
              help="The file with what all campaigns found of each signature.")
@click.option("--keep", is_flag=True, help="Keep all files of valid runs, too.")
@junit_option
@markdown_option
@calls("campaign:run_campaign")
def campaign_run() -> None:
    """Run a campaign: a matrix of systems, loads and faults, for as long as there is time.

    Exit codes: 1 a bug was found that is not marked as known, or a run broke a gate of the plan; 4 the
    harness failed in a run; 3 the verdict of a run is unknown; 0 none of these.
    """


@campaign.command("resume")
@click.argument("folder", type=RUN_FOLDER)
@click.option("--for", "budget_s", metavar="TIME", type=Time(), show_default="as before",
              help="The time for everything, including what is used already; more time continues a campaign "
                   "whose time was over.")
@click.option("--runs", type=click.IntRange(1), show_default="as before",
              help="At most so many, including those already made, without reproductions.")
@click.option("--ledger", type=LEDGER_FILE, show_default="as before",
              help="Use another ledger from now on; everything that this campaign found is added to it.")
@junit_option
@markdown_option
@calls("campaign:resume_campaign")
def campaign_resume() -> None:
    """Continue the campaign in FOLDER, however it ended, with its plan, seed, ledger and bounds.

    A run on which the judge itself failed is judged once more. Exit codes as for run.
    """


@campaign.command("diff")
@click.argument("before", type=RUN_FOLDER)
@click.argument("after", type=RUN_FOLDER)
@click.option("--ledger", type=READ_LEDGER, show_default="the ledger of AFTER",
              help="The ledger with the known signatures.")
@calls("campaign:diff_campaigns")
def campaign_diff() -> None:
    """Compare what the campaigns BEFORE and AFTER found: new, gone, more or less frequent (by Fisher's exact
    test).

    Exits 1 if AFTER has a bug that BEFORE does not have, though the system ran in both, and that is not
    marked as known.
    """


@campaign.command("mark")
@click.argument("signature")
@click.option("--ledger", type=LEDGER_FILE, default=Path("histories/runs/ledger.json"), show_default=True,
              help="The ledger with the signature.")
@click.option("--known", metavar="REASON", help="Mark it as known: campaigns list it and still pass.")
@click.option("--not-known", "unknown", is_flag=True, help="Remove the mark.")
@click.option("--note", metavar="TEXT", help="Add a note.")
@calls("campaign:mark")
def campaign_mark() -> None:
    """Mark a SIGNATURE (its id, or the beginning of it) as known, or add a note to it."""


@campaign.command("plan", help=f"Print a preset ({', '.join(presets())}), which you can copy and edit.")
@click.argument("preset")
@kafka_version_option
@exits
def campaign_plan(preset: str, kafka: str | None) -> int:
    click.echo(preset_text(preset, kafka), nl=False)
    return 0


@campaign.command("stats")
@click.argument("folders", metavar="FOLDER...", nargs=-1, required=True)
@file_option("--json", "json_file", "Write all figures to a JSON file.")
@click.option("--parquet", type=RUN_FOLDER,
              help="Write runs.parquet and faults.parquet into this folder, absent or empty.")
@calls("campaign_stats:show_stats")
def campaign_stats() -> None:
    """Show what faults cost clients: availability and latency, by kind of fault, by run, by night.

    FOLDER is a campaign's folder, for all of its runs, or a run folder (or a pattern of run folders, or an
    address such as hdfs://host/nights/monday/runs/*). Each run is measured once; its figures are kept in its
    folder (measures.parquet). Exits 4 if a run could not be measured; the others are still counted.
    """
