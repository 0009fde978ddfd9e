"""Holds the controller's state (brokers, topics, partitions) and applies the records of its journal to it.

Rules
1. The state is a function of the records: `apply` is used when they are made and when they are replayed.
2. Every record moves the metadata version by one, except those that brokers do not need (producer ids).
3. Broker epochs and producer ids only rise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One registered incarnation of a broker."""

    id: int
    epoch: int
    incarnation: str
    host: str
    port: int
    fenced: bool
    stopping: bool  # in controlled shutdown
    # the metadata version of its registration; at any lower one it does not know of it
    registered_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The committed state of one partition. Invariant: leader in ISR, ISR among the replicas and never
    empty."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    id: str
    configs: Mapping[str, str]
    partitions: tuple[Partition, ...]


@dataclass(slots=True, kw_only=True)
class ClusterState:
    """Mutable, changed by `apply` alone."""

    version: int = 0
    next_broker_epoch: int = 0
    next_producer_id: int = 0
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)

    def active(self, broker: int) -> bool:
        """Whether it may lead and be in an ISR: registered, not fenced, not stopping."""
        known = self.brokers.get(broker)
        return known is not None and not known.fenced and not known.stopping

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def apply(self, record: Record) -> None:
        """Apply one record of the journal; KeyError or ValueError for an unknown kind of record."""
        _APPLY[record["type"]](self, record)


def broker_record(broker: Broker) -> Record:
    return {
        "type": "broker", "id": broker.id, "epoch": broker.epoch, "incarnation": broker.incarnation,
        "host": broker.host, "port": broker.port, "fenced": broker.fenced, "stopping": broker.stopping,
    }  # fmt: skip


def partition_record(topic: str, index: int, partition: Partition) -> Record:
    return {"type": "partition", "topic": topic, "partition": index, **_partition_fields(partition)}


def topic_record(topic: Topic) -> Record:
    return {
        "type": "topic", "topic": topic.name, "id": topic.id, "configs": dict(topic.configs),
        "partitions": [_partition_fields(partition) for partition in topic.partitions],
    }  # fmt: skip


def configs_record(topic: str, configs: Mapping[str, str]) -> Record:
    """All of the topic's configs, as they are from now on."""
    return {"type": "configs", "topic": topic, "configs": dict(configs)}


def partitions_record(topic: str, partitions: Iterable[Partition]) -> Record:
    """New partitions of a topic, after those that it has."""
    new = [_partition_fields(each) for each in partitions]
    return {"type": "partitions", "topic": topic, "partitions": new}


def topic_deleted_record(topic: str) -> Record:
    return {"type": "topic_deleted", "topic": topic}


def producer_ids_record(next_id: int) -> Record:
    return {"type": "producer_ids", "next": next_id}


def _partition_fields(partition: Partition) -> dict[str, object]:
    return {
        "replicas": list(partition.replicas), "leader": partition.leader,
        "leader_epoch": partition.leader_epoch, "isr": list(partition.isr),
        "partition_epoch": partition.partition_epoch,
    }  # fmt: skip


def _read_partition(fields: Record) -> Partition:
    partition = Partition(
        replicas=tuple(fields["replicas"]), leader=fields["leader"], leader_epoch=fields["leader_epoch"],
        isr=tuple(fields["isr"]), partition_epoch=fields["partition_epoch"],
    )  # fmt: skip
    assert partition.isr, f"empty ISR: {partition}"
    assert set(partition.isr) <= set(partition.replicas), f"ISR beyond the assignment: {partition}"
    return partition


def _apply_broker(state: ClusterState, record: Record) -> None:
    state.version += 1
    known = state.brokers.get(record["id"])
    again = known is not None and known.epoch == record["epoch"]
    state.brokers[record["id"]] = Broker(
        id=record["id"], epoch=record["epoch"], incarnation=record["incarnation"], host=record["host"],
        port=record["port"], fenced=record["fenced"], stopping=record["stopping"],
        registered_version=known.registered_version if again and known else state.version,
    )  # fmt: skip
    state.next_broker_epoch = max(state.next_broker_epoch, record["epoch"] + 1)


def _apply_topic(state: ClusterState, record: Record) -> None:
    state.version += 1
    state.topics[record["topic"]] = Topic(
        name=record["topic"], id=record["id"], configs=dict(record["configs"]),
        partitions=tuple(_read_partition(fields) for fields in record["partitions"]),
    )  # fmt: skip


def _apply_partition(state: ClusterState, record: Record) -> None:
    state.version += 1
    topic, index = state.topics[record["topic"]], record["partition"]
    was, now = topic.partitions[index], _read_partition(record)
    assert now.leader_epoch >= was.leader_epoch, f"{topic.name}-{index}: leader epoch falls: {was} -> {now}"
    assert now.partition_epoch == was.partition_epoch + 1, f"{topic.name}-{index}: {was} -> {now}"
    partitions = (*topic.partitions[:index], now, *topic.partitions[index + 1 :])
    state.topics[record["topic"]] = replace(topic, partitions=partitions)


def _apply_configs(state: ClusterState, record: Record) -> None:
    state.version += 1
    topic = state.topics[record["topic"]]
    state.topics[record["topic"]] = replace(topic, configs=dict(record["configs"]))


def _apply_partitions(state: ClusterState, record: Record) -> None:
    state.version += 1
    topic = state.topics[record["topic"]]
    new = tuple(_read_partition(fields) for fields in record["partitions"])
    state.topics[record["topic"]] = replace(topic, partitions=(*topic.partitions, *new))


def _apply_topic_deleted(state: ClusterState, record: Record) -> None:
    state.version += 1
    del state.topics[record["topic"]]


def _apply_producer_ids(state: ClusterState, record: Record) -> None:
    state.next_producer_id = max(state.next_producer_id, record["next"])


_APPLY = {
    "broker": _apply_broker,
    "topic": _apply_topic,
    "partition": _apply_partition,
    "configs": _apply_configs,
    "partitions": _apply_partitions,
    "topic_deleted": _apply_topic_deleted,
    "producer_ids": _apply_producer_ids,
}
