"""Encodes requests and decodes responses with kafka-python's codec, except Produce 9, which it codes by hand.

Produce 9 is the most frequent request. The highest version that both sides support is used, up to Produce 9,
Fetch 12, ListOffsets 7, Metadata 9 (later ones have topic ids instead of names). Fetch below 4 has no batches
of format 2 and is refused.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

from floodmark.harness.client.batch import uvarint

PRODUCE, FETCH, LIST_OFFSETS, METADATA, INIT_PRODUCER_ID = 0, 1, 2, 3, 22
_SUPPORTED = {PRODUCE: (3, 9), FETCH: (4, 12), LIST_OFFSETS: (1, 7), METADATA: (1, 9),
              INIT_PRODUCER_ID: (0, 4)}
_FLEXIBLE = {PRODUCE: 9, FETCH: 12, LIST_OFFSETS: 6, METADATA: 9,  # from here on headers carry tags
             INIT_PRODUCER_ID: 2}
_HAND_WRITTEN = 9
_CLIENT_ID = "floodmark"
_LATEST, _EARLIEST = -1, -2
_DEBUGGING_CONSUMER = -2  # as replica_id: every replica answers, with the end of its log
_UNCOMMITTED = 0
_PLACED = struct.Struct(">ihq")  # partition, error, base offset


class ProtocolError(Exception):
    """The broker serves no version that we support, or its response is not valid in the version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """One partition of a Fetch request."""

    topic: str
    partition: int
    leader_epoch: int  # current_leader_epoch; -1 if it is not known
    offset: int
    last_epoch: int  # of the record before offset; -1 if none was read


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """One partition of a Fetch response."""

    error: int
    hw: int
    diverging: bool
    records: bytes
    withheld: str | None  # Kafka's error that says why it has no records, although the answer has no error


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition in a Metadata response. leader and epoch are -1 where there is none."""

    error: int
    leader: int
    epoch: int
    isr: tuple[int, ...] = ()  # node ids


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """A Metadata response: node id -> (host, port); (topic, partition) -> PartitionMetadata."""

    brokers: Mapping[int, tuple[str, int]]
    partitions: Mapping[tuple[str, int], PartitionMetadata]


def choose_version(api: int, served: Mapping[int, tuple[int, int]]) -> int:
    """The highest version that both sides support. Raises ProtocolError."""
    lowest, highest = served.get(api, (0, -1))
    version = min(_SUPPORTED[api][1], highest)
    if version < max(_SUPPORTED[api][0], lowest):
        raise ProtocolError(f"the broker serves api {api} only in versions {lowest}-{highest}")
    return version


# -- produce ------------------------------------------------------------------------------------------------

class ProduceEncoder:
    """Encodes Produce requests for one partition: everything except the records is built once."""

    def __init__(self, topic: str, partition: int, acks: int, timeout_ms: int) -> None:
        name = topic.encode()
        client = _CLIENT_ID.encode()
        self._topic, self._partition, self._acks, self._timeout_ms = topic, partition, acks, timeout_ms
        self._head = (
            struct.pack(">hhih", PRODUCE, _HAND_WRITTEN, 0, len(client)) + client + b"\x00"
            + b"\x00" + struct.pack(">hi", acks, timeout_ms)
            + b"\x02" + uvarint(len(name) + 1) + name
            + b"\x02" + struct.pack(">i", partition)
        )
        self._answer_head = b"\x00\x02" + uvarint(len(name) + 1) + name + b"\x02"

    def encode(self, records: bytes, version: int) -> bytearray:
        if version == _HAND_WRITTEN:
            body = self._head + uvarint(len(records) + 1) + records + b"\x00\x00\x00"
            return bytearray(struct.pack(">i", len(body)) + body)
        return build_produce_request({(self._topic, self._partition): records}, version, acks=self._acks,
                                     timeout_ms=self._timeout_ms)

    def decode(self, answer: bytes, version: int) -> tuple[int, int]:
        """Read (error, base offset). Raises ProtocolError."""
        head = self._answer_head
        if version == _HAND_WRITTEN and answer.startswith(head) and len(answer) >= len(head) + _PLACED.size:
            partition, error, base_offset = _PLACED.unpack_from(answer, len(head))
            if partition == self._partition:
                return error, base_offset
        placed = read_produce_response(answer, version).get((self._topic, self._partition))
        if placed is None:
            raise ProtocolError("the Produce response does not have the requested partition")
        return placed


def build_produce_request(batches: Mapping[tuple[str, int], bytes], version: int, *, acks: int,
                          timeout_ms: int) -> bytearray:
    """A request for several partitions. batches: (topic, partition) -> records."""
    topic_class = ProduceRequest.TopicProduceData
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), records in batches.items():
        by_topic.setdefault(topic, []).append(
            topic_class.PartitionProduceData(index=partition, records=records))
    return _encode_request(ProduceRequest(
        version=version, transactional_id=None, acks=acks, timeout_ms=timeout_ms,
        topic_data=[topic_class(name=topic, partition_data=data) for topic, data in by_topic.items()],
    ), version)


def read_produce_response(answer: bytes, version: int) -> dict[tuple[str, int], tuple[int, int]]:
    """Read (topic, partition) -> (error, base offset). Raises ProtocolError."""
    return {(topic.name, part.index): (part.error_code, part.base_offset)
            for topic in _decode_response(ProduceResponse, PRODUCE, answer, version).responses
            for part in topic.partition_responses}


def build_init_producer_id_request(version: int) -> bytearray:
    """A request for a producer id without transactions."""
    return _encode_request(InitProducerIdRequest(
        version=version, transactional_id=None, transaction_timeout_ms=-1, producer_id=-1, producer_epoch=-1,
    ), version)


def read_init_producer_id_response(answer: bytes, version: int) -> tuple[int, tuple[int, int]]:
    """Read (error, (producer id, producer epoch))."""
    decoded = _decode_response(InitProducerIdResponse, INIT_PRODUCER_ID, answer, version)
    return decoded.error_code, (decoded.producer_id, decoded.producer_epoch)


# -- fetch, list offsets, metadata --------------------------------------------------------------------------

def build_fetch_request(fetches: Sequence[FetchPartition], version: int, *, max_wait_ms: int, min_bytes: int,
                  max_bytes: int) -> bytearray:
    topic_class = FetchRequest.FetchTopic
    by_topic: dict[str, list[Any]] = {}
    for fetch in fetches:
        by_topic.setdefault(fetch.topic, []).append(topic_class.FetchPartition(
            partition=fetch.partition, current_leader_epoch=fetch.leader_epoch, fetch_offset=fetch.offset,
            last_fetched_epoch=fetch.last_epoch, log_start_offset=-1, partition_max_bytes=max_bytes,
        ))
    return _encode_request(FetchRequest(
        version=version, replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=min_bytes,
        max_bytes=max_bytes * len(fetches), isolation_level=_UNCOMMITTED, session_id=0, session_epoch=-1,
        topics=[topic_class(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()],
        forgotten_topics_data=[], rack_id="",
    ), version)


def read_fetch_response(answer: bytes, version: int) -> dict[tuple[str, int], FetchedPartition]:
    """Read the partitions by (topic, partition). An error of the whole response raises ProtocolError."""
    decoded = _decode_response(FetchResponse, FETCH, answer, version)
    if version >= 7 and decoded.error_code:
        raise ProtocolError(f"the Fetch response has error {decoded.error_code}")
    throttled = decoded.throttle_time_ms > 0
    return {
        (topic.topic, part.partition_index): FetchedPartition(
            error=part.error_code, hw=part.high_watermark, records=bytes(part.records or b""),
            withheld=None if part.records else "THROTTLING_QUOTA_EXCEEDED" if throttled
            else "REPLICA_NOT_AVAILABLE" if version >= 11 and part.preferred_read_replica >= 0 else None,
            diverging=version >= 12 and getattr(part.diverging_epoch, "end_offset", -1) >= 0,
        )
        for topic in decoded.responses for part in topic.partitions
    }


def build_list_offsets_request(topic: str, partition: int, leader_epoch: int, version: int, *,
                               first: bool = False) -> bytearray:
    """Build a consumer's request for the end of a log, or for its first offset."""
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    partition_request = topic_class.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=leader_epoch,
        timestamp=_EARLIEST if first else _LATEST)
    return _encode_request(ListOffsetsRequest(
        version=version, replica_id=-1, isolation_level=_UNCOMMITTED,
        topics=[topic_class(name=topic, partitions=[partition_request])],
    ), version)


def read_list_offsets_response(answer: bytes, version: int) -> tuple[int, int, int]:
    """Read (error, offset, leader epoch, -1 where there is none) of the requested partition."""
    for topic in _decode_response(ListOffsetsResponse, LIST_OFFSETS, answer, version).topics:
        for part in topic.partitions:
            return part.error_code, part.offset, part.leader_epoch if version >= 4 else -1
    raise ProtocolError("the ListOffsets response does not have the requested partition")


def build_log_ends_request(places: Sequence[tuple[str, int]], version: int, *, first: bool = False
                           ) -> bytearray:
    """Build a request for the log ends of any replica, or for the first offsets of its logs (first). places:
    topic and partition of each."""
    topic_class = ListOffsetsRequest.ListOffsetsTopic
    by_topic: dict[str, list[Any]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(topic_class.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=-1, timestamp=_EARLIEST if first else _LATEST))
    return _encode_request(ListOffsetsRequest(
        version=version, replica_id=_DEBUGGING_CONSUMER, isolation_level=_UNCOMMITTED,
        topics=[topic_class(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
    ), version)


def read_log_ends_response(answer: bytes, version: int) -> dict[tuple[str, int], tuple[int, int]]:
    """Read (topic, partition) -> (error, LEO, or the log's first offset)."""
    return {(topic.name, part.partition_index): (part.error_code, part.offset)
            for topic in _decode_response(ListOffsetsResponse, LIST_OFFSETS, answer, version).topics
            for part in topic.partitions}


def build_metadata_request(topics: Sequence[str], version: int) -> bytearray:
    names = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
    request = MetadataRequest(version=version, topics=names, allow_auto_topic_creation=False)
    return _encode_request(request, version)


def read_metadata_response(answer: bytes, version: int) -> ClusterMetadata:
    decoded = _decode_response(MetadataResponse, METADATA, answer, version)
    return ClusterMetadata(
        brokers={broker.node_id: (broker.host, broker.port) for broker in decoded.brokers},
        partitions={
            (topic.name, part.partition_index): PartitionMetadata(
                error=part.error_code, leader=part.leader_id,
                epoch=part.leader_epoch if version >= 7 else -1, isr=tuple(part.isr_nodes),
            )
            for topic in decoded.topics for part in topic.partitions
        },
    )


def _encode_request(request: Any, version: int) -> bytearray:
    request.with_header(0, _CLIENT_ID)
    return bytearray(request.encode(version=version, header=True, framed=True))


def _decode_response(response: Any, api: int, answer: bytes, version: int) -> Any:
    """Decode the body after the correlation id; any error of the codec is a ProtocolError."""
    decode: Callable[..., Any] = response.decode
    try:
        body = answer
        if version >= _FLEXIBLE[api]:
            if answer[:1] != b"\x00":
                raise ProtocolError("the response header has tags")
            body = answer[1:]
        return decode(body, version=version)
    except (ValueError, IndexError, struct.error, TypeError, KeyError, AttributeError) as error:
        why = f"the response to api {api} version {version} cannot be read: {error}"
        raise ProtocolError(why) from error
