"""The cluster in memory: protocols.Cluster with its faults, failpoints, traces, clients and logs.

Rules
1. Every call returns when its effect is complete: a killed node is gone, a paused one handles nothing, no
   message passes a cut, an expired node is fenced.
2. The controller's state is the truth; a node that is dead or paused has no replicas in a View.
3. A node that ends at an armed failpoint has not died by itself; nor has a node before all were up once.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import NO_LEADER
from floodmark.broker.testing.failpoint_requests import (
    BROKER,
    FailpointError,
    FailpointSite,
)
from floodmark.broker.testing.failpoint_requests import (
    CONTROLLER as CONTROLLER_ROLE,
)
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.cluster.memory import views
from floodmark.harness.cluster.memory.broker import BrokerNode, NodeEnvironment
from floodmark.harness.cluster.memory.client import MemoryClient, ReachableBrokers
from floodmark.harness.cluster.memory.clock import Clock
from floodmark.harness.cluster.memory.controller import ControllerNode, Journal
from floodmark.harness.cluster.memory.disk import Disk
from floodmark.harness.cluster.memory.failpoints import Failpoints
from floodmark.harness.cluster.memory.network import Network, pairs_of
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.settings import Settings, read_settings
from floodmark.harness.cluster.memory.trace_file import TraceFile
from floodmark.harness.cluster.reference.broker_settings import CONTROLLER_ID, broker_settings, typed_config
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.logdir import LogState
from floodmark.harness.protocols import (
    CLIENTS,
    CONTROLLER,
    Addressed,
    BadDisks,
    Clocks,
    LogClient,
    MemoryLimits,
    Met,
    Packets,
    PartitionSpec,
    ReadsLogs,
    View,
)
from floodmark.harness.schedule.failpoints import CRASH, POINTS
from floodmark.harness.trace import Raw

START_S = 10.0
CREATE_S = 10.0
STOP_S = 20.0
ASK_S = 10.0  # for a paused controller to be resumed


_NOT_HERE = "the cluster in memory has no {}: use --cluster containers"
LACKS: Mapping[type, str] = {
    Addressed: "the cluster in memory has no sockets: only its own clients reach it",
    BadDisks: _NOT_HERE.format("disks that could fail or be damaged"),
    Clocks: _NOT_HERE.format("wall clocks"),
    MemoryLimits: _NOT_HERE.format("processes whose memory could be limited"),
    Packets: _NOT_HERE.format("packets that could be lost or late"),
    ReadsLogs: "the cluster in memory keeps no files",
}


@dataclass(slots=True, kw_only=True, eq=False)
class _Member:
    """One node, or the controller, over all its incarnations."""

    process: Process
    trace: TraceFile
    failpoints: Failpoints
    disk: Disk  # the controller has its journal instead
    server: BrokerNode | ControllerNode | None = None  # of the last incarnation


def memory_cluster(
    folder: Path,
    nodes: int,
    *,
    rules: str,
    bugs: Sequence[str],
    config: Mapping[str, str],
    links: str,
    first_port: int | None = None,
    trace: bool = True,
) -> "MemoryCluster":
    """Makes a cluster in memory; it is not started. Links can always be cut, whatever `links` is."""
    if first_port is not None:
        raise UsageError("the cluster in memory has no ports: only local and containers can use them")
    return MemoryCluster(folder, nodes, rules=rules, bugs=bugs, config=config, trace=trace)


class MemoryCluster:
    """The cluster in memory. See harness.protocols: Cluster, Freezes, KeepsLogs, Kills, Pauses, Cuts,
    PowerCuts, Expires, Elects, ElectsReplica, Resets, Wipes, Failpoints, Traces, MakesClients."""

    name = "memory"

    def __init__(
        self,
        folder: Path,
        nodes: int,
        *,
        rules: str,
        bugs: Sequence[str],
        config: Mapping[str, str],
        trace: bool = True,
    ) -> None:
        if nodes < 1:
            raise UsageError("a cluster has at least one node")
        self.nodes = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.partitions: tuple[PartitionSpec, ...] = ()
        self.abilities = ()
        self.system = {"name": "reference", "rules": rules, "flushes_at_recovery": True}
        self.lacks: Mapping[type, str] = dict(LACKS)
        self.not_shown = frozenset[str]()
        self.points = frozenset(POINTS)
        self.traced_events: frozenset[str] | None = None
        keys = broker_settings(config, nodes=nodes)
        self.config = {node: typed_config(keys, rules=rules, bugs=bugs) for node in self.nodes}
        try:
            self._settings: Settings = read_settings(keys, rules=rules, bugs=tuple(bugs))
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._folder, self._traced = folder, trace
        self._clock = Clock()
        self._network = Network(self._clock)
        self._journal = Journal(records=[])
        self._ids = {CONTROLLER: CONTROLLER_ID} | {node: at for at, node in enumerate(self.nodes, start=1)}
        self._names = {number: name for name, number in self._ids.items()}
        self._clients = Process(CLIENTS, self._clock, self._client_failed)
        self._members: dict[str, _Member] = {}
        self._met: dict[str, list[Met]] = {name: [] for name in self._ids}
        self._crashes: list[Met] = []
        self._died: dict[str, str] = {}
        self._died_at: dict[str, list[int]] = {}
        self._client_failures: list[str] = []
        self._was_up = self._frozen = False

    # -- Cluster -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts all processes; returns when every node is registered and unfenced."""
        self._clients.begin()
        for name in (CONTROLLER, *self.nodes):
            self._members[name] = self._member(name)
            self._begin(name)
        await wait_until(self._not_up, "all nodes to be registered and unfenced", START_S)
        self._was_up = True

    async def create(self, partitions: Sequence[PartitionSpec]) -> None:
        """Creates the topics with exactly this assignment; returns when each partition has a leader and a
        full ISR."""
        topics: dict[str, list[list[int]]] = {}
        for spec in sorted(partitions, key=lambda one: (one.topic, one.partition)):
            assignment = topics.setdefault(spec.topic, [])
            if spec.partition != len(assignment):
                raise FloodmarkError(f"topic {spec.topic!r} lacks partition {len(assignment)}")
            assignment.append([self._ids[node] for node in spec.replicas])
        for topic, assignment in topics.items():
            await self._create_topic(topic, assignment)
        self.partitions += tuple(partitions)

        async def unready() -> str | None:
            return views.unready(await self.observe(), partitions)

        await wait_until(unready, "the new partitions to have a leader and a full ISR", CREATE_S)

    async def _create_topic(self, topic: str, assignment: Sequence[Sequence[int]]) -> None:
        topic_id = topic.encode().hex().ljust(32, "0")[:32]
        answer = await self._ask_controller(
            lambda controller: controller.create_topic(topic, topic_id, assignment)
        )
        if answer.error:
            raise FloodmarkError(f"no topic {topic!r}: {errors.error_name(answer.error)} {answer.message}")

    async def observe(self) -> View:
        return self._view()

    async def freeze(self) -> View:
        """Freezes all processes at once. A paused node is killed, as one that does not answer is
        elsewhere."""
        self._frozen = True
        for name in self._ids:
            if self._members[name].process.paused:
                await self.kill(name)
        for member in self._members.values():
            member.process.frozen = True
        return self._view()

    async def mend(self) -> list[str]:
        """Releases failpoints, heals, resumes and starts everything."""
        if not self._members or self._frozen:
            return []
        for name in self._ids:
            self._members[name].failpoints.release({})
        self._network.heal()
        for name in self._ids:
            await self.resume(name)
            await self.start_node(name)
        return []

    async def stop(self) -> None:
        for member in self._members.values():
            member.process.frozen = True
            member.process.end()
            member.trace.close()
        self._clients.end()

    def died(self) -> list[str]:
        """The nodes that died, in order, each once."""
        return list(self._died)

    def died_words(self) -> Mapping[str, str]:
        return dict(self._died)

    def died_at(self) -> Mapping[str, Sequence[int]]:
        return self._died_at

    def broken(self) -> list[str]:
        return list(self._client_failures)

    def log_rows(self, node: str, run_id: str) -> Iterator[dict[str, Any]]:
        """The rows of a node's dump, see harness.protocols: KeepsLogs. All records are this run's."""
        logs = self._known(node).disk.logs
        for spec in sorted(self.partitions, key=lambda spec: spec.key):
            log = logs.get((spec.topic, spec.partition))
            for row in log.rows() if log is not None else ():
                yield {"node": node, "partition": spec.key, **row}

    def log_state(self, node: str, partition: int) -> LogState:
        spec = next(spec for spec in self.partitions if spec.key == partition)
        disk, key = self._known(node).disk, (spec.topic, spec.partition)
        log = disk.logs.get(key)
        if log is None:
            return LogState(log_start=0, leo=0, torn_bytes=0, epochs=None, checkpointed_hw=0)
        hw = disk.high_watermarks.get(key, 0)
        return LogState(
            log_start=log.start, leo=log.leo, torn_bytes=0, epochs=log.epochs, checkpointed_hw=hw
        )

    def traces(self) -> Raw | None:
        files = {name: member.trace.path for name, member in self._members.items() if member.trace.path}
        if not files:
            return None
        keys = {(spec.topic, spec.partition): spec.key for spec in self.partitions}
        return Raw(files=files, names=self._names, keys=keys)

    def client(self, settings: ClientSettings, random: Random) -> LogClient:
        """Makes a client, see harness.protocols: MakesClients."""
        brokers = ReachableBrokers(
            network=self._network, clients=self._clients, process_of=self._process_of, broker=self._broker,
            ids={node: self._ids[node] for node in self.nodes},
        )  # fmt: skip
        return MemoryClient(settings, random, brokers)

    # -- faults --------------------------------------------------------------------------------------------

    async def kill(self, node: str) -> None:
        self._known(node).process.end()

    async def start_node(self, node: str) -> None:
        """Starts the node; does nothing if it runs."""
        if not self._known(node).process.alive:
            self._begin(node)
            self._alive_or_raise(node)

    async def stop_node(self, node: str) -> None:
        """Stops the node in an orderly way."""
        member = self._known(node)
        if member.process.paused:
            raise FloodmarkError(f"{node} is paused and cannot be stopped: resume it, or kill it")
        server = member.server
        if isinstance(server, BrokerNode):
            member.process.run(lambda: server.stop(member.process.end))
        else:
            member.process.end()

        async def runs() -> str | None:
            return "it runs" if member.process.alive else None

        try:
            await wait_until(runs, f"{node} to stop", STOP_S)
        except FloodmarkError:
            member.process.end()
            raise

    async def pause(self, node: str) -> None:
        process = self._known(node).process
        if not process.alive:
            raise FloodmarkError(f"{node} does not run and cannot be paused")
        process.paused = True

    async def resume(self, node: str) -> None:
        """Resumes the node; does nothing if it does not run or is not paused."""
        process = self._known(node).process
        if process.alive and process.paused:
            process.paused = False
            process.resume()

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None:
        for name in {*grudge, *(name for senders in grudge.values() for name in senders)} - {CLIENTS}:
            self._known(name)
        self._network.cut(grudge, reset=reset)

    async def heal(self) -> None:
        self._network.heal()

    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int:
        return self._network.reset(pairs_of(grudge))

    async def power_cut(self, node: str, *, keep: Mapping[int, int] | None = None) -> Mapping[str, Any]:
        if node == CONTROLLER:
            raise FloodmarkError("only brokers can have a power cut: the controller's journal is durable")
        member = self._known(node)
        member.process.end()
        by_place = {(spec.topic, spec.partition): spec.key for spec in self.partitions}
        wanted = {place: keep[key] for place, key in by_place.items() if keep is not None and key in keep}
        kept, lost = member.disk.cut_power(wanted)
        return {
            "keep": {by_place[place]: leo for place, leo in sorted(kept.items())}, "lost_records": lost,
        }

    async def expire(self, node: str) -> None:
        self._known(node)
        answer = await self._ask_controller(lambda controller: controller.expire(self._ids[node]))
        if answer.error:
            raise FloodmarkError(f"{node} cannot be expired: {errors.error_name(answer.error)}")

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]:
        return await self._elect(partitions, NO_LEADER, unclean=unclean)

    async def elect_replica(
        self, partitions: Sequence[int], leader: str, *, unclean: bool = False
    ) -> Mapping[str, Any]:
        self._known(leader)
        return await self._elect(partitions, self._ids[leader], unclean=unclean)

    async def _elect(self, partitions: Sequence[int], leader: int, *, unclean: bool) -> Mapping[str, Any]:
        """Elects by the controller. partitions: empty means all."""
        by_place = {
            (spec.topic, spec.partition): spec.key
            for spec in self.partitions
            if not partitions or spec.key in partitions
        }
        if unknown := sorted(set(partitions) - set(by_place.values())):
            raise FloodmarkError(f"there is no partition {unknown[0]} to elect a leader for")
        answer = await self._ask_controller(
            lambda controller: controller.elect(list(by_place), leader, unclean=unclean)
        )
        errors_by_key = {by_place[topic, index]: error for topic, index, error in answer.results}
        return {
            "elected": sorted(key for key, error in errors_by_key.items() if not error),
            "refused": {
                str(key): errors.error_name(error)
                for key, error in sorted(errors_by_key.items())
                if error not in (errors.NONE, errors.ELECTION_NOT_NEEDED)
            },
        }

    async def wipe(self, node: str) -> Mapping[str, Any]:
        if node == CONTROLLER:
            raise FloodmarkError("only brokers' disks can be wiped, not the controller's")
        member = self._known(node)
        member.process.end()
        return {"lost_records": member.disk.wipe()}

    # -- failpoints ----------------------------------------------------------------------------------------

    async def arm(self, node: str, point: Mapping[str, Any]) -> None:
        try:
            self._known(node).failpoints.arm(self._point(point))
        except FailpointError as error:
            raise FloodmarkError(f"{node}: {error}") from error

    async def release(self, node: str, point: Mapping[str, Any] | None) -> int:
        try:
            return self._known(node).failpoints.release(self._point(point or {}))
        except FailpointError as error:
            raise FloodmarkError(f"{node}: {error}") from error

    async def met(self, node: str) -> Sequence[Met]:
        self._known(node)
        return tuple(self._met[node])

    def crashes(self) -> Sequence[Met]:
        return tuple(self._crashes)

    def _point(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """A schedule's failpoint as a request of the broker's code."""
        request = {key: value for key, value in point.items() if key not in ("name", "partition", "peer")}
        if "name" in point:
            request["point"] = point["name"]
        if "partition" in point:
            spec = next((spec for spec in self.partitions if spec.key == point["partition"]), None)
            if spec is None:
                raise FloodmarkError(f"there is no partition {point['partition']}")
            request["topic"], request["partition"] = spec.topic, spec.partition
        if "peer" in point:
            request["peer"] = self._ids[point["peer"]]
        return request

    def _note_met(self, node: str, site: FailpointSite, action: str) -> None:
        keys = {(spec.topic, spec.partition): spec.key for spec in self.partitions}
        met = Met(
            node=node, name=site.name, action=action, time_ns=self._clock.now_ns(),
            partition=None if site.topic is None else keys.get((site.topic, site.partition)),
            epoch=None if site.epoch < 0 else site.epoch, peer=self._names.get(site.peer),
            offset=None if site.offset < 0 else site.offset,
        )  # fmt: skip
        self._met[node].append(met)
        if action == CRASH:
            self._crashes.append(met)

    # -- inside --------------------------------------------------------------------------------------------

    def _member(self, name: str) -> _Member:
        process = Process(name, self._clock, self._failed)
        path = self._folder / "work" / f"{name}.trace" if self._traced else None
        trace = TraceFile(path, self._ids[name], self._clock)
        role = CONTROLLER_ROLE if name == CONTROLLER else BROKER
        failpoints = Failpoints(
            process, role, trace, lambda site, action: self._note_met(name, site, action)
        )
        return _Member(process=process, trace=trace, failpoints=failpoints, disk=Disk())

    def _begin(self, name: str) -> None:
        """Starts a new incarnation."""
        member = self._members[name]
        process = member.process
        process.begin()
        process.on_end += [member.failpoints.end, lambda: self._network.ended(process)]
        member.failpoints.begin()
        if name == CONTROLLER:
            process.run(lambda: self._begin_controller(member))
        else:
            process.run(lambda: self._begin_broker(name, member))

    def _begin_controller(self, member: _Member) -> None:
        server = member.server = ControllerNode(
            process=member.process, settings=self._settings, journal=self._journal, trace=member.trace,
            failpoints=member.failpoints, send=self._publish,
        )  # fmt: skip
        server.begin()

    def _begin_broker(self, name: str, member: _Member) -> None:
        server = member.server = BrokerNode(
            NodeEnvironment(
                node=self._ids[name], process=member.process, disk=member.disk, trace=member.trace,
                failpoints=member.failpoints, settings=self._settings, network=self._network,
                process_of=self._process_of, broker=self._broker, controller=self._controller,
            )
        )  # fmt: skip
        server.begin()

    def _publish(
        self,
        broker: int,
        broker_epoch: int,
        metadata: Any,
        answered: Callable[[Any], None],
        lost: Callable[[bool], None],
    ) -> None:
        """Sends the controller's metadata to a node."""
        self._network.ask(
            self._process_of(CONTROLLER_ID), self._process_of(broker), answered=answered, lost=lost,
            timeout_s=max(0.2, self._settings.session_timeout_ms / 3000),
            handle=lambda call: self._broker(broker).leader_and_isr(call, broker_epoch, metadata),
        )  # fmt: skip

    def _process_of(self, node: int) -> Process:
        return self._members[self._names[node]].process

    def _broker(self, node: int) -> BrokerNode:
        server = self._members[self._names[node]].server
        assert isinstance(server, BrokerNode), f"{self._names[node]} never ran"
        return server

    def _controller(self) -> ControllerNode:
        server = self._members[CONTROLLER].server
        assert isinstance(server, ControllerNode), "the controller never ran"
        return server

    async def _ask_controller(self, act: Callable[[ControllerNode], Any]) -> Any:
        """Runs `act` in the controller for the harness; cuts do not affect this."""
        process = self._members[CONTROLLER].process
        if not process.alive:
            raise FloodmarkError("the controller does not run")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def run() -> None:
            answered = act(self._controller())
            if not answer.done():
                answer.set_result(answered)

        process.run(run)
        try:
            async with asyncio.timeout(ASK_S):
                return await answer
        except TimeoutError:
            raise FloodmarkError(f"the controller did not answer in {ASK_S:g} s") from None

    def _failed(self, name: str, error: Exception) -> None:
        """Handles an exception in a process, such as a violated invariant: the process ends, and its trace
        says so."""
        member = self._members[name]
        trace_back = "".join(traceback.format_exception(error)[-4:])
        member.trace.write_process_lines(
            [{"event": "crash", "why": "stopped-by-a-broken-invariant-or-disk"}]
        )
        member.process.end()
        if self._was_up:
            self._died.setdefault(name, f"{type(error).__name__}: {error}\n{trace_back}")
            self._died_at.setdefault(name, []).append(self._clock.now_ns())

    def _client_failed(self, _name: str, error: Exception) -> None:
        self._client_failures.append(f"a client failed: {''.join(traceback.format_exception(error)[-3:])}")

    def _known(self, name: str) -> _Member:
        if name not in self._ids:
            raise FloodmarkError(f"no node {name!r}: there are {', '.join(self._ids)}")
        if name not in self._members:
            raise FloodmarkError("the cluster was not started")
        return self._members[name]

    def _alive_or_raise(self, name: str) -> None:
        """Raises FloodmarkError if the node ended at its start, unless it did so at an armed failpoint."""
        crashed = any(met.node == name for met in self._crashes)
        if not self._members[name].process.alive and not crashed:
            raise FloodmarkError(f"{name} ended at once: {self._died.get(name, 'before the cluster was up')}")

    async def _not_up(self) -> str | None:
        for name in self._ids:
            self._alive_or_raise(name)
        fenced = [node for node in self.nodes if node not in self._view().unfenced]
        return f"{fenced[0]} is fenced or not registered" if fenced else None

    def _view(self) -> View:
        running = frozenset(node for node in self.nodes if self._members[node].process.alive)
        controller = self._members[CONTROLLER]
        answers = controller.process.alive and not controller.process.paused
        return views.look(
            time_ns=self._clock.now_ns(),
            names=self._names,
            specs=self.partitions,
            metadata=self._controller().metadata if answers else None,
            brokers={
                node: (self._broker(self._ids[node]), self._members[node].disk)
                for node in running
                if not self._members[node].process.paused
            },
            running=running,
        )


