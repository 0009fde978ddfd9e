"""Checks the settings of Apache Kafka that a user gives (`-c`, `-t`), and writes them as lines of a
properties file.

Rules
1. Kafka accepts any key, so every key is passed on; Kafka itself warns about unknown ones.
2. Settings that tie a process to its place (addresses, ids, folders, roles) are set by the cluster and cannot
   be given.
3. A setting is one line of the file: one that would begin another line is refused.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from floodmark.harness.broker_config import TOPIC_KEYS
from floodmark.harness.errors import UsageError

OURS = frozenset({
    "advertised.listeners", "broker.id", "controller.listener.names", "controller.quorum.bootstrap.servers",
    "controller.quorum.voters", "early.start.listeners", "inter.broker.listener.name",
    "listener.security.protocol.map", "listeners", "log.dir", "log.dirs", "metadata.log.dir", "node.id",
    "process.roles", "security.inter.broker.protocol", "zookeeper.connect",
})
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
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def refuse_ours(given: Mapping[str, str], option: str) -> None:
    """Raises UsageError for a setting that only the cluster sets; option: -c or -t."""
    for key, value in given.items():
        if key in OURS:
            raise UsageError(f"{option} {key}=... cannot be set: addresses, ids, folders and roles are the "
                             "cluster's")
        property_line(key, value)


def property_line(key: str, value: str) -> str:
    """One line of a properties file; UsageError for what would be more than one."""
    text = f"{key}={value}"
    if len(text.splitlines()) != 1 or not text.isprintable() or _KEY.fullmatch(key) is None:
        raise UsageError(f"{key!a} cannot be set to {value!a}: that cannot be in a properties file")
    escaped = value.replace("\\", "\\\\")
    return f"{key}={escaped}\n"


def write_properties(file: Path, lines: Mapping[str, str]) -> None:
    file.write_text("".join(property_line(key, value) for key, value in lines.items()), encoding="utf-8")


def effective(settings: Mapping[str, str], topic_settings: Mapping[str, str]) -> dict[str, int | bool | str]:
    """The settings in force for a run's topics, by the brokers' keys, typed for run.json. A topic's own
    setting overrides its broker's, and a run has only its own topics."""
    of_topics = {TOPIC_KEYS.get(key, key): value for key, value in topic_settings.items()
                 if key in TOPIC_KEYS or key in settings}
    return {key: _typed(value) for key, value in {**settings, **of_topics}.items()}


def keeps_all(settings: Mapping[str, str], *of_topics: Mapping[str, str]) -> bool:
    """Whether these settings of the brokers delete no record of a topic, and no topic has others."""
    kept_by = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
    return (settings.get("log.retention.ms") == "-1"
            and settings.get("log.retention.bytes", "-1") == "-1"
            and settings.get("log.cleanup.policy", "delete") == "delete"
            and all(own.get(key, kept) == kept for own in of_topics for key, kept in kept_by.items()))


def _typed(value: str) -> int | bool | str:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    return int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value
