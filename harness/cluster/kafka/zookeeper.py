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
3. A session is ended by closing it, as its own client would: a session's password follows from its id by a
   formula (ZooKeeperServer.generatePasswd). Deleting the registration instead would leave the session alive,
   and its broker would never register again. Ending one twice is harmless, so it is tried again if ZooKeeper
   does not answer in time.
4. Our session is opened once; once closed it stays closed. A client that nobody closes tries to connect for
   ever, many times a second. It has a thread of its own: one that waits for a silent ZooKeeper holds up no
   other cluster.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry

from floodmark.harness.client.codec import TopicPartition
from floodmark.harness.cluster.kafka import settings
from floodmark.harness.cluster.kafka.metadata_log import NO_LEADER, ControllerState, PartitionState
from floodmark.harness.cluster.layout import NOT_STARTED, Address, Layout, host_port, write_properties
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import wait_until
from floodmark.harness.schedule.views import CONTROLLER

Result = TypeVar("Result")

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
REGISTRATIONS = "/brokers/ids"
SESSION_S = 30.0  # of our own session: a paused ZooKeeper must not end it
CONNECT_S = 5.0
ANSWER_S = 1.0
EXPIRE_TRIES = 3
_SECRET = 0xB3415C00  # ZooKeeperServer.superSecret
_PASSWORD_BYTES = 16
_QUIET = logging.getLogger("floodmark.kazoo")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class ZooKeeperSilent(FloodmarkError):
    """ZooKeeper did not answer: it does not run, it is paused, or it is still starting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered(ControllerState):
    """unfenced: the registered brokers. A partition epoch is the version of its path."""

    controller: int | None  # the broker that is the controller now


class ZooKeeperClient:
    def __init__(self, address: Address) -> None:
        self._hosts = f"{address[0]}:{address[1]}"
        self._own: Any = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="zookeeper")

    async def look(self, partitions: Sequence[TopicPartition]) -> Registered:
        return await self._in_its_thread(lambda: self._look(partitions))

    async def expire(self, broker: int) -> bool:
        """Ends this broker's session as if it had timed out, with its registration. False: it had none."""
        found = await self._in_its_thread(
            lambda: _answer(self._connected().get_async(f"{REGISTRATIONS}/{broker}")))
        if found is None:
            return False
        for tried in range(1, EXPIRE_TRIES + 1):
            try:
                await self._in_its_thread(lambda: _close_session(self._hosts, int(found[1].ephemeralOwner)))
                break
            except ZooKeeperSilent:
                if tried == EXPIRE_TRIES:
                    raise
        return True

    async def close(self) -> None:
        """Closes our session for good. Safe to call twice."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(  # one that is being opened is closed too
                self._thread, lambda: _end(self._own))
            self._thread.shutdown(wait=False)

    async def _in_its_thread(self, ask: Callable[[], Result]) -> Result:
        if self._closed:
            raise ZooKeeperSilent(f"the client of ZooKeeper at {self._hosts} is closed")
        try:
            async with asyncio.timeout(CONNECT_S + ANSWER_S):
                return await asyncio.get_running_loop().run_in_executor(self._thread, ask)
        except (KazooException, KazooTimeoutError, TimeoutError) as error:
            raise ZooKeeperSilent(f"ZooKeeper at {self._hosts} does not answer ({type(error).__name__}): it "
                                  f"may be paused, killed, or starting") from error

    def _connected(self) -> Any:
        if self._closed:
            raise ConnectionClosedError("closed")
        if self._own is None:
            own = _client(self._hosts)
            try:
                own.start(timeout=CONNECT_S)
            except BaseException:
                _end(own)
                raise
            self._own = own
        return self._own

    def _look(self, partitions: Sequence[TopicPartition]) -> Registered:
        own = self._connected()
        asked = {place: own.get_async(f"/brokers/topics/{place[0]}/partitions/{place[1]}/state")
                 for place in partitions}
        controller = own.get_async("/controller")
        try:
            brokers = [int(name) for name in own.get_children_async(REGISTRATIONS).get(timeout=ANSWER_S)]
        except NoNodeError:  # no broker was ever registered
            brokers = []
        registrations = {broker: own.get_async(f"{REGISTRATIONS}/{broker}") for broker in sorted(brokers)}
        found = {broker: _answer(one) for broker, one in registrations.items()}
        states = {place: _answer(one) for place, one in asked.items()}
        holder = _answer(controller)
        return Registered(
            unfenced=[broker for broker, one in found.items() if one is not None],
            controller=None if holder is None else int(json.loads(holder[0])["brokerid"]),
            partitions={place: PartitionState(leader=fields["leader"], epoch=fields["leader_epoch"],
                                              isr=tuple(fields["isr"]), partition_epoch=one[1].version)
                        for place, one in states.items() if one is not None
                        for fields in (json.loads(one[0]),)})


def _answer(one: Any) -> Any:
    """(data, stat) of a path; None if it does not exist."""
    try:
        return one.get(timeout=ANSWER_S)
    except NoNodeError:
        return None


def _client(hosts: str, **options: Any) -> Any:
    """A client that tries to connect for ever once started; a request without a connection fails at once."""
    retry = KazooRetry(max_tries=-1, delay=0.02, backoff=1, max_delay=0.2)
    return KazooClient(hosts=hosts, timeout=SESSION_S, connection_retry=retry, logger=_QUIET,
                       handler=SequentialThreadingHandler(), **options)


def _end(client: Any) -> None:
    if client is not None:
        client.stop()
        client.close()


def _close_session(hosts: str, session: int) -> None:
    """Takes the session over and closes it. If it has ended meanwhile, a new one is opened and closed."""
    client = _client(hosts, client_id=(session, session_password(session)))
    try:
        client.start(timeout=CONNECT_S)
    finally:
        _end(client)


def session_password(session: int) -> bytes:
    """The password that ZooKeeper gives this session: 16 bytes of java.util.Random, seeded with the id."""
    state = (session ^ _SECRET ^ 0x5DEECE66D) & (1 << 48) - 1
    out = bytearray()
    while len(out) < _PASSWORD_BYTES:
        state = (state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        out += (state >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(out)


class ZooKeeper:
    """Kafka with ZooKeeper, which is its process `controller`; see KRaft for its members."""

    name, controller_decides = "zookeeper", False
    waiting_line = "Waiting until connected."
    other_cluster_line = "InconsistentClusterIdException"

    def __init__(self, given: Mapping[str, str], ids: Mapping[str, int], *, rules: str) -> None:
        self.about: Mapping[str, Any] = {}
        version = PROTOCOL_VERSIONS[rules]
        protocol = {} if version is None else {
            "inter.broker.protocol.version": version, "log.message.format.version": version}
        chosen = {**PREFERRED, **protocol, **given}
        chosen.setdefault(ZOOKEEPER_SESSION, chosen[SESSION])
        self.settings: Mapping[str, str] = dict(sorted(chosen.items()))
        self.lacks: Mapping[type, str] = {}
        self._ids, self._layout = ids, NOT_STARTED
        self._client: ZooKeeperClient | None = None
        self._started: set[str] = set()

    def write_files(self, layout: Layout) -> None:
        layout.make_folders()
        self._layout = layout
        for name, place in layout.places.items():
            if name == CONTROLLER:
                (host, port), data = place.listens, place.inside(place.log_dir)
                lines = {**_ZOO_CFG, "dataDir": data, "clientPort": str(port), "clientPortAddress": host}
            else:
                lines = {"broker.id": str(place.node_id), "zookeeper.connect": host_port(place.controller),
                         **settings.of_broker(layout, name), **self.settings}
            write_properties(layout.properties_of(name), lines, escapes=True)
        self._client = ZooKeeperClient(layout.places[CONTROLLER].reached)

    def before(self, name: str) -> Sequence[str]:
        return ()

    def main(self, name: str) -> str:
        return "org.apache.zookeeper.server.quorum.QuorumPeerMain" if name == CONTROLLER else "kafka.Kafka"

    async def starting(self, name: str) -> None:
        """The first time waits for a controller; later, for ZooKeeper to end the broker's old session."""
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
        if (found := await self.controller_state(())) is None:
            return "ZooKeeper does not answer"
        return None if found.controller is not None else "no broker has registered"

    async def controller_is_up(self) -> bool:
        return await self.controller_state(()) is not None

    async def admin(self, running: Sequence[str]) -> Sequence[str]:
        """Kafka's controller: other brokers refuse such requests."""
        found = await self.controller_state(())
        return [node for node in running if found is not None and self._ids[node] == found.controller]

    async def controller_state(self, places: Sequence[TopicPartition]) -> Registered | None:
        """None: ZooKeeper does not answer."""
        with suppress(ZooKeeperSilent):
            return await self._asked.look(places)
        return None

    async def expire(self, node: str, places: Sequence[TopicPartition], awake: Sequence[str]) -> None:
        """Returns when Kafka's controller has acted on it, if one of the awake brokers is the controller."""
        broker = self._ids[node]
        before = await self._asked.look(places)
        if not await self._asked.expire(broker):
            return  # its session has ended already: the broker has not registered since

        others = {self._ids[one] for one in awake if one != node}
        concerned = {place: state.partition_epoch for place, state in before.partitions.items()
                     if broker in state.isr and state.leader != NO_LEADER}

        async def undecided() -> str | None:
            """Every partition that the broker led, or whose ISR it was in, gets a new state."""
            now = await self._asked.look(places)
            if now.controller is None:
                waits = not others.isdisjoint(now.unfenced)
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
