"""Chooses what every broker is set to, and says the same as run.json's `config`. Pure.

Rules
1. Keys are Kafka's (harness/broker_config.py has those that may be given). What the user gives wins over
   what a test cluster prefers; a user may not set what ties a node to its place (addresses, ids, paths).
2. A test cluster prefers short times: a run of 30 s must see sessions end and ISRs shrink.
3. run.json tells integers from booleans from words, as a reader of JSON expects.
"""

from collections.abc import Mapping, Sequence

from floodmark.harness.broker_config import checked
from floodmark.harness.protocols import CONTROLLER

CONTROLLER_ID = 100

PREFERRED: Mapping[str, str] = {
    "auto.create.topics.enable": "true",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "num.partitions": "1",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "3000",
    "unclean.leader.election.enable": "false",
}


def ids_of(nodes: Sequence[str]) -> dict[str, int]:
    """node.id of each broker, from 1 on, and of the controller."""
    return {**{node: number for number, node in enumerate(nodes, start=1)}, CONTROLLER: CONTROLLER_ID}


def broker_settings(given: Mapping[str, str], *, nodes: int) -> dict[str, str]:
    """What every broker is set to: the user's words over the preferred ones. UsageError for keys that are
    ours or nobody's, and for values of another type or out of range."""
    preferred = dict(PREFERRED)
    preferred["default.replication.factor"] = str(min(3, nodes))
    preferred["min.insync.replicas"] = str(min(2, nodes))
    return dict(sorted({**preferred, **checked(given)}.items()))


def typed_config(chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]
                ) -> dict[str, int | bool | str]:
    """One node's `config` in run.json: what decides how it behaves, not where it lives."""
    config: dict[str, int | bool | str] = {key: _typed(value) for key, value in chosen.items()}
    config["floodmark.rules"] = rules
    config["floodmark.bugs"] = ",".join(bugs)
    return config


def _typed(value: str) -> int | bool | str:
    word = value.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return int(word)
    except ValueError:
        return word
