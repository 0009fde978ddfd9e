"""Chooses the addresses, ports and files of a cluster's processes, and the links of a local cluster.

Rules
1. FOLDER/nodes/NODE is that broker's log.dirs and has only Kafka's files; all other files are in FOLDER/work.
2. With direct links every process connects to a listener's own address. With proxied links each dialer has
   its own link to each listener, so that the link knows who sends.
3. Processes that connect to each other's advertised address, which is the same for all dialers, can use links
   too: brokers are advertised by name, each dialer has a loopback address of its own, and its hosts file maps
   the names to that address. All links to one listener then have the same port.
4. Ports are below 32768, where Linux's ephemeral ports begin: else an outgoing connection could take a port
   while its broker is being restarted.
5. A run reserves a port until it ends, by locking a file named after it, so that parallel runs never choose
   the same one; the kernel drops the lock however the harness ends. The files are not removed: otherwise two
   runs could lock two files of the same name.
6. Other programs use ports too: a port is chosen only if it can be bound.
"""

import fcntl
import itertools
import json
import os
import re
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER

LOWEST = 10000
HIGHEST = 32767  # inclusive
HOST = "127.0.0.1"
LINKS = "links"  # the process, by name
CONTROLLER_ID = 100

Address = tuple[str, int]
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class ChoosesPorts(Protocol):
    """As Ports does; a simulation binds none."""

    def choose(self) -> int: ...
    def take(self, port: int) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessAddresses:
    """The addresses of one process, and its paths as the harness sees them."""

    node_id: int
    is_controller: bool
    listens: Address  # the address that the process binds
    reached: Address  # where the harness connects to that, without a link
    advertised: Address  # where clients connect to it
    control: Address  # a second port of the process, for the harness or for another use of its system
    asked: Address  # where the harness connects to that
    log_dir: Path  # the log directory, or where its copy is put
    durable: Path | None  # where a broker may record what it has fsynced; None: the controller
    controller: Address  # where it connects to the controller
    asked_from: str | None = None  # the only address that may use `control`; None: any
    dial: Mapping[int, Address] = field(default_factory=dict)  # by id; empty: the advertised addresses
    trace: Path | None = None  # its trace file; None: it writes none
    mounted: Mapping[Path, str] = field(default_factory=dict)  # folder or file -> its path in the container
    log_dir_copied: bool = False  # log_dir is only a copy: the process does not see changes in it

    def inside(self, path: Path) -> str:
        """The path as the process sees it."""
        for folder, name in self.mounted.items():
            if path.is_relative_to(folder):
                return str(Path(name) / path.relative_to(folder))
        return str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    folder: Path
    nodes: tuple[str, ...]
    places: Mapping[str, ProcessAddresses]  # by node, and CONTROLLER
    links: Mapping[tuple[str, str], int]  # (dialer, listener) -> port; empty: direct
    link_hosts: Mapping[str, str] = field(default_factory=dict)  # dialer -> host of its links; absent: HOST

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.nodes, CONTROLLER)

    def of(self, name: str) -> ProcessAddresses:
        if not self.places:
            raise FloodmarkError("the cluster was not started")
        if name not in self.places:
            raise FloodmarkError(f"no node {name!r}: there are {', '.join(self.names)}")
        return self.places[name]

    def pairs_of(self, grudge: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
        """(sender, receiver) of a grudge; FloodmarkError if it has an unknown name."""
        pairs = [(sender, receiver) for receiver, senders in grudge.items() for sender in senders]
        for name in {name for pair in pairs for name in pair} - {CLIENTS}:
            self.of(name)
        return pairs

    def disk_of(self, broker: str) -> tuple[Path, Path]:
        """The broker's file of what is durable, and its log directory."""
        place = self.of(broker)
        assert place.durable is not None, "only brokers have one"
        return place.durable, place.log_dir

    def work(self, file: str) -> Path:
        return self.folder / "work" / file

    def log_of(self, name: str) -> Path:
        return self.work(f"{name}.log")

    def properties_of(self, name: str) -> Path:
        return self.work(f"{name}.properties")

    def links_config(self) -> list[dict[str, Any]]:
        """The links process's configuration: where to listen, and where each link leads: if links are found
        by name, for other brokers to the listener's second port."""
        return [
            {"dialer": dialer, "listener": listener, "host": self.link_hosts.get(dialer, HOST), "port": port,
             "to": list(place.control if dialer in self.link_hosts and not place.is_controller
                        else place.listens)}
            for (dialer, listener), port in self.links.items() for place in (self.places[listener],)]

    def make_folders(self) -> None:
        self.work("").mkdir(parents=True, exist_ok=True)
        for place in self.places.values():
            place.log_dir.mkdir(parents=True, exist_ok=True)


def host_port(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


NOT_STARTED = Layout(folder=Path(), nodes=(), places={}, links={})


def node_names(count: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, count + 1))


def ids_of(nodes: Sequence[str]) -> dict[str, int]:
    """The node.id of each broker, from 1 on, and of the controller."""
    return {**{node: number for number, node in enumerate(nodes, start=1)}, CONTROLLER: CONTROLLER_ID}


def lay_out(
    folder: Path, ids: Mapping[str, int], *, proxied: bool, ports: ChoosesPorts, first_port: int | None,
    trace: bool = True, by_name: bool = False,
) -> Layout:
    """ids: of each broker and of the controller. first_port: n1's port for clients, n2 has the next, and so
    on; None: any free ones. by_name: links are found by name (rule 3)."""
    for_clients = ports_for_clients(ids, ports, first_port)
    nodes = tuple(for_clients)
    names = (*nodes, CONTROLLER)
    control = {name: ports.choose() for name in names}
    links: dict[tuple[str, str], int] = {}
    if proxied:
        links = {(CLIENTS, node): port for node, port in for_clients.items()}
        shared = dict(control) if by_name else {}  # the name is its own address there
        links |= {(dialer, listener): shared.get(listener) or ports.choose()
                  for dialer, listener in itertools.permutations(names, 2)}
    link_hosts = {name: f"127.0.1.{number}" for number, name in enumerate(names, start=1)
                  } if proxied and by_name else {}
    listens = {node: ports.choose() if proxied else port for node, port in for_clients.items()}
    listens[CONTROLLER] = ports.choose()
    folder = folder.resolve()
    places = {
        name: ProcessAddresses(
            node_id=ids[name], is_controller=name == CONTROLLER,
            listens=(HOST, listens[name]), reached=(HOST, listens[name]),
            advertised=(HOST, for_clients.get(name, listens[name])),
            control=(HOST, control[name]), asked=(HOST, control[name]),
            controller=(link_hosts.get(name, HOST), links.get((name, CONTROLLER), listens[CONTROLLER])),
            dial={ids[listener]: (link_hosts.get(name, HOST), port)
                  for (dialer, listener), port in links.items() if dialer == name and listener != CONTROLLER},
            **own_files(folder, name, trace=trace)) for name in names}
    return Layout(folder=folder, nodes=nodes, places=places, links=links, link_hosts=link_hosts)


def ports_for_clients(ids: Mapping[str, int], ports: ChoosesPorts, first_port: int | None) -> dict[str, int]:
    """Of each broker."""
    nodes = (name for name in ids if name != CONTROLLER)
    return {node: ports.choose() if first_port is None else ports.take(first_port + index)
            for index, node in enumerate(nodes)}


def own_files(folder: Path, name: str, *, trace: bool) -> dict[str, Any]:
    """Those of ProcessAddresses that are a process's own files."""
    is_broker, work = name != CONTROLLER, folder / "work"
    return {"log_dir": folder / "nodes" / name if is_broker else work / name,
            "durable": work / f"{name}.durable" if is_broker else None,
            "trace": work / f"{name}.trace" if trace else None}


def property_line(key: str, value: str, *, escapes: bool) -> str:
    """UsageError for a key or value with a line break or a comment, which would change the other lines.
    escapes: as Java reads it, a backslash doubled, and what is not ASCII as \\uXXXX; else the last character
    may not be a backslash."""
    text = f"{key}={value}"
    continues = value.endswith("\\") and not escapes
    if len(text.splitlines()) != 1 or not text.isprintable() or continues or _KEY.fullmatch(key) is None:
        raise UsageError(f"{key!a} cannot be set to {value!a}: that cannot be in a properties file")
    # JSON escapes as Java does, and quotes besides.
    return (json.dumps(text)[1:-1].replace('\\"', '"') if escapes else text) + "\n"


def write_properties(file: Path, lines: Mapping[str, str], *, escapes: bool) -> None:
    file.write_text("".join(property_line(key, value, escapes=escapes) for key, value in lines.items()),
                    encoding="utf-8")


def typed(value: str) -> int | bool | str:
    word = value.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    return int(word) if re.fullmatch(r"[+-]?[0-9]{1,18}", word) else word


# -- ports ---------------------------------------------------------------------------------------------------


def private_folder() -> Path:
    """This user's folder for files that other runs must find; it is made if needed."""
    folder = Path(tempfile.gettempdir()) / f"floodmark-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise FloodmarkError(f"{folder} belongs to another user: remove it, or set TMPDIR")
    return folder


class Ports:
    """The ports of one run, reserved until it ends."""

    def __init__(self) -> None:
        self._folder = private_folder() / "ports"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._claims: dict[int, int] = {}  # port -> descriptor of its locked file
        span = HIGHEST - LOWEST + 1
        # Runs begin their search at different ports, so that an old client rarely reaches a later run.
        self._next = LOWEST + os.getpid() * 97 % span

    def choose(self) -> int:
        for _ in range(HIGHEST - LOWEST + 1):
            port = self._next
            self._next = LOWEST if port == HIGHEST else port + 1
            if port not in self._claims and self._claim(port, strict=True):
                return port
        raise FloodmarkError(f"no free port between {LOWEST} and {HIGHEST}: end the processes that use them")

    def take(self, port: int) -> int:
        if not 0 < port < 65536:
            raise UsageError(f"{port} is no port")
        if port not in self._claims and not self._claim(port, strict=False):
            raise UsageError(f"port {port} is taken: choose another, or end the process that listens there")
        return port

    def close(self) -> None:
        for descriptor in self._claims.values():
            os.close(descriptor)
        self._claims.clear()

    def _claim(self, port: int, *, strict: bool) -> bool:
        descriptor = os.open(self._folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                if not strict:  # old connections may linger on it
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((HOST, port))
                probe.listen(1)
        except OSError:
            os.close(descriptor)
            return False
        self._claims[port] = descriptor
        return True
