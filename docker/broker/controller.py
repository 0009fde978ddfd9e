"""The controller: liveness, elections, ISR changes, epochs; pure, step(event) -> effects. (signatures first)"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from broker.messages import ControllerEffect, ControllerEvent
from broker.rules import KIP_320, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    session_timeout_ms: int = 9_000
    unclean_leader_election: bool = False
    default_replication_factor: int = 1
    default_partitions: int = 1
    producer_id_block: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    id: int
    epoch: int
    host: str
    port: int
    fenced: bool


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


class Controller:
    def __init__(
        self, config: ControllerConfig, records: Iterable[Mapping[str, object]] = (), rules: Rules = KIP_320
    ) -> None:
        raise NotImplementedError

    def step(self, event: ControllerEvent) -> list[ControllerEffect]:
        raise NotImplementedError

    def metadata(self) -> Metadata:
        raise NotImplementedError
