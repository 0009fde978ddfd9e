"""Defines `floodmark` and its commands: only their options and help texts."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.harness import __version__
from floodmark.harness.cli.campaign import READ_LEDGER, campaign
from floodmark.harness.cli.cluster import cluster
from floodmark.harness.cli.options import (
    RUN_FOLDER,
    calls,
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
from floodmark.harness.spec import OPTIONS, RunSpec

if TYPE_CHECKING:
    from floodmark.harness.pipeline import Gate

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
def run(through: "Gate", **options: Any) -> int:
    """Run a workload against a cluster while a nemesis strikes, then judge it.

    Example: floodmark run --nemesis crash,pause,cut --duration 30

    On a cluster of your own: floodmark run --bootstrap HOST:PORT. See harness/TESTING_YOUR_OWN_KAFKA.md.
    """
    from floodmark.harness.commands.run import planned, run_and_judge

    spec = RunSpec(**options, given=set_by_hand())
    refuse_misplaced(spec)
    if spec.bootstrap is None:
        return run_and_judge(spec, plan_of=planned, through=through)
    from floodmark.harness.commands.own_cluster import planned_on_own

    return run_and_judge(spec, plan_of=planned_on_own, through=through)


@main.command()
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path())
@calls("check:check_folders", judge_options, report_options, spark_options)
@click.option("--keep-parquet", is_flag=True, help="Also write each big history as Parquet "
              "(history.parquet), which is read faster the next time.")
def check() -> None:
    """Judge run FOLDERs (default: the latest run), all in one set of Spark jobs.

    A FOLDER may be a quoted pattern: 'histories/runs/*' means the folders that it matches, in order. A folder
    that has runs inside, such as a demo's or a campaign's, means all of them.
    It may be an address that Spark can read: hdfs://, s3a://, viewfs://.
    The exit code is the worst of all folders, in the order 1, 4, 3, 0.
    """


@main.command()
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path())
@calls("check:rejudge_folders", judge_options, spark_options)
def rejudge() -> None:
    """Judge saved run FOLDERs (default: the latest) again and show what changed against their verdicts.

    The new verdicts replace the saved ones. Patterns and the exit code are as for check.
    """


@main.command()
@click.argument("folder", type=RUN_FOLDER, required=False)
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Reproductions.")
@click.option("--finding", metavar="NAME", show_default="the worst", shell_complete=findings,
              help="The finding to look for.")
@out_option("histories/runs/reproduce-TIME", "The parent of the runs' folders")
@file_option("--json", "json_file", "Write the result to FILE.")
@calls("reproduce:reproduce")
def reproduce() -> None:
    """Reproduce a saved run (default: the latest) from its FOLDER alone, and count how often its finding
    comes back.

    The cluster, the load and the seed are the same. A moment that waited for an ack, a state or a failpoint
    stays the same; a moment at a fixed time is replaced by what the strike met in the saved run: the number
    of acks so far, the leader and ISR, or the entry before. The table says which.

    Exit codes: 0 the finding came back at least once (or the run had none, and all reproductions are valid);
    1 it did not, but another bug was found; 3 it did not, which proves nothing: try more --runs;
    2 usage; 4 the run cannot be reproduced, or no reproduction was carried out.
    """


@main.command()
@click.argument("folder", type=RUN_FOLDER, required=False)
@click.option("--finding", metavar="NAME", shell_complete=findings,
              help="Tell how this finding came about: who caused it, since when, which faults struck.")
@click.option("--partition", type=click.IntRange(0), show_default="the only one", help="The log to show.")
@click.option("--offset", type=click.IntRange(0), help="Show the replicas' logs side by side around it.")
@calls("show:show_run")
def show() -> None:
    """Show a run (default: the latest): a summary, the history of a finding, or the logs at an offset."""


@main.command()
@click.argument("folder", type=RUN_FOLDER, required=False)
@file_option("--out", "out", "The file to write.",
             show_default="report.html in the run's folder, index.html in the campaign's")
@click.option("--ledger", type=READ_LEDGER, show_default="the campaign's",
              help="For a campaign: what earlier nights found.")
@calls("report_page:report_page")
def report() -> None:
    """Write a run (default: the latest) as one page for a browser: the findings, step by step through the
    replicas' logs, and the run over time. The file is complete: it loads nothing, so you can send it to
    others.

    For a campaign's folder: what is new, since when, how often; what was tested; links to its runs' pages.
    """


@main.command()
@click.argument("arguments", nargs=-1, required=True, metavar="[FOLDER]... SELECT")
@file_option("--csv", "csv", "Write the rows to FILE instead, as CSV.")
@file_option("--json", "json_file", "The same as JSON, one object a line.")
@file_option("--parquet", "parquet", "The same as Parquet.")
@calls("query:query")
def query() -> None:
    """Answer a question in SQL about run FOLDERs (default: the latest run; patterns as for check). A FILE
    named - is standard output.

    \b
    floodmark query "select partition, count(*) from sends where type = 'ok' group by all"
    floodmark query "describe sends"

    The tables, each with the columns run and folder: sends, reads, corrupt, ends, starts, assigned, moves,
    empty_polls, processes, repeated, faults, lines, answers (from the history); entries, replicas (the final
    logs); partitions, log_start_unknown, runs, reasons (what may be claimed); trace, traced, active_brokers,
    strikes (the brokers' trace). checkers/README.md explains them and answers five questions.
    """


@main.command()
@click.argument("name", required=False, shell_complete=findings)
@calls("explain:explain_finding")
def explain() -> None:
    """Explain what finding NAME means, what its near miss is, and what permits it; without NAME, list all
    findings with their meanings on one line each."""


@main.command()
@spec_options("cluster", "kafka")
@out_option("histories/runs/demo-TIME", "The parent of the demo's run folders")
@calls("scenario:run_demo")
def demo() -> None:
    """See Kafka's historical disasters happen and be caught, and leader epochs prevent them."""


# -- other tools' histories ------------------------------------------------------------------------------


@main.group("import")
def import_() -> None:
    """Turn histories that other tools recorded into run folders, which check can judge."""


@import_.command("jepsen")
@click.argument("file", type=click.Path(path_type=Path))
@out_option("histories/runs/TIME-jepsen", "The run's folder")
@click.option("-c", "--config", multiple=True, metavar="KEY=VALUE",
              show_default="what Jepsen's own checker expects of every cluster",
              help="The guarantees, by Kafka keys (repeatable): acks=1, "
                   "isolation.level=read_uncommitted, ...")
@click.option("--loses", multiple=True, metavar="ACT", help="An act of the nemesis that loses data.")
@click.option("--spares", multiple=True, metavar="ACT",
              help="An act that loses none, even if floodmark expects that it does.")
@calls("import_jepsen:import_history")
def import_jepsen() -> None:
    """Turn FILE, the history.edn (or JSON lines) of a jepsen.tests.kafka run, into a run folder.

    What cannot be converted is counted on stderr and in run.json. There are no replicas' logs, so checks that
    need them are not made, and lost writes are inferred from the reads, as Jepsen does. Kills lose no written
    data, unless a lazy file system loses it: --loses kill.
    """


# -- the zoo ---------------------------------------------------------------------------------------------


@main.group()
def scenario() -> None:
    """Play known faults of the protocol by name, at chosen moments, on rules that have them and rules that do
    not."""


@scenario.command("list")
@calls("scenario:list_scenarios")
def scenario_list() -> None:
    """List the scenarios."""


@scenario.command("show")
@click.argument("name")
@calls("scenario:show_scenario")
def scenario_show() -> None:
    """Show scenario NAME (or zoo number, or FILE.toml): its story, its steps, what is expected on which
    rules."""


@scenario.command("run")
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Every row of every scenario.")
@click.option("--rules", metavar="GENERATION", show_default="all",
              help="Only the rows of this protocol generation.")
@click.option("--sample", is_flag=True, help="For each scenario, one row that shows harm and one control.")
@click.option("--times", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="How often each row is played, each time on a new cluster.")
@spec_options("cluster", "kafka")
@click.option("--at-once", type=click.IntRange(1, 8), default=2, show_default=True,
              help="How many clusters run at the same time.")
@out_option("histories/runs/scenario-TIME", "The parent of the run folders")
@calls("scenario:run_scenarios")
def scenario_run() -> None:
    """Play scenario NAME (or zoo number, or FILE.toml) and compare what is found with what is expected.

    Exit codes: 0 every play came out as expected; 1 one did not; 4 one could not be played.
    """


main.add_command(cluster)
main.add_command(campaign)


# -- Apache Kafka itself -------------------------------------------------------------------------------


@main.group()
def kafka() -> None:
    """Get the jars of Apache Kafka itself."""


@kafka.command("get")
@click.argument("version_or_folder", metavar="VERSION|FOLDER")
@calls("kafka:get")
def kafka_get() -> None:
    """Get the jars of Apache Kafka VERSION with Maven and keep them, each with its checksum, in the user's
    cache folder. If they are there already, their checksums are checked; no network is needed then.

    For a FOLDER with an unpacked distribution, only show what it contains. 4.3.1 means a version, ./4.3.1 a
    folder. Tested versions: 2.8.2, 3.9.2, 4.3.1; other versions may work.

    Exit codes: 0 it can be run; 2 there is no such version or folder; 4 a problem with Java, Maven, the
    network or the folder.
    """


# -- this machine ----------------------------------------------------------------------------------------


@main.command()
@spec_options("cluster")
@file_option("--json", "json_file", "Write the result to FILE.")
@click.option("--anew", is_flag=True, help="Test again what containers can do.")
@click.option("--build", is_flag=True, help="Build the containers' image if there is none.")
@calls("doctor:examine_machine")
def doctor() -> None:
    """Show what can and cannot be done on this machine, and why: clusters, faults, the judge.

    Exits 0 if the chosen cluster has all it needs, else 4.
    """
