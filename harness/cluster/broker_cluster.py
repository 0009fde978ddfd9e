"""A cluster of a system (what runs) and a place (where it runs): the protocols of both, and what drives them.

The reference broker (reference/) and Apache Kafka (kafka/) are systems, LocalPlace (local/), ContainersPlace
(containers/) and SimulatedPlace (simulated/) places.

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
5. `died` lists only processes that ended by themselves: not at an armed failpoint, not before all processes
   were up once, and not because of the machine (then it is in `broken`, as a failure of the harness).
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any, Protocol

from floodmark.harness import runtime
from floodmark.harness.cluster.layout import LINKS, Layout
from floodmark.harness.cluster.log_extents import Lost, PowerLoss
from floodmark.harness.cluster.processes import KILL_S, Death, machine_failure
from floodmark.harness.errors import FloodmarkError, WrongDisk
from floodmark.harness.event_loop import gather_all, wait_until
from floodmark.harness.protocols import BadDisks, Clocks, MemoryLimits, Packets, PartitionSpec
from floodmark.harness.schedule.views import CONTROLLER, UNKNOWN, FailpointHit, View

START_S = 180.0  # for all processes to be up and unfenced; a busy machine starts slowly
NODE_START_S = 90.0
STOP_S = 90.0
CREATE_S = 90.0
AT_ONCE_S = 5.0  # a process that ends sooner after its start ended at once
PYTHON = "python"  # a command's program by its name: each place knows its path


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
    def faulted_exits(self) -> Sequence[FailpointHit]: ...  # ends caused by a fault in force; not in deaths
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaSoftware:
    """What a system's processes need; in an image at other paths, as `mounted` in the Layout says."""

    version: str
    java: Path
    jars: tuple[Path, ...]  # absolute paths in one folder, in an order that does not change
    needs_java: int = 0  # or newer; 0: not determined
    image: str | None = None  # a named image that has them; None: one is built from the jars


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
    def crashes(self) -> Sequence[FailpointHit]: ...  # the expected ends so far
    async def release_holds(self, names: Sequence[str]) -> list[str]: ...  # what is left
    async def close(self) -> None: ...  # when all processes have ended; safe twice, and without attach


class BrokerCluster:
    """A cluster of processes. See harness.protocols: Cluster, Addressed, Kills, Pauses, PowerCuts, Wipes and
    ExplainsDeaths. Further abilities are those of its system (`runs`) and of its place."""

    def __init__(self, system: System, place: Place) -> None:
        self.name = place.name
        self.runs, self.place = system, place
        self.nodes = system.nodes
        self.config = system.config
        self.system = system.about
        self.not_shown = system.not_shown | (frozenset() if place.read is None else system.read_from_files)
        self.abilities = (system, place, *place.can)
        self.lacks = {**place.cannot, **system.lacks}
        self._crashes: list[FailpointHit] = []
        self._was_up = False
        self._spawned_s: dict[str, float] = {}  # monotonic, of the last start
        self._wrong_disks: dict[str, str] = {}  # node -> why it cannot join
        self._waiting: set[str] = set()  # nodes that start when the controller is back

    @property
    def partitions(self) -> tuple[PartitionSpec, ...]:
        return self.runs.partitions

    async def start(self) -> None:
        """Starts all processes at once; returns when every broker is registered and unfenced."""
        async def not_up() -> str | None:
            for name in self.place.layout.names:
                self._alive_or_raise(name)
            return healthy(await self.observe(), (), self.nodes)

        try:
            await self.place.open()
            self.runs.attach(self.place)
            await self.place.begin()
            await asyncio.gather(*map(self._spawn, self.place.layout.names))
            await wait_until(not_up, "all brokers to be registered and unfenced", START_S)
            self._was_up = True
        except BaseException as error:
            with contextlib.suppress(FloodmarkError):  # the first error is reported
                await self.stop()
            if isinstance(error, OSError):
                raise FloodmarkError(f"the cluster did not start: {error}") from error
            raise

    async def create(self, partitions: Sequence[PartitionSpec]) -> None:
        """Creates the topics; returns when each partition has a leader and a full ISR."""
        await self.runs.create_topics(partitions)
        self.runs.partitions += tuple(partitions)
        concerned = sorted({node for spec in partitions for node in spec.replicas})

        async def unready() -> str | None:
            return healthy(await self.observe(), partitions, concerned)

        await wait_until(unready, "the new partitions to have a leader and a full ISR", CREATE_S)

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        return {node: self.place.layout.of(node).advertised for node in self.nodes}

    async def observe(self) -> View:
        return await self.runs.look()

    async def mend(self) -> list[str]:
        """Releases failpoints, heals, resumes and starts everything."""
        place, names = self.place, self.place.layout.names
        if not self.place.layout.places or self.runs.frozen:
            return []
        residue = await self.runs.release_holds(names)
        residue += await place.mend()
        paused = [name for name in names if place.paused(name) or await place.is_stopped(name)]
        for name in paused:
            await place.resume(name)
        residue += await self.runs.release_holds(paused)
        self._waiting.clear()
        for together in ((CONTROLLER,), self.nodes) if self.runs.starts_by_controller else (names,):
            dead = [name for name in together if not place.lives(name)]
            started = await asyncio.gather(*map(self._start, dead), return_exceptions=True)
            for name, outcome in zip(dead, started, strict=True):
                if isinstance(outcome, WrongDisk):
                    self._wrong_disks[name] = str(outcome)
                if isinstance(outcome, FloodmarkError):
                    residue.append(f"{name} does not run: {outcome}")
                elif outcome is not None:
                    raise outcome
        return residue + [f"{name} is still stopped" for name in names if await place.is_stopped(name)]

    async def stop(self) -> None:
        try:
            await self.place.close()
        finally:
            await self.runs.close()

    def died(self) -> list[str]:
        return list(self.died_words())

    def died_words(self) -> Mapping[str, str]:
        """How each of them ended first."""
        words: dict[str, str] = {}
        for death in self._deaths():
            words.setdefault(death.name, death.words)
        return words

    def died_at(self) -> Mapping[str, Sequence[int]]:
        deaths = self._deaths()
        return {node: [death.time_ns for death in deaths if death.name == node] for node in self.died()}

    def _deaths(self) -> list[Death]:
        """A node that was up once and ends when it is started again has died too."""
        return [death for death in self.place.deaths if self._was_up
                and death.name in self.place.layout.names and machine_failure(death.words) is None]

    def broken(self) -> list[str]:
        """Other failures of processes, which are not the brokers' bugs."""
        failures = [] if self.place.lost is None else [self.place.lost]
        failures += self._wrong_disks.values()
        for name, words, _ in self.place.deaths:
            lacked = machine_failure(words)
            if name == LINKS:
                failures.append(f"the links process ended by itself: {words.splitlines()[-1]}")
            elif lacked is not None and self._was_up:
                failures.append(f"{name} ended: {lacked} (this machine's fault, not the broker's)")
        return failures

    async def kill(self, node: str) -> None:
        self.place.layout.of(node)
        self._waiting.discard(node)
        await self.place.kill(node)

    async def start_node(self, node: str) -> None:
        """A broker that can start only while the controller answers starts when the controller is back."""
        self.place.layout.of(node)
        if self.runs.starts_by_controller and node != CONTROLLER and (
                not self.place.lives(CONTROLLER) or self.place.paused(CONTROLLER)):
            self._waiting.add(node)
            return
        await self._start(node)
        await self._start_waiting(node)

    async def stop_node(self, node: str) -> None:
        self.place.layout.of(node)
        if self.place.paused(node):
            raise FloodmarkError(f"{node} is paused and cannot be stopped: resume it, or kill it")
        self._waiting.discard(node)
        await self.place.kill(node, signal.SIGTERM, timeout_s=STOP_S)

    async def pause(self, node: str) -> None:
        self.place.layout.of(node)
        if node not in self._waiting:
            await self.place.pause(node)

    async def resume(self, node: str) -> None:
        self.place.layout.of(node)
        await self.place.resume(node)
        await self._start_waiting(node)

    async def power_cut(self, node: str, *, keep: Mapping[int, int] | None = None) -> Mapping[str, Any]:
        """Kills the node and drops what was not fsynced, as far as its place knows."""
        if self.place.layout.of(node).durable is None:
            raise FloodmarkError("only brokers can have a power cut: the controller fsyncs all it writes")
        by_name = {f"{spec.topic}-{spec.partition}": spec.key for spec in self.partitions}
        self._waiting.discard(node)
        wanted = {name: keep[key] for name, key in by_name.items() if keep is not None and key in keep}
        lost = await self.place.power_cut(node, wanted or None)
        return {
            "keep": {by_name[name]: leo for name, leo in sorted(lost.kept.items()) if name in by_name},
            "lost_records": lost.lost_records,
            **({} if lost.how is None else {"how": lost.how})}

    async def wipe(self, node: str) -> Mapping[str, Any]:
        """Kills the node and empties its log directory; what was fsynced is lost too."""
        if self.place.layout.of(node).durable is None:
            raise FloodmarkError("only brokers' disks can be wiped, not the controller's")
        self._waiting.discard(node)
        await self.place.kill(node)
        return {"lost_records": (await self.place.wipe(node)).lost_records}

    def crashes(self) -> Sequence[FailpointHit]:
        """By armed failpoints, and by faults in force (action None, the name is the reason), in order."""
        new = [one for one in (*self.runs.crashes(), *self.place.faulted_exits) if one not in self._crashes]
        self._crashes += sorted(new, key=lambda one: one.time_ns)
        return tuple(self._crashes)

    async def _start(self, name: str) -> None:
        if not self.place.lives(name):
            await self._spawn(name)
            await self._wait_until_up(name)

    async def _start_waiting(self, back: str) -> None:
        """Starts what had to wait for the controller, if that is the node that is back."""
        if back == CONTROLLER:
            nodes, self._waiting = sorted(self._waiting), set()
            await gather_all(map(self._start, nodes))

    async def _spawn(self, name: str) -> None:
        await self.runs.starting(name)
        self._spawned_s[name] = runtime.monotonic_s()
        await self.place.spawn(name)

    async def _wait_until_up(self, name: str) -> None:
        """Waits until a process is up, or has ended at a failpoint that it was armed with."""

        async def silent() -> str | None:
            lived = self.place.lives(name)  # before asking: it may end meanwhile at an armed failpoint
            if await self.runs.is_up(name):
                return None
            if not lived:
                self._alive_or_raise(name)
            return f"{name} does not answer"

        try:
            await wait_until(silent, f"{name} to start", NODE_START_S)
        finally:
            self.runs.started(name)

    def _alive_or_raise(self, name: str) -> None:
        if not self.place.lives(name):
            lived_s = runtime.monotonic_s() - self._spawned_s[name]  # at the most
            ended = "at once" if lived_s < AT_ONCE_S else f"{lived_s:.0f} s after its start"
            raise FloodmarkError(f"{name} ended {ended}: {self.place.last_words(name)}")


def only_in_containers(place: str) -> dict[type, str]:
    """Why another place does not have the abilities of containers."""
    lacks: Mapping[type, str] = {
        BadDisks: "disks that could fail or be damaged", Clocks: "wall clocks that could be set",
        MemoryLimits: "processes whose memory could be limited",
        Packets: "packets that could be lost or late"}
    return {kind: f"the {place} cluster has no {what}: use --cluster containers"
            for kind, what in lacks.items()}


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
