"""`floodmark kafka ...`: Apache Kafka itself, as it is fetched. Options and help only."""

import click

from floodmark.harness.cli_options import exits


@click.group()
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
