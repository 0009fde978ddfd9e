"""Asks each broker of Apache Kafka for LEO and HW of its replicas, followers included, by Kafka's wire.
LEO: ListOffsets of the latest offset as a debugging consumer (replica_id -2), which every replica answers
with the end of its log. HW: Fetch as a consumer at the last known LEO, which from version 11 on (KIP-392)
followers may answer too, each with its own HW; at the LEO there is nothing to return. Tested on 2.8.2, 3.9.2
and 4.3.1.

Rules
1. The HW is asked first and the LEO after it, on one connection, so that a replica that only appends never
   has a HW above its LEO. If one does, it truncated in between and is left out this time.
2. Replicas that answer with an error, and silent brokers, are left out: with an older Fetch all followers.
3. Connections are kept between observations. A connection that missed an answer is closed and opened again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from floodmark.harness.client import codec
from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent, connect
from floodmark.harness.protocols import PartitionSpec

Address = tuple[str, int]
Place = tuple[str, int]  # topic, partition
Ends = Mapping[tuple[str, int], tuple[int, int]]  # (node, the history's key of the partition) -> (LEO, HW)

_WAIT_MS = 50  # some systems answer a Fetch that does not wait without its partitions
_ASKS = 4  # for the HW of a replica, the first of them possibly without a LEO
_ONE_BYTE = 1  # of records: none are wanted; one batch may come if the HW has passed the last known LEO


Answer = TypeVar("Answer")
Ask = Callable[["_Broker", Sequence[Place]], Awaitable[dict[Place, Answer]]]


class WireLooks:
    """Observes the replicas of one cluster. dial: opens connections."""

    def __init__(self, dial: Dial = connect) -> None:
        self._dial = dial
        self._brokers: dict[Address, _Broker] = {}

    async def replica_ends(self, reached: Mapping[str, Address], partitions: Sequence[PartitionSpec],
                           timeout_s: float) -> Ends:
        """LEO and HW of every replica of these partitions that answers within timeout_s; all brokers at once.

        reached: the address of each broker; leave out brokers that are known not to run.
        """
        return await self._of_each(_Broker.ends, reached, partitions, timeout_s)

    async def log_starts(self, reached: Mapping[str, Address], partitions: Sequence[PartitionSpec],
                         timeout_s: float) -> Mapping[tuple[str, int], int]:
        """The first offset of every replica's log, as in replica_ends."""
        return await self._of_each(_Broker.starts, reached, partitions, timeout_s)

    async def _of_each(self, ask: "Ask[Answer]", reached: Mapping[str, Address],
                       partitions: Sequence[PartitionSpec], timeout_s: float
                       ) -> dict[tuple[str, int], Answer]:
        keys = {(spec.topic, spec.partition): spec.key for spec in partitions}
        asked = {node: [(spec.topic, spec.partition) for spec in partitions if node in spec.replicas]
                 for node in reached}
        nodes = [node for node in reached if asked[node]]
        answers = await asyncio.gather(*(
            self._ask(ask, reached[node], asked[node], timeout_s) for node in nodes))
        return {(node, keys[place]): value
                for node, answer in zip(nodes, answers, strict=True) for place, value in answer.items()}

    def close(self) -> None:
        """Closes all connections. Safe to call twice."""
        for broker in self._brokers.values():
            broker.connection.abort()
        self._brokers.clear()

    async def _ask(self, ask: "Ask[Answer]", address: Address, places: Sequence[Place], timeout_s: float
                   ) -> dict[Place, Answer]:
        try:
            async with asyncio.timeout(timeout_s):
                broker = self._brokers.get(address)
                if broker is None or not broker.connection.usable:
                    broker = self._brokers[address] = _Broker(
                        await self._dial(*address, timeout_s), timeout_s)
                return await ask(broker, places)
        except (TimeoutError, Unsent, Lost, codec.ProtocolError):
            if (silent := self._brokers.pop(address, None)) is not None:
                silent.connection.abort()
            return {}


class _Broker:
    """One broker over one connection."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self.connection = connection
        self._timeout_s = timeout_s
        self._leos: dict[Place, int] = {}  # the last known ones

    async def ends(self, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        """LEO and HW of these replicas. If no LEO was known, the log was cut below it, or an answer was empty
        (by a quota), the HW is asked for again after the LEO."""
        hws: dict[Place, int] = {}
        missing = places
        for _ in range(_ASKS):
            hws |= await self._ask_hws(missing)
            await self._ask_leos(missing)
            missing = [place for place in missing if place in self._leos and place not in hws]
            if not missing:
                break
        return {place: (self._leos[place], hws[place]) for place in places
                if place in self._leos and hws.get(place, -1) in range(self._leos[place] + 1)}

    async def starts(self, places: Sequence[Place]) -> dict[Place, int]:
        version = codec.choose_version(codec.LIST_OFFSETS, self.connection.versions)
        request = codec.build_log_ends_request(places, version, first=True)
        answer = await self.connection.exchange(request, self._timeout_s)
        return {place: first for place, (error, first)
                in codec.read_log_ends_response(answer, version).items() if not error}

    async def _ask_hws(self, places: Sequence[Place]) -> dict[Place, int]:
        version = codec.choose_version(codec.FETCH, self.connection.versions)
        asks = [codec.FetchPartition(topic=topic, partition=partition, offset=self._leos[topic, partition],
                                     leader_epoch=-1, last_epoch=-1)
                for topic, partition in places if (topic, partition) in self._leos]
        if not asks:
            return {}
        request = codec.build_fetch_request(
            asks, version, max_wait_ms=_WAIT_MS, min_bytes=0, max_bytes=_ONE_BYTE)
        answer = await self.connection.exchange(request, self._timeout_s)
        return {place: part.hw for place, part in codec.read_fetch_response(answer, version).items()
                if not part.error}

    async def _ask_leos(self, places: Sequence[Place]) -> None:
        version = codec.choose_version(codec.LIST_OFFSETS, self.connection.versions)
        request = codec.build_log_ends_request(places, version)
        answer = await self.connection.exchange(request, self._timeout_s)
        for place in places:
            self._leos.pop(place, None)
        self._leos.update({place: leo for place, (error, leo)
                           in codec.read_log_ends_response(answer, version).items() if not error})
