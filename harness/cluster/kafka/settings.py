"""Which settings of Apache Kafka a user may give (`-c`, `-t`), and their lines in a properties file.

Rules
1. Kafka takes any key, so any is passed on; Kafka itself warns of one that it does not know.
2. What ties a process to its place (addresses, ids, folders, roles) is the cluster's and nobody's to give.
3. A setting is one line of a file, whatever it holds: what would begin another is refused.
"""

import re
from collections.abc import Mapping

from floodmark.harness.broker_config import OF_TOPICS
from floodmark.harness.errors import UsageError

OURS = frozenset({
    "advertised.listeners", "broker.id", "controller.listener.names", "controller.quorum.bootstrap.servers",
    "controller.quorum.voters", "early.start.listeners", "inter.broker.listener.name",
    "listener.security.protocol.map", "listeners", "log.dir", "log.dirs", "metadata.log.dir", "node.id",
    "process.roles", "security.inter.broker.protocol", "zookeeper.connect",
})
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def refuse_ours(given: Mapping[str, str], option: str) -> None:
    """UsageError for a setting that nobody may give; option: how it was given, -c or -t."""
    for key, value in given.items():
        if key in OURS:
            raise UsageError(f"{option} {key}=... cannot be set: addresses, ids, folders and roles are the "
                             "cluster's")
        property_line(key, value)


def property_line(key: str, value: str) -> str:
    """One line of a properties file, and never two."""
    text = f"{key}={value}"
    if len(text.splitlines()) != 1 or not text.isprintable() or _KEY.fullmatch(key) is None:
        raise UsageError(f"{key!a} cannot be set to {value!a}: a line of a properties file cannot hold that")
    escaped = value.replace("\\", "\\\\")
    return f"{key}={escaped}\n"


def effective(settings: Mapping[str, str], topic_settings: Mapping[str, str]) -> dict[str, int | bool | str]:
    """What holds for the topics of a run, under the brokers' own names, as run.json says it: integers,
    booleans and words. A run has no topics but its own, and a topic's word goes before its broker's."""
    of_topics = {OF_TOPICS.get(key, key): value for key, value in topic_settings.items()
                 if key in OF_TOPICS or key in settings}
    return {key: _typed(value) for key, value in {**settings, **of_topics}.items()}


def _typed(value: str) -> int | bool | str:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    return int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value
