"""Fails, fills, wipes and reads the disks of brokers in containers, and plays power cuts on them.

Rules
1. On disks of their own (loop_devices.py) a power cut is the kernel's: the broker is frozen, its disk cut
   off, and only then is it killed. Elsewhere, of a broker that is dead already, and where it is said what to
   keep, it is played on files as its system has it. The answer's `how` says which.
2. What was lost is counted: what the log held the instant before, and what is found on the disk afterwards.
3. After every loss the account says that all that lies there is durable.
4. Log directories are read as the engine's archives, of brokers that run, stand still or are dead.
5. A disk that fails or is read-only is well again when it is mounted anew, that is when its broker has ended:
   as a machine's that was switched off and on. Until it is repaired the end of its broker is excused.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from floodmark.harness.cluster import log_damage
from floodmark.harness.cluster.containers import archives
from floodmark.harness.cluster.containers.addresses import DATA
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.loop_devices import Loops
from floodmark.harness.cluster.containers.pods import Pods
from floodmark.harness.cluster.log_extents import Held, Lost, log_extents, records_between
from floodmark.harness.cluster.system import PowerLoss
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import CONTROLLER

ANYWHERE = frozenset({"corrupt", "truncated"})
OWN_DISK = frozenset({"full", "failing", "read-only"})
STRIKES = {"failing": "power", "read-only": "read-only"}
WHY = {"full": "disk full", "failing": "disk failing", "read-only": "disk read-only"}
ARCHIVE_S = 120.0
EDIT_S = 60.0
ENGINE_S = 10.0  # for what the engine does after a container's end
OURS = ".floodmark-"  # names of ours on a broker's disk begin so
MOUNT = "/disk"  # where helpers have it
_DISKS = ("sh", "/opt/floodmark/faults/disks.sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyDisk:
    """A disk fault in force."""

    kind: str
    since: str  # when the broker that met it had been started; another one has a disk mounted anew
    held: Held | None = None  # what the logs held when it was cut off


class Volumes:
    """See harness.cluster.hosts: Disks, and harness.protocols: BadDisks. `own`: whether brokers have disks of
    their own, as wished and, after prepare(), as it is."""

    def __init__(self, lab: EngineResources, power: PowerLoss, *, own: bool = True,
                 without: Sequence[str] = (), say: Callable[[str], None] = lambda _line: None) -> None:
        """without: kinds of illness that this engine cannot do."""
        self.own = own
        self._without = frozenset(without)
        self._lab = lab
        self._power = power
        self._say = say
        self._loops = Loops(lab)
        self._pods: Pods | None = None
        self._ill: dict[str, FaultyDisk] = {}

    def serve(self, pods: Pods) -> None:
        """Be the disks of these."""
        self._pods = pods
        pods.prepare, pods.dispose = self.prepare, self.close

    async def prepare(self) -> None:
        """A volume for each broker. Where there can be no disks of their own, on the engine's disk."""
        nodes = [name for name in self._lab.names if name != CONTROLLER]
        if self.own:
            try:
                await self._loops.make(nodes)
            except FloodmarkError as error:
                self.own = False
                self._say(f"brokers have no disks of their own here, power cuts are played on files: {error}")
        if not self.own:
            await asyncio.gather(*(
                self._lab.call(f"make the volume of {node}", self._lab.client.api.create_volume,
                               self._lab.volume(node), labels=self._lab.labels("volume")) for node in nodes))

    async def close(self) -> None:
        """Give back what outlives containers. Safe twice. What cannot be given back now is swept later."""
        with contextlib.suppress(FloodmarkError):
            await self._loops.give_back()

    # -- Disks --------------------------------------------------------------------------------------------

    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost:
        before = None
        if self.own and keep is None and self._hosts.lives(name):
            before = await self._cut_off(name)
        await self._end(name)
        return await (self._played(name, keep) if before is None else self._lost_since(name, before))

    async def wipe(self, name: str) -> Lost:
        await self.repair(name)
        folder = await self.log_dir(name)
        lost = await asyncio.to_thread(self._power.wipe, self._durable(name), folder)
        await self._in_helper(name, "empty")
        return lost

    async def log_dir(self, name: str) -> Path:
        target = self._lab.work.parent / "nodes" / name
        await self._lab.call(f"read the logs of {name}", archives.fetch, self._lab.client,
                             self._lab.broker(name), DATA, target, without=OURS, timeout_s=ARCHIVE_S)
        return target

    async def read(self, name: str, file: str) -> str | None:
        return await self._lab.call(f"read {file} of {name}", archives.read, self._lab.client,
                                    self._lab.broker(name), f"{DATA}/{file}")

    async def mend(self) -> list[str]:
        """All disks well again; then a look at how each is mounted."""
        residue = []
        for name in sorted(self._ill):
            try:
                await self.repair(name)
            except FloodmarkError as error:
                residue.append(f"the disk of {name} is still {self._ill[name].kind}: {error}")
        return residue + await self._loops.look()

    # -- BadDisks -----------------------------------------------------------------------------------------

    @property
    def kinds(self) -> frozenset[str]:
        return (ANYWHERE | OWN_DISK if self.own else ANYWHERE) - self._without

    async def harm(self, node: str, kind: str) -> Mapping[str, Any]:
        """lost_records: of a disk cut off from a living broker at most so many, by the broker's account."""
        if node == CONTROLLER:
            raise FloodmarkError("only brokers' disks go bad; the controller's journal is the truth")
        if kind not in self.kinds:
            can = ", ".join(sorted(self.kinds))
            raise FloodmarkError(f"the disk of {node} cannot be {kind} on this engine; it can be {can}")
        await self.repair(node)
        if kind in ANYWHERE:
            return await self._damage(node, kind)
        self._ill[node] = FaultyDisk(kind=kind, since=await self._started(node))
        self._lab.excused[node] = WHY[kind]
        if kind == "full":
            await self._in_helper(node, "fill")
            return {"lost_records": 0}
        return await self._cut_alive(node, kind)

    async def repair(self, node: str) -> None:
        """A broker that met the fault and still runs is killed where its disk must be mounted anew."""
        ill = self._ill.get(node)
        if ill is None:
            return
        if ill.kind == "full":
            await self._in_helper(node, "free")
            await self._heard_of(node)
        elif not self._hosts.lives(node) or await self._started(node) == ill.since:
            await self._end(node)
            if ill.kind == "read-only":
                await self._loops.check(node)
            self._power.start_anew(self._durable(node))
        del self._ill[node]
        if self._lab.excused.get(node) == WHY[ill.kind]:
            del self._lab.excused[node]

    # -- disks cut off ------------------------------------------------------------------------------------

    async def _cut_off(self, name: str) -> Held | None:
        """Stopped, and its disk cut off; what its logs held then. None: it cannot be, or has died before."""
        ill = self._ill.get(name)
        if ill is not None and ill.held is not None and await self._started(name) == ill.since:
            await self.repair(name)  # it was cut off when it fell ill
            return ill.held
        try:
            await self._hosts.pause(name)
            return _held(await self._loops.strike(name, "power", None))
        except FloodmarkError as error:
            if self._hosts.lives(name):
                self._say(f"the disk of {name} cannot be cut off, its power cut is played on files: {error}")
            return None

    async def _lost_since(self, name: str, before: Held) -> Lost:
        """What is found now, on a disk that was cut off."""

        async def unread() -> str | None:
            try:
                await self.log_dir(name)
            except FloodmarkError as error:
                return str(error)
            return None

        await wait_until(unread, f"the disk of {name} to be mounted anew", ENGINE_S)
        after = await asyncio.to_thread(log_extents, self._lab.work.parent / "nodes" / name)
        self._power.start_anew(self._durable(name))
        return replace(records_between(before, after), how="disk")

    async def _cut_alive(self, node: str, kind: str) -> Mapping[str, Any]:
        """Its broker goes on, and will find out. One that does not run meets nothing."""
        hosts, stood = self._hosts, self._hosts.paused(node)
        try:
            if not stood:
                await hosts.pause(node)  # so that nothing is written between counting and cutting
            told = await self._loops.strike(node, STRIKES[kind], self._power.fsynced(self._durable(node)))
        except FloodmarkError:
            if hosts.lives(node):
                raise
            await self.repair(node)
            return {"lost_records": 0}
        finally:
            if not stood and hosts.lives(node):
                await hosts.resume(node)
        self._ill[node] = replace(self._ill[node], held=_held(told))
        return {"lost_records": sum(leo - durable for leo, _, durable in told.values()), "how": "disk"}

    # -- files --------------------------------------------------------------------------------------------

    async def _played(self, name: str, keep: Mapping[str, int] | None) -> Lost:
        """The power cut of files: on a copy, and what became shorter there is cut here."""
        folder = await self.log_dir(name)
        before = _sizes(folder)
        lost = await asyncio.to_thread(self._power.power_cut, self._durable(name), folder, keep=keep)
        changes = edits(before, _sizes(folder), restored=lost.restored)
        if changes:
            await self._in_helper(name, "edit", *changes)
        if lost.restored:
            files = {file: (folder / file).read_bytes() for file in lost.restored}
            await self._lab.call(f"put files back for {name}", archives.put, self._lab.client,
                                 self._lab.broker(name), DATA, files, self._lab.user)
        return replace(lost, how="files")

    async def _damage(self, node: str, kind: str) -> Mapping[str, Any]:
        await self._end(node)
        where = {"corrupt": log_damage.corrupt, "truncated": log_damage.truncated}[kind]
        found = await asyncio.to_thread(where, await self.log_dir(node))
        if found is None:
            return {"lost_records": 0}
        position = str(found.position)
        if found.byte is None:
            await self._in_helper(node, "edit", "size", found.file, position)
        else:
            await self._in_helper(node, "edit", "byte", found.file, position, f"{found.byte:03o}")
        self._power.start_anew(self._durable(node))
        return {"lost_records": found.lost_records, "log": found.partition, "file": found.file,
                "position": found.position}

    # -- inside -------------------------------------------------------------------------------------------

    @property
    def _hosts(self) -> Pods:
        if self._pods is None:
            raise FloodmarkError("the cluster was not started")
        return self._pods

    def _durable(self, name: str) -> Path:
        return self._lab.work / f"{name}.durable"

    async def _end(self, name: str) -> None:
        """Killed, and its disk let go: the engine looks at a container only when it is done with its end."""
        await self._hosts.kill(name)
        await self._started(name)

    async def _heard_of(self, name: str) -> None:
        """If its broker has ended that is known: while it is excused."""

        async def unheard() -> str | None:
            runs = (await self._state(name))["Running"]
            return "the engine has not told of it" if self._hosts.lives(name) and not runs else None

        await wait_until(unheard, f"the end of {name}", ENGINE_S)

    async def _started(self, name: str) -> str:
        """When its broker was started last."""
        return str((await self._state(name))["StartedAt"])

    async def _state(self, name: str) -> Mapping[str, Any]:
        seen: Mapping[str, Any] = await self._lab.call(
            f"look at {name}", self._lab.client.api.inspect_container, self._lab.broker(name))
        state: Mapping[str, Any] = seen["State"]
        return state

    async def _in_helper(self, name: str, do: str, *arguments: str) -> None:
        await self._lab.helper([*_DISKS, do, *arguments],
                               volumes={self._lab.volume(name): MOUNT}, timeout_s=EDIT_S)


def edits(before: Mapping[str, int], after: Mapping[str, int], *, restored: Sequence[str]) -> list[str]:
    """The arguments of `disks.sh edit` that make the files of one listing (name -> bytes) those of the other;
    restored ones are put back as a whole."""
    arguments = []
    for name in sorted(before.keys() - set(restored)):
        if name not in after:
            arguments += ["remove", name]
        elif after[name] != before[name]:
            arguments += ["size", name, str(after[name])]
    return arguments


def _sizes(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): path.stat().st_size
            for path in folder.rglob("*") if path.is_file()}


def _held(told: Mapping[str, tuple[int, int, int]]) -> Held:
    return {log: (leo, size) for log, (leo, size, _) in told.items()}
