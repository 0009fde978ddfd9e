"""Fails, fills, wipes and reads the disks of brokers in containers, and makes power cuts.

Rules
1. If brokers have disks of their own (Loops), the kernel makes the power cut: the broker is paused, its disk
   shut down, and only then it is killed. Else, and if the broker is dead or `keep` is given, the system's
   PowerLoss simulates it on files. The result's `how` says which.
2. Losses are counted: the logs right before are compared with what the disk has afterwards. Then the side
   file is reset: everything left is durable.
3. Log directories are read as the engine's archives, also from paused and dead brokers: 100 MB take half a
   second, and as the output of a program in a helper five. Only plain files and folders below the target are
   unpacked; a copy gets its name when all of it has arrived.
4. A failing or read-only disk is repaired by mounting it again, which needs its broker's end, like switching
   a machine off and on. Until then the end of its broker is excused.
5. A disk of its own is a small ext4 in a file, on a loop device of the engine's machine. The disks container,
   which is privileged and mounts nothing, makes the disks, shuts them down and removes them; the engine
   mounts one when a container with its volume starts. A disk flushes by itself only once a minute
   (commit=60), so that a power cut has something to lose.
6. Loop devices outlive containers: their files are in a folder named after the run, so that a sweep finds
   them. There are few, and all runs share them: a lack of them is no error of the run.
"""

import asyncio
import errno
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import Any

from docker.errors import NotFound

import docker
from floodmark.harness.cluster import log_extents
from floodmark.harness.cluster.broker_cluster import Place
from floodmark.harness.cluster.containers.engine_client import run_alone
from floodmark.harness.cluster.containers.engine_resources import DATA, NO_LOG, EngineResources, PastFault
from floodmark.harness.cluster.log_extents import PowerLoss, wipe
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import wait_until
from floodmark.harness.schedule.views import CONTROLLER

ANYWHERE = frozenset({"corrupt", "truncated"})
OWN_DISK = frozenset({"full", "failing", "read-only"})
STRIKES = {"failing": "power", "read-only": "read-only"}
WHY = {"full": "disk full", "failing": "disk failing", "read-only": "disk read-only"}
ARCHIVE_S = 120.0
EDIT_S = 60.0
DYING_S = 60.0  # for a broker to end after a write found no room: Kafka closes its logs first
ENGINE_S = 10.0  # for the engine's work after a container's end
OURS = ".floodmark-"  # begins our own file names on a broker's disk
MOUNT = "/disk"  # where helpers mount the disk
DISK_BYTES = 2 << 30  # sparse: what is not written takes no space
TOOLS = "floodmark-tools"  # the image, without its tag
IMAGES = "/images"  # where the volume of the files is mounted
MAKE_S, MEND_S = 30.0, 20.0
PRIVILEGES: Mapping[str, Any] = {  # for loop devices, and the device that allocates them
    "cap_add": ["SYS_ADMIN", "SYS_PTRACE", "DAC_OVERRIDE"],
    "device_cgroup_rules": ["b 7:* rwm", "c 10:237 rwm"]}
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
    """The disks of their own of one run's brokers. `devices`: node -> its device; empty before make()."""

    def __init__(self, lab: EngineResources) -> None:
        self.devices: dict[str, str] = {}
        self._lab = lab
        self._has_begun = False  # the disks container was started
        lab.hooks.append(self.sweep)

    async def make(self, nodes: Sequence[str]) -> None:
        """FloodmarkError if it is impossible to make a disk for each node; no device is left then."""
        await self._lab.call("start the disks container", self._start)
        self._has_begun = True
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
        """Shuts a disk down (how: power or read-only); returns the report of docker/faults/shutdown.py."""
        report = await self._run([*_SHUTDOWN, how, self.devices[node]], env={"FSYNCED": json.dumps(fsynced)})
        return {log: tuple(extents) for log, extents in json.loads(report).items()}

    async def check(self, node: str) -> None:
        await _repeated(lambda: self._run([*_DISKS, "check", self.devices[node]], timeout_s=MEND_S),
                        f"the disk of {node} to be checked")

    async def check_mounts(self) -> list[str]:
        """A sentence for each mounted disk or device that is not in order."""
        if not self.devices:
            return []
        look = [*_SHUTDOWN, "look", *self.devices.values()]
        # The engine of a busy machine once lost what the command had printed.
        found: Mapping[str, list[str] | None] = json.loads(await self._run(look) or await self._run(look))
        return [f"the disk of {node}, {device}, is mounted {','.join(options)}"
                for node, device in self.devices.items() if (options := found[device]) is not None
                and ("rw" not in options or FAULTY & {*options})]

    def sweep(self, client: docker.DockerClient, run: str) -> None:
        """A hook of the sweep: releases the devices of a run whose containers are gone."""
        if run == self._lab.run and not self._has_begun:
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
        code, printed = run_alone(
            client, image, ["sh", "-c", _RELEASE, "release", _folder(run)], self._lab.labels("helper"),
            binds=[f"{images}:{IMAGES}", "/dev:/dev"], **PRIVILEGES)
        if code:
            raise FloodmarkError(f"the loop devices of run {run} cannot be released: {printed.strip()}")

    def _start(self) -> None:
        """It is in the keeper's process namespace: it ends with the run and sees its processes."""
        lab, api = self._lab, self._lab.client.api
        api.create_volume(lab.volume("images"), labels=lab.labels("volume"))
        made: Mapping[str, Any] = api.create_container(
            lab.image, ["infinity"], entrypoint=["sleep"], name=lab.broker("disks"), user="0",
            labels=lab.labels("disks"), network_disabled=True,
            host_config=api.create_host_config(
                binds=["/dev:/dev", "/sys:/host/sys", f"{lab.volume('images')}:{IMAGES}"],
                pid_mode=f"container:{lab.keeper}", cap_drop=["ALL"], log_config=NO_LOG, **PRIVILEGES))
        api.start(made["Id"])

    async def _run(self, argv: Sequence[str], **how: Any) -> str:
        return await self._lab.exec(self._lab.broker("disks"), argv, **how)


def _folder(run: str) -> str:
    """The folder of a run's backing files: this part of their path is the same in every namespace."""
    return f"floodmark-{run}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyDisk:
    kind: str
    since: str  # the start time of the affected broker; a later start has mounted the disk again
    extents: log_extents.LogExtents | None = None  # the logs when the disk was shut down


class Volumes:
    """See harness.protocols: BadDisks. `own`: whether brokers have their own disks; known after prepare()."""

    def __init__(self, lab: EngineResources, power: PowerLoss, place: Place, *,
                 say: Callable[[str], None] = lambda _line: None) -> None:
        self.own = True
        self._lab, self._power, self._say = lab, power, say
        self._loops = Loops(lab)
        self._place = place
        self._faulty: dict[str, FaultyDisk] = {}

    async def prepare(self) -> None:
        """Makes a volume for each broker; on the engine's disk if there can be no disks of their own."""
        nodes = [name for name in self._lab.names if name != CONTROLLER]
        try:
            if self.own:
                await self._loops.make(nodes)
                return
        except FloodmarkError as error:
            self.own = False
            self._say(f"brokers have no disks of their own here, power cuts are simulated on files: {error}")
        await asyncio.gather(*(
            self._lab.call(f"make the volume of {node}", self._lab.client.api.create_volume,
                           self._lab.volume(node), labels=self._lab.labels("volume")) for node in nodes))

    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> log_extents.Lost:
        before = None
        if self.own and keep is None and self._place.lives(name):
            before = await self._shut_down(name)
        await self._end(name)
        if before is None:
            return await self._simulated(name, keep)
        await _repeated(lambda: self.log_dir(name), f"the disk of {name} to be mounted again")
        after = await asyncio.to_thread(log_extents.log_extents, self._copy(name))
        lost = log_extents.records_between(before, after)
        self._power.mark_all_durable(self._durable(name), lost.kept)
        return replace(lost, how="disk")

    async def wipe(self, name: str) -> log_extents.Lost:
        await self.repair(name)
        folder = await self.log_dir(name)
        lost = await asyncio.to_thread(wipe, self._power, self._durable(name), folder)
        await self._in_helper(name, "empty")
        return lost

    async def log_dir(self, name: str) -> Path:
        target = self._copy(name)
        await self._lab.call(f"read the logs of {name}", fetch, self._lab.client,
                             self._lab.broker(name), DATA, target, without=OURS, timeout_s=ARCHIVE_S)
        return target

    async def read(self, name: str, file: str) -> str | None:
        return await self._lab.call(f"read {file} of {name}", read, self._lab.client,
                                    self._lab.broker(name), f"{DATA}/{file}")

    async def mend(self) -> list[str]:
        residue = []
        for name in sorted(self._faulty):
            try:
                await self.repair(name)
            except FloodmarkError as error:
                residue.append(f"the disk of {name} is still {self._faulty[name].kind}: {error}")
        return residue + await self._loops.check_mounts()

    @property
    def kinds(self) -> frozenset[str]:
        return ANYWHERE | OWN_DISK if self.own else ANYWHERE

    async def harm(self, node: str, kind: str) -> Mapping[str, Any]:
        """lost_records: an upper bound by the side file, if the disk of a running broker was shut down."""
        if node == CONTROLLER:
            raise FloodmarkError("only brokers' disks can go bad, not the controller's")
        if kind not in self.kinds:
            can = ", ".join(sorted(self.kinds))
            raise FloodmarkError(f"the disk of {node} cannot be {kind} on this engine; it can be {can}")
        await self.repair(node)
        if kind in ANYWHERE:
            return await self._damage(node, kind)
        self._faulty[node] = FaultyDisk(kind=kind, since=await self._started(node))
        self._lab.excused.add((node, WHY[kind]))
        if kind == "full":
            await self._in_helper(node, "fill")
            return {"lost_records": 0}
        return await self._shut_down_alive(node, kind)

    async def repair(self, node: str) -> None:
        if (faulty := self._faulty.get(node)) is None:
            return
        if faulty.kind == "full":
            await self._in_helper(node, "free")
            self._lab.past_faults[node, WHY["full"]] = PastFault(
                sign=os.strerror(errno.ENOSPC), until_s=time.monotonic() + DYING_S)
            await self._wait_for_end_event(node)
        elif not self._place.lives(node) or await self._started(node) == faulty.since:
            await self._end(node)
            if faulty.kind == "read-only":
                await self._loops.check(node)
            self._power.mark_all_durable(self._durable(node))
        del self._faulty[node]
        self._lab.excused.discard((node, WHY[faulty.kind]))

    async def _shut_down(self, name: str) -> log_extents.LogExtents | None:
        """Pauses the broker, shuts its disk down, measures its logs. None: impossible, or it died before."""
        faulty = self._faulty.get(name)
        if faulty is not None and faulty.extents is not None and await self._started(name) == faulty.since:
            await self.repair(name)  # it was shut down when the fault began
            return faulty.extents
        try:
            await self._place.pause(name)
            return _extents(await self._loops.strike(name, "power", None))
        except FloodmarkError as error:
            if self._place.lives(name):
                self._say(f"the disk of {name} cannot be shut down, its power cut is simulated on files: "
                          f"{error}")
            return None

    async def _shut_down_alive(self, node: str, kind: str) -> Mapping[str, Any]:
        """The broker goes on and gets errors. One that does not run is not affected."""
        place, was_paused = self._place, self._place.paused(node)
        try:
            if not was_paused:
                await place.pause(node)  # so that nothing is written between measuring and the shutdown
            found = await self._loops.strike(node, STRIKES[kind], self._power.fsynced(self._durable(node)))
        except FloodmarkError:
            if place.lives(node):
                raise
            await self.repair(node)
            return {"lost_records": 0}
        finally:
            if not was_paused and place.lives(node):
                await place.resume(node)
        self._faulty[node] = replace(self._faulty[node], extents=_extents(found))
        return {"lost_records": sum(leo - durable for leo, _, durable in found.values()), "how": "disk"}

    async def _simulated(self, name: str, keep: Mapping[str, int] | None) -> log_extents.Lost:
        """Simulates a power cut on a copy of the files, and makes the same changes on the broker's disk."""
        folder = await self.log_dir(name)
        before = _sizes(folder)
        lost = await asyncio.to_thread(self._power.power_cut, self._durable(name), folder, keep=keep)
        if changes := edits(before, _sizes(folder), restored=lost.restored):
            await self._in_helper(name, "edit", *changes)
        if lost.restored:
            files = {file: (folder / file).read_bytes() for file in lost.restored}
            await self._lab.call(f"put files back for {name}", put, self._lab.client,
                                 self._lab.broker(name), DATA, files, self._lab.user)
        return replace(lost, how="files")

    async def _damage(self, node: str, kind: str) -> Mapping[str, Any]:
        await self._end(node)
        damage = {"corrupt": log_extents.corrupt, "truncated": log_extents.truncated}[kind]
        if (found := await asyncio.to_thread(damage, await self.log_dir(node))) is None:
            return {"lost_records": 0}
        change = ("size",) if found.byte is None else ("byte", f"{found.byte:03o}")
        await self._in_helper(node, "edit", change[0], found.file, str(found.position), *change[1:])
        self._power.mark_all_durable(self._durable(node))
        return {"lost_records": found.lost_records, "log": found.partition, "file": found.file,
                "position": found.position}

    def _copy(self, name: str) -> Path:
        return self._lab.work.parent / "nodes" / name

    def _durable(self, name: str) -> Path:
        return self._lab.work / f"{name}.durable"

    async def _end(self, name: str) -> None:
        """Kills the broker and waits until the engine has unmounted its disk."""
        await self._place.kill(name)
        await self._started(name)

    async def _wait_for_end_event(self, name: str) -> None:
        """If the broker has ended, waits until its end is known, while it is still excused."""

        async def unheard() -> str | None:
            runs = (await self._lab.inspect(name))["State"]["Running"]
            return "the engine has not reported it" if self._place.lives(name) and not runs else None

        await wait_until(unheard, f"the end of {name}", ENGINE_S)

    async def _started(self, name: str) -> str:
        return str((await self._lab.inspect(name))["State"]["StartedAt"])

    async def _in_helper(self, name: str, do: str, *arguments: str) -> None:
        await self._lab.helper([*_DISKS, do, *arguments],
                               volume=self._lab.volume(name), mounted_at=MOUNT, timeout_s=EDIT_S)


async def _repeated(act: Callable[[], Awaitable[object]], awaited: str) -> None:
    """Until it succeeds; the engine may still be at work after a container's end."""

    async def failure() -> str | None:
        try:
            await act()
        except FloodmarkError as error:
            return str(error)
        return None

    await wait_until(failure, awaited, ENGINE_S)


def edits(before: Mapping[str, int], after: Mapping[str, int], *, restored: Sequence[str]) -> list[str]:
    """The arguments of `disks.sh edit` for these changes (name -> bytes), without restored files."""
    arguments = []
    for name in sorted(before.keys() - set(restored)):
        if after.get(name) != before[name]:
            arguments += ["size", name, str(after[name])] if name in after else ["remove", name]
    return arguments


def _sizes(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): path.stat().st_size
            for path in folder.rglob("*") if path.is_file()}


def _extents(found: Mapping[str, tuple[int, int, int]]) -> log_extents.LogExtents:
    return {log: (leo, size) for log, (leo, size, _) in found.items()}


# -- files in and out of containers -----------------------------------------------------------------------

def fetch(client: docker.DockerClient, container: str, source: str, target: Path, *, without: str) -> None:
    """Replaces `target` by a copy of the container's folder, without names that begin with `without`."""
    pieces, _ = client.api.get_archive(container, source)
    fresh = target.with_name(f".{target.name}.coming")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        unpack(pieces, fresh, without=without)
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read(client: docker.DockerClient, container: str, source: str) -> str | None:
    """The text of one file of the container; None: there is no such file. OSError if it does not arrive
    complete."""
    try:
        pieces, _ = client.api.get_archive(container, source)
    except NotFound:
        return None
    with _opened(pieces) as archive:
        member = archive.next()
        content = None if member is None else archive.extractfile(member)
        return None if content is None else content.read().decode(errors="replace")


def unpack(pieces: Iterable[bytes], target: Path, *, without: str) -> None:
    """Unpacks a tar of one folder, without that folder's name. OSError if it is no tar, or incomplete."""

    def renamed(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        name = PurePosixPath(member.name)
        parts = name.parts[1:]
        if (not parts or name.is_absolute() or ".." in parts or parts[0].startswith(without)
                or not (member.isfile() or member.isdir())):
            return None
        return tarfile.data_filter(member.replace(name="/".join(parts), deep=False), path)

    with _opened(pieces) as archive:
        archive.extractall(target, filter=renamed)


def put(
    client: docker.DockerClient, container: str, target: str, files: Mapping[str, bytes], user: str) -> None:
    """Copies files, by name, into the container's folder `target`; user: their owner, "uid:gid"."""
    owner, group = map(int, user.split(":"))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.uid, member.gid, member.mode = len(content), owner, group, 0o644
            archive.addfile(member, io.BytesIO(content))
    client.api.put_archive(container, target, packed.getvalue())


@contextmanager
def _opened(pieces: Iterable[bytes]) -> Iterator[tarfile.TarFile]:
    try:
        with TemporaryFile() as file:
            file.writelines(pieces)
            file.seek(0)
            with tarfile.open(fileobj=file) as archive:
                yield archive
    except tarfile.TarError as error:
        raise OSError(f"the archive of it cannot be read: {error}") from error
