"""The place of containers: for each process a net container, and the process's own in its network.

Rules
1. The engine runs on this machine: ports are published on loopback, the run's folder is mounted. If it runs
   on another kernel, there is no common clock and therefore no trace.
2. The net container has the address, name and published ports, and lives as long as the cluster; the
   process's container joins it, has no capability, and is started and killed with the process. The kernel
   cuts links there, which is always possible: proxied and direct links are the same.
3. Brokers and controller connect to each other by their addresses in the cluster's network, so that no fault
   affects name resolution; clients and the harness to ports that are published only on loopback. The control
   socket answers only the engine's machine.
4. FOLDER/work is mounted in every container. A broker's log directory is a volume; FOLDER/nodes has copies.
5. The engine's events decide whether a process lives. If their stream, the keeper or a net container ends
   without a request, everything is `lost`.
6. Paused means stopped by SIGSTOP, not by the engine's freezer: a frozen process cannot be killed, and would
   keep the keeper's namespace, and so a dead run, alive.
7. Nothing survives the harness: the engine ends the keeper, and with it all processes (engine_resources.py);
   the next start removes the remaining containers.
8. Where clocks can be bumped (not with Apache Kafka) every process preloads libfaketime, which reads the
   offset from the file NAME.clock, replaced atomically, whenever the process asks for the time: a bump takes
   effect at once and outlives the broker. Monotonic clocks (of sessions, time-outs, the trace) do not change.
9. The kernel kills a broker that needs more than its limit of memory; while the limit is in force such an end
   is excused. A limit below the memory in use ends it too: with control groups v1 the kernel refuses such a
   limit, so the broker is killed first. There is no swap. Engines cannot remove a limit: it is ended by
   setting the kernel's highest value.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

from docker.errors import APIError
from docker.types import EndpointConfig, Mount
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from floodmark.harness import protocols
from floodmark.harness.cluster import layout
from floodmark.harness.cluster.broker_cluster import JavaSoftware, System
from floodmark.harness.cluster.containers import ability_probe, engine_client
from floodmark.harness.cluster.containers.disks import Volumes
from floodmark.harness.cluster.containers.engine_resources import (
    CONTROL_SOCKET,
    DATA,
    LISTENER,
    MOUNTED,
    NO_LOG,
    EngineResources,
    PastFault,
)
from floodmark.harness.cluster.containers.images import tools_image
from floodmark.harness.cluster.containers.network import Rules
from floodmark.harness.cluster.layout import HOST, Ports
from floodmark.harness.cluster.processes import Process, Processes, is_stopped, last_words, log_tail
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import gather_all
from floodmark.harness.run_location import replacing
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER, FailpointHit

DYING_LINES = 200  # of a log: the error that ended its process is one of them
OUT_OF_MEMORY = "the kernel killed it for lack of memory"
FAKETIME = "/opt/floodmark/libfaketime.so.1"
# The process itself appends to its log: the log is in the run's folder however the process ends.
BEGIN = 'log="$1"; shift; exec "$@" >>"$log" 2>&1'
EXITED_BY_SIGNAL = 128
testcontainers_config.ryuk_disabled = True  # it would be pulled from a registry; rule 7 does its work
JARS = "/opt/kafka/libs"  # in an image of Apache Kafka, the official one too


class ContainersPlace:
    """See harness.cluster.broker_cluster: Place. `network`, `disks`, `clocks` and `limits` are its parts."""

    name = "containers"
    cannot: Mapping[type, str] = {}

    def __init__(self, folder: Path, system: System, *, links: str, first_port: int | None = None,
                 trace: bool = True) -> None:
        del links
        self.layout = layout.NOT_STARTED
        self.faulted_exits: list[FailpointHit] = []
        processes = self.processes = Processes(self._send, self.is_stopped, self._explained)
        self.deaths, self.lives, self.paused = processes.deaths, processes.lives, processes.paused
        self.kill, self.pause, self.resume = processes.kill, processes.pause, processes.resume
        lab = self._lab = EngineResources(folder.resolve() / "work", system.nodes,
                                          clocks=protocols.Clocks not in system.lacks)
        network, disks = self.network, self.disks = Rules(lab), Volumes(lab, system.power, self, say=_say)
        self.clocks, self.limits = Clocks(lab), MemoryLimits(lab)
        self.can = (network, disks, self.clocks, self.limits)
        self.cut, self.heal = network.cut, network.heal
        self.power_cut, self.wipe, self.log_dir = disks.power_cut, disks.wipe, disks.log_dir
        self.read = disks.read
        self._folder, self._system, self._first_port, self._trace = folder, system, first_port, trace
        self._ports: Ports | None = None
        self._out_of_memory: set[str] = set()  # names whose last end was for lack of memory
        self._processes_of = {lab.broker(name): name for name in lab.names}  # container -> name
        self._events: Any = None

    @property
    def lost(self) -> str | None:
        return self.processes.lost

    async def open(self) -> None:
        lab, self._ports = self._lab, Ports()
        await lab.open(_say, self._system.software)
        if self._trace and not lab.one_clock:
            _say("the Docker engine runs on another kernel, whose clock is not ours: no trace is written")
        self.layout = lay_out(lab, self._folder, self._system.ids, ports=self._ports,
                              first_port=self._first_port, trace=self._trace and lab.one_clock,
                              software=self._system.software)

    async def begin(self) -> None:
        """Makes net containers and disks in parallel, then the processes' containers, unstarted."""
        if self._lab.clocks:
            for name in self.layout.names:
                self.layout.work(f"{name}.clock").write_text("+0\n", encoding="ascii")
        await asyncio.to_thread(self._give_to_user, "*")
        labels = [f"{key}={value}" for key, value in self._lab.labels("").items() if value]
        self._events = await self._lab.call(  # also those before this call
            "stream its events", self._lab.client.api.events, since=1, decode=True,
            filters={"type": "container", "label": labels, "event": ["die", "oom"]})
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), daemon=True, name="docker-events").start()
        disks = asyncio.ensure_future(self.disks.prepare())
        await gather_all([disks, *(self._begin_one(name, disks) for name in self.layout.names)])

    async def mend(self) -> list[str]:
        residue: list[str] = []
        for part in (self.network, self.disks, self.clocks, self.limits):
            try:
                residue += await part.mend()
            except FloodmarkError as error:  # the other faults end all the same
                residue.append(str(error))
        return residue

    async def close(self) -> None:
        """Removes everything, the keeper last; with `lost` set, what it cannot is left to the next start."""
        self.processes.ending = True
        try:
            await self._lab.close()
        except FloodmarkError:
            if self.lost is None:
                raise
        finally:
            if self._events is not None:
                with contextlib.suppress(OSError):  # the engine has closed it already
                    self._events.close()
            if self._ports is not None:
                self._ports.close()
            self.processes.alive.clear()

    async def spawn(self, name: str) -> None:
        process = self.processes.begin(name, self.layout.log_of(name))
        self._give_to_user(f"{name}.*")
        self._out_of_memory.discard(name)
        try:
            await self._lab.call(f"start {name}", self._lab.client.api.start, self._lab.broker(name))
        except BaseException:
            if self.processes.alive.get(name) is process:
                del self.processes.alive[name]
            raise

    async def is_stopped(self, name: str) -> bool:
        """By /proc if the harness sees the containers' processes, else in the keeper, which takes longer."""
        if not self.lives(name):
            return False
        argument = f"{MOUNTED}/{self.layout.properties_of(name).name}"
        seen = await self._lab.inspect(name)
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{seen['State']['Pid']}")
            if argument.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                return is_stopped(process)
        listing = await self._lab.exec(self._lab.keeper, ["ps", "-eo", "stat=,args="])
        return any(line[0] in "Tt" for line in listing.splitlines() if argument in line.split())

    def last_words(self, name: str) -> str:
        reasons = [OUT_OF_MEMORY] if name in self._out_of_memory else []
        return last_words(self.layout.log_of(name), *reasons)

    async def _begin_one(self, name: str, disks: Awaitable[None]) -> None:
        ports = f"{self.layout.places[name].reached[1]} and {self.layout.places[name].asked[1]}"
        await self._lab.call(f"start the net container of {name} on ports {ports}", self._run_net, name)
        await disks
        await self._lab.call(f"make the container of {name}", self._make, name)

    def _run_net(self, name: str) -> None:
        lab, place = self._lab, self.layout.places[name]
        endpoint = EndpointConfig(lab.client.api.api_version, aliases=[name], ipv4_address=lab.address(name))
        net = DockerContainer(lab.image).with_name(lab.net(name)).with_command(["infinity"]).with_kwargs(
            entrypoint=["sleep"], hostname=name, labels=lab.labels("net"), cap_add=["NET_ADMIN"],
            extra_hosts={other: lab.address(other) for other in self.layout.names if other != name},
            pid_mode=f"container:{lab.keeper}", network=lab.network,
            networking_config={lab.network: endpoint}, log_config=NO_LOG)
        net.image = lab.image  # without the prefix that testcontainers may add
        # testcontainers' with_bind_ports takes no address and would publish on all of them.
        published: dict[str, Any] = {f"{LISTENER}/tcp": place.reached, f"{CONTROL_SOCKET}/tcp": place.asked}
        net.ports.update(published)
        try:
            net.start()
        finally:
            net.get_docker_client().client.close()

    def _make(self, name: str) -> None:
        lab, api = self._lab, self._lab.client.api
        disk = [] if name == CONTROLLER else [Mount(target=DATA, source=lab.volume(name), type="volume")]
        log = f"{MOUNTED}/{self.layout.log_of(name).name}"
        api.create_container(  # the image has the programs that commands name
            lab.process_image, ["broker", log, *self._system.command(name)], name=lab.broker(name),
            entrypoint=["sh", "-c", BEGIN], user=lab.user, environment=self._environment(name),
            labels=lab.labels("broker"), stop_signal="SIGTERM",
            host_config=api.create_host_config(
                network_mode=f"container:{lab.net(name)}", pid_mode=f"container:{lab.keeper}",
                mounts=[lab.mount(), *disk], cap_drop=["ALL"],
                security_opt=["no-new-privileges"], log_config=NO_LOG))

    def _environment(self, name: str) -> dict[str, str]:
        """For libfaketime: the offset is read from a file each time, the monotonic clock is real."""
        if not self._lab.clocks:
            return {}
        return {
            "LD_PRELOAD": FAKETIME, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1",
            "FAKETIME_TIMESTAMP_FILE": f"{MOUNTED}/{name}.clock"}

    def _give_to_user(self, pattern: str) -> None:
        """If the harness is root, gives files to the containers' user, which must be able to write them."""
        if os.getuid() == 0:
            user, group = map(int, self._lab.user.split(":"))
            found = list(self._lab.work.glob(pattern))
            for path in (self._lab.work, *found, *(below for one in found for below in one.rglob("*"))):
                os.chown(path, user, group)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Passes events to the loop until the stream ends; runs in a thread of its own."""
        with contextlib.suppress(Exception):  # a broken stream may raise anything: it has ended
            for event in self._events:
                loop.call_soon_threadsafe(self._on_event, event)
        with contextlib.suppress(RuntimeError):  # the loop was closed first
            loop.call_soon_threadsafe(self._lose, "the Docker engine ended its stream of events")

    def _on_event(self, event: Mapping[str, Any]) -> None:
        about = event["Actor"]["Attributes"]
        if (name := self._processes_of.get(about["name"])) is None:
            essential = {self._lab.keeper, *map(self._lab.net, self.layout.names)}
            if event["Action"] == "die" and about["name"] in essential:
                self._lose(f"the container {about['name']} ended")
            return
        process = self.processes.alive.get(name)
        if event["Action"] == "oom" and process is not None:
            process.out_of_memory = True
            self._out_of_memory.add(name)
        elif event["Action"] == "die":
            code = int(about["exitCode"])
            self.processes.ended(name, EXITED_BY_SIGNAL - code if code > EXITED_BY_SIGNAL else code)

    def _explained(self, name: str, process: Process, code: int) -> bool:
        """Whether a failpoint, or a fault in force or just over, explains this end."""
        if self._system.expects_exit(name, code):
            return True
        whys = [why for of, why in sorted(self._lab.excused) if of == name] + [
            why for (of, why), past in self._lab.past_faults.items()
            if of == name and time.monotonic() <= past.until_s and (
                process.out_of_memory if past.sign is None else any(
                    past.sign in line for line in log_tail(self.layout.log_of(name), DYING_LINES)))]
        if whys:
            self.faulted_exits.append(
                FailpointHit(node=name, name=whys[0], action=None, time_ns=time.monotonic_ns()))
        return bool(whys)

    def _lose(self, why: str) -> None:
        if self.processes.ending or self.lost is not None:
            return
        lost = f"{why}: everything in this cluster's containers counts as dead"
        for name in self.processes.alive:
            with contextlib.suppress(OSError), self.layout.log_of(name).open("a") as log:
                log.write(f"floodmark: {lost}\n")
        self.processes.lose(lost)

    async def _send(self, name: str, _process: Process, number: signal.Signals) -> None:

        def send() -> None:
            try:
                self._lab.client.api.kill(self._lab.broker(name), number.name)
            except APIError as error:
                if "is not running" not in str(error.explanation):
                    raise

        await self._lab.call(f"send {number.name} to {name}", send)


def lay_out(lab: EngineResources, folder: Path, ids: Mapping[str, int], *, ports: Ports,
            first_port: int | None, trace: bool, software: JavaSoftware | None = None) -> layout.Layout:
    """lab must be open, so that its addresses are known. software: what the processes' image has, if any."""
    folder = folder.resolve()
    for_clients = layout.ports_for_clients(ids, ports, first_port)
    nodes = tuple(for_clients)
    published: dict[str, layout.Address] = {
        name: (HOST, port) for name, port in {**for_clients, CONTROLLER: ports.choose()}.items()}
    inside: dict[str, layout.Address] = {name: (lab.address(name), LISTENER) for name in ids}
    installed = {} if software is None else {software.java: "java", software.jars[0].parent: JARS}
    places = {
        name: layout.ProcessAddresses(
            node_id=number, is_controller=name == CONTROLLER,
            listens=("0.0.0.0", LISTENER), reached=published[name], advertised=published[name],
            control=(lab.address(name), CONTROL_SOCKET), asked=(HOST, ports.choose()),
            asked_from=lab.address(CLIENTS), controller=inside[CONTROLLER],
            dial={ids[other]: inside[other] for other in nodes if other != name},
            mounted={folder / "nodes" / name: DATA, folder / "work": MOUNTED, **installed},
            log_dir_copied=name != CONTROLLER, **layout.own_files(folder, name, trace=trace))
        for name, number in ids.items()}
    return layout.Layout(folder=folder, nodes=nodes, places=places, links={})


def offers() -> frozenset[str]:
    client = engine_client.connect()
    try:
        return ability_probe.offers(ability_probe.probe(client, tools_image(client, _say)))
    finally:
        client.close()


def _say(line: str) -> None:
    print(f"floodmark: {line}", file=sys.stderr)


# -- faults of single processes ------------------------------------------------------------------------------

TOLERANCE_MS = 900  # on a busy machine two readings may lie this far apart
# The time in ns as processes with and without the library see it.
_READ_BOTH_CLOCKS = ("sh", "-c", "date +%s%N; LD_PRELOAD= date +%s%N")
WHY = "memory limit"
LEAST_MB = 6  # Docker's own
KILL_S = 10
EVENT_S = 20.0  # from the kernel's kill to the engine's event
HIGHEST = (1 << 63) - 4096  # bytes: the full pages that fit the kernel's counter


class Clocks:
    """The brokers' wall clocks, see harness.protocols: Clocks."""

    def __init__(self, lab: EngineResources) -> None:
        self._lab = lab
        self._bumped: set[str] = set()

    async def bump(self, node: str, offset_ms: int) -> None:
        if not self._lab.clocks:
            raise FloodmarkError(f"the clock of {node} cannot be shifted: the cluster has no libfaketime")
        self._bumped.add(node)
        with replacing(self._file(node)) as new:
            new.write(f"{offset_ms / 1000:+.3f}\n".encode())
            os.fchmod(new.fileno(), 0o644)  # the broker is another user

    async def mend(self) -> list[str]:
        """Sets every clock right; returns a sentence for each that is still wrong."""
        bumped = sorted(self._bumped)
        for node in bumped:
            await self.bump(node, 0)
        offsets = dict(zip(bumped, await asyncio.gather(*map(self._offset_ms, bumped)), strict=True))
        self._bumped = {node for node, offset_ms in offsets.items() if abs(offset_ms) >= TOLERANCE_MS}
        return [f"the clock of {node} is off by {offsets[node]} ms" for node in sorted(self._bumped)]

    async def _offset_ms(self, node: str) -> int:
        """As another process in the broker's container sees it; if it is down, that of its file."""
        if not (await self._lab.inspect(node))["State"]["Running"]:
            return round(float(self._file(node).read_text(encoding="ascii")) * 1000)
        both = await self._lab.exec(self._lab.broker(node), _READ_BOTH_CLOCKS)
        shifted_ns, true_ns = map(int, both.split())
        return (shifted_ns - true_ns) // 1_000_000

    def _file(self, node: str) -> Path:
        return self._lab.work / f"{node}.clock"


class MemoryLimits:
    """The brokers' memory limits, see harness.protocols: MemoryLimits."""

    def __init__(self, lab: EngineResources) -> None:
        self._lab = lab
        self._limited: set[str] = set()

    async def limit(self, node: str, limit_mb: int | None) -> None:
        if limit_mb is None:
            await self._free(node)
            return
        if limit_mb < LEAST_MB:
            raise FloodmarkError(f"{node} cannot be limited to {limit_mb} MB: {LEAST_MB} MB is the least")
        self._limited.add(node)
        self._lab.excused.add((node, WHY))
        await self._lab.call(f"limit the memory of {node}", self._set, node, limit_mb << 20)

    async def resident_bytes(self) -> int:
        """See harness.protocols: ReportsMemory. Without files that the kernel could drop."""
        return sum(await asyncio.gather(*(self._lab.call(f"measure the memory of {name}", self._usage, name)
                                          for name in self._lab.names)))

    def _usage(self, name: str) -> int:
        try:
            stats = self._lab.client.api.stats(self._lab.broker(name), stream=False, one_shot=True)
        except APIError:
            return 0  # it does not run
        memory = stats.get("memory_stats") or {}
        return int(memory.get("usage", 0)) - int((memory.get("stats") or {}).get("inactive_file", 0))

    async def mend(self) -> list[str]:
        """Removes all limits, which would also hold at the next start; returns what is left."""
        limited = sorted(self._limited)
        await asyncio.gather(*map(self._free, limited))
        seen = await asyncio.gather(*map(self._lab.inspect, limited))
        left = [int(one["HostConfig"]["Memory"] or 0) for one in seen]  # 0: none
        return [f"the memory of {node} is limited to {limit >> 20} MB"
                for node, limit in zip(limited, left, strict=True) if 0 < limit < HIGHEST]

    async def _free(self, node: str) -> None:
        if node not in self._limited:
            return
        await self._lab.call(f"free the memory of {node}", self._set, node, HIGHEST)
        self._limited.discard(node)
        self._lab.past_faults[node, WHY] = PastFault(sign=None, until_s=time.monotonic() + EVENT_S)
        self._lab.excused.discard((node, WHY))

    def _set(self, node: str, limit: int) -> None:
        api, container = self._lab.client.api, self._lab.broker(node)
        try:
            api.update_container(container, mem_limit=limit, memswap_limit=limit)
        except APIError as error:
            # The messages of older and newer runc, if more is in use.
            refused = ("unable to set memory limit", "device or resource busy")
            if limit == HIGHEST or not any(words in str(error.explanation) for words in refused):
                raise
            with contextlib.suppress(APIError):  # it may have ended meanwhile, which wait reports
                api.kill(container, "SIGKILL")
            api.wait(container, timeout=KILL_S)
            api.update_container(container, mem_limit=limit, memswap_limit=limit)
