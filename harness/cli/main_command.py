"""`floodmark` and its commands: options and help, nothing else."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from floodmark.harness import __version__, catalog
from floodmark.harness.cli.campaign import campaign
from floodmark.harness.cli.cluster import cluster
from floodmark.harness.cli.options import (
    OWN_CLUSTER,
    RUN_FOLDER,
    Named,
    NemesisOption,
    WorkloadOption,
    cluster_option,
    cluster_options,
    exits,
    file_option,
    findings,
    judge_options,
    kafka_option,
    own_cluster_options,
    refuse_with_bootstrap,
    refuse_without_bootstrap,
    report_options,
    set_by_hand,
    spark_options,
)
from floodmark.harness.registered import WORKLOAD
from floodmark.harness.spark_options import Workers

if TYPE_CHECKING:
    from floodmark.harness.commands.check import Gate

@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="floodmark")
def main() -> None:
    """Break a replicated log at chosen moments, then prove what it kept.

    Exit codes: 0 valid, 1 invalid, 2 usage, 3 unknown, 4 the harness itself failed.
    """


@main.command()
@cluster_options
@click.option("--workload", cls=WorkloadOption, type=Named(WORKLOAD), default="log", show_default=True)
@click.option(
    "--concurrency", type=click.IntRange(0), default=10, show_default=True, help="Client processes."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), show_default="as fast as answers come",
              help="Ops a second, all processes together.")
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    show_default="3, or --nodes if fewer",
    help="At most --nodes.",
)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option(
    "--nemesis",
    cls=NemesisOption,
    default="none",
    show_default=True,
    metavar="NAME,...",
    help=f"{', '.join(catalog.NEMESES)}, all or none; `partition` means cut. In containers also "
         f"{', '.join(catalog.MORE_NEMESES)}.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0, min_open=True),
    default=5.0,
    show_default=True,
    help="Mean seconds between strikes.",
)
@click.option("--overspend", is_flag=True, help="May break more than the guarantees tolerate.")
@click.option(
    "--schedule",
    "schedule_file",
    type=click.Path(path_type=Path, dir_okay=False),
    show_default="what --nemesis says",
    help="What is to strike, as JSON or TOML, instead of --nemesis.",
)
@click.option(
    "--trace/--no-trace",
    default=True,
    show_default=True,
    help="Whether the brokers write what happens in them; failpoints need it.",
)
@click.option(
    "--settings",
    type=click.Choice(["fixed", "drawn"]),
    default="fixed",
    show_default=True,
    help="Drawn: what was not set by hand (nodes, partitions, brokers' config, load) comes from the seed.",
)
@click.option("--seed", type=int, show_default="drawn", help="Same seed, same schedule.")
@click.option(
    "--duration", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True, help="Seconds."
)
@click.option("--out", type=RUN_FOLDER, show_default="histories/runs/TIME-SEED",
              help="The run's folder, absent or empty.")
@own_cluster_options
@exits
@judge_options
@report_options
def run(through: "Gate", bootstrap: str | None, **options: Any) -> int:
    """Run a workload against a cluster while a nemesis strikes, then judge it.

    Example: floodmark run --nemesis crash,pause,cut --duration 30

    On a cluster of your own: floodmark run --bootstrap HOST:PORT. See harness/TESTING_YOUR_OWN_KAFKA.md.
    """
    from floodmark.harness.commands.run import RunOptions, run_and_judge

    own = {name: options.pop(name) for name in OWN_CLUSTER}
    if bootstrap is None:
        refuse_without_bootstrap(own)
        return run_and_judge(RunOptions(**options, given=set_by_hand()), through)
    refuse_with_bootstrap()
    from floodmark.harness.commands.own_cluster import OwnOptions, run_on_own

    return run_on_own(OwnOptions(bootstrap=bootstrap, **own), RunOptions(**options), through)


@main.command()
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path())
@exits
@judge_options
@report_options
@spark_options
@click.option(
    "--keep-parquet",
    is_flag=True,
    help="Keep each big history as Parquet too (history.parquet); the next look at it is quicker.",
)
def check(folders: tuple[str, ...], through: "Gate", workers: Workers, keep_parquet: bool) -> int:
    """Judge run FOLDERs (default: the latest run), all in one set of Spark jobs.

    A FOLDER may be a pattern, quoted: 'histories/runs/*' stands for the folders that it matches, in order.
    It may be an address that Spark can read: hdfs://, s3a://, viewfs://.
    The exit code is the worst of all folders, in the order 1, 4, 3, 0.
    """
    from floodmark.harness.commands.check import check_folders

    return check_folders(folders, through, workers, keep_parquet=keep_parquet)


@main.command()
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path())
@exits
@judge_options
@spark_options
def rejudge(folders: tuple[str, ...], through: "Gate", workers: Workers) -> int:
    """Judge saved run FOLDERs (default: the latest) again and say what changed against their verdicts.

    The new verdicts take the place of the saved ones. Patterns and the exit code are as of check.
    """
    from floodmark.harness.commands.folder_arguments import chosen
    from floodmark.harness.commands.rejudge import rejudge_folders

    return rejudge_folders(chosen(folders, workers), through, workers)


@main.command()
@click.argument("folder", type=RUN_FOLDER, required=False)
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Reproductions.")
@click.option("--finding", metavar="NAME", show_default="the worst", shell_complete=findings,
              help="Which of its findings is looked for.")
@click.option("--out", type=RUN_FOLDER, show_default="histories/runs/reproduce-TIME",
              help="The parent of the runs' folders, absent or empty.")
@file_option("--json", "json_file", "Write what came of it to FILE.")
@exits
def reproduce(
    folder: Path | None, runs: int, finding: str | None, out: Path | None, json_file: Path | None
) -> int:
    """Have a saved run (default: the latest) again, from its FOLDER alone, and count how often its finding
    comes back.

    The cluster, the load and the seed are the same. A moment that was asked by an ack, a state or a failpoint
    is asked again; one that was asked by time is tied to what it met: the acks so far, the leader and ISR, or
    the entry before. The table says which.

    Exit codes: 0 the finding came back at least once (or the run had none, and all reproductions are valid);
    1 it did not, but another bug was found; 3 it did not, which proves nothing: more --runs, or luck;
    2 usage; 4 the run cannot be had again, or none was carried out.
    """
    from floodmark.harness.commands.reproduce import reproduce as had_again

    return had_again(folder, runs=runs, out=out, finding=finding, json_file=json_file)


@main.command()
@click.argument("folder", type=RUN_FOLDER, required=False)
@click.option("--finding", metavar="NAME", shell_complete=findings,
              help="Its story: whose fault, since when, what struck.")
@click.option("--partition", type=click.IntRange(0), show_default="the only one", help="Which log.")
@click.option("--offset", type=click.IntRange(0), help="The replicas' logs side by side around it.")
@exits
def show(folder: Path | None, finding: str | None, partition: int | None, offset: int | None) -> int:
    """Show a run (default: the latest): at a glance, around a finding, or the logs at an offset."""
    from floodmark.harness.commands.show import show_run

    return show_run(folder, finding=finding, partition=partition, offset=offset)


@main.command()
@click.argument("folder", type=RUN_FOLDER, required=False)
@click.option("--out", type=click.Path(path_type=Path),
              show_default="report.html in the run's folder, index.html in the campaign's",
              help="The file to be written.")
@click.option("--ledger", type=click.Path(path_type=Path, dir_okay=False),
              show_default="the campaign's", help="Of a campaign: what earlier nights know.")
@exits
def report(folder: Path | None, out: Path | None, ledger: Path | None) -> int:
    """Write a run (default: the latest) as one page for a browser: what was found, step by step through the
    replicas' logs, and the run through time. Nothing is fetched; the file can be sent on as it is.

    Of a campaign's folder: what is new, since when, how often; what was looked at; links to its runs' pages.
    """
    from floodmark.harness.commands.report_page import report_page

    return report_page(folder, out, ledger)


@main.command()
@click.argument("name", required=False, shell_complete=findings)
@exits
def explain(name: str | None) -> int:
    """Say what finding NAME means, what its near miss is, and what permits it; without NAME, list them, each
    with its meaning on one line."""
    from floodmark.harness.commands.explain import explain_finding

    return explain_finding(name)


@main.command()
@cluster_option
@kafka_option
@click.option("--out", type=RUN_FOLDER, show_default="histories/runs/demo-TIME",
              help="The parent of the demo's run folders, absent or empty.")
@exits
def demo(cluster: str, kafka: str | None, out: Path | None) -> int:
    """See Kafka's historical disasters happen and be caught, and leader epochs prevent them."""
    from floodmark.harness.commands.demo import run_demo

    return run_demo(cluster, out, kafka)


# -- from elsewhere --------------------------------------------------------------------------------------


@main.group("import")
def import_() -> None:
    """Histories that others recorded, as run folders that check can judge."""


@import_.command("jepsen")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=RUN_FOLDER, show_default="histories/runs/TIME-jepsen",
              help="The run's folder, absent or empty.")
@click.option(
    "-c",
    "--config",
    "config",
    multiple=True,
    metavar="KEY=VALUE",
    show_default="what Jepsen's own checker holds every cluster to",
    help="What was promised, by a Kafka key (repeatable): acks=1, isolation.level=read_uncommitted, ...",
)
@click.option("--loses", multiple=True, metavar="ACT", help="An act of the nemesis that loses data.")
@click.option("--spares", multiple=True, metavar="ACT", help="One that loses none, known to or not.")
@exits
def import_jepsen(file: Path, **options: Any) -> int:
    """Turn FILE, the history.edn (or JSON lines) of a jepsen.tests.kafka run, into a run folder.

    What cannot be carried is counted on stderr and in run.json. No replica's log is there: what rests on one
    is not checked, and lost writes are inferred from the reads, as Jepsen does. Kills spare what was written,
    unless a lazy file system makes them lose it: --loses kill.
    """
    from floodmark.harness.commands.import_jepsen import import_history

    return import_history(file, **options)


# -- the zoo ---------------------------------------------------------------------------------------------


@main.group()
def scenario() -> None:
    """Known faults of the protocol by name, struck at chosen moments, on rules that have them or not."""


@scenario.command("list")
@exits
def scenario_list() -> int:
    """List the scenarios."""
    from floodmark.harness.commands.scenario import list_scenarios

    return list_scenarios()


@scenario.command("show")
@click.argument("name")
@exits
def scenario_show(name: str) -> int:
    """Show scenario NAME (or zoo number, or FILE.toml): its story, its steps, what is expected where."""
    from floodmark.harness.commands.scenario import show_scenario

    return show_scenario(name)


@scenario.command("run")
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Every row of every scenario.")
@click.option("--rules", metavar="GENERATION", show_default="all",
              help="Only the rows of this protocol generation.")
@click.option("--sample", is_flag=True, help="Of each scenario one row that shows harm and one control.")
@cluster_option
@kafka_option
@click.option("--at-once", type=click.IntRange(1, 8), default=2, show_default=True, help="Clusters.")
@click.option("--out", type=RUN_FOLDER, show_default="histories/runs/scenario-TIME",
              help="The parent of the run folders, absent or empty.")
@exits
def scenario_run(name: str | None, **options: Any) -> int:
    """Play scenario NAME (or zoo number, or FILE.toml) and compare what is found with what is expected.

    Exits 0 only if every row came out as expected, else 4.
    """
    from floodmark.harness.commands.scenario import run_scenarios

    return run_scenarios(name, **options)


main.add_command(cluster)
main.add_command(campaign)


# -- Apache Kafka itself -------------------------------------------------------------------------------


@main.group()
def kafka() -> None:
    """Apache Kafka itself: get its jars."""


@kafka.command("get")
@click.argument("version_or_folder", metavar="VERSION|FOLDER")
@exits
def kafka_get(version_or_folder: str) -> int:
    """Get the jars of Apache Kafka VERSION with Maven and keep them, each with its checksum, in the user's
    cache folder. Where they are there, they are held against their checksums; no network is needed then.

    Of a FOLDER, that of an unpacked distribution, it is only said what it holds. A word like 4.3.1 is a
    version, ./4.3.1 a folder. Tested: 2.8.2, 3.9.2, 4.3.1; others are tried.

    Exit codes: 0 it can be run; 2 there is no such version or folder; 4 Java, Maven, the network or the
    folder is at fault.
    """
    from floodmark.harness.commands.kafka import get

    return get(version_or_folder)


# -- this machine ----------------------------------------------------------------------------------------


@main.command()
@cluster_option
@file_option("--json", "json_file", "Write what was found to FILE.")
@click.option("--anew", is_flag=True, help="Try out again what containers can do.")
@click.option("--build", is_flag=True, help="Build the containers' image if there is none.")
@exits
def doctor(**options: Any) -> int:
    """Say what can and cannot be done on this machine, and why: clusters, faults, the judge.

    Exits 0 if the chosen cluster has all it needs, else 4.
    """
    from floodmark.harness.commands.doctor import examine_machine

    return examine_machine(**options)
