"""Serves ListOffsets and OffsetForLeaderEpoch.

Rules
1. A request about several partitions is answered when every one of them has answered, in the order asked.
2. A partition that is not here: error 6 where the cluster has it, 3 where it has not (Kafka's order).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.broker.process_log import halt_process
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import CONSUMER, ListOffsets, OffsetsForLeaderEpoch
from floodmark.broker.server.effect_runner import HostedPartition
from floodmark.broker.server.replica_manager import ReplicaManager, now_ms
from floodmark.broker.server.socket_server import Connection
from floodmark.broker.storage.offsets_by_timestamp import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    find_offset,
)
from floodmark.broker.wire.api_keys import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from floodmark.broker.wire.codec import (
    RequestHeader,
    error_code,
    make,
    milliseconds,
    read_request,
    response_parts,
    write_response,
)

FindPartition = Callable[[str, int], tuple[HostedPartition | None, int]]
_NO_TIME = milliseconds(0)


@dataclass(slots=True, kw_only=True, eq=False)
class PendingAnswers:
    """Answers of several replicas to one request, until all are there. `answers` begin as errors."""

    answers: list[Any]
    outstanding: int
    then: Callable[[list[Any]], None] = field(repr=False)

    def complete(self, index: int, answer: Any) -> None:
        self.answers[index] = answer
        self.finish_one()

    def finish_one(self) -> None:
        self.outstanding -= 1
        if not self.outstanding:
            self.then(self.answers)


def _ask_replicas(
    replica_manager: ReplicaManager,
    found: Sequence[tuple[HostedPartition | None, int]],
    event: Callable[[int, Any], Any],
    then: Callable[[list[Any]], None],
) -> None:
    """Post `event(index, token)` to each replica found; `then` gets an answer, or an error code, for each."""
    asked = [
        (index, hosted) for index, (hosted, error) in enumerate(found) if hosted is not None and not error
    ]
    pending = PendingAnswers(answers=[error for _, error in found], outstanding=len(asked) + 1, then=then)
    for index, hosted in asked:
        replica_manager.post(hosted, event(index, (pending, index)))
    pending.finish_one()


def requesting_replica(replica: int, me: int) -> int:
    """The replica id for the machine: Kafka's negative ids (debugging consumer) are clients, and so is this
    broker itself."""
    return CONSUMER if replica < 0 or replica == me else replica


def _find_answer(hosted: HostedPartition | None, timestamp: int, answer: Any) -> tuple[int, dict[str, Any]]:
    """The error and the fields of a partition's response. For a timestamp the replica has answered the HW,
    below which the record is looked for. There may be none: then the offset is -1, and that is no error."""
    error = answer if isinstance(answer, int) else answer.error
    fields: dict[str, Any] = {"offset": -1, "timestamp": -1}
    if error or timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) or hosted is None:
        if not error:
            fields |= {"offset": answer.offset, "leader_epoch": answer.leader_epoch}
        return error, fields
    try:
        found = find_offset(hosted.log, timestamp, answer.offset)
    except (OSError, ValueError) as failure:
        halt_process("read-failed", failure)
    if found is not None:
        fields = {"offset": found.offset, "timestamp": found.timestamp, "leader_epoch": found.epoch}
    return error, fields


def _check_timestamp(
    found: tuple[HostedPartition | None, int], timestamp: int
) -> tuple[HostedPartition | None, int]:
    """The same, with the error for what is no time and none of the words for one that are served."""
    hosted, error = found
    if not error and timestamp < MAX_TIMESTAMP:
        error = errors.UNSUPPORTED_VERSION
    return hosted, error


def handle_list_offsets(
    replica_manager: ReplicaManager,
    find_partition: FindPartition,
    connection: Connection,
    frame: bytes,
    head: RequestHeader,
) -> None:
    """Serve one ListOffsets 1-7: the first offset, the next, the first since a time, the youngest's."""
    request = read_request(frame, head)
    replica = requesting_replica(request.replica_id, replica_manager.config.node_id)
    asked = [(topic.name, part) for topic in request.topics for part in topic.partitions]
    found = [
        _check_timestamp(find_partition(name, part.partition_index), part.timestamp) for name, part in asked
    ]

    def event(index: int, token: object) -> ListOffsets:
        part = asked[index][1]
        return ListOffsets(
            now_ms=now_ms(),
            token=token,
            replica=replica,
            latest=part.timestamp != EARLIEST_TIMESTAMP,
            current_leader_epoch=getattr(part, "current_leader_epoch", -1),
        )

    def answer(answers: list[Any]) -> None:
        cls, parts = response_parts(LIST_OFFSETS, head.version)
        topics: dict[str, list[Any]] = {}
        for (name, part), (hosted, _), each in zip(asked, found, answers, strict=True):
            error, fields = _find_answer(hosted, part.timestamp, each)
            topics.setdefault(name, []).append(
                make(
                    parts.ListOffsetsPartitionResponse,
                    partition_index=part.partition_index,
                    error_code=error_code(error),
                    **fields,
                )
            )
        results = tuple(
            make(parts.ListOffsetsTopicResponse, name=name, partitions=tuple(each))
            for name, each in topics.items()
        )
        body = make(cls, throttle_time=_NO_TIME, topics=results)
        connection.answer(write_response(head.correlation, body))

    _ask_replicas(replica_manager, found, event, answer)


def handle_offset_for_leader_epoch(
    replica_manager: ReplicaManager,
    find_partition: FindPartition,
    connection: Connection,
    frame: bytes,
    head: RequestHeader,
) -> None:
    """Serve one OffsetForLeaderEpoch 2-4."""
    request = read_request(frame, head)
    replica = requesting_replica(getattr(request, "replica_id", -1), replica_manager.config.node_id)
    asked = [(topic.topic, part) for topic in request.topics for part in topic.partitions]
    found = [find_partition(name, part.partition) for name, part in asked]

    def event(index: int, token: object) -> OffsetsForLeaderEpoch:
        part = asked[index][1]
        return OffsetsForLeaderEpoch(
            now_ms=now_ms(),
            token=token,
            replica=replica,
            epoch=part.leader_epoch,
            current_leader_epoch=part.current_leader_epoch,
        )

    def answer(answers: list[Any]) -> None:
        cls, parts = response_parts(OFFSET_FOR_LEADER_EPOCH, head.version)
        topics: dict[str, list[Any]] = {}
        for (name, part), each in zip(asked, answers, strict=True):
            error = each if isinstance(each, int) else each.error
            end = None if error else each.end
            topics.setdefault(name, []).append(
                make(
                    parts.EpochEndOffset,
                    error_code=error_code(error),
                    partition=part.partition,
                    leader_epoch=-1 if end is None else end.epoch,
                    end_offset=-1 if end is None else end.end_offset,
                )
            )
        results = tuple(
            make(parts.OffsetForLeaderTopicResult, topic=name, partitions=tuple(each))
            for name, each in topics.items()
        )
        body = make(cls, throttle_time=_NO_TIME, topics=results)
        connection.answer(write_response(head.correlation, body))

    _ask_replicas(replica_manager, found, event, answer)
