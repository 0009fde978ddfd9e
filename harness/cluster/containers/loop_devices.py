"""Gives each broker a disk of its own: a small ext4 in a file, on a loop device of the engine's machine.

Rules
1. One privileged container of the run, the disks container, makes the disks, shuts them down and removes
   them; it mounts nothing. The engine mounts a disk when a container with its volume starts, and unmounts it
   when that ends; nothing else uses a disk.
2. A disk flushes by itself only once a minute (commit=60), so that a power cut has something to lose.
3. Loop devices outlive containers. Their files are in a folder named after the run, so that a sweep finds
   them.
4. There are few loop devices, and all runs share them: a lack of them is no error of the run, see `make`.
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

DISK_BYTES = 2 << 30  # sparse: what is not written takes no space
TOOLS = "floodmark-tools"  # the image, without its tag
IMAGES = "/images"  # where the volume of the files is mounted
MAKE_S = 30.0
MEND_S = 20.0
LET_GO_S = 10.0  # for the engine to unmount a disk whose container has ended
RULES = ("b 7:* rwm", "c 10:237 rwm")  # loop devices, and the device that allocates them
BINDS = {"/dev": "/dev", "/sys": "/host/sys"}
CAPS = ("SYS_ADMIN", "SYS_PTRACE", "DAC_OVERRIDE")
OPTIONS = "commit=60,errors=remount-ro"
FAULTY = frozenset({"ro", "emergency_ro", "shutdown"})  # kernels differ in which one they show
_SHUTDOWN = ("python3", "-I", "-S", "/opt/floodmark/faults/shutdown.py")
_DISKS = ("sh", "/opt/floodmark/faults/disks.sh")
# A device that is still mounted is released when it is unmounted.
_RELEASE = """
for backing in /sys/block/loop*/loop/backing_file; do
  if grep -q "/$1/" "$backing" 2>/dev/null; then
    device=${backing#/sys/block/}; losetup -d "/dev/${device%%/*}" || exit 1
  fi
done
rm -rf "/images/$1"
"""


class Loops:
    """The disks of one run. `devices`: node -> its device; empty before make()."""

    def __init__(self, lab: EngineResources) -> None:
        self.devices: dict[str, str] = {}
        self._lab = lab
        self._is_running = False  # the disks container
        lab.hooks.append(self.sweep)

    async def make(self, nodes: Sequence[str]) -> None:
        """Makes a disk and a volume for each node. FloodmarkError if that is impossible; no device is left
        then."""
        await self._lab.call("start the disks container", self._start)
        self._is_running = True
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
        """Shuts a disk down (how: power or read-only); returns docker/faults/shutdown.py's report on its
        logs."""
        report = await self._run([*_SHUTDOWN, how, self.devices[node]],
                               env={"FSYNCED": json.dumps(fsynced)})
        return {log: tuple(extents) for log, extents in json.loads(report).items()}

    async def check(self, node: str) -> None:
        """Repairs a broken file system. It must be unmounted, or about to be."""

        async def in_use() -> str | None:
            try:
                await self._run([*_DISKS, "check", self.devices[node]], timeout_s=MEND_S)
            except FloodmarkError as error:
                return str(error)
            return None

        await wait_until(in_use, f"the disk of {node} to be checked", LET_GO_S)

    async def check_mounts(self) -> list[str]:
        """A sentence for each mounted disk or device that is not in order."""
        if not self.devices:
            return []
        options_by_device: Mapping[str, list[str] | None] = json.loads(
            await self._run([*_SHUTDOWN, "look", *self.devices.values()]))
        wrong = []
        for node, device in self.devices.items():
            options = options_by_device[device]
            if options is not None and ("rw" not in options or FAULTY & {*options}):
                wrong.append(f"the disk of {node}, {device}, is mounted {','.join(options)}")
        return wrong

    async def release(self) -> None:
        """Releases all devices. One in use becomes free when its last container has ended. Safe to call
        twice."""
        if self._is_running:
            await self._run(["sh", "-c", _RELEASE, "release", _folder(self._lab.run)])
            self._is_running = False
            self.devices = {}

    def sweep(self, client: docker.DockerClient, run: str) -> None:
        """A hook of sweep.py: releases the devices of a run whose containers are gone."""
        if run == self._lab.run and not self._is_running:
            return
        images = self._lab.volume("images").replace(self._lab.run, run)
        try:
            client.api.inspect_volume(images)
        except NotFound:
            return
        # The sweep at a start comes before the image is known; any image of the same kind will do.
        image = self._lab.image or next((tag for one in client.images.list(TOOLS) for tag in one.tags), None)
        if image is None:
            raise FloodmarkError(f"there is no image {TOOLS} to release the loop devices of run {run} with")
        try:
            client.containers.run(
                image, ["-c", _RELEASE, "release", _folder(run)], entrypoint=["sh"], user="0",
                labels=self._lab.labels("helper"), remove=True, network_disabled=True, cap_add=list(CAPS),
                device_cgroup_rules=list(RULES), volumes=[f"{images}:{IMAGES}", "/dev:/dev"])
        except ContainerError as error:
            raise FloodmarkError(f"the loop devices of run {run} cannot be released: {error}") from error
        if run == self._lab.run:
            self._is_running = False

    # -- inside -------------------------------------------------------------------------------------------

    @property
    def _container(self) -> str:
        return self._lab.broker("disks")

    def _start(self) -> None:
        """Starts the disks container in the keeper's process namespace: it ends with the run and sees its
        processes."""
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
    """The folder of a run's backing files, the only part of their path that is the same in every
    namespace."""
    return f"floodmark-{run}"
