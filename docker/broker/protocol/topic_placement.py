"""Checks what CreateTopics and CreatePartitions ask for, and places the replicas; pure."""

import re
from dataclasses import dataclass

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.cluster_state import ClusterState, Partition, Topic
from floodmark.broker.protocol.messages import CreateAnswer, CreateTopic, GrowTopic, TopicAnswer

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
USE_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    partitions: int
    replication_factor: int


def is_topic_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def _metric_name(topic: str) -> str:
    """The topic's name in Kafka's metrics: no two topics may share it."""
    return topic.replace(".", "_")


def plan_topic(event: CreateTopic, state: ClusterState, defaults: TopicDefaults) -> Topic | CreateAnswer:
    """Build the topic, or the answer that refuses it with Kafka's error."""
    if not is_topic_name(event.topic):
        return _refuse_topic(event, errors.INVALID_TOPIC_EXCEPTION, f"illegal topic name {event.topic!r}")
    if event.topic in state.topics:
        return _refuse_topic(event, errors.TOPIC_ALREADY_EXISTS, f"topic {event.topic!r} already exists")
    colliding = [name for name in sorted(state.topics) if _metric_name(name) == _metric_name(event.topic)]
    if colliding:
        problem = f"topic {event.topic!r} collides with {colliding[0]!r}"
        return _refuse_topic(event, errors.INVALID_TOPIC_EXCEPTION, problem)
    active = [broker for broker in sorted(state.brokers) if state.active(broker)]
    if event.assignment:
        problem = _check_assignment(event.assignment, state)
        if problem:
            return _refuse_topic(event, errors.INVALID_REPLICA_ASSIGNMENT, problem)
        assignment = event.assignment
    else:
        count = defaults.partitions if event.partitions == USE_DEFAULT else event.partitions
        factor = event.replication_factor
        factor = defaults.replication_factor if factor == USE_DEFAULT else factor
        if count < 1:
            return _refuse_topic(event, errors.INVALID_PARTITIONS, f"{count} partitions")
        if not 1 <= factor <= len(active):
            problem = f"replication factor {factor} with {len(active)} brokers that are not fenced"
            return _refuse_topic(event, errors.INVALID_REPLICATION_FACTOR, problem)
        assignment = place_replicas(active, count, factor)
    partitions = tuple(_build_partition(replicas, state) for replicas in assignment)
    return Topic(name=event.topic, id=event.topic_id, configs=dict(event.configs), partitions=partitions)


def plan_partitions(
    event: GrowTopic, topic: Topic, state: ClusterState
) -> tuple[Partition, ...] | TopicAnswer:
    """Build the partitions that the topic gets, or the answer that refuses them with Kafka's error."""
    def refuse(error: int, message: str) -> TopicAnswer:
        return TopicAnswer(token=event.token, error=error, message=message)

    now, factor = len(topic.partitions), len(topic.partitions[0].replicas)
    more = event.partitions - now
    if more < 1:
        problem = f"topic {topic.name!r} has {now} partitions, and {event.partitions} were asked for"
        return refuse(errors.INVALID_PARTITIONS, problem)
    active = [broker for broker in sorted(state.brokers) if state.active(broker)]
    if event.assignment:
        problem = _check_assignment(event.assignment, state)
        if len(event.assignment) != more:
            problem = f"{len(event.assignment)} assignments for {more} new partitions"
        elif not problem and any(len(replicas) != factor for replicas in event.assignment):
            problem = f"the topic's replication factor is {factor}"
        if problem:
            return refuse(errors.INVALID_REPLICA_ASSIGNMENT, problem)
        assignment = event.assignment
    elif factor > len(active):
        problem = f"replication factor {factor} with {len(active)} brokers that are not fenced"
        return refuse(errors.INVALID_REPLICATION_FACTOR, problem)
    else:
        assignment = place_replicas(active, event.partitions, factor)[now:]
    return tuple(_build_partition(replicas, state) for replicas in assignment)


def place_replicas(brokers: list[int], partitions: int, factor: int) -> tuple[tuple[int, ...], ...]:
    """Partition p's replicas: `factor` brokers in a row, beginning with the p-th."""
    ring = len(brokers)
    return tuple(tuple(brokers[(first + k) % ring] for k in range(factor)) for first in range(partitions))


def _build_partition(replicas: tuple[int, ...], state: ClusterState) -> Partition:
    """Build the new partition: led by its first active replica, with all active replicas in the ISR."""
    isr = tuple(broker for broker in replicas if state.active(broker))
    return Partition(replicas=replicas, leader=isr[0], leader_epoch=0, isr=isr, partition_epoch=0)


def _check_assignment(assignment: tuple[tuple[int, ...], ...], state: ClusterState) -> str:
    sizes = {len(replicas) for replicas in assignment}
    for index, replicas in enumerate(assignment):
        if not replicas or len(set(replicas)) != len(replicas):
            return f"partition {index}: replicas {list(replicas)} are none or named twice"
        unknown = [broker for broker in replicas if broker not in state.brokers]
        if unknown:
            return f"partition {index}: no broker {unknown}"
        if not any(state.active(broker) for broker in replicas):
            return f"partition {index}: every broker of {list(replicas)} is fenced"
    return "" if len(sizes) == 1 else f"replication factors differ: {sorted(sizes)}"


def _refuse_topic(event: CreateTopic, error: int, message: str) -> CreateAnswer:
    return CreateAnswer(token=event.token, error=error, message=message)
