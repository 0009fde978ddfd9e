"""Asks each broker of Apache Kafka for its own metadata: leader, epoch and ISR of each partition.
A broker has new metadata some milliseconds before it takes the role in it.
"""

import asyncio
from collections.abc import Mapping, Sequence

from floodmark.harness.client import codec
from floodmark.harness.client.connection import Connection, Lost, Unsent, connect
from floodmark.harness.protocols import PartitionSpec

Address = tuple[str, int]
Metadata = Mapping[tuple[str, int], codec.PartitionMetadata]  # by (topic, partition)


class BrokerMetadata:
    """One connection to each broker; a connection that missed an answer is closed and opened again."""

    def __init__(self) -> None:
        self._connections: dict[Address, Connection] = {}

    async def of_each(self, reached: Mapping[str, Address], partitions: Sequence[PartitionSpec],
                      timeout_s: float) -> Mapping[str, Metadata]:
        """The metadata of each broker by node, without brokers that are silent for timeout_s."""
        topics = sorted({spec.topic for spec in partitions})
        answers = await asyncio.gather(*(self._ask(reached[node], topics, timeout_s) for node in reached))
        return {node: answer for node, answer in zip(reached, answers, strict=True) if answer is not None}

    def close(self) -> None:
        """Closes all connections. Safe to call twice."""
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()

    async def _ask(self, address: Address, topics: Sequence[str], timeout_s: float) -> Metadata | None:
        try:
            async with asyncio.timeout(timeout_s):
                connection = self._connections.get(address)
                if connection is None or not connection.usable:
                    connection = self._connections[address] = await connect(*address, timeout_s)
                version = codec.choose_version(codec.METADATA, connection.versions)
                request = codec.build_metadata_request(topics, version)
                answer = await connection.exchange(request, timeout_s)
                return codec.read_metadata_response(answer, version).partitions
        except (TimeoutError, Unsent, Lost, codec.ProtocolError):
            dropped = self._connections.pop(address, None)
            if dropped is not None:
                dropped.abort()
            return None
