"""Apache Kafka with ZooKeeper (2.8.2): settings of ZooKeeper and the brokers, ZooKeeper's state, sessions.
The process `controller` is ZooKeeper: its state decides who leads. Kafka's own controller is one of the
brokers, and changes. The generations of the replication protocol are chosen by Kafka's own setting:

    rules            inter.broker.protocol.version     how a follower cuts its log
        high-watermark   0.11.0-IV1                        at its own HW
        kip-101          1.1                               at the leader's end of the follower's last epoch
        kip-279          2.0                               the same, repeated until both know the epoch
        kip-320          the version's own                 the same; deposed leaders are fenced
    Each is the last version before the next rule; 0.11.0-IV1 truncates like 0.10.2, and its records have
    headers. A topic of message.format.version 0.10.2 has no epochs in its batches, and its followers truncate
    to their HW under any rules: together with a topic of format 2 one cluster shows both.

Rules
1. The last broker starts first and so becomes Kafka's controller: faults on the first ones, which lead, do
   not hit the controller.
2. A broker cannot start while ZooKeeper still has its earlier registration (it would end at once,
   NodeExists): that session is ended first.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from floodmark.harness.client.codec import TopicPartition
from floodmark.harness.cluster.kafka import settings
from floodmark.harness.cluster.kafka.distribution import Distribution
from floodmark.harness.cluster.kafka.metadata_log import NO_LEADER, ControllerState
from floodmark.harness.cluster.kafka.zookeeper_client import Registered, ZooKeeperClient, ZooKeeperSilent
from floodmark.harness.cluster.layout import NOT_STARTED, Layout, host_port, write_properties
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CONTROLLER

PROTOCOL_VERSIONS: Mapping[str, str | None] = {  # rules -> inter.broker.protocol.version; None: its own
    "high-watermark": "0.11.0-IV1",
    "kip-101": "1.1",
    "kip-279": "2.0",
    "kip-320": None,
}
SESSION = "broker.session.timeout.ms"  # KRaft's and the reference broker's name of the setting
ZOOKEEPER_SESSION = "zookeeper.session.timeout.ms"
PREFERRED: Mapping[str, str] = {
    **settings.PREFERRED,
    "log.index.size.max.bytes": "4096",
    "log.segment.bytes": "1048576",
    "zookeeper.connection.timeout.ms": "60000",
}
_ZOO_CFG: Mapping[str, str] = {
    "tickTime": "250",
    "minSessionTimeout": "500",
    "maxSessionTimeout": "120000",
    "admin.enableServer": "false",
    "maxClientCnxns": "0",
}
FIRST_UP_S = 60.0  # for ZooKeeper and the first broker; a busy machine starts slowly
DECIDED_S = 60.0  # for Kafka's controller to act on a session's end


class ZooKeeper:
    """Kafka with ZooKeeper, see kafka_system.py: Form."""

    def __init__(self, kafka: Distribution, given: Mapping[str, str], ids: Mapping[str, int], *, rules: str
                 ) -> None:
        self.name = "zookeeper"
        self.waiting_line = "Waiting until connected."
        self.stranger_line = "InconsistentClusterIdException"
        self.decides_alone = False
        self.about: Mapping[str, Any] = {}
        version = PROTOCOL_VERSIONS[rules]
        protocol = {} if version is None else {
            "inter.broker.protocol.version": version, "log.message.format.version": version}
        chosen = {**PREFERRED, **protocol, **given}
        chosen.setdefault(ZOOKEEPER_SESSION, chosen[SESSION])
        self.settings: Mapping[str, str] = dict(sorted(chosen.items()))
        self.lacks: Mapping[type, str] = {}
        self._kafka = kafka
        self._ids = ids
        self._nodes = {number: name for name, number in ids.items() if name != CONTROLLER}
        self._layout = NOT_STARTED
        self._client: ZooKeeperClient | None = None
        self._started: set[str] = set()

    # -- files --------------------------------------------------------------------------------------------

    def write_files(self, layout: Layout) -> None:
        layout.make_folders()
        self._layout = layout
        for name in layout.names:
            lines = self._zoo_cfg() if name == CONTROLLER else self._properties(name)
            write_properties(layout.properties_of(name), lines, escapes=True)
        self._client = ZooKeeperClient(layout.places[CONTROLLER].reached)

    def _zoo_cfg(self) -> dict[str, str]:
        place = self._layout.places[CONTROLLER]
        (host, port), data = place.listens, place.inside(place.log_dir)
        return {**_ZOO_CFG, "dataDir": data, "clientPort": str(port), "clientPortAddress": host}

    def _properties(self, name: str) -> dict[str, str]:
        place = self._layout.places[name]
        return {
            "broker.id": str(place.node_id),
            "zookeeper.connect": host_port(place.controller),
            **settings.of_broker(self._layout, name),
            **self.settings,
        }
    def before(self, name: str) -> Sequence[str]:
        return ()

    def main(self, name: str) -> tuple[str, Path]:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain" if name == CONTROLLER else "kafka.Kafka"
        return main, self._layout.properties_of(name)

    # -- a process's life ---------------------------------------------------------------------------------

    async def starting(self, name: str) -> None:
        """Before a broker's first start, waits for a controller; before later ones, for ZooKeeper to end its
        old session."""
        if name == CONTROLLER:
            return
        if name in self._started:
            await wait_until(partial(self._not_expired, name), f"{name}'s old session to end", FIRST_UP_S)
        elif name != (last := self._layout.nodes[-1]):
            await wait_until(self._no_controller, f"{last} to be the controller", FIRST_UP_S)
        self._started.add(name)

    async def _not_expired(self, name: str) -> str | None:
        try:
            await self._asked.expire(self._ids[name])
        except ZooKeeperSilent as error:  # it may have been started a moment ago
            return str(error)
        return None

    async def _no_controller(self) -> str | None:
        found = await self._look(())
        if found is None:
            return "ZooKeeper does not answer"
        return None if found.controller is not None else "no broker has registered"

    async def controller_is_up(self) -> bool:
        return await self._look(()) is not None

    # -- ZooKeeper's state ----------------------------------------------------------------------------------

    async def admin(self, running: Sequence[str]) -> Sequence[str]:
        """Kafka's controller: other brokers refuse such requests."""
        found = await self._look(())
        node = None if found is None or found.controller is None else self._nodes.get(found.controller)
        return [node] if node is not None and node in running else []

    async def controller_state(self, places: Sequence[TopicPartition]) -> ControllerState | None:
        found = await self._look(places)
        return None if found is None else ControllerState(
            partitions=found.partitions, unfenced=found.sessions)

    async def _look(self, places: Sequence[TopicPartition]) -> Registered | None:
        """None: ZooKeeper does not answer."""
        with suppress(ZooKeeperSilent):
            return await self._asked.look(places)
        return None

    async def expire(self, node: str, places: Sequence[TopicPartition], awake: Sequence[str]) -> None:
        """Ends a broker's session; returns when Kafka's controller has acted on it, if one of the awake
        brokers is the controller. FloodmarkError if the broker has no session."""
        broker = self._ids[node]
        before = await self._asked.look(places)
        if not await self._asked.expire(broker):
            raise FloodmarkError(f"{node} has no session to end: it is not registered")

        others = {self._ids[one] for one in awake if one != node}
        concerned = {place: state.partition_epoch for place, state in before.partitions.items()
                     if broker in state.isr and state.leader != NO_LEADER}

        async def undecided() -> str | None:
            """Every partition that the broker led, or whose ISR it was in, gets a new state."""
            now = await self._asked.look(places)
            if now.controller is None:
                waits = not others.isdisjoint(now.sessions)
            else:
                waits = now.controller in (broker, *others) and any(
                    now.partitions[place].partition_epoch == epoch for place, epoch in concerned.items())
            return "it has not" if waits else None

        await wait_until(undecided, f"Kafka's controller to act on the end of {node}'s session", DECIDED_S)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    @property
    def _asked(self) -> ZooKeeperClient:
        if self._client is None:
            raise FloodmarkError("the cluster was not started")
        return self._client
