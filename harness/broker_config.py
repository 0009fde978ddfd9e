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
from dataclasses import dataclass
from typing import Any, Protocol

from floodmark.harness.errors import UsageError, nearest

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Kind(Protocol):
    """A type of values. `why_not` says why a value is not of it; None: it is."""

    def why_not(self, value: str) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeNumber:
    """A whole number from `least` to `most`, both included."""

    least: int
    most: int = INT_MAX

    def why_not(self, value: str) -> str | None:
        wanted = f"a whole number of at least {self.least}" if self.least > 1 else (
            "a positive integer" if self.least == 1 else "a whole number, 0 or more")
        if re.fullmatch(r"[+-]?[0-9]{1,30}", value) is None:
            return f"takes {wanted}, not {value!r}"
        if int(value) < self.least:
            return f"takes {wanted}, not {value}"
        return None if int(value) <= self.most else f"takes at most {self.most}, not {value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean:
    """true or false, in any case."""

    def why_not(self, value: str) -> str | None:
        return None if value.lower() in ("true", "false") else f"takes true or false, not {value!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names, separated by commas. Only the broker knows which names are valid."""

    def why_not(self, value: str) -> str | None:
        fits = re.fullmatch(r"[A-Za-z0-9_.,-]*", value) is not None
        return None if fits else f"takes names, comma-separated, not {value!r}"


KEYS: Mapping[str, Kind] = {
    "auto.create.topics.enable": Boolean(),
    "broker.heartbeat.interval.ms": WholeNumber(least=1),
    "broker.session.timeout.ms": WholeNumber(least=1),
    "default.replication.factor": WholeNumber(least=1),
    "floodmark.switches": Names(),
    "log.flush.interval.messages": WholeNumber(least=1, most=LONG_MAX),
    "log.segment.bytes": WholeNumber(least=1),
    "message.max.bytes": WholeNumber(least=1),
    "min.insync.replicas": WholeNumber(least=1),
    "num.partitions": WholeNumber(least=1),
    "replica.fetch.backoff.ms": WholeNumber(least=0),
    "replica.fetch.max.bytes": WholeNumber(least=1),
    "replica.fetch.min.bytes": WholeNumber(least=0),
    "replica.fetch.wait.max.ms": WholeNumber(least=0),
    "replica.high.watermark.checkpoint.interval.ms": WholeNumber(least=1),
    "replica.lag.time.max.ms": WholeNumber(least=1),
    "replica.socket.timeout.ms": WholeNumber(least=1),
    "socket.request.max.bytes": WholeNumber(least=1),
    "unclean.leader.election.enable": Boolean(),
}
# A topic's key -> the broker's key for the same setting of all its topics. A run has only one topic.
TOPIC_KEYS: Mapping[str, str] = {
    "flush.messages": "log.flush.interval.messages",
    "segment.bytes": "log.segment.bytes",
    "max.message.bytes": "message.max.bytes",
}
SET_BY_CLUSTER = frozenset(
    {
        "process.roles",
        "node.id",
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "log.dirs",
        "floodmark.rules",
        "floodmark.bugs",
        "floodmark.control",
        "floodmark.control.from",
        "floodmark.dial",
        "floodmark.durable",
        "floodmark.failpoints",
        "floodmark.trace",
    }
)
# Clients' keys: the run sets them by options of its own.
_CLIENT_KEYS: Mapping[str, str] = {
    "acks": "use --acks",
    "enable.idempotence": "--workload idempotent turns it on",
    "isolation.level": "the workload sets it",
}


def why_not(key: str, value: str) -> str | None:
    """Why this key cannot be set to this value, as a sentence that begins with the key; None: it can.

    Only the broker checks whether the values of several keys fit together
    (`python -m floodmark.broker.check_config`)."""
    if key in SET_BY_CLUSTER:
        return f"{key}=... cannot be set: the cluster sets addresses, ids, paths and rules"
    kind = KEYS.get(TOPIC_KEYS.get(key, key))
    if kind is not None:
        wrong = kind.why_not(value)
        return None if wrong is None else f"{key} {wrong}"
    if key in _CLIENT_KEYS:
        return f"{key} is a setting of clients, not of brokers: {_CLIENT_KEYS[key]}"
    valid = sorted([*KEYS, *TOPIC_KEYS])
    return f"{key}: no broker knows this key; {nearest(key, valid, 'key')}"


def as_broker_keys(topic_config: Mapping[str, str]) -> dict[str, str]:
    """Replace topic keys by the reference broker's keys for all its topics. UsageError for any other key."""
    return broker_keys(checked_topic_keys(topic_config))


def checked_topic_keys(topic_config: Mapping[str, str]) -> dict[str, str]:
    """Check a topic's config; UsageError names the first key that no topic of the reference broker knows, or
    the first value that is not valid."""
    topic_keys = {*TOPIC_KEYS, "min.insync.replicas", "unclean.leader.election.enable"}
    for key in topic_config:
        if key not in topic_keys:
            raise UsageError(f"-t {key}: no topic of the reference broker knows this key; valid keys: "
                             f"{', '.join(sorted(topic_keys))}")
    checked(topic_config, before="-t ")
    return dict(topic_config)


def in_force(broker_config: Mapping[str, Any], topic_config: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a topic on a broker, by the broker's keys: its own override the broker's."""
    return {**broker_config, **broker_keys(topic_config)}


def broker_keys(config: Mapping[str, str]) -> dict[str, str]:
    """The config with the brokers' own names of the keys."""
    return {TOPIC_KEYS.get(key, key): value for key, value in config.items()}


def checked(given: Mapping[str, str], *, before: str = "-c ") -> dict[str, str]:
    """Check the config, and return it under the brokers' own keys; UsageError names the first key or value
    that is not valid. `before`: text that the message puts before the key."""
    for key, value in given.items():
        wrong = why_not(key, value)
        if wrong is not None:
            raise UsageError(f"{before}{wrong}")
    return broker_keys(given)
