"""Finds the broker to ask, for the client of one process: leaders, addresses, a connection to each.

Rules
1. A process never uses a lower leader epoch of a partition than it has seen (KIP-320), so an old leader or a
   broker with old metadata cannot mislead it. A request to a given node may name no epoch: there the answer's
   own epoch counts.
2. Brokers that are missing in the metadata (because they were fenced) remain candidates by their bootstrap
   address, under a negative id.
"""

from collections.abc import Callable, Mapping
from random import Random

from floodmark.harness.client import codec
from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent
from floodmark.harness.client.settings import ClientSettings

Address = tuple[str, int]
_NO_REPLICA = 9  # REPLICA_NOT_AVAILABLE: a replica is missing, but the leader is valid


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
