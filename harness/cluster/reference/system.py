"""The reference broker as the System of one cluster: settings, commands and control sockets of its processes.

Rules
1. The controller's state is the truth; a broker that is dead, paused or silent has no replicas in a View.
2. Topics and elections use Kafka's requests. What Kafka has no request for (observation, freezing, the end of
   a session, the election of one replica, failpoints) uses the process's control socket.
3. What was frozen stays frozen: nothing is released any more.
4. Keys of settings are Kafka's (harness/broker_config.py has those that may be given). The user's settings
   override those that a test cluster prefers. Keys that tie a node to its place (addresses, ids, paths)
   cannot be set.
5. A test cluster prefers short times: in a run of 30 s sessions must end and ISRs must shrink.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness import runtime
from floodmark.harness.broker_config import checked, checked_topic_keys
from floodmark.harness.cluster import broker_requests, layout
from floodmark.harness.cluster.broker_cluster import PYTHON, JavaSoftware, Place
from floodmark.harness.cluster.broker_requests import chosen, election_result, once
from floodmark.harness.cluster.layout import CONTROLLER_ID, Layout, ProcessAddresses, host_port, ids_of
from floodmark.harness.cluster.log_extents import PowerLoss
from floodmark.harness.cluster.reference import control_sockets, power_loss
from floodmark.harness.cluster.reference.control_sockets import ControlSockets, FailpointControl
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.event_loop import wait_until
from floodmark.harness.faults import POINTS
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CONTROLLER, FailpointHit, View
from floodmark.harness.trace import Raw

NAME = "reference"
BROKER = "floodmark.broker"
LOOK_S = 1.0  # for one control socket to answer with its state
FREEZE_S = 30.0
ASK_S = 60.0
PREFERRED: Mapping[str, str] = {
    "auto.create.topics.enable": "true",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "num.partitions": "1",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "3000",
    "unclean.leader.election.enable": "false",
}


class ReferenceSystem:
    """The reference broker. See harness.cluster.broker_cluster: System, and harness.protocols: Adopts,
    Freezes, Expires, Elects, ElectsReplica, Failpoints, KeepsRecords and Traces."""

    def __init__(self, nodes: int, *, rules: str, bugs: Sequence[str], config: Mapping[str, str],
                 topics: Mapping[str, Mapping[str, str]] | None = None) -> None:
        if nodes < 1:
            raise UsageError("a cluster has at least one node")
        self._topics = {topic: checked_topic_keys(keys) for topic, keys in (topics or {}).items()}
        self.about: Mapping[str, Any] = {
            "name": NAME, "rules": rules, "flushes_at_recovery": True,
            **({"topics": self._topics} if self._topics else {})}
        self.nodes = layout.node_names(nodes)
        self.ids: Mapping[str, int] = ids_of(self.nodes)
        self.dials_by_name = False
        self.lacks: Mapping[type, str] = {}
        self.not_shown = self.read_from_files = frozenset[str]()
        self.software: JavaSoftware | None = None
        self.module: str | None = BROKER
        self.power: PowerLoss = power_loss
        self.points = frozenset(POINTS)
        self.traced_events: frozenset[str] | None = None
        self.keeps_all = True  # it has no retention
        self.partitions: tuple[PartitionSpec, ...] = ()
        self.frozen = False
        self.starts_by_controller = False
        self._rules, self._bugs = rules, tuple(bugs)
        self._settings = broker_settings(config, nodes=nodes)
        typed = typed_config(self._settings, rules=rules, bugs=bugs)
        self.config: Mapping[str, Mapping[str, Any]] = {node: dict(typed) for node in self.nodes}
        self._sockets = ControlSockets()
        points = self._failpoints = FailpointControl(self._sockets, lambda: self.partitions)
        self.arm, self.release, self.met, self.started = (
            points.arm, points.release, points.met, points.clear_pending)
        self.expects_exit, self.release_holds = points.expects_exit, points.release_all

    def attach(self, place: Place) -> None:
        write_properties(place.layout, self._settings, rules=self._rules, bugs=self._bugs)
        self._sockets.attach(place)

    def command(self, name: str) -> Sequence[str]:
        settings = self._sockets.place.layout.of(name).inside(self._sockets.place.layout.properties_of(name))
        return [PYTHON, "-m", BROKER, "--config", settings]

    async def create_topics(self, partitions: Sequence[PartitionSpec]) -> None:
        """Configs of single topics are altered then: replicas must use them from then on."""
        topics = broker_requests.assignments(partitions, self.ids)
        broker = next((node for node in self.nodes if self._sockets.answers(node)), None)
        if broker is None:
            raise FloodmarkError("no broker runs that could create a topic")
        ask = once(self._sockets.place.layout.places[broker].reached)
        await broker_requests.create_topics(ask, topics, timeout_s=ASK_S)
        if configs := {topic: self._topics[topic] for topic in topics if topic in self._topics}:
            await broker_requests.alter_topic_configs(ask, configs, timeout_s=ASK_S)
            await wait_until(self._old_metadata, "all brokers to have the topics' configs", ASK_S)

    async def _old_metadata(self) -> str | None:
        """None, or a broker whose metadata is older than the controller's."""
        states = await self._sockets.ask_all("state", self._sockets.place.layout.names, LOOK_S)
        if (newest := states.get(CONTROLLER, {}).get("metadata_version")) is None:
            return "the controller does not answer"
        late = [node for node in self.nodes if states.get(node, {}).get("metadata_version", -1) < newest]
        return f"{late[0]} has older metadata than the controller" if late else None

    async def look(self) -> View:
        return self._view(await self._sockets.ask_all("state", self._sockets.place.layout.names, LOOK_S))

    async def starting(self, name: str) -> None:
        self._failpoints.started(name)
        await self._sockets.hang_up(name)  # the connection to the process before it

    async def is_up(self, name: str) -> bool:
        return self._failpoints.crashed(name) or bool(await self._sockets.ask_all("state", [name], LOOK_S))

    def crashes(self) -> Sequence[FailpointHit]:
        return tuple(self._failpoints.crashes)

    async def close(self) -> None:
        await self._sockets.hang_up()
        self._failpoints.close()

    async def adopt(self) -> None:
        """Numbers the partitions that applications made, so that views and faults include them."""
        if not (states := await self._sockets.ask_all("state", [CONTROLLER], LOOK_S)):
            return  # the partitions are unknown now
        known = {spec.place for spec in self.partitions}
        new = sorted((one["topic"], one["partition"], one["replicas"])
                     for one in states[CONTROLLER]["partitions"]
                     if (one["topic"], one["partition"]) not in known)
        names = control_sockets.Names(self.nodes, ())
        self.partitions += tuple(
            PartitionSpec(key=key, topic=topic, partition=partition, replicas=names.nodes(replicas))
            for key, (topic, partition, replicas) in enumerate(new, start=len(self.partitions)))

    async def freeze(self) -> View:
        """Freezes the controller first, so that no leader is elected meanwhile. A silent broker is killed."""
        sockets = self._sockets
        self.frozen = True
        states = await sockets.ask_all("freeze", [CONTROLLER], FREEZE_S)
        states |= await sockets.ask_all("freeze", self.nodes, FREEZE_S)
        await asyncio.gather(*(sockets.place.kill(name) for name in self.ids if name not in states))
        return self._view(states)

    async def expire(self, node: str) -> None:
        self._sockets.place.layout.of(node)
        await self._sockets.ask(CONTROLLER, "expire", broker=self.ids[node])

    async def elect(self, partitions: Sequence[int], *, unclean: bool = False) -> Mapping[str, Any]:
        ask = once(self._sockets.place.layout.places[CONTROLLER].reached)
        specs = chosen(self.partitions, partitions)
        return election_result(await broker_requests.elect(ask, specs, unclean=unclean))

    async def elect_replica(self, partitions: Sequence[int], leader: str, *, unclean: bool = False
                            ) -> Mapping[str, Any]:
        """Elects this replica, as a reassignment would: Kafka has no request for it alone."""
        self._sockets.place.layout.of(leader)
        errors: dict[int, str | None] = {}
        for spec in chosen(self.partitions, partitions):
            ok = await self._sockets.ask(
                CONTROLLER, "elect", topic=spec.topic, partition=spec.partition,
                leader=self.ids[leader], unclean=unclean)
            errors[spec.key] = ok["error"]
        return election_result(errors)

    def traces(self) -> Raw | None:
        return control_sockets.raw_traces(self._sockets.place.layout, self.partitions)

    def _view(self, states: Mapping[str, control_sockets.State]) -> View:
        return control_sockets.view_from_answers(
            control_sockets.Names(self.nodes, self.partitions), states,
            time_ns=runtime.current.monotonic_ns(),
            running=frozenset(filter(self._sockets.place.lives, self.nodes)))


# -- settings ------------------------------------------------------------------------------------------------


def broker_settings(given: Mapping[str, str], *, nodes: int) -> dict[str, str]:
    """The settings of every broker: the user's over the preferred ones. UsageError for unknown keys and those
    that floodmark sets, and for values of the wrong type or out of range."""
    preferred = {**PREFERRED, "default.replication.factor": str(min(3, nodes)),
                 "min.insync.replicas": str(min(2, nodes))}
    return dict(sorted({**preferred, **checked(given)}.items()))


def typed_config(chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]
                ) -> dict[str, int | bool | str]:
    """One node's `config` in run.json: what decides how it behaves, without addresses and paths."""
    config: dict[str, int | bool | str] = {key: layout.typed(value) for key, value in chosen.items()}
    config["floodmark.rules"] = rules
    config["floodmark.bugs"] = ",".join(bugs)
    return config


def write_properties(own: Layout, chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]) -> None:
    """Makes the folders and all properties files."""
    own.make_folders()
    for name, place in own.places.items():
        layout.write_properties(own.properties_of(name), properties(place, chosen, rules=rules, bugs=bugs),
                                escapes=False)


def properties(place: ProcessAddresses, chosen: Mapping[str, str], *, rules: str, bugs: Sequence[str]
               ) -> dict[str, str]:
    """One node's settings."""
    dial = sorted(place.dial.items())
    present = {
        "floodmark.control.from": place.asked_from, "floodmark.bugs": ",".join(bugs),
        "floodmark.dial": ",".join(f"{node}@{host_port(address)}" for node, address in dial),
        "floodmark.durable": place.durable and place.inside(place.durable),
        "floodmark.trace": place.trace and place.inside(place.trace)}
    return {
        "process.roles": "controller" if place.is_controller else "broker", "node.id": str(place.node_id),
        "listeners": f"PLAINTEXT://{host_port(place.listens)}",
        "advertised.listeners": f"PLAINTEXT://{host_port(place.advertised)}",
        "controller.quorum.voters": f"{CONTROLLER_ID}@{host_port(place.controller)}",
        "log.dirs": place.inside(place.log_dir), "floodmark.control": host_port(place.control),
        "floodmark.rules": rules, **chosen,
        **{key: value for key, value in present.items() if value}}
