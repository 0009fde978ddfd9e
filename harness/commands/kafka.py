"""Fetches Apache Kafka's jars, or finds them in the cache, and their class archive: `floodmark kafka get`."""

import os
from pathlib import Path

import click

from floodmark.harness.cluster.kafka.distribution import distribution, make_archive

_MODES = {"zookeeper": "with ZooKeeper", "kraft": "in KRaft mode"}


def get(version_or_folder: str) -> int:
    """Prints the distribution, and at last the folder of the jars. Exit code 0; errors are raised."""
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        click.echo(line, err=True)

    found = distribution(version_or_folder, say)
    paths = [Path(path) for path in found.classpath.split(os.pathsep)]
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    if not said:
        click.echo("nothing had to be fetched", err=True)
    make_archive(found, say, again=True)
    click.echo(f"Kafka {found.version}, {_MODES[found.mode]}: {len(paths)} jars, {megabytes:.0f} MB; Java: "
               f"{found.java}")
    click.echo(paths[0].parent)
    return 0
