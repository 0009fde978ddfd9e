"""A raw client: one socket, one request, kio's answer; and record batches made by hand."""

import socket
import struct
from types import TracebackType
from typing import Any

from crc32c import crc32c

from floodmark.broker.wire.api_keys import CREATE_TOPICS, ELECT_LEADERS, FETCH, LIST_OFFSETS, PRODUCE
from floodmark.broker.wire.codec import make, milliseconds, read_response, request_parts, write_request
from floodmark.broker.wire.fast_codec import FOLLOWER_FETCH_VERSION

HOST = "127.0.0.1"


def batch(
    *values: bytes, producer: int = -1, epoch: int = -1, sequence: int = -1, attributes: int = 0
) -> bytes:
    """One record batch v2, uncompressed, keys null; values shorter than 50 bytes."""
    records = b""
    for number, value in enumerate(values):
        record = bytes((0, 0, number * 2, 1, len(value) * 2)) + value + b"\0"
        records += bytes((len(record) * 2,)) + record
    body = struct.pack(
        ">hiqqqhii", attributes, len(values) - 1, 1, 1, producer, epoch, sequence, len(values)
    )
    body += records
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


class Raw:
    """One connection."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection((HOST, port), timeout_s)
        self._number = 0

    def __enter__(self) -> "Raw":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, key: int, version: int, body: Any) -> int:
        self._number += 1
        self.socket.sendall(write_request(key, version, self._number, "raw", body))
        return self._number

    def receive(self, key: int, version: int, number: int) -> Any:
        size = struct.unpack(">i", self.exactly(4))[0]
        return read_response(self.exactly(size), key, version, number)

    def ask(self, key: int, version: int, body: Any) -> Any:
        return self.receive(key, version, self.send(key, version, body))

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += more
        return data

    def closed(self) -> bool:
        """Whether the other side has closed; waits for that or for bytes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    # -- the common requests -------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        records: bytes,
        *,
        acks: int = -1,
        partition: int = 0,
        timeout_ms: int = 30_000,
        version: int = 9,
    ) -> tuple[int, int]:
        """(error, base offset)."""
        body = produce_body(topic, records, acks, partition, timeout_ms, version)
        return self.produced(self.send(PRODUCE, version, body), version)

    def produced(self, number: int, version: int = 9) -> tuple[int, int]:
        """(error, base offset) of a produce that was sent."""
        part = self.receive(PRODUCE, version, number).responses[0].partition_responses[0]
        return int(part.error_code), part.base_offset

    def fetch(self, topic: str, offset: int, **besides: int) -> Any:
        """Fetches by Fetch 12; returns its one partition."""
        return self.fetched(self.send_fetch(topic, offset, **besides))

    def fetched(self, number: int) -> Any:
        """The one partition of a fetch that was sent."""
        return self.receive(FETCH, 12, number).responses[0].partitions[0]

    def send_fetch(
        self,
        topic: str,
        offset: int,
        *,
        wait_ms: int = 0,
        partition: int = 0,
        epoch: int = -1,
        replica: int = -1,
        last_epoch: int = -1,
    ) -> int:
        cls, parts = request_parts(FETCH, 12)
        part = make(
            parts.FetchPartition,
            partition=partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=1 << 20,
        )
        body = make(
            cls,
            replica_id=replica,
            max_wait=milliseconds(wait_ms),
            min_bytes=1,
            max_bytes=1 << 20,
            topics=(make(parts.FetchTopic, topic=topic, partitions=(part,)),),
            forgotten_topics_data=(),
        )
        return self.send(FETCH, 12, body)

    def end_offset(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """(error, HW)."""
        cls, parts = request_parts(LIST_OFFSETS, 7)
        part = make(parts.ListOffsetsPartition, partition_index=partition, timestamp=-1)
        body = make(
            cls,
            replica_id=-1,
            isolation_level=0,
            topics=(make(parts.ListOffsetsTopic, name=topic, partitions=(part,)),),
        )
        answer = self.ask(LIST_OFFSETS, 7, body).topics[0].partitions[0]
        return int(answer.error_code), answer.offset

    def create(self, topic: str, *assignment: tuple[int, ...], **configs: str) -> int:
        """The error."""
        cls, parts = request_parts(CREATE_TOPICS, 7)
        body = make(
            cls,
            timeout=milliseconds(30_000),
            topics=(
                make(
                    parts.CreatableTopic,
                    name=topic,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=tuple(
                        make(parts.CreatableReplicaAssignment, partition_index=index, broker_ids=replicas)
                        for index, replicas in enumerate(assignment)
                    ),
                    configs=tuple(
                        make(parts.CreatableTopicConfig, name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ),
                ),
            ),
        )
        return int(self.ask(CREATE_TOPICS, 7, body).topics[0].error_code)

    def elect(self, topic: str, *, unclean: bool = False) -> int:
        """The error for partition 0."""
        cls, parts = request_parts(ELECT_LEADERS, 2)
        body = make(
            cls,
            election_type=int(unclean),
            topic_partitions=(make(parts.TopicPartitions, topic=topic, partitions=(0,)),),
        )
        results = self.ask(ELECT_LEADERS, 2, body).replica_election_results
        return int(results[0].partition_result[0].error_code)


def produce_body(
    topic: str, records: bytes, acks: int, partition: int, timeout_ms: int, version: int
) -> Any:
    cls, parts = request_parts(PRODUCE, version)
    data = make(parts.PartitionProduceData, index=partition, records=records)
    return make(
        cls,
        transactional_id=None,
        acks=acks,
        timeout=milliseconds(timeout_ms),
        topic_data=(make(parts.TopicProduceData, name=topic, partition_data=(data,)),),
    )


__all__ = ["FOLLOWER_FETCH_VERSION", "Raw", "batch", "produce_body"]
