"""Chooses the settings of the brokers, also as run.json's `config`; writes each process's properties file,
with failpoints to arm at its start; finds the trace files.

Rules
1. Keys are Kafka's (harness/broker_config.py has those that may be given). The user's settings override those
   that a test cluster prefers; keys that tie a node to its place (addresses, ids, paths) cannot be set.
2. A test cluster prefers short times: in a run of 30 s sessions must end and ISRs must shrink.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.broker_config import checked
from floodmark.harness.cluster.layout import Layout, ProcessAddresses, host_port, typed
from floodmark.harness.cluster.layout import write_properties as write_lines
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CONTROLLER
from floodmark.harness.trace import Raw

CONTROLLER_ID = 100
FAILPOINTS = "floodmark.failpoints"

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
    config: dict[str, int | bool | str] = {key: typed(value) for key, value in chosen.items()}
    config["floodmark.rules"] = rules
    config["floodmark.bugs"] = ",".join(bugs)
    return config


def write_properties(layout: Layout, chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]) -> None:
    """Makes the folders and all properties files."""
    layout.make_folders()
    for name, place in layout.places.items():
        write_lines(layout.properties_of(name), properties(place, chosen, rules=rules, bugs=bugs),
                    escapes=False)


def arm_at_start(layout: Layout, name: str, requests: Sequence[Mapping[str, Any]]) -> None:
    """Sets the failpoints that the process arms first at its next starts. Empty: none."""
    path = layout.properties_of(name)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines()
             if not line.startswith(f"{FAILPOINTS}=")]
    lines += [f"{FAILPOINTS}={json.dumps(requests)}"] if requests else []
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def raw_traces(layout: Layout, partitions: Sequence[PartitionSpec]) -> Raw | None:
    """The trace files of the processes, and the names of their ids; None: no traces are written."""
    files = {name: place.trace for name, place in layout.places.items() if place.trace is not None}
    if not files:
        return None
    return Raw(
        files=files, names={place.node_id: name for name, place in layout.places.items()},
        keys={spec.place: spec.key for spec in partitions})


def properties(place: ProcessAddresses, chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]
               ) -> dict[str, str]:
    """One node's settings."""
    dial = sorted(place.dial.items())
    present = {
        "floodmark.control.from": place.asked_from, "floodmark.bugs": ",".join(bugs),
        "floodmark.dial": ",".join(f"{node}@{host_port(address)}" for node, address in dial),
        "floodmark.durable": place.durable and place.inside(place.durable),
        "floodmark.trace": place.trace and place.inside(place.trace)}
    return {
        "process.roles": "controller" if place.is_controller else "broker", "node.id": str(place.node_id),
        "listeners": f"PLAINTEXT://{host_port(place.listens)}",
        "advertised.listeners": f"PLAINTEXT://{host_port(place.advertised)}",
        "controller.quorum.voters": f"{CONTROLLER_ID}@{host_port(place.controller)}",
        "log.dirs": place.inside(place.log_dir), "floodmark.control": host_port(place.control),
        "floodmark.rules": rules, **chosen,
        **{key: value for key, value in present.items() if value}}
