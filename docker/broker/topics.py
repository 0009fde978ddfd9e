"""A topic to be: what CreateTopics may ask, and where its replicas go; pure."""

import re
from dataclasses import dataclass

from broker import errors
from broker.brokers import ClusterState, Partition, Topic
from broker.cluster_messages import CreateAnswer, CreateTopic

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
ASK_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    partitions: int
    replication_factor: int


def new_topic(event: CreateTopic, state: ClusterState, defaults: TopicDefaults) -> Topic | CreateAnswer:
    """The topic, or the answer that refuses it with Kafka's error."""
    if not _NAME.fullmatch(event.topic) or event.topic in (".", ".."):
        return _refusal(event, errors.INVALID_TOPIC_EXCEPTION, f"illegal topic name {event.topic!r}")
    if event.topic in state.topics:
        return _refusal(event, errors.TOPIC_ALREADY_EXISTS, f"topic {event.topic!r} already exists")
    active = [broker for broker in sorted(state.brokers) if state.active(broker)]
    if event.assignment:
        problem = _assignment_problem(event, state)
        if problem:
            return _refusal(event, errors.INVALID_REPLICA_ASSIGNMENT, problem)
        assignment = event.assignment
    else:
        count = defaults.partitions if event.partitions == ASK_DEFAULT else event.partitions
        factor = event.replication_factor
        factor = defaults.replication_factor if factor == ASK_DEFAULT else factor
        if count < 1:
            return _refusal(event, errors.INVALID_PARTITIONS, f"{count} partitions")
        if not 1 <= factor <= len(active):
            problem = f"replication factor {factor} with {len(active)} brokers that are not fenced"
            return _refusal(event, errors.INVALID_REPLICATION_FACTOR, problem)
        assignment = spread(active, count, factor)
    partitions = tuple(_born(replicas, state) for replicas in assignment)
    return Topic(name=event.topic, id=event.topic_id, configs=dict(event.configs), partitions=partitions)


def spread(brokers: list[int], partitions: int, factor: int) -> tuple[tuple[int, ...], ...]:
    """Partition p's replicas: `factor` brokers in a row, beginning with the p-th."""
    ring = len(brokers)
    return tuple(tuple(brokers[(first + k) % ring] for k in range(factor)) for first in range(partitions))


def _born(replicas: tuple[int, ...], state: ClusterState) -> Partition:
    """Led by the first active replica; the ISR is all that are active."""
    isr = tuple(broker for broker in replicas if state.active(broker))
    return Partition(replicas=replicas, leader=isr[0], leader_epoch=0, isr=isr, partition_epoch=0)


def _assignment_problem(event: CreateTopic, state: ClusterState) -> str:
    sizes = {len(replicas) for replicas in event.assignment}
    for index, replicas in enumerate(event.assignment):
        if not replicas or len(set(replicas)) != len(replicas):
            return f"partition {index}: replicas {list(replicas)} are none or named twice"
        unknown = [broker for broker in replicas if broker not in state.brokers]
        if unknown:
            return f"partition {index}: no broker {unknown}"
        if not any(state.active(broker) for broker in replicas):
            return f"partition {index}: every broker of {list(replicas)} is fenced"
    return "" if len(sizes) == 1 else f"replication factors differ: {sorted(sizes)}"


def _refusal(event: CreateTopic, error: int, message: str) -> CreateAnswer:
    return CreateAnswer(token=event.token, error=error, message=message)
