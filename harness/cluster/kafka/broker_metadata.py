"""Asks each broker of Apache Kafka for what its own metadata says: leader, epoch and ISR of each partition.

A broker's metadata runs ahead of the role it plays by the milliseconds that it takes to apply it.
"""

import asyncio
from collections.abc import Mapping, Sequence

from floodmark.harness.client import codec
from floodmark.harness.client.connection import Connection, Lost, Unsent, connect
from floodmark.harness.protocols import PartitionSpec

Address = tuple[str, int]
Believed = Mapping[tuple[str, int], codec.PartitionMetadata]  # by (topic, partition)


class BrokerMetadata:
    """Keeps one connection to each broker. One that missed an answer is dropped, and dialled anew."""

    def __init__(self) -> None:
        self._connections: dict[Address, Connection] = {}

    async def of_each(self, reached: Mapping[str, Address], partitions: Sequence[PartitionSpec],
                      timeout_s: float) -> Mapping[str, Believed]:
        """By node; a broker that is silent for timeout_s is not there."""
        topics = sorted({spec.topic for spec in partitions})
        answers = await asyncio.gather(*(self._ask(reached[node], topics, timeout_s) for node in reached))
        return {node: answer for node, answer in zip(reached, answers, strict=True) if answer is not None}

    def close(self) -> None:
        """Safe twice."""
        for connection in self._connections.values():
            connection.abort()
        self._connections.clear()

    async def _ask(self, address: Address, topics: Sequence[str], timeout_s: float) -> Believed | None:
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
