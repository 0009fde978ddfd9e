"""Serves Produce: checks the batches, posts them to the replicas, and responds when each has answered.

Rules
1. Nothing that is refused here was appended: base_offset -1. A replica's answer is passed on as it is.
2. acks=0 gets no response; an error closes its connection, as in Kafka, so that the client notices.
3. One batch for a partition, of format v2, with a valid CRC: else the error that Kafka gives.
"""

from dataclasses import dataclass, field
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import Batch, Produce
from floodmark.broker.server.effect_runner import FindPartition, HostedPartition
from floodmark.broker.server.group_requests import TRANSACTION_REFUSED
from floodmark.broker.server.replica_manager import ReplicaManager, now_ms
from floodmark.broker.server.socket_server import Connection
from floodmark.broker.wire.codec import RequestHeader, read_request
from floodmark.broker.wire.fast_codec import write_produce_response
from floodmark.broker.wire.record_batch import HEADER_BYTES, MAGIC, BatchTooLarge, CorruptBatch, parse_batches

_MAGIC_AT, _ATTRIBUTES_AT = 16, 22  # of the attributes only the low byte
_CODEC, _ZSTD, _TRANSACTIONAL, _CONTROL = 0x07, 4, 0x10, 0x20


@dataclass(slots=True, kw_only=True, eq=False)
class PendingProduce:
    """A produce that is not answered yet; `answers` are (topic, partition, error, base offset, log start)."""

    connection: Connection
    head: RequestHeader
    acks: int
    answers: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    outstanding: int = 1  # one for the request itself, until all replicas have been asked

    def complete(self, index: int, answer: Any) -> None:
        topic, partition, *_ = self.answers[index]
        self.answers[index] = (topic, partition, answer.error, answer.base_offset, answer.log_start)
        self.finish_one()

    def finish_one(self) -> None:
        self.outstanding -= 1
        if not self.outstanding:
            self._send_response()

    def _send_response(self) -> None:
        if self.acks == 0:
            if any(error for _, _, error, _, _ in self.answers):
                self.connection.close("a produce with acks=0 was refused")
            else:
                self.connection.answer(None)
            return
        topics: list[tuple[str, list[tuple[int, int, int, int]]]] = []
        for topic, *rest in self.answers:
            if not topics or topics[-1][0] != topic:
                topics.append((topic, []))
            topics[-1][1].append((rest[0], rest[1], rest[2], rest[3]))
        self.connection.answer(write_produce_response(self.head.version, self.head.correlation, topics))


def handle_produce(
    replica_manager: ReplicaManager,
    find_partition: FindPartition,
    connection: Connection,
    frame: bytes,
    head: RequestHeader,
) -> None:
    """Serve one Produce 3-9."""
    request = read_request(frame, head)
    acks = int(request.acks)
    pending = PendingProduce(connection=connection, head=head, acks=acks)
    timeout_ms = max(0, int(request.timeout.total_seconds() * 1000))
    transactional = request.transactional_id is not None
    limit = replica_manager.config.message_max_bytes
    asked: list[tuple[HostedPartition, Produce]] = []
    for topic in request.topic_data:
        for part in topic.partition_data:
            batch, error = _read_batch(part.records, head.version, limit)
            hosted, unknown = find_partition(topic.name, part.index)
            error = unknown or error
            if acks not in (-1, 0, 1):
                error = errors.INVALID_REQUIRED_ACKS
            elif transactional:
                error = TRANSACTION_REFUSED
            index = len(pending.answers)
            pending.answers.append((topic.name, part.index, error, -1, -1))
            if not error and hosted is not None and batch is not None:
                asked.append(
                    (
                        hosted,
                        Produce(
                            now_ms=now_ms(),
                            token=(pending, index),
                            acks=acks,
                            timeout_ms=timeout_ms,
                            batches=(batch,),
                        ),
                    )
                )
    pending.outstanding += len(asked)
    for hosted, event in asked:
        replica_manager.post(hosted, event)
    pending.finish_one()


def _read_batch(records: Any, version: int, limit: int) -> tuple[Batch | None, int]:
    """(the one batch of a partition's records, 0), or None and Kafka's error."""
    if records is None or len(records) < HEADER_BYTES or _is_old_format(records):
        return None, errors.INVALID_RECORD
    try:
        batches = parse_batches(records, max_batch_bytes=limit, partial_tail=True)  # as Kafka reads it
    except BatchTooLarge:
        return None, errors.MESSAGE_TOO_LARGE
    except CorruptBatch:
        return None, errors.CORRUPT_MESSAGE
    attributes = records[_ATTRIBUTES_AT]
    if len(batches) != 1 or attributes & _CONTROL or batches[0].producer_id >= 0 > batches[0].base_sequence:
        return None, errors.INVALID_RECORD
    if attributes & _TRANSACTIONAL:
        return None, TRANSACTION_REFUSED
    if attributes & _CODEC == _ZSTD and version < 7:
        return None, errors.UNSUPPORTED_COMPRESSION_TYPE
    return batches[0], errors.NONE


def _is_old_format(records: Any) -> bool:
    """Whether it is a message set of format v0 or v1, whose magic is at the same position."""
    return len(records) > _MAGIC_AT and records[_MAGIC_AT] < MAGIC
