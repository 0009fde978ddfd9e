"""The local place: brokers and a controller as processes on loopback, without root and without Docker.

Rules
1. Everything runs under the supervisor (supervisor.py): nothing survives the harness.
2. Proxied links, between processes and from clients, run through the links process (link_proxies.py) and can
   be cut; direct links cannot.
3. A power cut is simulated on files, by the system's PowerLoss.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from floodmark.harness.cluster import control_client
from floodmark.harness.cluster.broker_cluster import START_S, BrokerCluster
from floodmark.harness.cluster.hosts import (
    PYTHON,
    Command,
    Death,
    ExpectsExit,
    FaultedExit,
    House,
    expects_no_exit,
    no_command,
)
from floodmark.harness.cluster.layout import LINKS, Layout, lay_out
from floodmark.harness.cluster.local.link_cuts import LinkCuts
from floodmark.harness.cluster.local.supervisor_client import SupervisedProcesses
from floodmark.harness.cluster.log_extents import Lost
from floodmark.harness.cluster.ports import Ports
from floodmark.harness.cluster.system import PowerLoss, System
from floodmark.harness.errors import FloodmarkError, UsageError

CAN_BE_CUT = ("direct", "proxied")
PROGRAMS = {PYTHON: (sys.executable, "-P")}  # other programs are found on PATH


def local_cluster(folder: Path, system: System, *, links: str, first_port: int | None = None,
                  trace: bool = True) -> BrokerCluster:
    """Makes a local cluster; it is not started."""
    if links not in CAN_BE_CUT:
        raise UsageError(f"links are direct or proxied, not {links!r}")
    if system.software is not None and system.software.image is not None:
        raise UsageError(f"{system.software.image} is an image, which runs only in containers: --cluster "
                         f"containers, or --kafka {system.software.version}")

    async def build() -> House:
        ports = Ports()
        try:
            layout = lay_out(folder, system.ids, proxied=links == "proxied", ports=ports,
                             first_port=first_port, trace=trace, by_name=system.dials_by_name)
        except BaseException:
            ports.close()
            raise
        processes = Processes(layout, system.module)
        return House(layout=layout, hosts=processes, network=processes.network,
                     disks=Files(processes, system.power), close=ports.close)

    return BrokerCluster("local", system, build)


class Processes:
    """The processes of one supervisor, see harness.cluster.hosts: Hosts; `network` is their links. module:
    see System."""

    def __init__(self, layout: Layout, module: str | None) -> None:
        self.expects_exit: ExpectsExit = expects_no_exit
        self.command: Command = no_command
        self.network = Links()
        self._layout, self._module = layout, module
        self._processes: SupervisedProcesses | None = None

    async def begin(self) -> None:
        """Starts the supervisor, and the links process if links are proxied."""
        self._processes = await SupervisedProcesses.begin(self._layout.work("keeper.log"), self._module)
        self._processes.expects_exit = self.expects_exit
        if self._layout.links:
            lines = await control_client.open_lines(self._processes.links_socket(), "the links process")
            self.network.cutting = LinkCuts(lines)
            argv = [*PROGRAMS[PYTHON], "-m", "floodmark.harness.cluster.local.link_proxies"]
            await self._processes.spawn(LINKS, argv, self._layout.log_of(LINKS), links=True)
            await lines.ask("listen", timeout_s=START_S, links=self._layout.links_config())

    async def spawn(self, name: str) -> None:
        program, *arguments = self.command(name)
        log = self._layout.log_of(name)
        if self._module is not None and [program, *arguments[:2]] == [PYTHON, "-m", self._module]:
            await self._kept.fork(name, arguments[2:], log)
        else:
            await self._kept.spawn(name, [*PROGRAMS.get(program, (program,)), *arguments], log)

    async def kill(self, name: str) -> None:
        await self._kept.kill(name)

    async def terminate(self, name: str, *, timeout_s: float) -> None:
        await self._kept.terminate(name, timeout_s=timeout_s)

    async def pause(self, name: str) -> None:
        await self._kept.pause(name)

    async def resume(self, name: str) -> None:
        await self._kept.resume(name)

    @property
    def deaths(self) -> Sequence[Death]:
        return () if self._processes is None else self._processes.deaths

    @property
    def lost(self) -> str | None:
        return None if self._processes is None else self._processes.lost

    @property
    def faulted_exits(self) -> Sequence[FaultedExit]:
        return ()

    def lives(self, name: str) -> bool:
        return self._kept.lives(name)

    def paused(self, name: str) -> bool:
        return self._kept.paused(name)

    async def is_stopped(self, name: str) -> bool:
        return self._kept.stopped_by_the_kernel(name)

    def last_words(self, name: str) -> str:
        return "it never ran" if self._processes is None else self._processes.last_words(name)

    async def end(self) -> None:
        if self._processes is not None:
            await self._processes.end()

    def place(self, name: str) -> tuple[Path, Path]:
        """A broker's side file of what is durable, and its log directory."""
        place = self._layout.places[name]
        assert place.durable is not None, "only brokers have one"
        return place.durable, place.log_dir

    @property
    def _kept(self) -> SupervisedProcesses:
        if self._processes is None:
            raise FloodmarkError("the cluster was not started")
        return self._processes


class Links:
    """The links, see harness.cluster.hosts: Network. Direct links cannot be cut."""

    def __init__(self) -> None:
        self.cutting: LinkCuts | None = None

    @property
    def why_not(self) -> str | None:
        return "direct links cannot be cut: use --links proxied" if self.cutting is None else None

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool) -> None:
        assert self.cutting is not None, self.why_not
        await self.cutting.cut(grudge, reset=reset)

    async def heal(self) -> None:
        if self.cutting is not None:
            await self.cutting.heal()

    async def mend(self) -> list[str]:
        return [] if self.cutting is None else await self.cutting.mend()

    async def close(self) -> None:
        if self.cutting is not None:
            await self.cutting.close()


class Files:
    """Log directories on the harness's own disk, see harness.cluster.hosts: Disks."""

    def __init__(self, processes: Processes, power: PowerLoss) -> None:
        self._processes = processes
        self._power = power

    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost:
        await self._processes.kill(name)
        return await asyncio.to_thread(self._power.power_cut, *self._processes.place(name), keep=keep)

    async def wipe(self, name: str) -> Lost:
        return await asyncio.to_thread(self._power.wipe, *self._processes.place(name))

    async def log_dir(self, name: str) -> Path:
        return self._processes.place(name)[1]

    async def read(self, name: str, file: str) -> str | None:
        try:
            return (self._processes.place(name)[1] / file).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    async def mend(self) -> list[str]:
        return []
