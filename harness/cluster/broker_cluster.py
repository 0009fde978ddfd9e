"""Drives a cluster of docker/broker's processes; the same code wherever they live.

Rules
1. What is returned from is so: killed means gone, paused means stopped by the kernel, cut means no byte
   passes any more, expired means fenced.
2. The controller gives the truth; a broker that is dead, paused or silent has no replicas in a View.
3. Who ends at a point where it was armed to crash has not died by itself (points.py). Nor has anybody before
   the whole cluster was up once, or whom the machine failed: that is the harness's trouble.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from floodmark.harness.cluster import admin_requests, elections, views
from floodmark.harness.cluster.broker_properties import broker_settings, typed_config
from floodmark.harness.cluster.control_sockets import ControlSockets
from floodmark.harness.cluster.exit_reports import machine_failure
from floodmark.harness.cluster.failpoint_control import FailpointControl
from floodmark.harness.cluster.hosts import House
from floodmark.harness.cluster.layout import LINKS, Layout, node_names
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import CLIENTS, CONTROLLER, Met, PartitionSpec, View
from floodmark.harness.schedule.failpoints import POINTS
from floodmark.harness.trace import Raw

START_S = 60.0  # for all processes to be up and unfenced: long, a busy machine starts slowly
NODE_START_S = 30.0
STOP_S = 20.0
LOOK_S = 1.0  # for one control socket to say its state
FREEZE_S = 5.0
CREATE_S = 30.0
ASK_S = 10.0

Build = Callable[[], Awaitable[House]]  # lays out a house; called once, by start()


class BrokerCluster:
    """See harness.protocols: Cluster, Addressed, Adopts, Freezes, ReadsLogs, Kills, Pauses, Cuts, PowerCuts,
    Expires, Elects, ElectsReplica, Wipes, Failpoints, Traces. abilities: what the house can do besides; known
    before it is built."""

    def __init__(
        self,
        name: str,
        nodes: int,
        build: Build,
        *,
        rules: str,
        bugs: Sequence[str],
        config: Mapping[str, str],
        abilities: Sequence[object] = (),
    ) -> None:
        if nodes < 1:
            raise UsageError("a cluster has at least one node")
        self.name = name
        self.nodes = node_names(nodes)
        self.abilities = tuple(abilities)
        self.system = {"name": "reference", "rules": rules}
        self.lacks: Mapping[type, str] = {}
        self.not_shown = frozenset[str]()
        self.points = frozenset(POINTS)
        self.partitions: tuple[PartitionSpec, ...] = ()
        self.config = {
            node: typed_config(broker_settings(config, nodes=nodes), rules=rules,
                               bugs=bugs) for node in self.nodes
        }
        self._build = build
        self._rules = rules
        self._bugs = tuple(bugs)
        self._settings = broker_settings(config, nodes=nodes)
        self._house: House | None = None
        self._sockets: ControlSockets | None = None
        self._points: FailpointControl | None = None
        self._crashes: list[Met] = []
        self._frozen = False
        self._was_up = False

    # -- Cluster ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """All processes at once; back when every broker is registered and unfenced."""
        try:
            self._house = await self._build()
            layout, hosts = self._house.layout, self._house.hosts
            layout.write(self._settings, rules=self._rules, bugs=self._bugs)
            self._sockets = ControlSockets(layout, hosts)
            self._points = FailpointControl(layout, self._sockets)
            hosts.foreseen = self._points.foreseen
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
        """Create their topics, exactly so assigned; back when each is led and its ISR full."""
        topics: dict[str, list[list[int]]] = {}
        for spec in sorted(partitions, key=lambda one: (one.topic, one.partition)):
            assignment = topics.setdefault(spec.topic, [])
            if spec.partition != len(assignment):
                raise FloodmarkError(f"topic {spec.topic!r} lacks partition {len(assignment)}")
            assignment.append([self._at.places[node].node_id for node in spec.replicas])
        broker = next((node for node in self.nodes if self._asking.answers(node)), None)
        if broker is None:
            raise FloodmarkError("no broker runs that could be asked to create a topic")
        await admin_requests.create_topics(self._at.places[broker].reached, topics, timeout_s=ASK_S)
        self._number(partitions)
        concerned = sorted({node for spec in partitions for node in spec.replicas})

        async def unready() -> str | None:
            return views.healthy(await self.observe(), partitions, concerned)

        await wait_until(unready, "the new partitions to be led with their ISR full", CREATE_S)

    async def adopt(self) -> None:
        """Number the partitions that applications made, so that looks and faults know them too."""
        state = await self._asking.ask_or_none(CONTROLLER, "state", LOOK_S)
        if state is None:
            return  # nobody knows of any now
        known = {(spec.topic, spec.partition) for spec in self.partitions}
        new = sorted(
            (one["topic"], one["partition"], one["replicas"])
            for one in state["partitions"]
            if (one["topic"], one["partition"]) not in known
        )
        names = views.Names(self.nodes, ())
        self._number([
            PartitionSpec(key=key, topic=topic, partition=partition, replicas=names.nodes(replicas))
            for key, (topic, partition, replicas) in enumerate(new, start=len(self.partitions))
        ])

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        return {node: self._at.places[node].advertised for node in self.nodes}

    async def observe(self) -> View:
        """One look at all control sockets at once."""
        states = await self._asking.ask_all("state", self._at.names, LOOK_S)
        return self._view(states)

    async def freeze(self) -> View:
        """The controller first, so that nobody is elected meanwhile. A broker that is silent is killed."""
        self._frozen = True
        states = await self._asking.ask_all("freeze", [CONTROLLER], FREEZE_S)
        states |= await self._asking.ask_all("freeze", self.nodes, FREEZE_S)
        await asyncio.gather(*(self.kill(name) for name in self._at.names if name not in states))
        return self._view(states)

    async def mend(self) -> list[str]:
        """Release, heal, resume, start all; then look what is left, in the house's own words."""
        if self._house is None or self._frozen:
            return []
        house = self._house
        residue = await self._armed.release_all(self._at.names)
        residue += await house.network.mend()
        residue += await house.disks.mend()
        stood = [name for name in self._at.names
                 if house.hosts.paused(name) or await house.hosts.stands_still(name)]
        for name in stood:
            await self.resume(name)
        residue += await self._armed.release_all(stood)
        dead = [name for name in self._at.names if not house.hosts.lives(name)]
        started = await asyncio.gather(*(self.start_node(name) for name in dead), return_exceptions=True)
        for name, outcome in zip(dead, started, strict=True):
            if isinstance(outcome, FloodmarkError):
                residue.append(f"{name} does not run: {outcome}")
            elif outcome is not None:
                raise outcome
        residue += [
            f"{name} is still stopped" for name in self._at.names if await house.hosts.stands_still(name)
        ]
        return residue

    async def stop(self) -> None:
        """Kill everything, leave nothing. Safe twice, and after a start that failed."""
        if self._sockets is not None:
            await self._sockets.close()
        if self._house is not None:
            await self._house.hosts.end()
            await self._house.network.close()
        if self._points is not None:
            self._points.close()
        if self._house is not None:
            self._house.close()

    def died(self) -> list[str]:
        """In the order it happened, each once."""
        return list(self.died_words())

    def died_words(self) -> Mapping[str, str]:
        """A node that was up once and ends when it is started again has died too."""
        if self._house is None or not self._was_up:
            return {}
        return {name: words for name, words in self._house.hosts.died_words.items()
                if name in self._house.layout.names and machine_failure(words) is None}

    def broken(self) -> list[str]:
        """What ended besides that no bug of the brokers explains."""
        if self._house is None:
            return []
        told = [] if self._house.hosts.lost is None else [self._house.hosts.lost]
        for name, words in self._house.hosts.died_words.items():
            lacked = machine_failure(words)
            if name == LINKS:
                told.append(f"the links process ended by itself: {words.splitlines()[-1]}")
            elif lacked is not None and self._was_up:
                told.append(f"{name} ended: {lacked} (this machine's fault, not the broker's)")
        return told

    def last_words(self, name: str) -> str:
        return "it never ran" if self._house is None else self._house.hosts.last_words(name)

    def traces(self) -> Raw | None:
        """See harness.protocols: Traces. Of the partitions there are by now."""
        return self._at.raw_traces(self.partitions)

    async def log_dir(self, node: str) -> Path:
        self._known(node)
        return await self._in.disks.log_dir(node)

    # -- faults -------------------------------------------------------------------------------------------

    async def kill(self, node: str) -> None:
        """SIGKILL. A node that does not run is left so."""
        self._known(node)
        await self._in.hosts.kill(node)
        await self._asking.hang_up(node)

    async def start_node(self, node: str) -> None:
        """Back when its control socket answers. A node that runs is left so."""
        self._known(node)
        if not self._in.hosts.lives(node):
            await self._spawn(node)
            await self._wait_for_control(node)

    async def stop_node(self, node: str) -> None:
        """SIGTERM: an orderly stop."""
        self._known(node)
        if self._in.hosts.paused(node):
            raise FloodmarkError(f"{node} is paused and cannot stop in order: resume it, or kill it")
        await self._in.hosts.terminate(node, timeout_s=STOP_S)
        await self._asking.hang_up(node)

    async def pause(self, node: str) -> None:
        self._known(node)
        await self._in.hosts.pause(node)

    async def resume(self, node: str) -> None:
        """A node that does not run, or is not paused, is left so."""
        self._known(node)
        if self._in.hosts.lives(node):
            await self._in.hosts.resume(node)

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None:
        """grudge: who hears -> whom it does not hear. Added to what is cut already."""
        if self._in.network.why_not is not None:
            raise UsageError(self._in.network.why_not)
        for name in {*grudge, *(name for unheard in grudge.values() for name in unheard)} - {CLIENTS}:
            self._known(name)
        await self._in.network.cut(grudge, reset=reset)

    async def heal(self) -> None:
        await self._in.network.heal()

    async def power_cut(self, node: str, *, keep: Mapping[int, int] | None = None) -> Mapping[str, Any]:
        """Kill, and keep only what was fsynced, as far as the house can tell."""
        self._known(node)
        if self._at.places[node].durable is None:
            raise FloodmarkError("a power cut strikes brokers; the controller fsyncs all it writes")
        by_name = {f"{spec.topic}-{spec.partition}": spec.key for spec in self.partitions}
        wanted = {name: keep[key] for name, key in by_name.items() if keep is not None and key in keep}
        lost = await self._in.disks.power_cut(node, wanted or None)
        await self._asking.hang_up(node)
        return {
            "keep": {by_name[name]: leo for name, leo in sorted(lost.kept.items()) if name in by_name},
            "lost_records": lost.lost_records,
            **({} if lost.how is None else {"how": lost.how}),
        }

    async def expire(self, node: str) -> None:
        self._known(node)
        await self._asking.ask(CONTROLLER, "expire", timeout_s=ASK_S, broker=self._at.places[node].node_id)

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]:
        """Ask the controller. Empty: all partitions."""
        return await elections.elect_as_kafka_does(
            self._at.places[CONTROLLER].reached, self._specs(partitions), unclean=unclean)

    async def elect_replica(self, partitions: Sequence[int], leader: str, *, unclean: bool = False
                            ) -> Mapping[str, Any]:
        """Likewise, for this replica and no other."""
        self._known(leader)
        number = self._at.places[leader].node_id
        return await elections.elect_one_replica(
            self._asking, self._specs(partitions), number, unclean=unclean)

    async def wipe(self, node: str) -> Mapping[str, Any]:
        """Kill, then empty its log directory; what was fsynced is gone too."""
        self._known(node)
        if self._at.places[node].durable is None:
            raise FloodmarkError("only brokers' disks are wiped; the controller's journal is the truth")
        await self.kill(node)
        lost = await self._in.disks.wipe(node)
        return {"lost_records": lost.lost_records}

    # -- failpoints ---------------------------------------------------------------------------------------

    async def arm(self, node: str, point: Mapping[str, Any]) -> None:
        """A node that does not run is armed when it starts next, before it does anything else."""
        self._known(node)
        await self._armed.arm(node, point, lives=self._in.hosts.lives(node))

    async def release(self, node: str, point: Mapping[str, Any] | None) -> int:
        self._known(node)
        return await self._armed.release(node, point, lives=self._in.hosts.lives(node))

    async def met(self, node: str) -> Sequence[Met]:
        self._known(node)
        return await self._armed.met(node)

    def crashes(self) -> Sequence[Met]:
        """By armed failpoints, and (action None, the name says why) by faults in force, as they came up."""
        if self._points is not None and self._house is not None:
            felled = (Met(node=one.name, name=one.why, action=None, time_ns=one.time_ns)
                      for one in self._house.hosts.felled)
            new = [one for one in (*self._points.crashes, *felled) if one not in self._crashes]
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

    @property
    def _asking(self) -> ControlSockets:
        if self._sockets is None:
            raise FloodmarkError("the cluster was not started")
        return self._sockets

    @property
    def _armed(self) -> FailpointControl:
        if self._points is None:
            raise FloodmarkError("the cluster was not started")
        return self._points

    def _specs(self, partitions: Sequence[int]) -> list[PartitionSpec]:
        """Of these keys; none: all."""
        specs = [spec for spec in self.partitions if not partitions or spec.key in partitions]
        if unknown := sorted(set(partitions) - {spec.key for spec in specs}):
            raise FloodmarkError(f"there is no partition {unknown[0]} to elect a leader for")
        return specs

    def _number(self, partitions: Sequence[PartitionSpec]) -> None:
        self.partitions += tuple(partitions)
        self._armed.specs = self.partitions

    def _known(self, name: str) -> None:
        if name not in self._at.places:
            raise FloodmarkError(f"no node {name!r}: there are {', '.join(self._at.names)}")

    def _view(self, states: Mapping[str, views.State]) -> View:
        return views.view_from_answers(
            views.Names(self.nodes, self.partitions),
            time_ns=time.monotonic_ns(),
            controller=states.get(CONTROLLER),
            brokers={node: states[node] for node in self.nodes if node in states},
            running=frozenset(node for node in self.nodes if self._in.hosts.lives(node)),
        )

    async def _spawn(self, name: str) -> None:
        self._armed.started(name)
        await self._in.hosts.spawn(name)

    async def _not_up(self) -> str | None:
        for name in self._at.names:
            self._alive_or_raise(name)
        look = await self.observe()
        return views.healthy(look, (), self.nodes)

    async def _wait_for_control(self, name: str) -> None:
        """A node that ends at its start, at a point where it was armed to, has started all the same."""

        async def silent() -> str | None:
            if self._armed.crashed(name):
                return None
            self._alive_or_raise(name)
            state = await self._asking.ask_or_none(name, "state", LOOK_S)
            return f"{name}'s control socket is silent" if state is None else None

        try:
            await wait_until(silent, f"{name} to start", NODE_START_S)
        finally:
            self._armed.has_read(name)

    def _alive_or_raise(self, name: str) -> None:
        if not self._in.hosts.lives(name):
            raise FloodmarkError(f"{name} ended at once: {self._in.hosts.last_words(name)}")
