"""Finds the broker to ask, for the client of one process: leaders, addresses, a connection to each. Sends the
batches of several processes to one broker in one Produce request, as a Kafka producer does for its threads.

Rules
1. A process never uses a lower leader epoch of a partition than it has seen (KIP-320), so an old leader or a
   broker with old metadata cannot mislead it. A request to a given node may name no epoch: there the answer's
   own epoch counts.
2. Brokers that are missing in the metadata (because they were fenced) remain candidates by their bootstrap
   address, under a negative id.
3. A shared request has one batch of each partition at most; a second one waits for the next request. It is
   sent LINGER_S after its first batch, on a connection that has no open request.
4. A process gets the answer about its own partition alone. If the request was not sent, or its response is
   lost, all processes in it get the same exception.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from floodmark.harness.client import codec
from floodmark.harness.client.codec import TopicPartition
from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent
from floodmark.harness.client.settings import ClientSettings

Address = tuple[str, int]
_NO_REPLICA = 9  # REPLICA_NOT_AVAILABLE: a replica is missing, but the leader is valid
LINGER_S = 0.002
Answer = tuple[int, int]  # error, base offset


class Leaders:
    """keys: the history's partition -> (topic, partition)."""

    def __init__(self, keys: Mapping[int, tuple[str, int]]) -> None:
        self._keys = keys
        self._epochs: dict[int, int] = {}  # by metadata
        self._answered: dict[int, int] = {}  # the highest of the answers
        self._leaders: dict[int, int] = {}

    def epoch(self, key: int) -> int:
        """The highest epoch seen; -1 if none."""
        return self._epochs.get(key, -1)

    def is_latest(self, key: int, epoch: int) -> bool:
        """Whether no earlier answer was of a later leader epoch. -1: this one names none."""
        self._answered[key] = max(epoch, self._answered.get(key, -1))
        return epoch in (-1, self._answered[key])

    def leader(self, key: int) -> int | None:
        return self._leaders.get(key)  # None: there is none, or it is in doubt

    def doubt(self, key: int) -> None:
        """Forget the leader, because it did not act as one; metadata is requested before the next request."""
        self._leaders.pop(key, None)

    def learn(self, metadata: codec.ClusterMetadata) -> None:
        """For partitions in which it is not older than what is known."""
        for key, place in self._keys.items():
            led = metadata.partitions.get(place)
            if led is None or led.epoch < self.epoch(key):
                continue
            self._epochs[key] = led.epoch
            if led.error in (0, _NO_REPLICA) and led.leader >= 0:
                self._leaders[key] = led.leader
            else:
                self.doubt(key)


class Brokers:
    """The brokers as one process knows them. `addresses`: node id -> address, from metadata."""

    def __init__(self, config: ClientSettings, bootstrap: Callable[[], Mapping[str, Address]], random: Random,
                 dial: Dial) -> None:
        self.leaders = Leaders(config.keys)
        self.addresses: dict[int, Address] = {}
        self._config, self._bootstrap, self._random, self._dial = config, bootstrap, random, dial
        self._topics = sorted({topic for topic, _ in config.keys.values()})
        self._connections: dict[int | str, Connection] = {}  # by id; by name, where a name was asked for

    async def find_leader(self, key: int) -> int | None:
        if self.leaders.leader(key) is None:
            await self._refresh_metadata()
        return self.leaders.leader(key)

    async def connect(self, node: int | str, address: Address | None = None) -> Connection:
        """By id or name; opens a new connection if necessary. Raises Unsent."""
        connection = self._connections.get(node)
        if connection is not None and connection.usable:
            return connection
        known = address or (
            self._bootstrap().get(node) if isinstance(node, str) else self.addresses.get(node))
        if known is None:
            raise Unsent
        connection = await self._dial(*known, self._config.connect_timeout_s)
        self._connections[node] = connection
        return connection

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _refresh_metadata(self) -> None:
        """Request metadata from at most two brokers, and use the first response."""
        addresses = dict(self.addresses)
        for number, address in enumerate(self._bootstrap().values(), start=1):
            if address not in self.addresses.values():
                addresses[-number] = address
        nodes = list(addresses)
        self._random.shuffle(nodes)
        for node in nodes[:2]:
            try:
                connection = await self.connect(node, addresses[node])
                metadata = await codec.metadata(connection, self._topics, self._config.metadata_timeout_s)
            except (Unsent, Lost, codec.ProtocolError):
                continue
            self.addresses.update(metadata.brokers)
            self.leaders.learn(metadata)
            return


# -- shared requests -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """timeout_s: how long the client waits."""

    address: Address
    acks: int
    timeout_ms: int
    timeout_s: float
    connect_timeout_s: float


@dataclass(slots=True, kw_only=True)
class _Request:
    target: Target
    batches: dict[TopicPartition, tuple[bytes, asyncio.Future[Answer]]] = field(default_factory=dict)

    def unanswered(self) -> Mapping[TopicPartition, tuple[bytes, asyncio.Future[Answer]]]:
        """Without those whose process no longer waits."""
        return {place: waiting for place, waiting in self.batches.items() if not waiting[1].done()}


class SharedRequests:
    """The Produce requests of all clients that share them, with connections of their own."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._users = 0
        self._waiting: dict[Target, _Request] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: dict[Address, list[Connection]] = {}

    def join(self) -> None:
        self._users += 1

    def leave(self) -> None:
        """A client has closed; with the last one all requests and connections end."""
        self._users -= 1
        if self._users:
            return
        for task in self._tasks:
            task.cancel()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def produce(self, target: Target, place: TopicPartition, records: bytes) -> Answer:
        """(error, base offset) of the partition. Raises Unsent, Lost or codec.ProtocolError."""
        request = self._waiting.get(target)
        if request is None or place in request.batches:
            request = self._waiting[target] = _Request(target=target)
            task = asyncio.get_running_loop().create_task(self._send_later(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        request.batches[place] = records, answer
        return await answer

    async def _send_later(self, request: _Request) -> None:
        await asyncio.sleep(LINGER_S)
        if self._waiting.get(request.target) is request:
            del self._waiting[request.target]
        waiting = request.unanswered()
        if not waiting:
            return
        try:
            answers = await self._exchange(request.target, {place: one[0] for place, one in waiting.items()})
        except (Unsent, Lost, codec.ProtocolError) as error:
            for _, answer in request.unanswered().values():
                answer.set_exception(error)
            return
        for place, (_, answer) in request.unanswered().items():
            if place in answers:
                answer.set_result(answers[place])
            else:  # the broker may have appended it
                answer.set_exception(Lost(timed_out=False))

    async def _exchange(self, target: Target, batches: Mapping[TopicPartition, bytes]
                        ) -> Mapping[TopicPartition, Answer]:
        idle = self._idle.setdefault(target.address, [])
        connection = idle.pop() if idle else None
        if connection is None or not connection.usable:
            connection = await self._dial(*target.address, target.connect_timeout_s)
        try:
            answers = await codec.produce(connection, batches, target.timeout_s, acks=target.acks,
                                          timeout_ms=target.timeout_ms)
        except codec.ProtocolError:
            connection.abort()
            raise
        idle.append(connection)
        return {place: (part.error_code, part.base_offset) for place, part in answers.items()}
