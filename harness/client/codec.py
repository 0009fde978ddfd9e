"""Asks brokers by Kafka's requests, with kafka-python's codec. Produce 9, the most frequent one, is coded by
hand.

The highest version that both sides support is used, up to those in VERSIONS (from 13 on Fetch has topic ids
instead of names). Fetch below 4 has no batches of format 2 and is refused.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from kafka.protocol import admin
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest, ProduceResponse
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from floodmark.harness.client.classify import UNKNOWN_TOPIC_OR_PARTITION
from floodmark.harness.client.connection import Connection
from floodmark.harness.record_batches import uvarint

VERSIONS: Mapping[Any, tuple[int, int]] = {  # of each request that is sent: the lowest, the highest
    ProduceRequest: (3, 9), FetchRequest: (4, 12), ListOffsetsRequest: (1, 7), MetadataRequest: (1, 9),
    InitProducerIdRequest: (0, 4), ApiVersionsRequest: (3, 3), admin.CreateTopicsRequest: (2, 4),
    admin.DeleteTopicsRequest: (1, 4), admin.DescribeConfigsRequest: (1, 4),
    admin.ElectLeadersRequest: (1, 2), admin.IncrementalAlterConfigsRequest: (0, 0),
    admin.AlterPartitionReassignmentsRequest: (0, 0), SaslHandshakeRequest: (1, 1),
    SaslAuthenticateRequest: (0, 0),
}
CONSUMER, DEBUGGING_CONSUMER = -1, -2  # as replica_id; of the second every replica tells the end of its log
_HAND_WRITTEN = 9
_CLIENT_ID = "floodmark"
_LATEST, _EARLIEST = -1, -2
_UNCOMMITTED = 0
_PLACED = struct.Struct(">hq")  # error, base offset
_NO_CORRELATION_ID = bytes(4)

TopicPartition = tuple[str, int]  # topic, partition
Part = TypeVar("Part")


class ProtocolError(Exception):
    """The response is not valid in its version."""


class Unserved(ProtocolError):
    """The broker serves no version that we support; nothing was sent."""


def choose_version(request: Any, connection: Connection, lowest: int = 0) -> int:
    """The highest version that both sides support. Raises Unserved, with the end of a sentence."""
    least, most = VERSIONS[request]
    first, last = connection.versions.get(request.API_KEY, (0, -1))
    if last < 0:
        raise Unserved(f"does not serve {name_of_request(request)}")
    if min(most, last) < max(least, first, lowest):
        raise Unserved(f"serves {name_of_request(request)} in versions {first} to {last}, and floodmark "
                       f"needs {max(least, lowest)} to {most}")
    return min(most, last)


def name_of_request(request: Any) -> str:
    return str(request.__name__).removesuffix("Request")


async def ask(connection: Connection, kind: Any, timeout_s: float, **fields: Any) -> Any:
    """Fields that the response's version lacks have Kafka's defaults. None at once for a request without a
    response. Raises Unsent, Lost, or ProtocolError."""
    request = kind(version=choose_version(kind, connection), **fields)
    request.with_header(0, _CLIENT_ID)
    frame = bytearray(request.encode(header=True, framed=True))
    if not request.expect_response():
        connection.send_unanswered(frame)
        return None
    answer = await connection.exchange(frame, timeout_s)
    return _decode(request.header.get_response_class(), answer, connection)


def _decode(response: Any, answer: bytes, connection: Connection) -> Any:
    try:
        return response.decode(_NO_CORRELATION_ID + answer, header=True)
    except (ValueError, IndexError, struct.error, TypeError, KeyError, AttributeError) as error:
        connection.abort()
        raise ProtocolError(f"an answer that cannot be read: {error}") from error


def by_topic(parts: Iterable[tuple[str, Part]]) -> dict[str, list[Part]]:
    grouped: dict[str, list[Part]] = {}
    for topic, part in parts:
        grouped.setdefault(topic, []).append(part)
    return grouped


class ProduceEncoder:
    """Sends Produce requests for one partition: everything except the records is encoded once."""

    def __init__(self, topic: str, partition: int, acks: int, timeout_ms: int) -> None:
        name = topic.encode()
        client = _CLIENT_ID.encode()
        self._place, self._acks, self._timeout_ms = (topic, partition), acks, timeout_ms
        self._head = (
            struct.pack(">hhih", ProduceRequest.API_KEY, _HAND_WRITTEN, 0, len(client)) + client + b"\x00"
            + b"\x00" + struct.pack(">hi", acks, timeout_ms)
            + b"\x02" + uvarint(len(name) + 1) + name
            + b"\x02" + struct.pack(">i", partition))
        self._answer_head = (b"\x00\x02" + uvarint(len(name) + 1) + name + b"\x02"
                             + struct.pack(">i", partition))

    async def produce(self, connection: Connection, records: bytes, timeout_s: float
                      ) -> tuple[int, int] | None:
        """(error, base offset), or None at once for acks=0. Raises Unsent, Lost, or ProtocolError."""
        if choose_version(ProduceRequest, connection) != _HAND_WRITTEN:
            placed = await produce(connection, {self._place: records}, timeout_s, acks=self._acks,
                                   timeout_ms=self._timeout_ms)
        else:
            body = self._head + uvarint(len(records) + 1) + records + b"\x00\x00\x00"
            frame = bytearray(struct.pack(">i", len(body)) + body)
            if self._acks == 0:
                connection.send_unanswered(frame)
                return None
            answer = await connection.exchange(frame, timeout_s)
            at = len(self._answer_head)
            if answer.startswith(self._answer_head) and len(answer) >= at + _PLACED.size:
                error, base_offset = _PLACED.unpack_from(answer, at)
                return error, base_offset
            placed = _placed(_decode(ProduceResponse[_HAND_WRITTEN], answer, connection))
        if self._acks == 0:
            return None
        if self._place not in placed:
            connection.abort()
            raise ProtocolError("the Produce response does not have the requested partition")
        return placed[self._place].error_code, placed[self._place].base_offset


async def produce(connection: Connection, batches: Mapping[TopicPartition, bytes], timeout_s: float, *,
                  acks: int, timeout_ms: int) -> dict[TopicPartition, Any]:
    """Send batches in one request; return what the response has of each partition, nothing for acks=0."""
    topic_class = ProduceRequest.TopicProduceData
    topics = by_topic((topic, topic_class.PartitionProduceData(index=partition, records=records))
                      for (topic, partition), records in batches.items())
    response = await ask(
        connection, ProduceRequest, timeout_s, transactional_id=None, acks=acks, timeout_ms=timeout_ms,
        topic_data=[topic_class(name=topic, partition_data=data) for topic, data in topics.items()])
    return {} if response is None else _placed(response)


def _placed(response: Any) -> dict[TopicPartition, Any]:
    return {(topic.name, part.index): part
            for topic in response.responses for part in topic.partition_responses}


class FetchFrom(NamedTuple):
    """Where to fetch a partition from. Epochs are -1 if not known."""

    offset: int
    leader_epoch: int = -1
    last_epoch: int = -1  # of the record before offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    error: int
    hw: int
    diverging: bool
    records: bytes
    withheld: str | None  # Kafka's error that says why it has no records, although the answer has no error


async def fetch(connection: Connection, wanted: Mapping[TopicPartition, FetchFrom], timeout_s: float, *,
                max_wait_ms: int, min_bytes: int, max_bytes: int) -> dict[TopicPartition, FetchedPartition]:
    """Fetch as a consumer. max_bytes: of one partition."""
    topic_class = FetchRequest.FetchTopic
    topics = by_topic(
        (topic, topic_class.FetchPartition(
            partition=partition, current_leader_epoch=start.leader_epoch, fetch_offset=start.offset,
            last_fetched_epoch=start.last_epoch, log_start_offset=-1, partition_max_bytes=max_bytes))
        for (topic, partition), start in wanted.items())
    response = await ask(
        connection, FetchRequest, timeout_s, replica_id=CONSUMER, max_wait_ms=max_wait_ms,
        min_bytes=min_bytes, max_bytes=max_bytes * len(wanted), isolation_level=_UNCOMMITTED, session_id=0,
        session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[topic_class(topic=topic, partitions=partitions) for topic, partitions in topics.items()])
    if response.error_code:
        raise ProtocolError(f"the Fetch response has error {response.error_code}")
    throttled = response.throttle_time_ms > 0
    return {
        (topic.topic, part.partition_index): FetchedPartition(
            error=part.error_code, hw=part.high_watermark, records=bytes(part.records or b""),
            withheld=None if part.records else "THROTTLING_QUOTA_EXCEEDED" if throttled
            else "REPLICA_NOT_AVAILABLE" if part.preferred_read_replica >= 0 else None,
            diverging=getattr(part.diverging_epoch, "end_offset", -1) >= 0)
        for topic in response.responses for part in topic.partitions}


async def list_offsets(connection: Connection, epochs: Mapping[TopicPartition, int], timeout_s: float, *,
                       first: bool = False, replica_id: int = CONSUMER) -> dict[TopicPartition, Any]:
    """Ask for the ends of logs, or for their first offsets: error_code, offset and leader_epoch (-1: none) of
    each partition. epochs: the leader epoch of each, -1 if not known."""
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    topics = by_topic(
        (topic, topic_class.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=epoch, timestamp=_EARLIEST if first else _LATEST))
        for (topic, partition), epoch in epochs.items())
    response = await ask(
        connection, ListOffsetsRequest, timeout_s, replica_id=replica_id, isolation_level=_UNCOMMITTED,
        topics=[topic_class(name=topic, partitions=partitions) for topic, partitions in topics.items()])
    return {(topic.name, part.partition_index): part
            for topic in response.topics for part in topic.partitions}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition in a Metadata response. leader and epoch are -1 where there is none."""

    error: int
    leader: int
    epoch: int
    isr: tuple[int, ...] = ()  # node ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    brokers: Mapping[int, tuple[str, int]]  # those that are not fenced: id -> (host, port)
    partitions: Mapping[TopicPartition, PartitionMetadata]
    controller: int = -1  # where to create topics; in KRaft mode any broker, which forwards; -1: none known
    unknown: frozenset[str] = frozenset()  # topics that were asked for and that the broker does not know


async def metadata(connection: Connection, topics: Sequence[str], timeout_s: float) -> ClusterMetadata:
    names = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    response = await ask(connection, MetadataRequest, timeout_s, topics=names,
                         allow_auto_topic_creation=False)
    return ClusterMetadata(
        brokers={broker.node_id: (broker.host, broker.port) for broker in response.brokers},
        controller=response.controller_id,
        unknown=frozenset(topic.name for topic in response.topics
                          if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION),
        partitions={
            (topic.name, part.partition_index): PartitionMetadata(
                error=part.error_code, leader=part.leader_id, epoch=part.leader_epoch,
                isr=tuple(part.isr_nodes)) for topic in response.topics for part in topic.partitions})
