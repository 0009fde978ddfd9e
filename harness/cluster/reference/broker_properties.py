"""Writes each process's properties file, and what it arms at its start; says where the traces lie."""

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
