"""Chooses the settings of the brokers, also as run.json's `config`. Pure.

Rules
1. Keys are Kafka's (harness/broker_config.py has those that may be given). The user's settings override those
   that a test cluster prefers; keys that tie a node to its place (addresses, ids, paths) cannot be set.
2. A test cluster prefers short times: in a run of 30 s sessions must end and ISRs must shrink.
3. run.json has integers and booleans as such, not as strings.
"""

from collections.abc import Mapping, Sequence

from floodmark.harness.broker_config import checked
from floodmark.harness.schedule.views import CONTROLLER

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
    """The node.id of each broker, from 1 on, and of the controller."""
    return {**{node: number for number, node in enumerate(nodes, start=1)}, CONTROLLER: CONTROLLER_ID}


def broker_settings(given: Mapping[str, str], *, nodes: int) -> dict[str, str]:
    """The settings of every broker: the user's over the preferred ones. UsageError for unknown keys and those
    that floodmark sets, and for values of the wrong type or out of range."""
    preferred = dict(PREFERRED)
    preferred["default.replication.factor"] = str(min(3, nodes))
    preferred["min.insync.replicas"] = str(min(2, nodes))
    return dict(sorted({**preferred, **checked(given)}.items()))


def typed_config(chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]
                ) -> dict[str, int | bool | str]:
    """One node's `config` in run.json: what decides how it behaves, without addresses and paths."""
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
