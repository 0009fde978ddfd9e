"""Chooses every address and file of a cluster, and of a local one which link leads where.

Rules
1. FOLDER/nodes/NODE is that broker's log.dirs, Kafka's own and nothing of ours; all else is in FOLDER/work.
2. Directly, everybody dials a listener where it listens. Proxied, nobody does: each dialer has a link of its
   own to each listener, and so the link knows who speaks.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.harness.cluster.broker_properties import CONTROLLER_ID, ProcessAddresses, properties_text
from floodmark.harness.cluster.ports import HOST, Ports
from floodmark.harness.protocols import CLIENTS, CONTROLLER, PartitionSpec
from floodmark.harness.trace import Raw

LINKS = "links"  # the process, by name
FAILPOINTS = "floodmark.failpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One cluster on disk and on loopback."""

    folder: Path
    nodes: tuple[str, ...]
    places: Mapping[str, ProcessAddresses]  # by node, and CONTROLLER
    links: Mapping[tuple[str, str], int]  # (dialer, listener) -> port; empty: direct

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.nodes, CONTROLLER)

    def work(self, file: str) -> Path:
        return self.folder / "work" / file

    def log_of(self, name: str) -> Path:
        return self.work(f"{name}.log")

    def properties_of(self, name: str) -> Path:
        return self.work(f"{name}.properties")


    def raw_traces(self, partitions: Sequence[PartitionSpec]) -> Raw | None:
        """Where the trace of each process lies, and how its ids are to be read; None: none is written."""
        files = {name: place.trace for name, place in self.places.items() if place.trace is not None}
        if not files:
            return None
        return Raw(
            files=files,
            names={place.node_id: name for name, place in self.places.items()},
            keys={(spec.topic, spec.partition): spec.key for spec in partitions},
        )

    def links_told(self) -> list[dict[str, Any]]:
        """What the links process is told to listen for."""
        return [
            {"dialer": dialer, "listener": listener, "port": port, "to": list(self.places[listener].listens)}
            for (dialer, listener), port in self.links.items()
        ]

    def arm_at_start(self, name: str, requests: Sequence[Mapping[str, Any]]) -> None:
        """What the process arms before it does anything else, the next times it starts. Empty: nothing."""
        path = self.properties_of(name)
        lines = [line for line in path.read_text(encoding="utf-8").splitlines()
                 if not line.startswith(f"{FAILPOINTS}=")]
        lines += [f"{FAILPOINTS}={json.dumps(requests)}"] if requests else []
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def write(self, chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]) -> None:
        """Make the folders and every properties file."""
        self.work("").mkdir(parents=True, exist_ok=True)
        for name, place in self.places.items():
            place.log_dir.mkdir(parents=True, exist_ok=True)
            self.properties_of(name).write_text(
                properties_text(place, chosen, rules=rules, bugs=bugs), encoding="utf-8"
            )


def node_names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, count + 1))


def lay_out(
    folder: Path, nodes: tuple[str, ...], *, proxied: bool, ports: Ports, first_port: int | None,
    trace: bool = True,
) -> Layout:
    """first_port: clients find n1 there, n2 on the next, and so on; None: wherever is free."""
    for_clients = {
        node: ports.choose() if first_port is None else ports.take(first_port + index)
        for index, node in enumerate(nodes)
    }
    names = (*nodes, CONTROLLER)
    links: dict[tuple[str, str], int] = {}
    if proxied:
        links = {(CLIENTS, node): port for node, port in for_clients.items()}
        links |= {pair: ports.choose() for pair in itertools.permutations(names, 2)}
    listens = {node: ports.choose() if proxied else port for node, port in for_clients.items()}
    listens[CONTROLLER] = ports.choose()
    ids = {**{node: number for number, node in enumerate(nodes, start=1)}, CONTROLLER: CONTROLLER_ID}
    folder = folder.resolve()
    control = {name: (HOST, ports.choose()) for name in names}
    places = {
        name: ProcessAddresses(
            node_id=ids[name],
            is_controller=name == CONTROLLER,
            listens=(HOST, listens[name]),
            reached=(HOST, listens[name]),
            advertised=(HOST, for_clients.get(name, listens[name])),
            control=control[name],
            asked=control[name],
            log_dir=folder / "work" / CONTROLLER if name == CONTROLLER else folder / "nodes" / name,
            durable=None if name == CONTROLLER else folder / "work" / f"{name}.durable",
            controller=(HOST, links.get((name, CONTROLLER), listens[CONTROLLER])),
            dial={
                ids[listener]: (HOST, port)
                for (dialer, listener), port in links.items()
                if dialer == name and listener != CONTROLLER
            },
            trace=folder / "work" / f"{name}.trace" if trace else None,
        )
        for name in names
    }
    return Layout(folder=folder, nodes=nodes, places=places, links=links)
