"""Defines the cluster metadata that the controller sends to every broker: a frozen copy of its state."""

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.broker.protocol.cluster_state import ClusterState, Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    id: int
    epoch: int
    host: str
    port: int
    fenced: bool
    stopping: bool = False  # in controlled shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    id: str
    configs: Mapping[str, str]
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    version: int
    brokers: tuple[BrokerInfo, ...]  # every registered one, by id
    topics: Mapping[str, TopicInfo]  # by name

    @property
    def broker_epochs(self) -> dict[int, int]:
        """Of every broker that may be in an ISR (neither fenced nor stopping), as LeaderAndIsr carries
        them."""
        return {broker.id: broker.epoch for broker in self.brokers if not broker.fenced | broker.stopping}


def build_metadata(state: ClusterState) -> Metadata:
    """Copy the state as it is now."""
    return Metadata(
        version=state.version,
        brokers=tuple(
            BrokerInfo(
                id=broker.id, epoch=broker.epoch, host=broker.host, port=broker.port, fenced=broker.fenced,
                stopping=broker.stopping,
            )
            for _, broker in sorted(state.brokers.items())
        ),
        topics={name: _copy_topic(topic) for name, topic in state.topics.items()},
    )


def _copy_topic(topic: Topic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        id=topic.id,
        configs=topic.configs,
        partitions=tuple(
            PartitionInfo(
                partition=index,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=partition.isr,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
            )
            for index, partition in enumerate(topic.partitions)
        ),
    )
