"""Defines `floodmark` and its commands: only their options and help texts."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.harness import __version__, catalog
from floodmark.harness.campaign.plan import KAFKA_VERSION, preset_text, presets
from floodmark.harness.cli.options import (
    RUN_FOLDER,
    Time,
    command,
    exits,
    file_option,
    findings,
    judge_options,
    out_option,
    refuse_misplaced,
    report_options,
    set_by_hand,
    spark_options,
    spec_options,
)
from floodmark.harness.faults import COMMANDS, FAULTS
from floodmark.harness.spec import CLUSTER_OPTIONS, OPTIONS, RunSpec

if TYPE_CHECKING:
    from floodmark.harness.pipeline import Gate

READ_LEDGER = click.Path(path_type=Path, dir_okay=False, exists=True)
FOLDER = click.argument("folder", type=RUN_FOLDER, required=False)
FOLDERS = click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path())


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True,
                               "color": False if os.environ.get("NO_COLOR") else None})
@click.version_option(__version__, prog_name="floodmark")
def main() -> None:
    """Break a replicated log at chosen moments, then prove what it kept.

    The same without the script: python -m floodmark.

    Exit codes: 0 valid, 1 invalid, 2 usage, 3 unknown, 4 the harness itself failed.
    """


@main.command()
@spec_options(*OPTIONS)
@exits
@judge_options
@report_options
def run(gate: "Gate", **options: Any) -> int:
    """Run a workload against a cluster while a nemesis strikes, then judge it.

    Example: floodmark run --nemesis crash,pause,cut --duration 30

    On a cluster of your own: floodmark run --bootstrap HOST:PORT. See harness/TESTING_YOUR_OWN_KAFKA.md.
    """
    from floodmark.harness.commands.run import run_and_judge

    spec = RunSpec(**options, given=set_by_hand())
    refuse_misplaced(spec)
    return run_and_judge(spec, gate=gate)


command(main, "check", "check:check_folders", """
    Judge run FOLDERs (default: the latest run), all in one set of Spark jobs.

    A FOLDER may be a quoted pattern: 'histories/runs/*' means the folders that it matches, in order. A folder
    that has runs inside, such as a demo's or a campaign's, means all of them.
    It may be an address that Spark can read: hdfs://, s3a://, viewfs://.
    The exit code is the worst of all folders, in the order 1, 4, 3, 0.
    """, FOLDERS, judge_options, report_options, spark_options,
    click.option("--keep-parquet", is_flag=True, help="Also write each big history as Parquet "
                 "(history.parquet), which is read faster the next time."))

command(main, "rejudge", "check:rejudge_folders", """
    Judge saved run FOLDERs (default: the latest) again and show what changed against their verdicts.

    The new verdicts replace the saved ones. Patterns and the exit code are as for check.
    """, FOLDERS, judge_options, spark_options)

command(main, "reproduce", "reproduce:reproduce", """
    Reproduce a saved run (default: the latest) from its FOLDER alone, and count how often its finding
    comes back.

    The cluster, the load and the seed are the same. A moment that waited for an ack, a state or a failpoint
    stays the same; a moment at a fixed time is replaced by what the strike met in the saved run: the number
    of acks so far, the leader and ISR, or the entry before. The table says which.

    Exit codes: 0 the finding came back at least once (or the run had none, and all reproductions are valid);
    1 it did not, but another bug was found; 3 it did not, which proves nothing: try more --runs;
    2 usage; 4 the run cannot be reproduced, or no reproduction was carried out.
    """, FOLDER,
    click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Reproductions."),
    click.option("--finding", metavar="NAME", show_default="the worst", shell_complete=findings,
                 help="The finding to look for."),
    out_option("histories/runs/reproduce-TIME", "The parent of the runs' folders"),
    file_option("--json", "json_file", "Write the result to FILE."))

command(main, "show", "show:show_run", """
    Show a run (default: the latest): a summary, the history of a finding, or the logs at an offset.
    """, FOLDER,
    click.option("--finding", metavar="NAME", shell_complete=findings,
                 help="Tell how this finding came about: who caused it, since when, which faults struck."),
    click.option("--partition", type=click.IntRange(0), show_default="the only one", help="The log to show."),
    click.option("--offset", type=click.IntRange(0), help="Show the replicas' logs side by side around it."))

command(main, "report", "show:report_page", """
    Write a run (default: the latest) as one page for a browser: the findings, step by step through the
    replicas' logs, and the run over time. The file is complete: it loads nothing, so you can send it to
    others.

    For a campaign's folder: what is new, since when, how often; what was tested; links to its runs' pages.
    """, FOLDER,
    file_option("--out", "out", "The file to write.",
                show_default="report.html in the run's folder, index.html in the campaign's"),
    click.option("--ledger", type=READ_LEDGER, show_default="the campaign's",
                 help="For a campaign: what earlier nights found."))

command(main, "query", "query:query", """
    Answer a question in SQL about run FOLDERs (default: the latest run; patterns as for check). A FILE
    named - is standard output.

    \b
    floodmark query "select partition, count(*) from sends where type = 'ok' group by all"
    floodmark query "describe sends"

    The tables, each with the columns run and folder: sends, reads, corrupt, ends, starts, assigned, moves,
    empty_polls, processes, repeated, faults, lines, answers (from the history); entries, replicas (the final
    logs); partitions, log_start_unknown, runs, reasons (what may be claimed); trace, traced, active_brokers,
    strikes (the brokers' trace). checkers/README.md explains them and answers five questions.
    """, click.argument("arguments", nargs=-1, required=True, metavar="[FOLDER]... SELECT"),
    file_option("--csv", "csv", "Write the rows to FILE instead, as CSV."),
    file_option("--json", "json_file", "The same as JSON, one object a line."),
    file_option("--parquet", "parquet", "The same as Parquet."))

command(main, "explain", "explain:explain_finding", """
    Explain what finding NAME means, what its near miss is, and what permits it; without NAME, list all
    findings with their meanings on one line each.
    """, click.argument("name", required=False, shell_complete=findings))

command(main, "demo", "scenario:run_demo", """
    See Kafka's historical disasters happen and be caught, and leader epochs prevent them.
    """, spec_options("cluster", "kafka"),
    out_option("histories/runs/demo-TIME", "The parent of the demo's run folders"))


# -- clusters ------------------------------------------------------------------------------------------

FOLDER_OPTION = click.option("--folder", type=RUN_FOLDER, show_default="the latest",
                             help="Which cluster.")


@main.group()
def cluster() -> None:
    """Start a cluster for any Kafka client, and strike it from another terminal."""


@cluster.command("up")
@spec_options(*CLUSTER_OPTIONS)
@out_option("temporary", "The folder for its data")
@click.option("--port", type=click.IntRange(1024, 65535), show_default="whatever is free",
              help="The first broker's port; the others follow.")
@exits
def cluster_up(out: Path | None, port: int | None, **options: Any) -> int:
    """Start a cluster and print its bootstrap address; it runs until Ctrl-C."""
    from floodmark.harness.commands.cluster import bring_up

    return bring_up(RunSpec(**options, out=out), first_port=port)


command(cluster, "state", "cluster:state", """
    Show leader, epoch and ISR of each partition, and LEO and HW of each replica.
    """, click.option("--json", "as_json", is_flag=True, help="As JSON, for programs."), FOLDER_OPTION)

command(cluster, "cut", "cluster:cut", """
    Cut NODES from all other brokers, in both directions, until heal. The controller and clients still
    reach them, unless --from names them too. It adds to earlier cuts. Not possible after `up --links direct`.
    """, click.argument("nodes", nargs=-1, required=True),
    click.option("--from", "others", multiple=True, metavar="NODE",
                 help="Only from these, not from all other brokers (also: controller, clients; repeatable)."),
    click.option("--one-way", is_flag=True,
                 help="NODES receive nothing from the others, which still receive from them."),
    click.option("--reset", is_flag=True, help="Reset the connections, instead of dropping their packets."),
    FOLDER_OPTION)


def _strike(f: str, name: str, does: str, *, hidden: bool = False) -> None:
    strike = FOLDER_OPTION(exits(partial(catalog.late("floodmark.harness.commands.cluster:strike"), f=f)))
    on_nodes = FAULTS[f].on == "nodes"
    taking = click.argument("nodes", nargs=-1, required=True)(strike) if on_nodes else strike
    cluster.command(name, help=does, hidden=hidden)(taking)


for _f in COMMANDS:
    _strike(_f, _f.replace("_", "-"), f"{FAULTS[_f].does[0].upper()}{FAULTS[_f].does[1:]}.")
_strike("power_cut", "power_cut", "The old spelling of power-cut.", hidden=True)


# -- campaigns -----------------------------------------------------------------------------------------

PLAN_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
LEDGER_FILE = click.Path(path_type=Path, dir_okay=False)
junit_option = file_option(
    "--junit", "junit_file",
    "Write a JUnit report, a test case for each signature and each case of the plan, to FILE.")
markdown_option = file_option(
    "--markdown", "markdown_file", "Write a page, fit for a GitHub step summary, to FILE.")
kafka_version_option = click.option(
    "--kafka", metavar="VERSION", show_default="for the reference broker",
    help=f"The preset {' or '.join(presets(KAFKA_VERSION))} for Apache Kafka of this version.")


@main.group()
def campaign() -> None:
    """Make many runs by a plan: what they find, how often, since when, and whether it can be reproduced."""


command(campaign, "run", "campaign:run_campaign", """
    Run a campaign: a matrix of systems, loads and faults, for as long as there is time.

    Exit codes: 1 a bug was found that is not marked as known, or a run broke a gate of the plan; 4 the
    harness failed in a run; 3 the verdict of a run is unknown; 0 none of these.
    """, click.argument("plan_file", metavar="[PLAN.toml]", required=False, type=PLAN_FILE),
    click.option("--preset", metavar="NAME", show_default="none: PLAN.toml is the plan",
                 help=f"{', '.join(presets()[:-1])} or {presets()[-1]}, instead of a plan file."),
    kafka_version_option,
    click.option("--for", "budget_s", metavar="TIME", type=Time(), show_default="what the plan says",
                 help="The time for everything: 90s, 20min, 4h."),
    out_option("histories/runs/campaign-TIME", "The campaign's folder"),
    click.option("--seed", type=int, show_default="drawn", help="The same plan and seed give the same runs."),
    click.option("--runs", type=click.IntRange(1), show_default="as many as there is time for",
                 envvar="FLOODMARK_RUNS", help="At most so many, without reproductions; also set by the "
                 "environment's FLOODMARK_RUNS."),
    click.option("--ledger", type=LEDGER_FILE, show_default="ledger.json beside the campaign's folder",
                 help="The file with what all campaigns found of each signature."),
    click.option("--keep", is_flag=True, help="Keep all files of valid runs, too."),
    junit_option, markdown_option)

command(campaign, "resume", "campaign:resume_campaign", """
    Continue the campaign in FOLDER, however it ended, with its plan, seed, ledger and bounds.

    A run on which the judge itself failed is judged once more. Exit codes as for run.
    """, click.argument("folder", type=RUN_FOLDER),
    click.option("--for", "budget_s", metavar="TIME", type=Time(), show_default="as before",
                 help="The time for everything, including what is used already; more time continues a "
                      "campaign whose time was over."),
    click.option("--runs", type=click.IntRange(1), show_default="as before",
                 help="At most so many, including those already made, without reproductions."),
    click.option("--ledger", type=LEDGER_FILE, show_default="as before",
                 help="Use another ledger from now on; everything that this campaign found is added to it."),
    junit_option, markdown_option)

command(campaign, "diff", "campaign:diff_campaigns", """
    Compare what the campaigns BEFORE and AFTER found: new, gone, more or less frequent (by Fisher's exact
    test).

    Exits 1 if AFTER has a bug that BEFORE does not have, though the system ran in both, and that is not
    marked as known.
    """, click.argument("before", type=RUN_FOLDER), click.argument("after", type=RUN_FOLDER),
    click.option("--ledger", type=READ_LEDGER, show_default="the ledger of AFTER",
                 help="The ledger with the known signatures."))

command(campaign, "mark", "campaign:mark", """
    Mark a SIGNATURE (its id, or the beginning of it) as known, or add a note to it.
    """, click.argument("signature"),
    click.option("--ledger", type=LEDGER_FILE, default=Path("histories/runs/ledger.json"), show_default=True,
                 help="The ledger with the signature."),
    click.option("--known", metavar="REASON", help="Mark it as known: campaigns list it and still pass."),
    click.option("--not-known", "unknown", is_flag=True, help="Remove the mark."),
    click.option("--note", metavar="TEXT", help="Add a note."))


@campaign.command("plan", help=f"Print a preset ({', '.join(presets())}), which you can copy and edit.")
@click.argument("preset")
@kafka_version_option
@exits
def campaign_plan(preset: str, kafka: str | None) -> int:
    click.echo(preset_text(preset, kafka), nl=False)
    return 0


command(campaign, "stats", "campaign_stats:show_stats", """
    Show what faults cost clients: availability and latency, by kind of fault, by run, by night.

    FOLDER is a campaign's folder, for all of its runs, or a run folder (or a pattern of run folders, or an
    address such as hdfs://host/nights/monday/runs/*). Each run is measured once; its figures are kept in its
    folder (measures.parquet). Exits 4 if a run could not be measured; the others are still counted.
    """, click.argument("folders", metavar="FOLDER...", nargs=-1, required=True),
    file_option("--json", "json_file", "Write all figures to a JSON file."),
    click.option("--parquet", type=RUN_FOLDER,
                 help="Write runs.parquet and faults.parquet into this folder, absent or empty."))


# -- other tools' histories ------------------------------------------------------------------------------

@main.group("import")
def import_() -> None:
    """Turn histories that other tools recorded into run folders, which check can judge."""


command(import_, "jepsen", "import_jepsen:import_history", """
    Turn FILE, the history.edn (or JSON lines) of a jepsen.tests.kafka run, into a run folder.

    What cannot be converted is counted on stderr and in run.json. There are no replicas' logs, so checks that
    need them are not made, and lost writes are inferred from the reads, as Jepsen does. Kills lose no written
    data, unless a lazy file system loses it: --loses kill.
    """, click.argument("file", type=click.Path(path_type=Path)),
    out_option("histories/runs/TIME-jepsen", "The run's folder"),
    click.option("-c", "--config", multiple=True, metavar="KEY=VALUE",
                 show_default="what Jepsen's own checker expects of every cluster",
                 help="The guarantees, by Kafka keys (repeatable): acks=1, "
                      "isolation.level=read_uncommitted, ..."),
    click.option("--loses", multiple=True, metavar="ACT", help="An act of the nemesis that loses data."),
    click.option("--spares", multiple=True, metavar="ACT",
                 help="An act that loses none, even if floodmark expects that it does."))


# -- the zoo ---------------------------------------------------------------------------------------------

@main.group()
def scenario() -> None:
    """Play known faults of the protocol by name, at chosen moments, on rules that have them and rules that do
    not."""


command(scenario, "list", "scenario:list_scenarios", """
    List the scenarios.
    """)

command(scenario, "show", "scenario:show_scenario", """
    Show scenario NAME (or zoo number, or FILE.toml): its story, its steps, what is expected on which
    rules.
    """, click.argument("name"))

command(scenario, "run", "scenario:run_scenarios", """
    Play scenario NAME (or zoo number, or FILE.toml) and compare what is found with what is expected.

    Exit codes: 0 every play came out as expected; 1 one did not; 4 one could not be played.
    """, click.argument("name", required=False),
    click.option("--all", "every", is_flag=True, help="Every row of every scenario."),
    click.option("--rules", metavar="GENERATION", show_default="all",
                 help="Only the rows of this protocol generation."),
    click.option("--sample", is_flag=True,
                 help="For each scenario, one row that shows harm and one control."),
    click.option("--times", type=click.IntRange(1, 1000), default=1, show_default=True,
                 help="How often each row is played, each time on a new cluster."),
    spec_options("cluster", "kafka"),
    click.option("--at-once", type=click.IntRange(1, 8), default=2, show_default=True,
                 help="How many clusters run at the same time."),
    out_option("histories/runs/scenario-TIME", "The parent of the run folders"))


# -- Apache Kafka itself -------------------------------------------------------------------------------

@main.group()
def kafka() -> None:
    """Get the jars of Apache Kafka itself."""


command(kafka, "get", "kafka:get", """
    Get the jars of Apache Kafka VERSION with Maven and keep them, each with its checksum, in the user's
    cache folder. If they are there already, their checksums are checked; no network is needed then.

    For a FOLDER with an unpacked distribution, only show what it contains. 4.3.1 means a version, ./4.3.1 a
    folder. Tested versions: 2.8.2, 3.9.2, 4.3.1; other versions may work.

    Exit codes: 0 it can be run; 2 there is no such version or folder; 4 a problem with Java, Maven, the
    network or the folder.
    """, click.argument("version_or_folder", metavar="VERSION|FOLDER"))


# -- this machine ----------------------------------------------------------------------------------------

command(main, "doctor", "doctor:examine_machine", """
    Show what can and cannot be done on this machine, and why: clusters, faults, the judge.

    Exits 0 if the chosen cluster has all it needs, else 4.
    """, spec_options("cluster"), file_option("--json", "json_file", "Write the result to FILE."),
    click.option("--anew", is_flag=True, help="Test again what containers can do."),
    click.option("--build", is_flag=True, help="Build the containers' image if there is none."))
