"""AlterPartition at the controller: a request becomes one step for each partition, the answers one answer."""

from collections.abc import Callable
from typing import Any

from broker.protocol import errors
from broker.protocol.messages import AlterPartition
from broker.protocol.metadata import Metadata
from broker.testing.failpoint_requests import FailpointSite
from broker.wire.codec import RequestHeader, error_code, make, milliseconds, response_parts


def alter_partitions(
    request: Any, head: RequestHeader, metadata: Metadata, step: Callable[[AlterPartition], Any], now_ms: int
) -> tuple[Any, list[FailpointSite]]:
    """The answer, and a place for each partition that was changed: applied, and not yet told."""
    cls, parts = response_parts(head.key, head.version)
    names = {topic.id: name for name, topic in metadata.topics.items()}
    topics, places = [], []
    for topic in request.topics:
        name = names.get(topic.topic_id.hex if topic.topic_id else "")
        told = []
        for part in topic.partitions:
            answer = None if name is None else step(_to_event(request, name, part, now_ms))
            error = errors.UNKNOWN_TOPIC_ID if answer is None else answer.error
            if not error and answer is not None:
                places.append(
                    FailpointSite(
                        name="C.alter_applied", topic=name, partition=part.partition_index,
                        epoch=answer.leader_epoch, peer=request.broker_id,
                    )
                )  # fmt: skip
            told.append(
                make(
                    parts.PartitionData,
                    partition_index=part.partition_index,
                    error_code=error_code(error),
                    leader_id=-1 if answer is None else answer.leader,
                    leader_epoch=-1 if answer is None else answer.leader_epoch,
                    isr=() if answer is None else answer.isr,
                    partition_epoch=-1 if answer is None else answer.partition_epoch,
                )
            )
        topics.append(make(parts.TopicData, topic_id=topic.topic_id, partitions=tuple(told)))
    body = make(
        cls, throttle_time=milliseconds(0), error_code=error_code(errors.NONE), topics=tuple(topics)
    )
    return body, places


def _to_event(request: Any, topic: str, part: Any, now_ms: int) -> AlterPartition:
    return AlterPartition(
        now_ms=now_ms,
        token=None,
        topic=topic,
        partition=part.partition_index,
        broker=request.broker_id,
        broker_epoch=request.broker_epoch,
        leader_epoch=part.leader_epoch,
        partition_epoch=part.partition_epoch,
        isr=tuple((each.broker_id, each.broker_epoch) for each in part.new_isr_with_epochs),
    )
