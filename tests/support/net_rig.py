"""A network as a cluster in containers has it, made of net containers that run net_peer.py."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import net_peer
from docker.types import EndpointConfig

from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.network import Rules
from floodmark.harness.cluster.ports import HOST, Ports

NODES = ("n1", "n2", "n3")
WAIT_S = 20.0
LOST_S = 0.15  # datagrams that have not arrived by then are lost: they pass between two namespaces at once


class Rig:
    """The containers' ports on loopback, by name: of the broker (9092) and of the control socket (9090)."""

    def __init__(self, folder: Path, ports: Ports) -> None:
        self.lab = EngineResources(folder / "work", NODES)
        self.broker = {name: ports.choose() for name in self.lab.names}
        self.control = {name: ports.choose() for name in self.lab.names}

    async def open(self) -> None:
        await self.lab.open()
        await asyncio.gather(*(self.lab.call(f"start {name}", self._start, name) for name in self.lab.names))
        deadline = time.monotonic() + WAIT_S
        for name in self.lab.names:
            while True:
                try:
                    self.request(name, "heard")
                    break
                except (OSError, ValueError):
                    assert time.monotonic() < deadline, f"waited {WAIT_S} s for {name} to answer"
                    time.sleep(0.02)

    def request(self, name: str, do: str, **what: Any) -> Any:
        """Sends a request through the published port of its control socket."""
        with socket.create_connection((HOST, self.control[name]), 2.0) as connection:
            connection.settimeout(WAIT_S)
            connection.sendall(json.dumps({"do": do, **what}).encode() + b"\n")
            answer = json.loads(connection.makefile("rb").readline())
        assert "error" not in answer, answer
        return answer["ok"]

    def address(self, name: str) -> str:
        return self.lab.address(name)

    def passed(self, says: str, hears: str, count: int = 20) -> int:
        """How many of so many datagrams arrived."""
        before = self.request(hears, "heard").get(self.address(says), 0)
        self.request(says, "say", to=self.address(hears), count=count)
        deadline = time.monotonic() + LOST_S
        while True:
            arrived: int = self.request(hears, "heard").get(self.address(says), 0) - before
            if arrived == count or time.monotonic() > deadline:
                return arrived
            time.sleep(0.01)

    def ask(self, says: str, hears: str, text: str = "hello", load: int = 0) -> Any:
        """Sends a line over TCP, with so many bytes after it; returns the answer."""
        return self.request(says, "ask", to=self.address(hears), text=text, load=load)

    @asynccontextmanager
    async def rules(self) -> AsyncIterator[Rules]:
        """New rules, which are mended in the end."""
        net = Rules(self.lab)
        try:
            async with asyncio.timeout(60):
                yield net
        finally:
            residue = await net.mend()
        assert residue == []

    def _start(self, name: str) -> None:
        lab, api = self.lab, self.lab.client.api
        endpoint = EndpointConfig(api.api_version, ipv4_address=lab.address(name))
        made = api.create_container(
            lab.image, ["-c", Path(net_peer.__file__).read_text(encoding="utf-8")], entrypoint=["python"],
            name=lab.net(name), labels=lab.labels("net"), user="0", ports=[9092, 9090],
            networking_config=api.create_networking_config({lab.network: endpoint}),  # type: ignore[arg-type]
            host_config=api.create_host_config(
                network_mode=lab.network, cap_add=["NET_ADMIN"], pid_mode=f"container:{lab.keeper}",
                port_bindings={9092: (HOST, self.broker[name]), 9090: (HOST, self.control[name])}))["Id"]
        api.start(made)


@contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    ports = Ports()
    made = Rig(folder, ports)
    try:
        asyncio.run(made.open())
        yield made
    finally:
        asyncio.run(made.lab.close())
        ports.close()
