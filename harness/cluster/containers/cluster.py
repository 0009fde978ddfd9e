"""The place of containers: brokers in an image, each with a network namespace and an address of its own.

Rules
1. The engine runs on this machine: ports are published on loopback, the run's folder is mounted.
2. Nothing survives the harness: the engine ends the keeper, and with it all processes (engine_resources.py);
   the next start removes the remaining containers.
3. The kernel cuts links, which is always possible: proxied and direct links are the same here.
4. If the engine runs on another kernel, there is no common clock and therefore no trace.
"""

import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from floodmark.harness import protocols
from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.cluster.containers import ability_probe, engine_client
from floodmark.harness.cluster.containers.addresses import lay_out
from floodmark.harness.cluster.containers.clocks import Clocks
from floodmark.harness.cluster.containers.disks import Volumes
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.images import tools_image
from floodmark.harness.cluster.containers.memory_limits import MemoryLimits
from floodmark.harness.cluster.containers.network import Rules
from floodmark.harness.cluster.containers.pods import Pods
from floodmark.harness.cluster.hosts import House
from floodmark.harness.cluster.log_extents import Lost
from floodmark.harness.cluster.ports import Ports
from floodmark.harness.cluster.system import System
from floodmark.harness.errors import FloodmarkError

Mend = Callable[[], Awaitable[list[str]]]


def containers_cluster(folder: Path, system: System, *, links: str, first_port: int | None = None,
                       trace: bool = True) -> BrokerCluster:
    """Makes a cluster in containers; it is not started, and the engine is not called yet. links: direct or
    proxied, which are the same here."""
    lab = EngineResources(folder.resolve() / "work", system.nodes)
    network, volumes = Rules(lab), Volumes(lab, system.power, say=_say)
    clocks, limits = Clocks(lab), MemoryLimits(lab, lab.excused)
    software = system.software
    lab.clocks = protocols.Clocks not in system.lacks

    async def build() -> House:
        ports = Ports()
        try:
            await lab.open(_say, software)
            if trace and not lab.one_clock:
                _say("the Docker engine runs on another kernel, whose clock is not ours: no trace is written")
            layout = lay_out(lab, folder, system.ids, ports=ports, first_port=first_port,
                             trace=trace and lab.one_clock, software=software)
        except BaseException:
            ports.close()
            with contextlib.suppress(FloodmarkError):  # the first error is reported
                await lab.close()
            raise
        pods = Pods(lab, layout)
        volumes.serve(pods)
        disks = MendedDisks(volumes, clocks.mend, limits.mend)
        return House(layout=layout, hosts=pods, network=network, disks=disks, close=ports.close)

    return BrokerCluster("containers", system, build,
                         files_at_hand=False, house_abilities=(
        *network.abilities, volumes, *([clocks] if lab.clocks else []), limits))


def offers() -> frozenset[str]:
    """The nemeses that this machine's engine offers, of those that not every cluster does."""
    client = engine_client.connect()
    try:
        return ability_probe.offers(ability_probe.probe(client, tools_image(client, _say)))
    finally:
        client.close()


class MendedDisks:
    """The disks, see harness.cluster.hosts: Disks; mend also mends clocks and memory limits."""

    def __init__(self, volumes: Volumes, *besides: Mend) -> None:
        self._volumes = volumes
        self._mends = (volumes.mend, *besides)

    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost:
        return await self._volumes.power_cut(name, keep)

    async def wipe(self, name: str) -> Lost:
        return await self._volumes.wipe(name)

    async def log_dir(self, name: str) -> Path:
        return await self._volumes.log_dir(name)

    async def read(self, name: str, file: str) -> str | None:
        return await self._volumes.read(name, file)

    async def mend(self) -> list[str]:
        return [line for mend in self._mends for line in await mend()]


def _say(line: str) -> None:
    print(f"floodmark: {line}", file=sys.stderr)
