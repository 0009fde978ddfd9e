"""The protocols of what a cluster is made of: System (what runs) and Place (where it runs).

The reference broker (reference/) and Apache Kafka (kafka/) are systems, LocalPlace (local/), ContainersPlace
(containers/) and SimulatedPlace (simulated/) places; broker_cluster.py makes a cluster of both.

Rules
1. Every call of a place returns when its effect is complete: a killed process is gone, a paused one is
   stopped by the kernel, and no byte passes a cut link. All waits have time-outs and raise FloodmarkError.
2. A process's end is requested (kill), or expected (System.expects_exit), or it died by itself;
   `deaths` lists the last. If the parent of all processes ends (a supervisor, an engine), `lost` says so, and
   none of them is in `deaths`.
3. The abilities of harness.protocols that a place has are found on it, or on one of the objects in `can`;
   `cannot` has those that it does not have, with the reason. Those of a system are its own.
4. A system belongs to one cluster. What it is, and what it can do, is known before the cluster starts.
   `attach` is called once, after the place is open and before any process starts; before that nothing can be
   asked. Names are the history's; ids are the system's own.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any, NamedTuple, Protocol

from floodmark.harness import runtime
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.log_extents import Lost, base_offset, log_extents, segments_of
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import BadDisks, Clocks, MemoryLimits, Packets, PartitionSpec
from floodmark.harness.schedule.views import UNKNOWN, Met, View

KILL_S = 60.0  # from a kill to the report of the end: a busy engine once took 3 s
PYTHON = "python"  # a command's program by its name: each place knows its path


def only_in_containers(place: str) -> dict[type, str]:
    """Why another place does not have the abilities of containers."""
    lacks: Mapping[type, str] = {
        BadDisks: "disks that could fail or be damaged", Clocks: "wall clocks that could be set",
        MemoryLimits: "processes whose memory could be limited",
        Packets: "packets that could be lost or late"}
    return {kind: f"the {place} cluster has no {what}: use --cluster containers"
            for kind, what in lacks.items()}


class Death(NamedTuple):
    """The end of a process that was not requested and that nothing explains."""

    name: str
    words: str  # how it ended and the end of its log, in lines
    time_ns: int  # monotonic

    @classmethod
    def now(cls, name: str, words: str) -> "Death":
        return cls(name=name, words=words, time_ns=runtime.current.monotonic_ns())


class Place(Protocol):
    """Where the processes of one system run: brokers and the controller, by name."""

    @property
    def name(self) -> str: ...
    @property
    def layout(self) -> Layout: ...  # NOT_STARTED before open()
    @property
    def can(self) -> Sequence[object]: ...
    @property
    def cannot(self) -> Mapping[type, str]: ...

    async def open(self) -> None: ...  # chooses addresses and files
    async def begin(self) -> None: ...  # makes what processes need; the system is attached already
    async def mend(self) -> list[str]: ...  # heals links, repairs disks; returns what is left
    async def close(self) -> None: ...  # kills and removes everything; safe twice, and without begin()

    # -- processes
    @property
    def deaths(self) -> Sequence[Death]: ...  # in order; a name may be in it twice
    @property
    def faulted_exits(self) -> Sequence[Met]: ...  # ends caused by a fault in force; not in deaths
    @property
    def lost(self) -> str | None: ...  # why all processes count as dead; None: they do not
    async def spawn(self, name: str) -> None: ...  # FloodmarkError if it runs already
    async def kill(self, name: str, by: Signals = SIGKILL, *, timeout_s: float = KILL_S) -> None: ...
    # by SIGTERM it is stopped in an orderly way; does nothing if it does not run
    async def pause(self, node: str) -> None: ...  # FloodmarkError if it does not run
    async def resume(self, node: str) -> None: ...  # does nothing if it does not run
    def lives(self, name: str) -> bool: ...  # true for a paused one too
    def paused(self, name: str) -> bool: ...
    async def is_stopped(self, name: str) -> bool: ...  # by the kernel's state, not our own record
    def last_words(self, name: str) -> str: ...  # the end of its log, for a message

    # -- links; see harness.protocols: Cuts
    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None: ...
    async def heal(self) -> None: ...

    # -- brokers' disks; wipe needs a dead broker, power_cut kills it
    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost: ...  # see PowerLoss
    async def wipe(self, name: str) -> Lost: ...
    async def log_dir(self, node: str) -> Path: ...  # the directory, or a copy of its present state
    @property
    def read(self) -> Callable[[str, str], Awaitable[str | None]] | None: ...
    # reads a broker's file by its name in the log directory; None: Layout's directories are the brokers' own


class PowerLoss(Protocol):
    """On the files of a dead broker: by its side file of what is durable, or by cutting its logs."""

    def power_cut(
        self, durable_file: Path, log_dir: Path, *, keep: Mapping[str, int] | None = None) -> Lost: ...
    def mark_all_durable(  # everything is durable now; ends: where the logs end, if that was measured
        self, durable_file: Path, ends: Mapping[str, int] = ...) -> None: ...
    def fsynced(self, durable_file: Path) -> Mapping[str, int] | None: ...  # file -> bytes; None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaSoftware:
    """What a system's processes need; in an image at other paths, as `mounted` in the Layout says."""

    version: str
    java: Path
    jars: tuple[Path, ...]  # absolute paths in one folder, in an order that does not change
    needs_java: int = 0  # or newer; 0: not determined
    image: str | None = None  # a named image that has them; None: one is built from the jars


def wipe(power: PowerLoss, durable_file: Path, log_dir: Path) -> Lost:
    """Empties the log directory of a dead broker, as if it were on a new disk."""
    records = {name: leo - base_offset(segments_of(log_dir / name)[0])
               for name, (leo, _) in log_extents(log_dir).items()}
    for path in sorted(log_dir.iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    power.mark_all_durable(durable_file)
    return Lost(kept={}, records={name: count for name, count in records.items() if count})


class System(Protocol):
    """What runs in one cluster: its settings and commands, and how to observe it."""

    partitions: tuple[PartitionSpec, ...]  # those with a key in the history, so far

    about: Mapping[str, Any]  # run.json's `system`: {"name": ..., its version or rules}
    nodes: tuple[str, ...]
    ids: Mapping[str, int]  # of each node and of CONTROLLER
    dials_by_name: bool  # its processes connect to each other's advertised addresses
    config: Mapping[str, Mapping[str, Any]]  # run.json's `config`
    lacks: Mapping[type, str]  # abilities that it cannot have in any place, and why
    not_shown: frozenset[str]  # fields of ReplicaView that are always UNKNOWN
    read_from_files: frozenset[str]  # UNKNOWN too, if files are out of reach
    software: JavaSoftware | None  # None: the reference broker's own
    module: str | None  # its processes are `python -m` this: a place may import it only once
    power: PowerLoss
    starts_by_controller: bool  # a broker can start only while the controller answers
    frozen: bool  # all its processes are stopped for good: nothing is mended any more

    def attach(self, place: Place) -> None: ...  # writes all settings
    def command(self, name: str) -> Sequence[str]: ...  # a program's name (place.PYTHON), then its arguments
    async def create_topics(self, partitions: Sequence[PartitionSpec]) -> None: ...
    async def look(self) -> View: ...

    # -- a process's life
    async def starting(self, name: str) -> None: ...  # its process is about to start
    async def is_up(self, name: str) -> bool: ...  # it answers, or ended at an armed failpoint
    def started(self, name: str) -> None: ...  # it has read its settings, or ended
    def expects_exit(self, name: str, code: int) -> bool: ...  # whether an armed failpoint explains this end
    def crashes(self) -> Sequence[Met]: ...  # the expected ends so far
    async def release_holds(self, names: Sequence[str]) -> list[str]: ...  # what is left
    async def close(self) -> None: ...  # when all processes have ended; safe twice, and without attach


POLL_S = 0.02


async def wait_until(unmet: Callable[[], Awaitable[str | None]], awaited: str, timeout_s: float) -> None:
    """Polls until `unmet` returns None; FloodmarkError with its last reason at the time-out."""
    deadline = runtime.monotonic_s() + timeout_s
    while (why := await unmet()) is not None:
        if runtime.monotonic_s() > deadline:
            raise FloodmarkError(f"waited {timeout_s:g} s for {awaited}: {why}")
        await asyncio.sleep(POLL_S)


def healthy(look: View, partitions: Sequence[PartitionSpec], nodes: Sequence[str]) -> str | None:
    """None, or the first reason why a cluster is not ready: a fenced node, a partition without a leader, an
    ISR that is not full, or a leader that does not know."""
    for node in nodes:
        if node not in look.unfenced:
            return f"{node} is fenced or not registered"
    for spec in partitions:
        truth = look.partitions.get(spec.key)
        where = f"{spec.topic}-{spec.partition}"
        if truth is None:
            return f"the controller does not know {where}"
        if truth.leader is None:
            return f"{where} has no leader"
        if set(truth.isr) != set(spec.replicas):
            return f"the ISR of {where} is {', '.join(truth.isr)}"
        own = look.replicas.get((truth.leader, spec.key))
        if own is None or own.leader not in (truth.leader, UNKNOWN) or own.epoch not in (
                truth.epoch, UNKNOWN):
            return f"{truth.leader} does not yet know that it leads {where}"
        if own.isr is not UNKNOWN and set(own.isr) != set(spec.replicas):
            return f"{truth.leader} does not yet know the full ISR of {where}"
    return None
