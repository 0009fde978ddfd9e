"""Checks the keys and values of a broker config: from `-c`, a scenario's [config] or a saved run.

Rules
1. The broker has its own table (docker/broker/server/config.py). The two tables are written separately on
   purpose; a contract test compares them.
2. An unknown key is refused, and the message names the closest valid key. A value of the wrong type or out
   of range is refused too. Refused values never reach a properties file, so no value can add a second line.
3. Users cannot set the keys in SET_BY_CLUSTER: a node's addresses, ids, paths and rules.
"""

import re
from collections.abc import Mapping

from floodmark.harness.errors import UsageError, nearest

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
BOOLEAN, NAMES = "boolean", "names"
NATURAL, POSITIVE = (0, INT_MAX), (1, INT_MAX)  # whole numbers: the least and the most

KEYS: Mapping[str, str | tuple[int, int]] = {
    "auto.create.topics.enable": BOOLEAN,
    "broker.heartbeat.interval.ms": POSITIVE,
    "broker.session.timeout.ms": POSITIVE,
    "default.replication.factor": POSITIVE,
    "floodmark.switches": NAMES,
    "log.flush.interval.messages": (1, LONG_MAX),
    "log.segment.bytes": POSITIVE,
    "message.max.bytes": POSITIVE,
    "min.insync.replicas": POSITIVE,
    "num.partitions": POSITIVE,
    "replica.fetch.backoff.ms": NATURAL,
    "replica.fetch.max.bytes": POSITIVE,
    "replica.fetch.min.bytes": NATURAL,
    "replica.fetch.wait.max.ms": NATURAL,
    "replica.high.watermark.checkpoint.interval.ms": POSITIVE,
    "replica.lag.time.max.ms": POSITIVE,
    "replica.socket.timeout.ms": POSITIVE,
    "socket.request.max.bytes": POSITIVE,
    "unclean.leader.election.enable": BOOLEAN,
}
# A topic's key -> the broker's key for the same setting of all its topics. A run has only one topic.
TOPIC_KEYS: Mapping[str, str] = {
    "flush.messages": "log.flush.interval.messages",
    "segment.bytes": "log.segment.bytes",
    "max.message.bytes": "message.max.bytes",
}
SET_BY_CLUSTER = frozenset({
    "process.roles", "node.id", "listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs",
    "floodmark.rules", "floodmark.bugs", "floodmark.control", "floodmark.control.from", "floodmark.dial",
    "floodmark.durable", "floodmark.failpoints", "floodmark.trace",
})
_OPTIONS: Mapping[str, str] = {"floodmark.rules": "use --rules", "floodmark.bugs": "use --bug NAME"}
# Clients' keys: the run sets them by options of its own.
_CLIENT_KEYS: Mapping[str, str] = {
    "acks": "use --acks",
    "enable.idempotence": "--workload idempotent turns it on",
    "isolation.level": "the workload sets it",
}


def why_not(key: str, value: str) -> str | None:
    """Why this key cannot be set to this value, as a sentence that begins with the key; None: it can. Whether
    several keys fit together only the broker checks (`python -m floodmark.broker.check_config`)."""
    if key in SET_BY_CLUSTER:
        option = _OPTIONS.get(key, "the cluster sets addresses, ids, paths and rules")
        return f"{key}=... cannot be set: {option}"
    if (kind := KEYS.get(TOPIC_KEYS.get(key, key))) is not None:
        wrong = _wrong_value(kind, value)
        return None if wrong is None else f"{key} takes {wrong}"
    if key in _CLIENT_KEYS:
        return f"{key} is a setting of clients, not of brokers: {_CLIENT_KEYS[key]}"
    valid = sorted([*KEYS, *TOPIC_KEYS])
    return f"{key}: no broker knows this key; {nearest(key, valid, 'key')}"


def _wrong_value(kind: str | tuple[int, int], value: str) -> str | None:
    if kind == BOOLEAN:
        return None if value.lower() in ("true", "false") else f"true or false, not {value!r}"
    if isinstance(kind, str):  # only the broker knows which names are valid
        valid = re.fullmatch(r"[A-Za-z0-9_.,-]*", value)
        return None if valid else f"names, comma-separated, not {value!r}"
    least, most = kind
    wanted = "a positive integer" if least else "a whole number, 0 or more"
    if re.fullmatch(r"[+-]?[0-9]{1,30}", value) is None:
        return f"{wanted}, not {value!r}"
    if int(value) < least:
        return f"{wanted}, not {value}"
    return None if int(value) <= most else f"at most {most}, not {value}"


def checked_topic_keys(topic_config: Mapping[str, str]) -> dict[str, str]:
    """Check a topic's config; UsageError for a key or value that no topic of the reference broker has."""
    topic_keys = {*TOPIC_KEYS, "min.insync.replicas", "unclean.leader.election.enable"}
    for key in topic_config:
        if key not in topic_keys:
            raise UsageError(f"-t {key}: no topic of the reference broker knows this key; valid keys: "
                             f"{', '.join(sorted(topic_keys))}")
    checked(topic_config, before="-t ")
    return dict(topic_config)


def broker_keys(config: Mapping[str, str]) -> dict[str, str]:
    """The config with the brokers' own names of the keys."""
    return {TOPIC_KEYS.get(key, key): value for key, value in config.items()}


def checked(given: Mapping[str, str], *, before: str = "-c ") -> dict[str, str]:
    """The config under the brokers' own keys; UsageError for a wrong one, with `before` before it."""
    for key, value in given.items():
        if (wrong := why_not(key, value)) is not None:
            raise UsageError(f"{before}{wrong}")
    return broker_keys(given)
