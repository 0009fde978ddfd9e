"""Writes each process's properties file, with failpoints to arm at its start; finds the trace files."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.cluster.layout import Address, Layout, ProcessAddresses
from floodmark.harness.cluster.reference.broker_settings import CONTROLLER_ID
from floodmark.harness.errors import UsageError
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.trace import Raw

FAILPOINTS = "floodmark.failpoints"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

def write_properties(layout: Layout, chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]) -> None:
    """Makes the folders and all properties files."""
    layout.make_folders()
    for name, place in layout.places.items():
        layout.properties_of(name).write_text(
            properties_text(place, chosen, rules=rules, bugs=bugs), encoding="utf-8")


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
        files=files,
        names={place.node_id: name for name, place in layout.places.items()},
        keys={(spec.topic, spec.partition): spec.key for spec in partitions},
    )


def properties_text(place: ProcessAddresses, chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]
                   ) -> str:
    """The text of one node's file."""
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
    """One line of a properties file. UsageError for a key or value with a line break, a continuation or a
    comment, which would change the other lines."""
    text = f"{key}={value}"
    is_one_line = len(text.splitlines()) == 1 and text.isprintable() and not value.endswith("\\")
    if not is_one_line or _KEY.fullmatch(key) is None:
        raise UsageError(f"{key!a} cannot be set to {value!a}: that cannot be in a properties file")
    return f"{text}\n"


def _host_port(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
