"""Reads the decisions of Kafka's controller from ZooKeeper, and ends the sessions of brokers.

    /brokers/ids/N                          a broker's registration: ephemeral, so its owner is the session
    /brokers/topics/T/partitions/P/state    leader, leader_epoch, isr; the truth of a partition
    /controller                             which broker is the controller

Rules
1. One observation sends a request for each path, all before the first answer is awaited.
2. A session is ended by closing it, as its own client would: a session's password follows from its id by a
   formula (ZooKeeperServer.generatePasswd). Deleting the registration instead would leave the session alive,
   and its broker would never register again.
3. If ZooKeeper does not answer in time, a ZooKeeperSilent is raised.
4. Our session is opened once; once closed it stays closed. A client that nobody closes tries to connect for
   ever, many times a second.
5. Each client has a thread of its own: one that waits for a silent ZooKeeper holds up no other cluster.
6. Ending a session twice is harmless, so it is tried again if ZooKeeper does not answer in time.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry

from floodmark.harness.client.codec import TopicPartition
from floodmark.harness.cluster.kafka.metadata_log import PartitionState
from floodmark.harness.errors import FloodmarkError

Address = tuple[str, int]
Result = TypeVar("Result")

BROKERS = "/brokers/ids"
CONTROLLER = "/controller"
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
class Registered:
    """ZooKeeper's state of the cluster at one time."""

    sessions: Mapping[int, int]  # broker -> the session of its registration
    controller: int | None  # the broker that is the controller now
    partitions: Mapping[TopicPartition, PartitionState]  # the partition epoch is the version of the path


class ZooKeeperClient:
    """A client with one session, and one more for each session that it ends."""

    def __init__(self, address: Address) -> None:
        self._hosts = f"{address[0]}:{address[1]}"
        self._own: Any = None
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="zookeeper")

    async def look(self, partitions: Sequence[TopicPartition]) -> Registered:
        """The state of those of these partitions that exist, and of all brokers."""
        return await self._in_its_thread(lambda: self._look(partitions))

    async def expire(self, broker: int) -> bool:
        """Ends the session of this broker, as if it had timed out. False: it had none. The registration is
        gone when this returns."""
        found = await self._in_its_thread(
            lambda: _answer(self._connected().get_async(f"{BROKERS}/{broker}")))
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
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown(wait=False)

    # -- in its thread ------------------------------------------------------------------------------------

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
        """The client with our own session; the first call opens it."""
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

    def _close(self) -> None:
        if self._own is not None:
            _end(self._own)

    def _look(self, partitions: Sequence[TopicPartition]) -> Registered:
        own = self._connected()
        asked = {place: own.get_async(f"/brokers/topics/{place[0]}/partitions/{place[1]}/state")
                 for place in partitions}
        controller = own.get_async(CONTROLLER)
        try:
            brokers = [int(name) for name in own.get_children_async(BROKERS).get(timeout=ANSWER_S)]
        except NoNodeError:  # no broker was ever registered
            brokers = []
        registrations = {broker: own.get_async(f"{BROKERS}/{broker}") for broker in sorted(brokers)}
        found = {broker: _answer(one) for broker, one in registrations.items()}
        states = {place: _answer(one) for place, one in asked.items()}
        holder = _answer(controller)
        return Registered(
            sessions={broker: int(one[1].ephemeralOwner) for broker, one in found.items() if one is not None},
            controller=None if holder is None else int(json.loads(holder[0])["brokerid"]),
            partitions={place: _state(one) for place, one in states.items() if one is not None},
        )


def _answer(one: Any) -> Any:
    """(data, stat) of a path; None if it does not exist."""
    try:
        return one.get(timeout=ANSWER_S)
    except NoNodeError:
        return None


def _state(answer: Any) -> PartitionState:
    data, stat = answer
    fields = json.loads(data)
    return PartitionState(leader=fields["leader"], epoch=fields["leader_epoch"], isr=tuple(fields["isr"]),
                          partition_epoch=stat.version)


# -- sessions -----------------------------------------------------------------------------------------------

def _client(hosts: str, **options: Any) -> Any:
    """A client that tries to connect for ever once started; a request without a connection fails at once."""
    retry = KazooRetry(max_tries=-1, delay=0.02, backoff=1, max_delay=0.2)
    return KazooClient(hosts=hosts, timeout=SESSION_S, connection_retry=retry, logger=_QUIET,
                       handler=SequentialThreadingHandler(), **options)


def _end(client: Any) -> None:
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
