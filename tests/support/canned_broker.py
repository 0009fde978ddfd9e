"""A broker of canned answers on a real socket: it records the requests and answers as the test chooses."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 22
SERVED = {PRODUCE: (0, 9), FETCH: (4, 12), LIST_OFFSETS: (1, 7), METADATA: (0, 9), API_VERSIONS: (0, 3),
          INIT_PRODUCER_ID: (0, 4)}
REQUESTS: dict[int, Any] = {PRODUCE: ProduceRequest, FETCH: FetchRequest, LIST_OFFSETS: ListOffsetsRequest,
                            METADATA: MetadataRequest, INIT_PRODUCER_ID: InitProducerIdRequest}
# From here on headers carry tags.
FLEXIBLE = {PRODUCE: 9, FETCH: 12, LIST_OFFSETS: 6, METADATA: 9, INIT_PRODUCER_ID: 2}
TOPIC = "log"
ACTS = ("drop", "stall", "garbage")  # in place of an answer: the end of the connection, nothing, noise


@dataclass(slots=True)
class CannedBroker:
    """A broker that takes its answers (one of ACTS, or fields) from the front of each list; the last one
    stays."""

    port: int = 0
    answers: dict[int, list[Any]] = field(default_factory=lambda: {api: [{}] for api in REQUESTS})
    served: dict[int, tuple[int, int]] = field(default_factory=lambda: dict(SERVED))
    greets: bool = True  # answers ApiVersions
    asked: list[tuple[int, int, Any]] = field(default_factory=list)  # (api, version, request)
    ports: dict[int, int] = field(default_factory=dict)  # node id -> port in metadata; 1 is this one
    beside: dict[str, int] = field(default_factory=dict)  # node -> port: others that its client knows
    partitions: int = 1
    connections: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, frame: bytes) -> bytes | None:
        api, version = struct.unpack_from(">hh", frame)
        answer = self._answer(api, version, frame)
        if answer == "stall":
            await self.over.wait()
        if answer in ("drop", "stall"):
            raise ConnectionError
        return b"\x7f" * 20 if answer == "garbage" else answer

    def _answer(self, api: int, version: int, frame: bytes) -> Any:
        if api == API_VERSIONS:
            return api_versions(self.served) if self.greets else "drop"
        request = REQUESTS[api].decode(frame, version=version, header=True)
        self.asked.append((api, version, request))
        if api == PRODUCE and request.acks == 0:
            return None
        answers = self.answers[api]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer in ACTS:
            return answer
        return encoded(MAKE[api](self, request, **answer), api, version)


def api_versions(served: Mapping[int, tuple[int, int]]) -> bytes:
    rows = b"".join(struct.pack(">hhh", key, *span) for key, span in served.items())
    return struct.pack(">hi", 0, len(served)) + rows


def encoded(answer: Any, api: int, version: int) -> bytes:
    """An answer of kafka-python's, behind the tags of a flexible header."""
    tags = b"\0" if version >= FLEXIBLE.get(api, version + 1) else b""
    return tags + bytes(answer.encode(version=version))


def led(broker: CannedBroker, _: Any, error: int = 0, leader: int = 1, epoch: int = 0) -> Any:
    """So is each partition."""
    topic = MetadataResponse.MetadataResponseTopic
    partitions = [topic.MetadataResponsePartition(
        error_code=error, partition_index=index, leader_id=leader, leader_epoch=epoch,
        replica_nodes=[1], isr_nodes=[1]) for index in range(broker.partitions)]
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port)
                 for node, port in {1: broker.port, **broker.ports}.items()],
        controller_id=1, topics=[topic(name=TOPIC, partitions=partitions)])


def produced(_: CannedBroker, request: Any, error: int = 0, base_offset: int = 0, lacking: int = -1) -> Any:
    """Each partition of the request but one that is lacking, in the opposite order; partition p has p * 1000
    added to its offset."""
    topic = ProduceResponse.TopicProduceResponse
    asked = [part.index for one in request.topic_data for part in one.partition_data]
    partitions = [topic.PartitionProduceResponse(
        index=index, error_code=error, base_offset=base_offset + 1000 * index)
        for index in reversed(asked) if index != lacking]
    return ProduceResponse(responses=[topic(name=TOPIC, partition_responses=partitions)])


def fetched(_: CannedBroker, __: Any, error: int = 0, hw: int = 0, records: bytes = b"",
            diverging: tuple[int, int] | None = None, throttled_ms: int = 0, elsewhere: int = -1) -> Any:
    """elsewhere: the replica to read from instead."""
    topic = FetchResponse.FetchableTopicResponse
    end = diverging and topic.PartitionData.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    partition = topic.PartitionData(partition_index=0, error_code=error, high_watermark=hw, records=records,
                                    preferred_read_replica=elsewhere, diverging_epoch=end)
    return FetchResponse(throttle_time_ms=throttled_ms,
                         responses=[topic(topic=TOPIC, partitions=[partition])])


def ended(_: CannedBroker, __: Any, error: int = 0, offset: int = 0, epoch: int = 0) -> Any:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = topic.ListOffsetsPartitionResponse(
        partition_index=0, error_code=error, offset=offset, leader_epoch=epoch)
    return ListOffsetsResponse(topics=[topic(name=TOPIC, partitions=[partition])])


def identified(_: CannedBroker, __: Any, error: int = 0) -> Any:
    return InitProducerIdResponse(error_code=error, producer_id=-1 if error else 500,
                                  producer_epoch=-1 if error else 3)


MAKE: dict[int, Callable[..., Any]] = {PRODUCE: produced, FETCH: fetched, LIST_OFFSETS: ended, METADATA: led,
                                       INIT_PRODUCER_ID: identified}


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
