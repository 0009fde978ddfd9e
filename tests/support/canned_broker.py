"""A broker of canned answers on a real socket: it records the requests and answers as the test chooses."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

from floodmark.harness import record_batches
from floodmark.harness.client.client import Client
from floodmark.harness.client.settings import ClientSettings

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 22
SERVED = {PRODUCE: (0, 9), FETCH: (4, 12), LIST_OFFSETS: (1, 7), METADATA: (0, 9), API_VERSIONS: (0, 3),
          INIT_PRODUCER_ID: (0, 4)}
REQUESTS: dict[int, Any] = {PRODUCE: ProduceRequest, FETCH: FetchRequest, LIST_OFFSETS: ListOffsetsRequest,
                            METADATA: MetadataRequest, INIT_PRODUCER_ID: InitProducerIdRequest}
# From here on headers carry tags.
FLEXIBLE = {PRODUCE: 9, FETCH: 12, LIST_OFFSETS: 6, METADATA: 9, INIT_PRODUCER_ID: 2}
TOPIC = "log"
RUN = "0123456789abcdef"


class Act(Enum):
    """What the broker does in place of an answer."""

    DROP = "close the connection"
    STALL = "never answer"
    GARBAGE = "answer bytes that are no answer"


@dataclass(slots=True, kw_only=True)
class Produced:
    """The answer about each partition of the request, in the opposite order; partition p has p * 1000 added
    to its offset, and those of `lacking` are left out."""

    error: int = 0
    base_offset: int = 0
    lacking: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class Fetched:
    error: int = 0
    hw: int = 0
    records: bytes = b""
    diverging: tuple[int, int] | None = None
    throttled_ms: int = 0
    elsewhere: int = -1  # the replica to read from instead


@dataclass(slots=True, kw_only=True)
class Ended:
    error: int = 0
    offset: int = 0
    epoch: int = 0


@dataclass(slots=True, kw_only=True)
class Identified:
    error: int = 0
    producer_id: int = 500
    epoch: int = 3


@dataclass(slots=True, kw_only=True)
class Led:
    """The entry of each partition in metadata answers."""

    error: int = 0
    leader: int = 1
    epoch: int = 0


@dataclass(slots=True)
class CannedBroker:
    """A broker that takes its answers from the front of each list; the last one stays."""

    port: int = 0
    metadata: list[Led | Act] = field(default_factory=lambda: [Led()])
    produce: list[Produced | Act] = field(default_factory=lambda: [Produced()])
    fetch: list[Fetched | Act] = field(default_factory=lambda: [Fetched()])
    ends: list[Ended | Act] = field(default_factory=lambda: [Ended()])
    ids: list[Identified | Act] = field(default_factory=lambda: [Identified()])
    served: dict[int, tuple[int, int]] = field(default_factory=lambda: dict(SERVED))
    greets: bool = True  # answers ApiVersions
    asked: list[tuple[int, int, Any]] = field(default_factory=list)  # (api, version, request)
    ports: dict[int, int] = field(default_factory=dict)  # node id -> port in metadata; 1 is this one
    beside: dict[str, int] = field(default_factory=dict)  # node -> port: others that its client knows
    partitions: int = 1
    connections: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, api: int) -> list[Any]:
        return [request for asked, _, request in self.asked if asked == api]

    def _next(self, answers: list[Any]) -> Any:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def answer(self, frame: bytes) -> bytes | None:
        api, version = struct.unpack_from(">hh", frame)
        answer = self._answer(api, version, frame)
        if answer is Act.STALL:
            await self.over.wait()
        if answer in (Act.DROP, Act.STALL):
            raise ConnectionError
        return b"\x7f" * 20 if answer is Act.GARBAGE else answer

    def _answer(self, api: int, version: int, frame: bytes) -> Any:
        if api == API_VERSIONS:
            return api_versions(self.served) if self.greets else Act.DROP
        request = REQUESTS[api].decode(frame, version=version, header=True)
        self.asked.append((api, version, request))
        if api == PRODUCE and request.acks == 0:
            return None
        answer = self._next({PRODUCE: self.produce, FETCH: self.fetch, LIST_OFFSETS: self.ends,
                             METADATA: self.metadata, INIT_PRODUCER_ID: self.ids}[api])
        if isinstance(answer, Act):
            return answer
        encoders = {FETCH: _fetched, LIST_OFFSETS: _ended, METADATA: self._metadata,
                    INIT_PRODUCER_ID: _identified}
        made = _produced(answer, request) if api == PRODUCE else encoders[api](answer)
        return encoded(made, api, version)

    def _metadata(self, led: Led) -> Any:
        topic = MetadataResponse.MetadataResponseTopic
        partitions = [topic.MetadataResponsePartition(
            error_code=led.error, partition_index=index, leader_id=led.leader, leader_epoch=led.epoch,
            replica_nodes=[1], isr_nodes=[1]) for index in range(self.partitions)]
        return MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port)
                     for node, port in {1: self.port, **self.ports}.items()],
            controller_id=1, topics=[topic(name=TOPIC, partitions=partitions)])


def api_versions(served: Mapping[int, tuple[int, int]]) -> bytes:
    rows = b"".join(struct.pack(">hhh", key, *span) for key, span in served.items())
    return struct.pack(">hi", 0, len(served)) + rows


def encoded(answer: Any, api: int, version: int) -> bytes:
    """An answer of kafka-python's, behind the tags of a flexible header."""
    tags = b"\0" if version >= FLEXIBLE.get(api, version + 1) else b""
    return tags + bytes(answer.encode(version=version))


def _produced(answer: Produced, request: Any) -> Any:
    topic = ProduceResponse.TopicProduceResponse
    asked = [part.index for one in request.topic_data for part in one.partition_data]
    partitions = [topic.PartitionProduceResponse(
        index=index, error_code=answer.error, base_offset=answer.base_offset + 1000 * index)
        for index in reversed(asked) if index not in answer.lacking]
    return ProduceResponse(responses=[topic(name=TOPIC, partition_responses=partitions)])


def _fetched(answer: Fetched) -> Any:
    topic = FetchResponse.FetchableTopicResponse
    end = answer.diverging and topic.PartitionData.EpochEndOffset(
        epoch=answer.diverging[0], end_offset=answer.diverging[1])
    partition = topic.PartitionData(
        partition_index=0, error_code=answer.error, high_watermark=answer.hw, records=answer.records,
        preferred_read_replica=answer.elsewhere, diverging_epoch=end)
    return FetchResponse(throttle_time_ms=answer.throttled_ms,
                         responses=[topic(topic=TOPIC, partitions=[partition])])


def _ended(answer: Ended) -> Any:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = topic.ListOffsetsPartitionResponse(
        partition_index=0, error_code=answer.error, offset=answer.offset, leader_epoch=answer.epoch)
    return ListOffsetsResponse(topics=[topic(name=TOPIC, partitions=[partition])])


def _identified(answer: Identified) -> Any:
    return InitProducerIdResponse(error_code=answer.error, producer_id=answer.producer_id,
                                  producer_epoch=answer.epoch)


async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                 answer: Callable[[bytes], Awaitable[bytes | None]]) -> None:
    """Answers the requests of a connection, behind their correlation ids; None: one has no answer."""
    try:
        while True:
            frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            made = await answer(frame)
            if made is not None:
                writer.write(struct.pack(">i", len(made) + 4) + frame[4:8] + made)
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


@asynccontextmanager
async def canned_broker() -> AsyncIterator[CannedBroker]:
    broker = CannedBroker()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker.connections += 1
        await served(reader, writer, broker.answer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        broker.port = server.sockets[0].getsockname()[1]
        yield broker
        broker.over.set()


@asynccontextmanager
async def talking(**changes: Any) -> AsyncIterator[tuple[CannedBroker, Client]]:
    """A broker and a client of it. Partition 7 of the history is partition 0 of the topic."""
    async with canned_broker() as broker:
        settings = ClientSettings(**{
            "run_id": RUN, "keys": {7: (TOPIC, 0)}, "pause_s": (0.0, 0.0), "request_timeout_s": 5.0,
            **changes})
        client = Client(settings, lambda: {node: ("127.0.0.1", port) for node, port in {
            "n1": broker.port, **broker.beside}.items()}, Random(1))
        try:
            yield broker, client
        finally:
            await client.close()


def stamped(values: list[int], base_offset: int, epoch: int) -> bytes:
    """A batch of these values as a leader has it in its log."""
    data = record_batches.encode(values, RUN, 1)
    return base_offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]
