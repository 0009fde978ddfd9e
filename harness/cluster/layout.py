"""Chooses every address and file of a cluster, and of a local one which link leads where.

Rules
1. FOLDER/nodes/NODE is that broker's log.dirs, Kafka's own and nothing of ours; all else is in FOLDER/work.
2. Directly, everybody dials a listener where it listens. Proxied, nobody does: each dialer has a link of its
   own to each listener, and so the link knows who speaks.
3. A process that dials others where they are advertised, one address for all, can be given links too: they
   are advertised by name, each dialer has an address of loopback to itself, and a hosts file of its own says
   that the name means that address. All links to one listener then have one port.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.harness.cluster.ports import HOST, Ports
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import CLIENTS, CONTROLLER

LINKS = "links"  # the process, by name

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessAddresses:
    """Where one process lives: addresses, and paths as the harness sees them."""

    node_id: int
    is_controller: bool
    listens: Address  # as the process binds it
    reached: Address  # where the harness dials that, with nothing between that could be cut
    advertised: Address  # where clients dial it
    control: Address  # a second port of the process: for the harness alone, or as its system has it
    asked: Address  # where the harness dials that
    log_dir: Path  # where it is, or where a copy of it is put
    durable: Path | None  # where a broker may note what it has fsynced; None: the controller
    controller: Address  # where it dials the controller
    asked_from: str | None = None  # the address that it dials from, as the process sees it; None: whatever
    dial: Mapping[int, Address] = field(default_factory=dict)  # by id; empty: as advertised
    trace: Path | None = None  # where it writes what happens; None: it does not
    mounted: Mapping[Path, str] = field(default_factory=dict)  # folder or file -> what the process calls it
    log_dir_copied: bool = False  # log_dir is as old as its last copy: what is put there reaches nobody

    def inside(self, path: Path) -> str:
        """The path as the process sees it."""
        for folder, name in self.mounted.items():
            if path.is_relative_to(folder):
                return str(Path(name) / path.relative_to(folder))
        return str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One cluster on disk and on loopback."""

    folder: Path
    nodes: tuple[str, ...]
    places: Mapping[str, ProcessAddresses]  # by node, and CONTROLLER
    links: Mapping[tuple[str, str], int]  # (dialer, listener) -> port; empty: direct
    link_hosts: Mapping[str, str] = field(default_factory=dict)  # dialer -> host of its links; none: HOST

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.nodes, CONTROLLER)

    def known(self, name: str) -> None:
        """FloodmarkError for a name that no process has."""
        if name not in self.places:
            raise FloodmarkError(f"no node {name!r}: there are {', '.join(self.names)}")

    def work(self, file: str) -> Path:
        return self.folder / "work" / file

    def log_of(self, name: str) -> Path:
        return self.work(f"{name}.log")

    def properties_of(self, name: str) -> Path:
        return self.work(f"{name}.properties")

    def hosts_of(self, name: str) -> Path:
        """The hosts file of this process, where its links are found by name."""
        return self.work(f"{name}.hosts")

    def prepared_for(self, name: str) -> Path:
        """A folder that the process begins with where it has none of its own."""
        return self.work(f"{name}.prepared")

    def links_told(self) -> list[dict[str, Any]]:
        """What the links process is told to listen for."""
        return [
            {"dialer": dialer, "listener": listener, "host": self.link_hosts.get(dialer, HOST), "port": port,
             "to": list(self._listens(dialer, listener))}
            for (dialer, listener), port in self.links.items()
        ]

    def _listens(self, dialer: str, listener: str) -> Address:
        """Where the listener listens for this dialer: for other brokers found by name, on its second port."""
        place = self.places[listener]
        return place.control if dialer in self.link_hosts and not place.is_controller else place.listens

    def make_folders(self) -> None:
        self.work("").mkdir(parents=True, exist_ok=True)
        for place in self.places.values():
            place.log_dir.mkdir(parents=True, exist_ok=True)


def node_names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, count + 1))


def lay_out(
    folder: Path, ids: Mapping[str, int], *, proxied: bool, ports: Ports, first_port: int | None,
    trace: bool = True, by_name: bool = False,
) -> Layout:
    """ids: of each broker and of the controller, as their system has them. first_port: clients find n1 there,
    n2 on the next, and so on; None: wherever is free. by_name: links are found by names (rule 3)."""
    nodes = tuple(name for name in ids if name != CONTROLLER)
    for_clients = {
        node: ports.choose() if first_port is None else ports.take(first_port + index)
        for index, node in enumerate(nodes)
    }
    names = (*nodes, CONTROLLER)
    control = {name: ports.choose() for name in names}
    links: dict[tuple[str, str], int] = {}
    if proxied:
        links = {(CLIENTS, node): port for node, port in for_clients.items()}
        shared = dict(control) if by_name else {}  # where a name means the dialer itself, it listens there
        links |= {(dialer, listener): shared.get(listener) or ports.choose()
                  for dialer, listener in itertools.permutations(names, 2)}
    link_hosts = {name: f"127.0.1.{number}" for number, name in enumerate(names, start=1)
                  } if proxied and by_name else {}
    listens = {node: ports.choose() if proxied else port for node, port in for_clients.items()}
    listens[CONTROLLER] = ports.choose()
    folder = folder.resolve()
    places = {
        name: ProcessAddresses(
            node_id=ids[name],
            is_controller=name == CONTROLLER,
            listens=(HOST, listens[name]),
            reached=(HOST, listens[name]),
            advertised=(HOST, for_clients.get(name, listens[name])),
            control=(HOST, control[name]),
            asked=(HOST, control[name]),
            log_dir=folder / "work" / CONTROLLER if name == CONTROLLER else folder / "nodes" / name,
            durable=None if name == CONTROLLER else folder / "work" / f"{name}.durable",
            controller=(link_hosts.get(name, HOST), links.get((name, CONTROLLER), listens[CONTROLLER])),
            dial={
                ids[listener]: (link_hosts.get(name, HOST), port)
                for (dialer, listener), port in links.items()
                if dialer == name and listener != CONTROLLER
            },
            trace=folder / "work" / f"{name}.trace" if trace else None,
        )
        for name in names
    }
    return Layout(folder=folder, nodes=nodes, places=places, links=links, link_hosts=link_hosts)
