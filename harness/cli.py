"""The command line: options and help, nothing else; each command is a function in harness.commands."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from harness import __version__, catalog
from harness.commands import failures
from harness.faults import FAULTS

RUN_FOLDER = click.Path(path_type=Path)


def exits(command: Callable[..., int]) -> Callable[..., None]:
    """Turns what a command returns or raises into an exit code and one sentence; no traceback for users."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        sys.exit(failures.code_of(lambda: command(*args, **kwargs)))

    return wrapped


def judge_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """check's options, which run takes too."""
    for option in (
        click.option(
            "--json", "json_file", type=click.Path(path_type=Path), help="Write all verdicts to FILE."
        ),
        click.option("--allow-unknown", is_flag=True, help="'unknown' passes the gate."),
        click.option(
            "--allow", multiple=True, metavar="NAME", help="Findings of this name never fail the gate."
        ),
        click.option("--strict", is_flag=True, help="Take every permitted finding for a bug."),
    ):
        command = option(command)
    return command


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a cluster is made of; run and cluster up share it."""
    for option in (
        click.option(
            "--links",
            type=click.Choice(["direct", "proxied"]),
            help="Proxied links can be cut; the default is proxied where a run may cut, else direct.",
        ),
        click.option(
            "-c",
            "--config",
            "config",
            multiple=True,
            metavar="KEY=VALUE",
            help="A Kafka key, for every broker (repeatable).",
        ),
        click.option("--bug", "bugs", multiple=True, metavar="NAME", hidden=True, help="A known-bad rule."),
        click.option(
            "--rules",
            type=click.Choice(list(catalog.RULES)),
            default=catalog.RULES[-1],
            show_default=True,
            help="The protocol generation.",
        ),
        click.option("--nodes", type=click.IntRange(1, 9), default=3, show_default=True, help="Brokers."),
        click.option(
            "--cluster", type=click.Choice(sorted(catalog.CLUSTERS)), default="local", show_default=True
        ),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="floodmark")
def main() -> None:
    """Break a replicated log at chosen moments, then prove what it kept.

    Exit codes: 0 valid, 1 invalid, 2 usage, 3 unknown, 4 the harness itself failed.
    """


@main.command()
@cluster_options
@click.option("--workload", type=click.Choice(sorted(catalog.WORKLOADS)), default="log", show_default=True)
@click.option(
    "--concurrency", type=click.IntRange(0), default=10, show_default=True, help="Client processes."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Ops a second, all processes together.")
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option(
    "--replication-factor", type=click.IntRange(1), help="At most --nodes.  [default: 3, or --nodes if fewer]"
)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option(
    "--nemesis",
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
    help="What is to strike, as JSON or TOML, instead of --nemesis.",
)
@click.option(
    "--trace/--no-trace",
    default=True,
    show_default=True,
    help="Whether the brokers write what happens in them.",
)
@click.option("--seed", type=int, help="Same seed, same schedule; drawn when not given.")
@click.option(
    "--duration", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True, help="Seconds."
)
@click.option("--out", type=RUN_FOLDER, help="The run's folder, absent or empty.")
@judge_options
@exits
def run(
    strict: bool, allow: tuple[str, ...], allow_unknown: bool, json_file: Path | None, **options: Any
) -> int:
    """Run a workload against a cluster while a nemesis strikes, then judge it.

    Example: floodmark run --nemesis crash,pause,cut --duration 30
    """
    from harness.commands.check import gate
    from harness.commands.run import RunOptions, run_and_judge

    through = gate(strict=strict, allow=allow, allow_unknown=allow_unknown, json_file=json_file)
    return run_and_judge(RunOptions(**options), through)


@main.command()
@click.argument("folders", type=RUN_FOLDER, nargs=-1)
@judge_options
@exits
def check(
    folders: tuple[Path, ...],
    strict: bool,
    allow: tuple[str, ...],
    allow_unknown: bool,
    json_file: Path | None,
) -> int:
    """Judge run FOLDERs (default: the latest run), all in one set of Spark jobs.

    The exit code is the worst of all folders, in the order 1, 4, 3, 0.
    """
    from harness.commands.check import check_folders, gate

    through = gate(strict=strict, allow=allow, allow_unknown=allow_unknown, json_file=json_file)
    return check_folders(folders, through)


@main.command()
@click.argument("folders", type=RUN_FOLDER, nargs=-1)
@judge_options
@exits
def rejudge(
    folders: tuple[Path, ...],
    strict: bool,
    allow: tuple[str, ...],
    allow_unknown: bool,
    json_file: Path | None,
) -> int:
    """Judge saved run FOLDERs again (default: the latest) and say what changed against their verdicts.

    The new verdicts take the place of the saved ones. The exit code is as of check.
    """
    from harness.commands.check import gate
    from harness.commands.rejudge import rejudge_folders

    through = gate(strict=strict, allow=allow, allow_unknown=allow_unknown, json_file=json_file)
    return rejudge_folders(folders, through)


@main.command()
@click.argument("folder", type=RUN_FOLDER, required=False)
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="Reproductions.")
@click.option("--finding", metavar="NAME", help="Which of its findings is looked for (default: the worst).")
@click.option("--out", type=RUN_FOLDER, help="The parent of the runs' folders, absent or empty.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write what came of it to FILE.")
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
    from harness.commands.reproduce import reproduce as had_again

    return had_again(folder, runs=runs, out=out, finding=finding, json_file=json_file)


@main.command()
@click.argument("folder", type=RUN_FOLDER, required=False)
@click.option("--finding", metavar="NAME", help="Its story: whose fault, since when, what struck.")
@click.option("--partition", type=click.IntRange(0), help="Which log (needed where there are several).")
@click.option("--offset", type=click.IntRange(0), help="The replicas' logs side by side around it.")
@exits
def show(folder: Path | None, finding: str | None, partition: int | None, offset: int | None) -> int:
    """Show a run (default: the latest): at a glance, around a finding, or the logs at an offset."""
    from harness.commands.show import show_run

    return show_run(folder, finding=finding, partition=partition, offset=offset)


@main.command()
@click.argument("name", required=False)
@exits
def explain(name: str | None) -> int:
    """Say what finding NAME means, what its near miss is, and what permits it; without NAME, list them."""
    from harness.commands.explain import explain_finding

    return explain_finding(name)


@main.command()
@click.option("--cluster", type=click.Choice(sorted(catalog.CLUSTERS)), default="local", show_default=True)
@click.option("--out", type=RUN_FOLDER, help="The parent of the demo's run folders, absent or empty.")
@exits
def demo(cluster: str, out: Path | None) -> int:
    """See Kafka's historical disasters happen and be caught, and leader epochs prevent them."""
    from harness.commands.demo import run_demo

    return run_demo(cluster, out)


# -- the zoo ---------------------------------------------------------------------------------------------


@main.group()
def scenario() -> None:
    """Known faults of the protocol by name, struck at chosen moments, on rules that have them or not."""


@scenario.command("list")
@exits
def scenario_list() -> int:
    """List the scenarios."""
    from harness.commands.scenario import list_scenarios

    return list_scenarios()


@scenario.command("show")
@click.argument("name")
@exits
def scenario_show(name: str) -> int:
    """Show scenario NAME (or zoo number, or FILE.toml): its story, its steps, what is expected where."""
    from harness.commands.scenario import show_scenario

    return show_scenario(name)


@scenario.command("run")
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Every row of every scenario.")
@click.option("--rules", metavar="GENERATION", help="Only the rows of this protocol generation.")
@click.option("--sample", is_flag=True, help="Of each scenario one row that shows harm and one control.")
@click.option("--cluster", type=click.Choice(sorted(catalog.CLUSTERS)), default="local", show_default=True)
@click.option("--at-once", type=click.IntRange(1, 8), default=2, show_default=True, help="Clusters.")
@click.option("--out", type=RUN_FOLDER, help="The parent of the run folders, absent or empty.")
@exits
def scenario_run(name: str | None, **options: Any) -> int:
    """Play scenario NAME (or zoo number, or FILE.toml) and compare what is found with what is expected.

    Exits 0 only if every row came out as expected, else 4.
    """
    from harness.commands.scenario import run_scenarios

    return run_scenarios(name, **options)


# -- a cluster to play with ------------------------------------------------------------------------------

FOLDER_OPTION = click.option("--folder", type=RUN_FOLDER, help="Which cluster (default: the latest).")


@main.group()
def cluster() -> None:
    """A cluster for any Kafka client; strike it from another terminal."""


@cluster.command("up")
@cluster_options
@click.option("--out", type=RUN_FOLDER, help="Where its data go: absent or empty (default: temporary).")
@click.option("--port", type=click.IntRange(1024, 65535), help="The first broker's port; the others follow.")
@exits
def cluster_up(out: Path | None, port: int | None, **options: Any) -> int:
    """Bring a cluster up; prints its bootstrap address, runs until Ctrl-C."""
    from harness.commands.cluster_up import bring_up

    return bring_up(out, first_port=port, **options)


@cluster.command("state")
@click.option("--json", "as_json", is_flag=True)
@FOLDER_OPTION
@exits
def cluster_state(as_json: bool, folder: Path | None) -> int:
    """Leader, epoch and ISR of each partition; LEO and HW of each replica."""
    from harness.commands import cluster as commands

    return commands.state(folder, as_json=as_json)


@cluster.command("cut")
@click.argument("nodes", nargs=-1, required=True)
@click.option("--from", "others", multiple=True, metavar="NODE", help="From these only (also: clients).")
@click.option("--one-way", is_flag=True, help="The nodes do not hear the others, who hear them.")
@click.option("--reset", is_flag=True, help="Connections are reset instead of falling silent.")
@FOLDER_OPTION
@exits
def cluster_cut(
    nodes: tuple[str, ...], others: tuple[str, ...], one_way: bool, reset: bool, folder: Path | None
) -> int:
    """Cut NODES from the others (needs --links proxied at `up`)."""
    from harness.commands import cluster as commands

    return commands.cut(folder, nodes, others=others, one_way=one_way, reset=reset)


@cluster.command("heal")
@FOLDER_OPTION
@exits
def cluster_heal(folder: Path | None) -> int:
    """Let every byte pass again."""
    from harness.commands import cluster as commands

    return commands.heal(folder)


def _strike(f: str, does: str) -> None:
    @cluster.command(f, help=does)
    @click.argument("nodes", nargs=-1, required=True)
    @FOLDER_OPTION
    @exits
    def strike(nodes: tuple[str, ...], folder: Path | None) -> int:
        from harness.commands import cluster as commands

        return commands.strike(folder, f, nodes)


for _f in ("kill", "stop", "start", "pause", "resume", "expire", "power_cut"):
    _strike(_f, f"{FAULTS[_f].does[0].upper()}{FAULTS[_f].does[1:]}.")
