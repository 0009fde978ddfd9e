"""Writes each process's properties file, and the same settings as run.json's `config`.

Rules
1. Keys are Kafka's (harness/broker_config.py has those that may be given). What the user gives wins over
   what a test cluster prefers; a user may not set what ties a node to its place (addresses, ids, paths).
2. A test cluster prefers short times: a run of 30 s must see sessions end and ISRs shrink.
3. run.json tells integers from booleans from words, as a reader of JSON expects.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.broker_config import checked
from floodmark.harness.cluster.layout import Address, Layout, ProcessAddresses
from floodmark.harness.errors import UsageError
from floodmark.harness.protocols import CONTROLLER, PartitionSpec
from floodmark.harness.trace import Raw

CONTROLLER_ID = 100
FAILPOINTS = "floodmark.failpoints"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

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


def broker_settings(given: Mapping[str, str], *, nodes: int) -> dict[str, str]:
    """What every broker is set to: the user's words over the preferred ones. UsageError for keys that are
    ours or nobody's, and for values of another type or out of range."""
    preferred = dict(PREFERRED)
    preferred["default.replication.factor"] = str(min(3, nodes))
    preferred["min.insync.replicas"] = str(min(2, nodes))
    return dict(sorted({**preferred, **checked(given)}.items()))


def ids_of(nodes: Sequence[str]) -> dict[str, int]:
    """node.id of each broker, from 1 on, and of the controller."""
    return {**{node: number for number, node in enumerate(nodes, start=1)}, CONTROLLER: CONTROLLER_ID}


def write_properties(layout: Layout, chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]) -> None:
    """Make the folders and every properties file."""
    layout.make_folders()
    for name, place in layout.places.items():
        layout.properties_of(name).write_text(
            properties_text(place, chosen, rules=rules, bugs=bugs), encoding="utf-8")


def arm_at_start(layout: Layout, name: str, requests: Sequence[Mapping[str, Any]]) -> None:
    """What the process arms before it does anything else, the next times it starts. Empty: nothing."""
    path = layout.properties_of(name)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines()
             if not line.startswith(f"{FAILPOINTS}=")]
    lines += [f"{FAILPOINTS}={json.dumps(requests)}"] if requests else []
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def raw_traces(layout: Layout, partitions: Sequence[PartitionSpec]) -> Raw | None:
    """Where the trace of each process lies, and how its ids are to be read; None: none is written."""
    files = {name: place.trace for name, place in layout.places.items() if place.trace is not None}
    if not files:
        return None
    return Raw(
        files=files,
        names={place.node_id: name for name, place in layout.places.items()},
        keys={(spec.topic, spec.partition): spec.key for spec in partitions},
    )


def properties_text(place: ProcessAddresses, chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]
                   ) -> str:
    """The file's text, for one node."""
    lines = {
        "process.roles": "controller" if place.is_controller else "broker",
        "node.id": str(place.node_id),
        "listeners": f"PLAINTEXT://{_host_port(place.listens)}",
        "advertised.listeners": f"PLAINTEXT://{_host_port(place.advertised)}",
        "controller.quorum.voters": f"{CONTROLLER_ID}@{_host_port(place.controller)}",
        "log.dirs": place.inside(place.log_dir),
        "floodmark.control": _host_port(place.control),
        "floodmark.rules": rules,
        **chosen,
    }
    if place.asked_from is not None:
        lines["floodmark.control.from"] = place.asked_from
    if bugs:
        lines["floodmark.bugs"] = ",".join(bugs)
    if place.dial:
        lines["floodmark.dial"] = ",".join(
            f"{node}@{_host_port(address)}" for node, address in sorted(place.dial.items())
        )
    if place.durable is not None:
        lines["floodmark.durable"] = place.inside(place.durable)
    if place.trace is not None:
        lines["floodmark.trace"] = place.inside(place.trace)
    return "".join(property_line(key, value) for key, value in lines.items())


def property_line(key: str, value: str) -> str:
    """One line of a properties file, and never two: a break, a joint or a comment would make others of it.
    UsageError for a key or a value that holds one."""
    text = f"{key}={value}"
    whole = len(text.splitlines()) == 1 and text.isprintable() and not value.endswith("\\")
    if not whole or _KEY.fullmatch(key) is None:
        raise UsageError(f"{key!a} cannot be set to {value!a}: a line of a properties file cannot hold that")
    return f"{text}\n"


def _host_port(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


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
