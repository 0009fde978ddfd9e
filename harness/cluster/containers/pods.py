"""Runs the containers of one cluster: for each process a net container and, in its network, its own.

Rules
1. The net container owns address, name and published ports, and lives as long as the cluster; the process's
   container joins it, has no capability, and is started and killed as the process is.
2. Whether a process lives is what the engine's events tell: killed means that its end was heard of. Of an end
   that nobody asked for, `foreseen`, `excused` and `died` are asked, in this order.
3. Paused is stopped by SIGSTOP, not by the engine's freezer: what is frozen cannot even be killed, and would
   keep the keeper's namespace, and so a dead run, alive.
4. When the events end and nobody asked for that, or keeper or a net container does, everything is lost: all
   processes count as dead, their logs say why, and none of them has died by itself.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker.errors import APIError, DockerException
from docker.types import EndpointConfig, Mount
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer, Reaper
from testcontainers.core.exceptions import ContainerConnectException
from testcontainers.core.labels import create_labels

import docker
from floodmark.harness.cluster.containers.addresses import CONTROL_SOCKET, DATA, LISTENER
from floodmark.harness.cluster.containers.engine_resources import MOUNTED, NO_LOG, EngineResources
from floodmark.harness.cluster.exit_reports import exit_report, last_words
from floodmark.harness.cluster.hosts import Command, FaultedExit, Foreseen, never_foreseen, no_command
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.gathering import gather_all
from floodmark.harness.protocols import CONTROLLER

STOPPED_S = 10.0
GONE_S = 20.0  # from a kill to the event that tells of the end: a busy engine once took 3 s
STARVED = "the kernel killed it for want of memory"
FAKETIME = "/opt/floodmark/libfaketime.so.1"
# The log is appended to by the process itself: it is in the run's folder however the process ends.
BEGIN = 'log="$1"; shift; exec "$@" >>"$log" 2>&1'
EXITED_BY_SIGNAL = 128

Step = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """What a cluster does for disks that need nothing done."""


@dataclass(slots=True, kw_only=True)
class Pod:
    """One process, this time it runs."""

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: bool = False  # somebody asked for its end
    paused: bool = False
    starved: bool = False  # the kernel killed in it for want of memory


class Pods:
    """See harness.cluster.hosts: Hosts.

    prepare, dispose: what is to be done before any process's container is made, and when all are dead.
    excused: name -> why its end is expected now; such an end is in `felled`.
    """

    def __init__(self, lab: EngineResources, layout: Layout) -> None:
        self.foreseen: Foreseen = never_foreseen
        self.command: Command = no_command
        self.died: list[str] = []
        self.died_words: dict[str, str] = {}
        self.excused = lab.excused
        self.felled: list[FaultedExit] = []
        self.prepare: Step = nothing
        self.dispose: Step = nothing
        self._lab = lab
        self._layout = layout
        self._alive: dict[str, Pod] = {}
        self._starved: set[str] = set()  # names whose last end was for want of memory
        self._pods_of = {lab.broker(name): name for name in layout.names}  # container -> name
        self._events: Any = None
        self._ending = False
        self.lost: str | None = None

    # -- Hosts --------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Net containers and disks, at once; then the containers of the processes, made but not started."""
        await asyncio.to_thread(self._set_out)
        await self._lab.call("look for a reaper", _choose_reaper, self._lab.client)
        self._events = await self._lab.call("tell its events", self._subscribe)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), daemon=True, name="docker-events").start()
        disks = asyncio.ensure_future(self.prepare())
        await gather_all([disks, *(self._begin_one(name, disks) for name in self._layout.names)])

    async def spawn(self, name: str) -> None:
        if self.lost is not None:
            raise FloodmarkError(f"cannot start {name}: {self.lost}")
        if name in self._alive:
            raise FloodmarkError(f"cannot start {name}: it is running")
        self._hand_over(f"{name}.*")
        self._starved.discard(name)
        self._alive[name] = pod = Pod()  # before the engine can tell of its end
        try:
            await self._lab.call(f"start {name}", self._lab.client.api.start, self._lab.broker(name))
        except BaseException:
            if self._alive.get(name) is pod:
                del self._alive[name]
            raise

    async def kill(self, name: str) -> None:
        pod = self._alive.get(name)
        if pod is not None:
            pod.wanted = True
            await self._signal(name, "SIGKILL")
            await self._gone(name, pod, GONE_S, "SIGKILL")

    async def terminate(self, name: str, *, timeout_s: float) -> None:
        pod = self._alive.get(name)
        if pod is not None:
            pod.wanted = True
            await self._signal(name, "SIGTERM")
            await self._gone(name, pod, timeout_s, "SIGTERM")

    async def pause(self, name: str) -> None:
        """Back when the kernel has stopped it."""
        pod = self._living(name, "pause")
        if pod.paused:
            return
        pod.paused = True
        await self._signal(name, "SIGSTOP")

        async def moves() -> str | None:
            return "it still runs" if name in self._alive and not await self.stands_still(name) else None

        await wait_until(moves, f"{name} to stand still", STOPPED_S)

    async def resume(self, name: str) -> None:
        pod = self._living(name, "resume")
        await self._signal(name, "SIGCONT")
        pod.paused = False

    def lives(self, name: str) -> bool:
        return name in self._alive

    def paused(self, name: str) -> bool:
        pod = self._alive.get(name)
        return pod is not None and pod.paused

    async def stands_still(self, name: str) -> bool:
        """As the kernel has it: looked up here where its processes are ours to see, else in the keeper, which
        sees all of the cluster's but takes twenty times as long."""
        if name not in self._alive:
            return False
        api, argument = self._lab.client.api, f"{MOUNTED}/{self._layout.properties_of(name).name}"
        seen = await self._lab.call(f"look at {name}", api.inspect_container, self._lab.broker(name))
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{seen['State']['Pid']}")
            if argument.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                # pid (name, which may hold anything) state ...
                return (process / "stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        told = await self._lab.exec(self._lab.keeper, ["ps", "-eo", "stat=,args="])
        return any(line[0] in "Tt" for line in told.splitlines() if argument in line.split())

    def last_words(self, name: str) -> str:
        return last_words(self._layout.log_of(name), *([STARVED] if name in self._starved else []))

    async def end(self) -> None:
        """Everything goes, the keeper last. Where the engine is gone, and its loss told, what it still holds
        is left to the next start."""
        self._ending = True
        try:
            try:
                await self.dispose()
            finally:
                await self._lab.close()
        except FloodmarkError:
            if self.lost is None:
                raise
        finally:
            if self._events is not None:
                with contextlib.suppress(OSError):  # the engine has closed it already
                    self._events.close()
            self._alive.clear()

    # -- making containers --------------------------------------------------------------------------------

    async def _begin_one(self, name: str, disks: Awaitable[None]) -> None:
        ports = f"{self._layout.places[name].reached[1]} and {self._layout.places[name].asked[1]}"
        await self._lab.call(f"start the net container of {name} on ports {ports}", self._run_net, name)
        await disks
        await self._lab.call(f"make the container of {name}", self._make, name)

    def _run_net(self, name: str) -> None:
        lab, place = self._lab, self._layout.places[name]
        hosts = {other: lab.address(other) for other in self._layout.names if other != name}
        endpoint = EndpointConfig(lab.client.api.api_version, aliases=[name], ipv4_address=lab.address(name))
        net = DockerContainer(lab.image).with_name(lab.net(name)).with_command(["infinity"]).with_kwargs(
            entrypoint=["sleep"], hostname=name, labels=lab.labels("net"), cap_add=["NET_ADMIN"],
            extra_hosts=hosts, pid_mode=f"container:{lab.keeper}", network=lab.network,
            networking_config={lab.network: endpoint}, log_config=NO_LOG)
        net.image = lab.image  # whatever prefix the user's images have
        # Its with_bind_ports knows no address, and would publish to all the world.
        published: dict[str, Any] = {f"{LISTENER}/tcp": place.reached, f"{CONTROL_SOCKET}/tcp": place.asked}
        net.ports.update(published)
        try:
            net.start()
        finally:
            net.get_docker_client().client.close()

    def _make(self, name: str) -> None:
        lab, api = self._lab, self._lab.client.api
        disk = [] if name == CONTROLLER else [Mount(target=DATA, source=lab.volume(name), type="volume")]
        log = f"{MOUNTED}/{self._layout.log_of(name).name}"
        api.create_container(  # the image has the programs that commands name
            lab.process_image, ["broker", log, *self.command(name)], name=lab.broker(name),
            entrypoint=["sh", "-c", BEGIN], user=lab.user, environment=self._environment(name),
            labels=create_labels(lab.process_image, lab.labels("broker")), stop_signal="SIGTERM",
            host_config=api.create_host_config(
                network_mode=f"container:{lab.net(name)}", pid_mode=f"container:{lab.keeper}",
                mounts=[lab.mount(), *disk], cap_drop=["ALL"],
                security_opt=["no-new-privileges"], log_config=NO_LOG))

    def _environment(self, name: str) -> dict[str, str]:
        """libfaketime reads its offset from a file, live, and leaves the monotonic clock alone."""
        if not self._lab.clocks:
            return {}
        return {
            "LD_PRELOAD": FAKETIME, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1",
            "FAKETIME_TIMESTAMP_FILE": f"{MOUNTED}/{name}.clock",
        }

    def _set_out(self) -> None:
        if self._lab.clocks:
            for name in self._layout.names:
                self._layout.work(f"{name}.clock").write_text("+0\n", encoding="ascii")
        self._hand_over("*")

    def _hand_over(self, pattern: str) -> None:
        """What the harness has put there the process must be able to write: where we are root, it is not."""
        if os.getuid() == 0:
            user, group = map(int, self._lab.user.split(":"))
            found = list(self._lab.work.glob(pattern))
            for path in (self._lab.work, *found, *(below for one in found for below in one.rglob("*"))):
                os.chown(path, user, group)

    # -- what the engine tells ----------------------------------------------------------------------------

    def _subscribe(self) -> Any:
        """Of this run alone, and from its beginning: what happened before the engine took this call too."""
        labels = [f"{key}={value}" for key, value in self._lab.labels("").items() if value]
        return self._lab.client.api.events(
            since=1, decode=True, filters={"type": "container", "label": labels, "event": ["die", "oom"]})

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own, as long as there is a stream."""
        with contextlib.suppress(RuntimeError):  # the loop was closed first
            for event in self._told():
                loop.call_soon_threadsafe(self._heard, event)
            loop.call_soon_threadsafe(self._lose, "the Docker engine ended its stream of events")

    def _told(self) -> Iterator[Mapping[str, Any]]:
        with contextlib.suppress(Exception):  # whatever a broken stream raises: it has ended
            yield from self._events

    def _heard(self, event: Mapping[str, Any]) -> None:
        about = event["Actor"]["Attributes"]
        name = self._pods_of.get(about["name"])
        if name is None:
            if event["Action"] == "die" and about["name"] in self._bearers():
                self._lose(f"the container {about['name']} ended")
            return
        pod = self._alive.get(name)
        if pod is None:
            return
        if event["Action"] == "oom":
            pod.starved = True
            return
        del self._alive[name]
        code = int(about["exitCode"])
        self._note_end(name, pod, EXITED_BY_SIGNAL - code if code > EXITED_BY_SIGNAL else code)
        pod.ended.set()

    def _note_end(self, name: str, pod: Pod, code: int) -> None:
        if pod.starved:
            self._starved.add(name)
        if pod.wanted or self._ending or self.foreseen(name, code):
            return
        if name in self.excused:
            self.felled.append(FaultedExit(name=name, why=self.excused[name], time_ns=time.monotonic_ns()))
        else:
            self.died.append(name)
            words = exit_report(self._layout.log_of(name), code)
            self.died_words.setdefault(name, words)

    def _bearers(self) -> set[str]:
        """The containers without which all is lost."""
        return {self._lab.keeper, *(self._lab.net(name) for name in self._layout.names)}

    def _lose(self, why: str) -> None:
        if self._ending or self.lost is not None:
            return
        self.lost = f"{why}: everything in this cluster's containers counts as dead"
        for name, pod in self._alive.items():
            with contextlib.suppress(OSError), self._layout.log_of(name).open("a") as log:
                log.write(f"floodmark: {self.lost}\n")
            pod.ended.set()
        self._alive.clear()

    # -- inside -------------------------------------------------------------------------------------------

    def _living(self, name: str, do: str) -> Pod:
        pod = self._alive.get(name)
        if pod is None:
            raise FloodmarkError(f"cannot {do} {name}: {self.lost or 'it is not running'}")
        return pod

    async def _signal(self, name: str, which: str) -> None:
        """One that has ended meanwhile needs none."""

        def send() -> None:
            try:
                self._lab.client.api.kill(self._lab.broker(name), which)
            except APIError as error:
                if "is not running" not in str(error.explanation):
                    raise

        await self._lab.call(f"send {which} to {name}", send)

    async def _gone(self, name: str, pod: Pod, timeout_s: float, after: str) -> None:
        try:
            await asyncio.wait_for(pod.ended.wait(), timeout_s)
        except TimeoutError:
            raise FloodmarkError(f"{name} did not end within {timeout_s:g} s of {after}") from None


def _choose_reaper(client: docker.DockerClient) -> None:
    """testcontainers' own reaper clears up after a killed harness too, and sooner than the next start does;
    but only where its image is at hand: else it would be looked for in a registry."""
    if testcontainers_config.ryuk_disabled:
        return
    try:
        client.images.get(testcontainers_config.ryuk_image)
        Reaper.get_instance()  # once, before threads would
    except (DockerException, ContainerConnectException, TimeoutError):
        testcontainers_config.ryuk_disabled = True
