"""What the controller is told and what it wants done: values only, by the rules of broker.messages."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed: parked produces may expire, laggards may leave the ISR."""

    now_ms: int


# -- events of the controller -----------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """BROKER -> controller: a new incarnation. Answered by Registered, after what it implies is durable."""

    now_ms: int
    token: object
    broker: int
    incarnation: str
    host: str
    port: int
    clean: bool  # its last stop was orderly


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """BROKER -> controller. A fenced broker whose `metadata_version` is not below the one of its registration
    is unfenced; `stopping` asks for a controlled shutdown."""

    now_ms: int
    token: object
    broker: int
    broker_epoch: int
    metadata_version: int
    stopping: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartition:
    """LEADER -> controller: compare-and-set of one partition's ISR."""

    now_ms: int
    token: object
    topic: str
    partition: int
    broker: int
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]  # (broker, broker epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elect:
    """HARNESS or admin client -> controller: ElectLeaders. Empty `partitions` means all. `leader` is the
    harness's alone: elect this one, as a reassignment followed by a preferred election would; NO_LEADER
    leaves the choice to the controller."""

    now_ms: int
    token: object
    partitions: tuple[tuple[str, int], ...]
    unclean: bool
    leader: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """CLIENT -> controller (through any broker). `assignment` empty: the controller spreads the replicas."""

    now_ms: int
    token: object
    topic: str
    topic_id: str  # hex of a new uuid: chance is the shell's
    partitions: int
    replication_factor: int
    assignment: tuple[tuple[int, ...], ...]
    configs: Mapping[str, str]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTopic:
    """CLIENT -> controller: these are the topic's configs from now on."""

    now_ms: int
    token: object
    topic: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowTopic:
    """CLIENT -> controller: `partitions` in all. `assignment`: where each of the new ones goes; empty: the
    controller spreads them."""

    now_ms: int
    token: object
    topic: str
    partitions: int
    assignment: tuple[tuple[int, ...], ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """CLIENT -> controller. Its replicas delete their logs when they hear of it."""

    now_ms: int
    token: object
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """BROKER -> controller: a block of producer ids, durable before it is used and never given twice."""

    now_ms: int
    token: object
    broker: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """HARNESS -> controller: end this broker's session now."""

    now_ms: int
    token: object
    broker: int


ControllerEvent = (
    Register | Heartbeat | AlterPartition | Elect | CreateTopic | AlterTopic | GrowTopic | DeleteTopic
    | AllocateProducerIds | Expire | Tick
)  # fmt: skip


# -- effects of the controller ------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Append these records (JSON objects; Controller takes them back) and fsync before any later effect."""

    records: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """The metadata has a new version: every registered broker is to be sent the leader-and-isr message."""

    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    token: object
    error: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    token: object
    error: int
    fenced: bool
    may_stop: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterAnswer:
    """error 0: the ISR as it now is."""

    token: object
    error: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectAnswer:
    token: object
    results: tuple[tuple[str, int, int], ...]  # topic, partition, error


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAnswer:
    token: object
    error: int
    message: str
    topic_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAnswer:
    """To AlterTopic, GrowTopic and DeleteTopic."""

    token: object
    error: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsAnswer:
    token: object
    error: int
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireAnswer:
    token: object
    error: int


ControllerEffect = (
    Persist | Publish | Registered | HeartbeatAnswer | AlterAnswer | ElectAnswer | CreateAnswer
    | TopicAnswer | ProducerIdsAnswer | ExpireAnswer
)
