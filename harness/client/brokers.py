"""Finds the broker to ask, for the client of one process: leaders, addresses, a connection to each.

Brokers that are missing in the metadata (because they were fenced) remain candidates by their bootstrap
address, under a negative id.
"""

from collections.abc import Callable, Mapping
from random import Random

from floodmark.harness.client import codec
from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent
from floodmark.harness.client.leaders import Leaders
from floodmark.harness.client.settings import ClientSettings

Address = tuple[str, int]


class Brokers:
    """The brokers as one process knows them. `addresses`: node id -> address, from metadata."""

    def __init__(self, config: ClientSettings, bootstrap: Callable[[], Mapping[str, Address]], random: Random,
                 dial: Dial) -> None:
        self.leaders = Leaders(config.keys)
        self.addresses: dict[int, Address] = {}
        self._config = config
        self._bootstrap = bootstrap
        self._random = random
        self._dial = dial
        self._topics = sorted({topic for topic, _ in config.keys.values()})
        self._connections: dict[int | str, Connection] = {}  # by id; by name, where a name was asked for

    async def find_leader(self, key: int) -> int | None:
        """Find the partition's leader; request metadata if it is not known."""
        if self.leaders.leader(key) is None:
            await self._refresh_metadata()
        return self.leaders.leader(key)

    async def connect(self, node: int | str, address: Address | None = None) -> Connection:
        """Return the connection to a node, by its id or its name; open a new one if necessary. Raises
        Unsent."""
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
                version = codec.choose_version(codec.METADATA, connection.versions)
                request = codec.build_metadata_request(self._topics, version)
                answer = await connection.exchange(request, self._config.metadata_timeout_s)
                metadata = codec.read_metadata_response(answer, version)
            except (Unsent, Lost, codec.ProtocolError):
                continue
            self.addresses.update(metadata.brokers)
            self.leaders.learn(metadata)
            return
