"""Drives a cluster: a system (what runs: system.py) in a house (where it runs: hosts.py).

Rules
1. Every call returns when its effect is complete: a killed process is gone, a paused one is stopped by the
   kernel, and no byte passes a cut link.
2. `died` lists only processes that ended by themselves: not at an armed failpoint, not before all processes
   were up once, and not because of the machine (then it is in `broken`, as a failure of the harness).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from floodmark.harness import runtime
from floodmark.harness.cluster import readiness
from floodmark.harness.cluster.exit_reports import machine_failure
from floodmark.harness.cluster.hosts import Death, House
from floodmark.harness.cluster.layout import LINKS, Layout
from floodmark.harness.cluster.system import System
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError, UsageError, WrongDisk
from floodmark.harness.protocols import CLIENTS, Met, PartitionSpec, View

START_S = 180.0  # for all processes to be up and unfenced; a busy machine starts slowly
NODE_START_S = 90.0
STOP_S = 90.0
CREATE_S = 90.0
AT_ONCE_S = 5.0  # a process that ends sooner after its start ended at once

Build = Callable[[], Awaitable[House]]  # makes the house; called once, by start()


class BrokerCluster:
    """A cluster of processes. See harness.protocols: Cluster, Addressed, ReadsLogs, Kills, Pauses, Cuts,
    PowerCuts, Wipes and ExplainsDeaths. Further abilities are those of its system (`runs`) and its house."""

    def __init__(self, name: str, system: System, build: Build, *, house_abilities: Sequence[object] = (),
                 lacks: Mapping[type, str] | None = None, files_at_hand: bool = True) -> None:
        """lacks: abilities that the house does not have, with the reason; those that the system lacks are
        added. files_at_hand: the harness can read the brokers' files at any time."""
        self.name = name
        self.runs = system
        self.nodes = system.nodes
        self.config = system.config
        self.system = system.about
        self.not_shown = system.not_shown | (frozenset() if files_at_hand else system.read_from_files)
        self.abilities = (system, *house_abilities)
        self.lacks = {**(lacks or {}), **system.lacks}
        self._build = build
        self._house: House | None = None
        self._crashes: list[Met] = []
        self._was_up = False
        self._spawned_s: dict[str, float] = {}  # monotonic, of the last start
        self._wrong_disks: dict[str, str] = {}  # node -> why it cannot join

    @property
    def partitions(self) -> tuple[PartitionSpec, ...]:
        return self.runs.partitions

    # -- Cluster ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts all processes at once; returns when every broker is registered and unfenced."""
        try:
            self._house = await self._build()
            layout, hosts = self._house.layout, self._house.hosts
            self.runs.attach(layout, hosts, self._house.disks)
            hosts.expects_exit, hosts.command = self.runs.expects_exit, self.runs.command
            await hosts.begin()
            await asyncio.gather(*(self._spawn(name) for name in layout.names))
            await wait_until(self._not_up, "all brokers to be registered and unfenced", START_S)
            self._was_up = True
        except OSError as error:
            await self.stop()
            raise FloodmarkError(f"the cluster did not start: {error}") from error
        except BaseException:
            await self.stop()
            raise

    async def create(self, partitions: Sequence[PartitionSpec]) -> None:
        """Creates the topics with exactly this assignment; returns when each partition has a leader and a
        full ISR."""
        await self.runs.create_topics(partitions)
        self.runs.number(partitions)
        concerned = sorted({node for spec in partitions for node in spec.replicas})

        async def unready() -> str | None:
            return readiness.healthy(await self.observe(), partitions, concerned)

        await wait_until(unready, "the new partitions to have a leader and a full ISR", CREATE_S)

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        return {node: self._at.places[node].advertised for node in self.nodes}

    async def observe(self) -> View:
        return await self.runs.look()

    async def mend(self) -> list[str]:
        """Releases failpoints, heals, resumes and starts everything; returns a sentence for each fault that
        is left."""
        if self._house is None or self.runs.frozen:
            return []
        house = self._house
        residue = await self.runs.release_holds(self._at.names)
        residue += await house.network.mend()
        residue += await house.disks.mend()
        paused = [name for name in self._at.names
                 if house.hosts.paused(name) or await house.hosts.is_stopped(name)]
        for name in paused:
            await self.resume(name)
        residue += await self.runs.release_holds(paused)
        dead = [name for name in self._at.names if not house.hosts.lives(name)]
        started = await asyncio.gather(*(self.start_node(name) for name in dead), return_exceptions=True)
        for name, outcome in zip(dead, started, strict=True):
            if isinstance(outcome, WrongDisk):
                self._wrong_disks[name] = str(outcome)
            if isinstance(outcome, FloodmarkError):
                residue.append(f"{name} does not run: {outcome}")
            elif outcome is not None:
                raise outcome
        residue += [
            f"{name} is still stopped" for name in self._at.names if await house.hosts.is_stopped(name)
        ]
        return residue

    async def stop(self) -> None:
        """Kills and removes everything. Safe to call twice, and after a failed start."""
        if self._house is not None:
            await self._house.hosts.end()
            await self._house.network.close()
            await self.runs.close()
            self._house.close()

    def died(self) -> list[str]:
        """The nodes that died, in order, each once."""
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
        if self._house is None or not self._was_up:
            return []
        return [death for death in self._house.hosts.deaths
                if death.name in self._house.layout.names and machine_failure(death.words) is None]

    def broken(self) -> list[str]:
        """Sentences about other failures of processes, which are not the brokers' bugs."""
        if self._house is None:
            return []
        failures = [] if self._house.hosts.lost is None else [self._house.hosts.lost]
        failures += self._wrong_disks.values()
        for name, words, _ in self._house.hosts.deaths:
            lacked = machine_failure(words)
            if name == LINKS:
                failures.append(f"the links process ended by itself: {words.splitlines()[-1]}")
            elif lacked is not None and self._was_up:
                failures.append(f"{name} ended: {lacked} (this machine's fault, not the broker's)")
        return failures

    def last_words(self, name: str) -> str:
        return "it never ran" if self._house is None else self._house.hosts.last_words(name)

    async def log_dir(self, node: str) -> Path:
        self._at.known(node)
        return await self._in.disks.log_dir(node)

    # -- faults -------------------------------------------------------------------------------------------

    async def kill(self, node: str) -> None:
        """Sends SIGKILL; returns when the process is gone. Does nothing if it does not run."""
        self._at.known(node)
        await self._in.hosts.kill(node)
        await self.runs.hang_up(node)

    async def start_node(self, node: str) -> None:
        """Starts the node; returns when it is up. Does nothing if it runs."""
        self._at.known(node)
        if not self._in.hosts.lives(node):
            await self._spawn(node)
            await self._wait_until_up(node)

    async def stop_node(self, node: str) -> None:
        """Stops the node in an orderly way, by SIGTERM."""
        self._at.known(node)
        if self._in.hosts.paused(node):
            raise FloodmarkError(f"{node} is paused and cannot be stopped: resume it, or kill it")
        await self._in.hosts.terminate(node, timeout_s=STOP_S)
        await self.runs.hang_up(node)

    async def pause(self, node: str) -> None:
        self._at.known(node)
        await self._in.hosts.pause(node)

    async def resume(self, node: str) -> None:
        """Resumes the node. Does nothing if it does not run or is not paused."""
        self._at.known(node)
        if self._in.hosts.lives(node):
            await self._in.hosts.resume(node)

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None:
        """Cuts links, in addition to those cut already. grudge: node -> the nodes it receives nothing
        from."""
        if self._in.network.why_not is not None:
            raise UsageError(self._in.network.why_not)
        for name in {*grudge, *(name for unheard in grudge.values() for name in unheard)} - {CLIENTS}:
            self._at.known(name)
        await self._in.network.cut(grudge, reset=reset)

    async def heal(self) -> None:
        await self._in.network.heal()

    async def power_cut(self, node: str, *, keep: Mapping[int, int] | None = None) -> Mapping[str, Any]:
        """Kills the node and drops what was not fsynced, as far as the house knows."""
        self._at.known(node)
        if self._at.places[node].durable is None:
            raise FloodmarkError("only brokers can have a power cut: the controller fsyncs all it writes")
        by_name = {f"{spec.topic}-{spec.partition}": spec.key for spec in self.partitions}
        wanted = {name: keep[key] for name, key in by_name.items() if keep is not None and key in keep}
        lost = await self._in.disks.power_cut(node, wanted or None)
        await self.runs.hang_up(node)
        return {
            "keep": {by_name[name]: leo for name, leo in sorted(lost.kept.items()) if name in by_name},
            "lost_records": lost.lost_records,
            **({} if lost.how is None else {"how": lost.how}),
        }

    async def wipe(self, node: str) -> Mapping[str, Any]:
        """Kills the node and empties its log directory; what was fsynced is lost too."""
        self._at.known(node)
        if self._at.places[node].durable is None:
            raise FloodmarkError("only brokers' disks can be wiped, not the controller's")
        await self.kill(node)
        lost = await self._in.disks.wipe(node)
        return {"lost_records": lost.lost_records}

    def crashes(self) -> Sequence[Met]:
        """Ends by armed failpoints, and by faults in force (action None, the name is the reason), in
        order."""
        if self._house is not None:
            faulted_exits = (Met(node=one.name, name=one.why, action=None, time_ns=one.time_ns)
                      for one in self._house.hosts.faulted_exits)
            new = [one for one in (*self.runs.crashes(), *faulted_exits) if one not in self._crashes]
            self._crashes += sorted(new, key=lambda one: one.time_ns)
        return tuple(self._crashes)

    # -- inside -------------------------------------------------------------------------------------------

    @property
    def _in(self) -> House:
        if self._house is None:
            raise FloodmarkError("the cluster was not started")
        return self._house

    @property
    def _at(self) -> Layout:
        return self._in.layout

    async def _spawn(self, name: str) -> None:
        await self.runs.starting(name)
        self._spawned_s[name] = runtime.monotonic_s()
        await self._in.hosts.spawn(name)

    async def _not_up(self) -> str | None:
        for name in self._at.names:
            self._alive_or_raise(name)
        return readiness.healthy(await self.observe(), (), self.nodes)

    async def _wait_until_up(self, name: str) -> None:
        """Waits until a process is up, or has ended at a failpoint that it was armed with."""

        async def silent() -> str | None:
            lived = self._in.hosts.lives(name)  # before asking: it may end meanwhile at an armed failpoint
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
        if not self._in.hosts.lives(name):
            raise FloodmarkError(f"{name} ended {self._ended(name)}: {self._in.hosts.last_words(name)}")

    def _ended(self, name: str) -> str:
        """How long after its start a process ended, at the latest."""
        lived_s = runtime.monotonic_s() - self._spawned_s[name]
        return "at once" if lived_s < AT_ONCE_S else f"{lived_s:.0f} s after its start"
