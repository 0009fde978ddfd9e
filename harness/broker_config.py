"""Checks the broker config that `-c`, a scenario's [config] or a saved run sets: which keys, which values.

Rules
1. The broker has a table of its own (docker/broker/server/config.py). Both sides are written down on purpose;
   a contract test holds them together.
2. A key that nobody knows is refused, with the nearest one that there is; so is a value of another type or
   out of range. What is refused here never reaches a properties file, so no value can hold a second line.
3. What ties a node to its place (addresses, ids, paths), and its rules, is nobody's to give: OURS.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from floodmark.harness.errors import UsageError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Kind(Protocol):
    """What a value may be."""

    def why_not(self, value: str) -> str | None: ...  # None: it may


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number, both ends inclusive."""

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
class Truth:
    def why_not(self, value: str) -> str | None:
        return None if value.lower() in ("true", "false") else f"takes true or false, not {value!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Names, comma-separated; which ones there are the broker knows."""

    def why_not(self, value: str) -> str | None:
        fits = re.fullmatch(r"[A-Za-z0-9_.,-]*", value) is not None
        return None if fits else f"takes names, comma-separated, not {value!r}"


KEYS: Mapping[str, Kind] = {
    "auto.create.topics.enable": Truth(),
    "broker.heartbeat.interval.ms": Whole(least=1),
    "broker.session.timeout.ms": Whole(least=1),
    "default.replication.factor": Whole(least=1),
    "floodmark.switches": Words(),
    "log.flush.interval.messages": Whole(least=1, most=LONG_MAX),
    "log.segment.bytes": Whole(least=1),
    "message.max.bytes": Whole(least=1),
    "min.insync.replicas": Whole(least=1),
    "num.partitions": Whole(least=1),
    "replica.fetch.backoff.ms": Whole(least=0),
    "replica.fetch.max.bytes": Whole(least=1),
    "replica.fetch.min.bytes": Whole(least=0),
    "replica.fetch.wait.max.ms": Whole(least=0),
    "replica.high.watermark.checkpoint.interval.ms": Whole(least=1),
    "replica.lag.time.max.ms": Whole(least=1),
    "replica.socket.timeout.ms": Whole(least=1),
    "socket.request.max.bytes": Whole(least=1),
    "unclean.leader.election.enable": Truth(),
}
# A topic's words and what a broker calls the same for all its topics: a run has no topic but its own.
OF_TOPICS: Mapping[str, str] = {
    "flush.messages": "log.flush.interval.messages",
    "segment.bytes": "log.segment.bytes",
    "max.message.bytes": "message.max.bytes",
}
OURS = frozenset(
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
# What a client is set to has options of its own.
_OF_CLIENTS: Mapping[str, str] = {
    "acks": "--acks says that",
    "enable.idempotence": "--workload idempotent has it on",
    "isolation.level": "the workload decides that",
}


def why_not(key: str, value: str) -> str | None:
    """Why this key cannot be set to this value, in a sentence that the key begins; None: it can. Whether the
    values of several keys fit together only the broker says (`python -m floodmark.broker.check_config`)."""
    if key in OURS:
        return f"{key}=... cannot be set: addresses, ids, paths and rules are the cluster's"
    kind = KEYS.get(OF_TOPICS.get(key, key))
    if kind is not None:
        wrong = kind.why_not(value)
        return None if wrong is None else f"{key} {wrong}"
    if key in _OF_CLIENTS:
        return f"{key} is a client's setting, and no broker knows it: {_OF_CLIENTS[key]}"
    valid = sorted([*KEYS, *OF_TOPICS])
    near = difflib.get_close_matches(key, valid, n=1)
    return f"{key}: no broker knows this key; " + (
        f"the nearest that there is: {near[0]}" if near else f"there are: {', '.join(valid)}")


def as_broker_keys(topic_config: Mapping[str, str]) -> dict[str, str]:
    """A topic's keys as the reference broker takes them: for all its topics. UsageError for one that it has
    not."""
    of_topics = {*OF_TOPICS, "min.insync.replicas", "unclean.leader.election.enable"}
    for key in topic_config:
        if key not in of_topics:
            raise UsageError(f"-t {key}: no topic of the reference broker knows this key; there are: "
                             f"{', '.join(sorted(of_topics))}")
    return checked(topic_config, before="-t ")


def checked(given: Mapping[str, str], *, before: str = "-c ") -> dict[str, str]:
    """The same under the brokers' own names, if each may be set so; UsageError names the first that may not.
    `before` stands before the key."""
    for key, value in given.items():
        wrong = why_not(key, value)
        if wrong is not None:
            raise UsageError(f"{before}{wrong}")
    return {OF_TOPICS.get(key, key): value for key, value in given.items()}
