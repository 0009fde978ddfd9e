"""Defines the commands `floodmark cluster ...`: only their options and help texts."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from floodmark.harness import catalog
from floodmark.harness.cli.options import RUN_FOLDER, calls, exits, out_option, spec_options
from floodmark.harness.faults import COMMANDS, FAULTS
from floodmark.harness.spec import CLUSTER_OPTIONS, RunSpec

FOLDER_OPTION = click.option("--folder", type=RUN_FOLDER, show_default="the latest",
                             help="Which cluster.")


@click.group()
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


@cluster.command("state")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
@FOLDER_OPTION
@calls("cluster:state")
def cluster_state() -> None:
    """Show leader, epoch and ISR of each partition, and LEO and HW of each replica."""


@cluster.command("cut")
@click.argument("nodes", nargs=-1, required=True)
@click.option("--from", "others", multiple=True, metavar="NODE",
              help="Only from these, not from all other brokers (also: controller, clients; repeatable).")
@click.option("--one-way", is_flag=True,
              help="NODES receive nothing from the others, which still receive from them.")
@click.option("--reset", is_flag=True, help="Reset the connections, instead of dropping their packets.")
@FOLDER_OPTION
@calls("cluster:cut")
def cluster_cut() -> None:
    """Cut NODES from all other brokers, in both directions, until heal. The controller and clients still
    reach them, unless --from names them too. It adds to earlier cuts. Not possible after `up --links direct`.
    """


def _strike(f: str, name: str, does: str, *, hidden: bool = False) -> None:
    strike = FOLDER_OPTION(exits(partial(catalog.late("floodmark.harness.commands.cluster:strike"), f=f)))
    on_nodes = FAULTS[f].on == "nodes"
    taking = click.argument("nodes", nargs=-1, required=True)(strike) if on_nodes else strike
    cluster.command(name, help=does, hidden=hidden)(taking)


for _f in COMMANDS:
    _strike(_f, _f.replace("_", "-"), f"{FAULTS[_f].does[0].upper()}{FAULTS[_f].does[1:]}.")
_strike("power_cut", "power_cut", "The old spelling of power-cut.", hidden=True)
