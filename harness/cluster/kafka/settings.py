"""Checks the settings of Apache Kafka that a user gives (`-c`, `-t`); makes what its processes are started
with: their settings, hosts files, logging, and the Java command.

Rules
1. Kafka accepts any key, so every key is passed on; Kafka itself warns about unknown ones.
2. Settings that tie a process to its place (addresses, ids, folders, roles) are set by the cluster and cannot
   be given.
3. A broker advertises one address to all others. If links can be cut, that is its node's name, and each
   process is started with jdk.net.hosts.file (Java 9 and newer), in which the name is the address of its own
   link.
4. Log lines go to standard output; each begins with date and time in UTC, with milliseconds, and the level.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from floodmark.harness.broker_config import TOPIC_KEYS
from floodmark.harness.cluster.broker_requests import keep_all
from floodmark.harness.cluster.kafka.distribution import Distribution, archive_options
from floodmark.harness.cluster.layout import (
    HOST,
    Address,
    Layout,
    ProcessAddresses,
    host_port,
    property_line,
    typed,
)
from floodmark.harness.errors import UsageError

OURS = frozenset({
    "advertised.listeners", "broker.id", "controller.listener.names", "controller.quorum.bootstrap.servers",
    "controller.quorum.voters", "early.start.listeners", "inter.broker.listener.name",
    "listener.security.protocol.map", "listeners", "log.dir", "log.dirs", "metadata.log.dir", "node.id",
    "process.roles", "security.inter.broker.protocol", "zookeeper.connect",
})
LISTENERS = "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT"
# What a test cluster prefers in both modes: short sessions and lag times, one small topic of each kind.
PREFERRED: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "background.threads": "1",
    "broker.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "replica.fetch.backoff.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "unclean.leader.election.enable": "false",
}


def refuse_ours(given: Mapping[str, str], option: str) -> None:
    """Raises UsageError for a setting that only the cluster sets; option: -c or -t."""
    for key, value in given.items():
        if key in OURS:
            raise UsageError(f"{option} {key}=... cannot be set: addresses, ids, folders and roles are the "
                             "cluster's")
        property_line(key, value, escapes=True)


def effective(settings: Mapping[str, str], topic_settings: Mapping[str, str]) -> dict[str, int | bool | str]:
    """By the brokers' keys, typed for run.json: a topic's own setting overrides its broker's."""
    of_topics = {TOPIC_KEYS.get(key, key): value for key, value in topic_settings.items()
                 if key in TOPIC_KEYS or key in settings}
    return {key: typed(value) for key, value in {**settings, **of_topics}.items()}


def keeps_all(settings: Mapping[str, str], *of_topics: Mapping[str, str]) -> bool:
    """Whether these settings of the brokers delete no record of a topic, and no topic has others."""
    return (settings.get("log.retention.ms") == "-1" and settings.get("log.retention.bytes", "-1") == "-1"
            and settings.get("log.cleanup.policy", "delete") == "delete" and keep_all(of_topics))


def advertised_to_brokers(layout: Layout, node: str) -> Address:
    """The address that the node, or the controller, advertises to brokers."""
    place = layout.places[node]
    if not layout.link_hosts:
        return place.controller if place.is_controller else place.control
    return node, place.control[1]  # all links to it listen on this port, at different addresses


def of_broker(layout: Layout, node: str) -> dict[str, str]:
    """The settings that depend on a broker's place, in both modes."""
    place = layout.places[node]
    return {
        "log.dirs": place.inside(place.log_dir), "listener.security.protocol.map": LISTENERS,
        "listeners": f"CLIENTS://{host_port(place.listens)},BROKERS://{host_port(place.control)}",
        "advertised.listeners": f"CLIENTS://{host_port(place.advertised)},"
                                f"BROKERS://{host_port(advertised_to_brokers(layout, node))}",
        "inter.broker.listener.name": "BROKERS"}


def write_hosts(layout: Layout) -> None:
    """Java then uses no other source, so each file has the machine's name too."""
    for name, host in layout.link_hosts.items():
        lines = [f"{HOST} localhost {socket.gethostname()} {name}",
                 *(f"{host} {other}" for other in layout.names if other != name)]
        layout.work(f"{name}.hosts").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# -- the Java command --------------------------------------------------------------------------------------

# A test's broker needs little memory, and only the fast compiler, because it does not run long.
JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ActiveProcessorCount=2",
       "-Xss256k", "-XX:-UsePerfData", "-Djava.awt.headless=true", "-Duser.timezone=UTC")
IMAGE_OPTIONS = "classes.options"  # beside libs/, see docker/kafka/Dockerfile
_PATTERN = "[%d{yyyy-MM-dd HH:mm:ss,SSS}] %p %m (%c)%n"
_LOG4J = f"""log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern={_PATTERN}
"""
_LOG4J2 = f"""Configuration:
  Appenders:
    Console:
      name: out
      PatternLayout:
        pattern: '{_PATTERN}'
  Loggers:
    Root:
      level: INFO
      AppenderRef:
      - ref: out
"""


def write_logging(folder: Path) -> None:
    """Writes the settings of both logging libraries: a version's jars have one of them."""
    (folder / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
    (folder / "log4j2.yaml").write_text(_LOG4J2, encoding="utf-8")


def java_command(kafka: Distribution, place: ProcessAddresses, main: str, arguments: Sequence[Path], *,
                 logging: Path, flags: Sequence[str] = ()) -> list[str]:
    """With every path as the process sees it; a named image has its jars. logging: as of write_logging."""
    paths = (os.pathsep.join(map(place.inside, kafka.jars)) if kafka.image is None
             else str(Path(place.inside(kafka.jars[0].parent)) / "*"))
    libs, folder = kafka.jars[0].parent, place.inside(logging)
    inside = Path(place.inside(libs))
    # The image that is built from Kafka's jars has a file with the options of its class-data archive.
    archive = (archive_options(kafka) if inside == libs
               else [] if kafka.image is not None else [f"@{inside.parent / IMAGE_OPTIONS}"])
    return [place.inside(kafka.java), *JVM, *archive, *flags,
            f"-Dlog4j.configuration=file:{folder}/log4j.properties",
            f"-Dlog4j2.configurationFile={folder}/log4j2.yaml",
            "-cp", paths, main, *map(place.inside, arguments)]
