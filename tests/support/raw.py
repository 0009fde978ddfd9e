"""A raw client: one socket, one request, kio's answer; and record batches made by hand."""

import socket
import struct
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Self, get_args

from crc32c import crc32c

from floodmark.broker.wire.api_keys import CREATE_TOPICS, ELECT_LEADERS, FETCH, LIST_OFFSETS, PRODUCE
from floodmark.broker.wire.codec import make, milliseconds, read_response, request_parts, write_request

HOST = "127.0.0.1"


def batch(
    *values: bytes, producer: int = -1, epoch: int = -1, sequence: int = -1, attributes: int = 0
) -> bytes:
    """One record batch v2, uncompressed, keys null; values shorter than 50 bytes."""
    records = b""
    for number, value in enumerate(values):
        record = bytes((0, 0, number * 2, 1, len(value) * 2)) + value + b"\0"
        records += bytes((len(record) * 2,)) + record
    body = struct.pack(">hiqqqhii", attributes, len(values) - 1, 1, 1, producer, epoch, sequence, len(values))
    body += records
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


def request(kind: Any, **values: Any) -> Any:
    """An instance of a kio class, without what its version lacks; a dict in a list is one of its class."""
    kinds = {field.name: field.type for field in fields(kind)}

    def filled(name: str, value: Any) -> Any:
        if not isinstance(value, list) or name not in kinds:
            return value
        inner, *_ = get_args(kinds[name])  # of tuple[X, ...], or of tuple[X, ...] | None
        return tuple(request((get_args(inner) or (inner,))[0], **one) for one in value)

    return make(kind, **{name: filled(name, value) for name, value in values.items()})


class Raw:
    """One connection."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection((HOST, port), timeout_s)
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, key: int, version: int, **values: Any) -> int:
        self._number += 1
        body = request(request_parts(key, version)[0], **values)
        self.socket.sendall(write_request(key, version, self._number, "raw", body))
        return self._number

    def receive(self, key: int, version: int, number: int) -> Any:
        size = struct.unpack(">i", self.exactly(4))[0]
        return read_response(self.exactly(size), key, version, number)

    def ask(self, key: int, version: int, **values: Any) -> Any:
        return self.receive(key, version, self.send(key, version, **values))

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

    def produce(self, topic: str, records: bytes, *, version: int = 9, **more: int) -> tuple[int, int]:
        """(error, base offset)."""
        return self.produced(self.send_produce(topic, records, version=version, **more), version)

    def send_produce(self, topic: str, records: bytes, *, acks: int = -1, partition: int = 0,
                     timeout_ms: int = 30_000, version: int = 9) -> int:
        return self.send(
            PRODUCE, version, transactional_id=None, acks=acks, timeout=milliseconds(timeout_ms), topic_data=[
                {"name": topic, "partition_data": [{"index": partition, "records": records}]}])

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

    def send_fetch(self, topic: str, offset: int, *, wait_ms: int = 0, partition: int = 0, epoch: int = -1,
                   replica: int = -1, last_epoch: int = -1) -> int:
        part = {"partition": partition, "current_leader_epoch": epoch, "fetch_offset": offset,
                "last_fetched_epoch": last_epoch, "partition_max_bytes": 1 << 20}
        return self.send(FETCH, 12, replica_id=replica, max_wait=milliseconds(wait_ms), min_bytes=1,
                         max_bytes=1 << 20, topics=[{"topic": topic, "partitions": [part]}],
                         forgotten_topics_data=())

    def list_offset(self, topic: str, timestamp: int, *, partition: int = 0, replica: int = -1,
                    epoch: int = -1, version: int = 7) -> tuple[int, int, int, int | None]:
        """(error, offset, timestamp, leader epoch)."""
        part = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
        answer = self.ask(LIST_OFFSETS, version, replica_id=replica, isolation_level=0,
                          topics=[{"name": topic, "partitions": [part]}])
        found = answer.topics[0].partitions[0]
        return (int(found.error_code), found.offset, found.timestamp,
                found.leader_epoch if version >= 4 else None)

    def end_offset(self, topic: str) -> tuple[int, int]:
        """(error, HW)."""
        return self.list_offset(topic, -1)[:2]

    def created(self, topic: str, partitions: int = -1, factor: int = -1,
                assignment: Iterable[tuple[int, tuple[int, ...]]] = (), **configs: str
                ) -> tuple[int, int, int]:
        """(error, partitions, replication factor)."""
        wanted = {
            "name": topic, "num_partitions": partitions, "replication_factor": factor,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
            "assignments": [{"partition_index": at, "broker_ids": brokers} for at, brokers in assignment]}
        found = self.ask(CREATE_TOPICS, 7, timeout=milliseconds(30_000), topics=[wanted]).topics[0]
        return int(found.error_code), found.num_partitions, found.replication_factor

    def create(self, topic: str, *assignment: tuple[int, ...], **configs: str) -> int:
        """The error."""
        return self.created(topic, assignment=enumerate(assignment), **configs)[0]

    def elected(self, topic: str, *, unclean: bool = False, partition: int = 0) -> tuple[int, list[int]]:
        """(error, error of each partition)."""
        answer = self.ask(ELECT_LEADERS, 2, election_type=int(unclean),
                          topic_partitions=[{"topic": topic, "partitions": (partition,)}])
        return int(answer.error_code), [int(part.error_code) for found in answer.replica_election_results
                                        for part in found.partition_result]

    def elect(self, topic: str, *, unclean: bool = False) -> int:
        """The error for partition 0."""
        return self.elected(topic, unclean=unclean)[1][0]
