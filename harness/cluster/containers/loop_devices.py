"""Gives each broker a disk of its own: a small ext4 in a file, on a loop device of the engine's machine.

Rules
1. What must be privileged is done in one container of the run, the disks container: it makes the disks, cuts
   them off and takes them apart, and mounts nothing. The engine mounts a disk when a container with its
   volume starts, and unmounts it when that ends; nothing else ever holds one.
2. A disk flushes by itself once a minute only (commit=60), so that a power cut finds something to lose.
3. Loop devices outlive containers. Their files lie in a folder named for the run, so that whoever sweeps a
   dead run finds them.
4. There are few loop devices, and all runs share them: that there is none left is no error, see `make`.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from docker.errors import ContainerError, NotFound
from docker.types import LogConfig

import docker
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError

DISK_BYTES = 2 << 30  # sparse: what is not written takes no room
TOOLS = "floodmark-tools"  # the image, without its tag
IMAGES = "/images"  # where the volume of the files is mounted
MAKE_S = 30.0
MEND_S = 20.0
LET_GO_S = 10.0  # for the engine to unmount a disk whose container has ended
RULES = ("b 7:* rwm", "c 10:237 rwm")  # loop devices, and what gives them out
BINDS = {"/dev": "/dev", "/sys": "/host/sys"}
CAPS = ("SYS_ADMIN", "SYS_PTRACE", "DAC_OVERRIDE")
OPTIONS = "commit=60,errors=remount-ro"
ILL = frozenset({"ro", "emergency_ro", "shutdown"})  # kernels differ in which they show
_SHUTDOWN = ("python3", "-I", "-S", "/opt/floodmark/faults/shutdown.py")
_DISKS = ("sh", "/opt/floodmark/faults/disks.sh")
# A device that is still mounted is given back when it is unmounted.
_GIVE_BACK = """
for backing in /sys/block/loop*/loop/backing_file; do
  if grep -q "/$1/" "$backing" 2>/dev/null; then
    device=${backing#/sys/block/}; losetup -d "/dev/${device%%/*}" || exit 1
  fi
done
rm -rf "/images/$1"
"""


class Loops:
    """The disks of one run. `devices`: node -> its device; empty until made."""

    def __init__(self, lab: EngineResources) -> None:
        self.devices: dict[str, str] = {}
        self._lab = lab
        self._there = False  # the disks container
        lab.hooks.append(self.sweep)

    async def make(self, nodes: Sequence[str]) -> None:
        """A disk for each, and its volume. FloodmarkError where there cannot be; no device is left then."""
        await self._lab.call("start the disks container", self._start)
        self._there = True
        folder = f"{IMAGES}/{_folder(self._lab.run)}"
        argv = [*_DISKS, "make", folder, str(DISK_BYTES), self._lab.user, *nodes]
        made = await self._run(argv, timeout_s=MAKE_S)
        self.devices = dict(zip(nodes, made.split(), strict=True))
        await asyncio.gather(*(
            self._lab.call(f"make the volume of {node}", self._lab.client.api.create_volume,
                           self._lab.volume(node), driver="local", labels=self._lab.labels("volume"),
                           driver_opts={"type": "ext4", "device": device, "o": OPTIONS})
            for node, device in self.devices.items()))

    async def strike(self, node: str, how: str, fsynced: Mapping[str, int] | None
                     ) -> Mapping[str, tuple[int, int, int]]:
        """Cut its disk off (how: power or read-only); what docker/faults/shutdown.py tells of its logs."""
        told = await self._run([*_SHUTDOWN, how, self.devices[node]],
                               env={"FSYNCED": json.dumps(fsynced)})
        return {log: tuple(held) for log, held in json.loads(told).items()}

    async def check(self, node: str) -> None:
        """Make the file system whole that was found broken. Nobody has it mounted, or soon nobody will."""

        async def in_use() -> str | None:
            try:
                await self._run([*_DISKS, "check", self.devices[node]], timeout_s=MEND_S)
            except FloodmarkError as error:
                return str(error)
            return None

        await wait_until(in_use, f"the disk of {node} to be checked", LET_GO_S)

    async def look(self) -> list[str]:
        """What is wrong with the disks that are mounted, and with the devices."""
        if not self.devices:
            return []
        told: Mapping[str, list[str] | None] = json.loads(
            await self._run([*_SHUTDOWN, "look", *self.devices.values()]))
        wrong = []
        for node, device in self.devices.items():
            options = told[device]
            if options is not None and ("rw" not in options or ILL & {*options}):
                wrong.append(f"the disk of {node}, {device}, is mounted {','.join(options)}")
        return wrong

    async def give_back(self) -> None:
        """All devices. Those in use are free when the last container that uses them has ended. Safe twice."""
        if self._there:
            await self._run(["sh", "-c", _GIVE_BACK, "give back", _folder(self._lab.run)])
            self._there = False
            self.devices = {}

    def sweep(self, client: docker.DockerClient, run: str) -> None:
        """A hook of containers_sweep: the devices of a run whose containers are gone."""
        if run == self._lab.run and not self._there:
            return
        images = self._lab.volume("images").replace(self._lab.run, run)
        try:
            client.api.inspect_volume(images)
        except NotFound:
            return
        # A start sweeps before it has looked for its image; the dead run had one of the same kind.
        image = self._lab.image or next((tag for one in client.images.list(TOOLS) for tag in one.tags), None)
        if image is None:
            raise FloodmarkError(f"there is no image {TOOLS} to give back the loop devices of run {run} with")
        try:
            client.containers.run(
                image, ["-c", _GIVE_BACK, "give back", _folder(run)], entrypoint=["sh"], user="0",
                labels=self._lab.labels("helper"), remove=True, network_disabled=True, cap_add=list(CAPS),
                device_cgroup_rules=list(RULES), volumes=[f"{images}:{IMAGES}", "/dev:/dev"])
        except ContainerError as error:
            raise FloodmarkError(f"the loop devices of run {run} cannot be given back: {error}") from error
        if run == self._lab.run:
            self._there = False

    # -- inside -------------------------------------------------------------------------------------------

    @property
    def _container(self) -> str:
        return self._lab.broker("disks")

    def _start(self) -> None:
        """In the keeper's process namespace: it ends with the run, and sees the processes that have disks."""
        lab, api = self._lab, self._lab.client.api
        api.create_volume(lab.volume("images"), labels=lab.labels("volume"))
        binds = [*(f"{host}:{path}" for host, path in BINDS.items()), f"{lab.volume('images')}:{IMAGES}"]
        made: Mapping[str, Any] = api.create_container(
            lab.image, ["infinity"], entrypoint=["sleep"], name=self._container, user="0",
            labels=lab.labels("disks"), network_disabled=True,
            host_config=api.create_host_config(
                binds=binds, pid_mode=f"container:{lab.keeper}", cap_drop=["ALL"],
                cap_add=list(CAPS), device_cgroup_rules=list(RULES), log_config=LogConfig(type="none")))
        api.start(made["Id"])

    async def _run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 10.0
                   ) -> str:
        return await self._lab.exec(self._container, argv, env=env, timeout_s=timeout_s)


def _folder(run: str) -> str:
    """The only part of a backing file's path that every namespace sees alike."""
    return f"floodmark-{run}"


async def loops_possible(lab: EngineResources) -> str | None:
    """Why brokers cannot have disks of their own on this engine now; None: they can."""
    try:
        await lab.helper(["losetup", "-f"], caps=CAPS, device_rules=RULES, binds={"/dev": "/dev"})
    except FloodmarkError as error:
        return str(error)
    return None
