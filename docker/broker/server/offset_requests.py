"""Serves ListOffsets and OffsetForLeaderEpoch.

Rules
1. A request about several partitions is answered when every one of them has answered, in the order requested.
2. A partition without a replica here: error 6 where the cluster has, or may have, the partition, else 3
   (Kafka's order).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.broker.process_log import halt_process
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import (
    CONSUMER,
    DEBUGGING_CONSUMER,
    ListOffsets,
    OffsetsForLeaderEpoch,
)
from floodmark.broker.server.effect_runner import FindPartition, HostedPartition
from floodmark.broker.server.replica_manager import ReplicaManager, now_ms
from floodmark.broker.server.socket_server import Connection
from floodmark.broker.storage.offsets_by_timestamp import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    find_offset,
)
from floodmark.broker.wire.codec import (
    NO_THROTTLE_TIME,
    RequestHeader,
    error_code,
    make,
    read_request,
    response_parts,
    write_response,
)

_NO_REPLICA = 2**31 - 1  # a broker that is no replica


@dataclass(slots=True, kw_only=True, eq=False)
class PendingAnswers:
    """The answers of several replicas to one request; `respond` is called when all are there."""

    answers: list[Any]  # an error code until the replica has answered
    outstanding: int
    respond: Callable[[list[Any]], None] = field(repr=False)

    def complete(self, index: int, answer: Any) -> None:
        self.answers[index] = answer
        self.finish_one()

    def finish_one(self) -> None:
        self.outstanding -= 1
        if not self.outstanding:
            self.respond(self.answers)


def requesting_replica(replica: int, me: int) -> int:
    """The replica id for the machine: a negative id is a client's. This broker does not follow itself."""
    if replica == me:
        return _NO_REPLICA
    return replica if replica >= DEBUGGING_CONSUMER else CONSUMER


def _find_answer(hosted: HostedPartition | None, timestamp: int, answer: Any) -> tuple[int, dict[str, Any]]:
    """(error, fields) of a partition's response. For a timestamp the replica has answered the HW, and the
    record is searched below it. If there is none the offset is -1, which is no error."""
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
    """The same, or UNSUPPORTED_VERSION for a special timestamp that is not served."""
    hosted, error = found
    if not error and timestamp < MAX_TIMESTAMP:
        error = errors.UNSUPPORTED_VERSION
    return hosted, error


class OffsetRequests:
    """Serves both requests for the replicas of this broker."""

    def __init__(self, replica_manager: ReplicaManager, find_partition: FindPartition) -> None:
        self._replica_manager = replica_manager
        self._find_partition = find_partition

    def handle_list_offsets(self, connection: Connection, frame: bytes, head: RequestHeader) -> None:
        """Serve ListOffsets 1-7: the log start, the HW, the first offset since a time, the newest
        record's."""
        request = read_request(frame, head)
        replica = requesting_replica(request.replica_id, self._replica_manager.config.node_id)
        asked = [(topic.name, part) for topic in request.topics for part in topic.partitions]
        found = [
            _check_timestamp(self._find_partition(name, part.partition_index), part.timestamp)
            for name, part in asked
        ]

        def build_event(index: int, token: object) -> ListOffsets:
            part = asked[index][1]
            return ListOffsets(
                now_ms=now_ms(),
                token=token,
                replica=replica,
                latest=part.timestamp != EARLIEST_TIMESTAMP,
                current_leader_epoch=getattr(part, "current_leader_epoch", -1),
            )

        def respond(answers: list[Any]) -> None:
            cls, parts = response_parts(head.key, head.version)
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
            _send_response(connection, head, cls, parts.ListOffsetsTopicResponse, topics)

        self._ask_replicas(found, build_event, respond)

    def handle_offset_for_leader_epoch(
        self, connection: Connection, frame: bytes, head: RequestHeader
    ) -> None:
        """Serve OffsetForLeaderEpoch 2-4."""
        request = read_request(frame, head)
        replica = requesting_replica(
            getattr(request, "replica_id", -1), self._replica_manager.config.node_id
        )
        asked = [(topic.topic, part) for topic in request.topics for part in topic.partitions]
        found = [self._find_partition(name, part.partition) for name, part in asked]

        def build_event(index: int, token: object) -> OffsetsForLeaderEpoch:
            part = asked[index][1]
            return OffsetsForLeaderEpoch(
                now_ms=now_ms(),
                token=token,
                replica=replica,
                epoch=part.leader_epoch,
                current_leader_epoch=part.current_leader_epoch,
            )

        def respond(answers: list[Any]) -> None:
            cls, parts = response_parts(head.key, head.version)
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
            _send_response(connection, head, cls, parts.OffsetForLeaderTopicResult, topics)

        self._ask_replicas(found, build_event, respond)

    def _ask_replicas(
        self,
        found: Sequence[tuple[HostedPartition | None, int]],
        build_event: Callable[[int, Any], Any],
        respond: Callable[[list[Any]], None],
    ) -> None:
        """Post `build_event(index, token)` to each replica found; `respond` gets an answer, or an error code,
        for each."""
        asked = [
            (index, hosted)
            for index, (hosted, error) in enumerate(found)
            if hosted is not None and not error
        ]
        pending = PendingAnswers(
            answers=[error for _, error in found], outstanding=len(asked) + 1, respond=respond
        )
        for index, hosted in asked:
            self._replica_manager.post(hosted, build_event(index, (pending, index)))
        pending.finish_one()


def _send_response(
    connection: Connection, head: RequestHeader, cls: Any, topic_cls: Any, topics: dict[str, list[Any]]
) -> None:
    """Send the partitions' responses by topic. A topic's name is `name` in one response, `topic` in the
    other."""
    results = tuple(
        make(topic_cls, name=name, topic=name, partitions=tuple(each)) for name, each in topics.items()
    )
    body = make(cls, throttle_time=NO_THROTTLE_TIME, topics=results)
    connection.answer(write_response(head.correlation, body))
