"""Defines the events that a replica and the controller take, and the effects that they return: values only.

Rules
1. Every event carries `now_ms`, the server's monotonic clock; a machine reads no clock of its own.
2. Effects are carried out in the order given, synchronously: when a FetchAnswer is carried out, the bytes
   it names are in storage, and when a ProduceAnswer is, so is everything the ack rests on.
3. `token` is the server's name for a waiting request; a machine returns it unread, and no log line shows it.
4. LEO and HW are exclusive (the next offset; the first offset not committed). -1 means "none" as on the wire.
5. `error` is a Kafka error code (broker.protocol.errors gives them names); 0 is none.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

# Why a replica truncates: to its own HW; to the end of an epoch that its leader gave when it was asked, or in
# the answer to a fetch; or to another offset.
TruncationCause = Literal["hw", "epoch", "diverged", "other"]
NO_EPOCH = -1
NO_LEADER = -1
CONSUMER = -1  # the replica id of a client's fetch
DEBUGGING_CONSUMER = -2  # ... of a client that asks any replica for its LEO (ListOffsets)


# -- values -------------------------------------------------------------------------------------------

class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A value; a struct, because the __init__ of a frozen dataclass takes fifteen times as long."""

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "token")
        return f"{type(self).__name__}({', '.join(shown)})"


class Batch(Message, frozen=True, kw_only=True):
    """One record batch v2, of which the machine reads the frame and never the records.

    base_offset and epoch take precedence over those in the header in `data`: a leader assigns them, and
    storage writes them into the header (both lie outside the CRC). Invariant: last_offset >= base_offset.
    """

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes = b""  # the whole batch as it goes to disk and on the wire
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @property
    def count(self) -> int:
        return self.last_offset - self.base_offset + 1


class EpochEnd(Message, frozen=True, kw_only=True):
    """Where an epoch ends in a log: the largest epoch <= the one asked, the offset after its last record."""

    epoch: int
    end_offset: int


class Tick(Message, frozen=True, kw_only=True):
    """Time has passed: parked produces may expire, laggards may leave the ISR."""

    now_ms: int


# -- events of a replica ------------------------------------------------------------------------------

class LeaderAndIsr(Message, frozen=True, kw_only=True):
    """CONTROLLER -> replica: who leads. The server has refused messages meant for another incarnation."""

    now_ms: int
    leader: int  # NO_LEADER while nobody may lead
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]  # as assigned, preferred leader first
    broker_epochs: Mapping[int, int]  # of every broker that is registered, not fenced and not stopping


class Produce(Message, frozen=True, kw_only=True):
    """CLIENT -> leader: append these (offsets and epochs are the leader's to give). acks is -1, 0 or 1."""

    now_ms: int
    token: object
    acks: int
    timeout_ms: int
    batches: tuple[Batch, ...]


class Fetch(Message, frozen=True, kw_only=True):
    """FOLLOWER or CLIENT -> leader: read from `offset`. Answered at once by a FetchAnswer; the purgatory
    decides whether an empty answer waits, and tries again with `again` set: then no follower is credited
    and the HW is read again."""

    now_ms: int
    token: object
    replica: int  # CONSUMER for a client
    broker_epoch: int  # of the follower's incarnation; -1 unknown
    offset: int
    current_leader_epoch: int  # -1: the request names none
    last_fetched_epoch: int  # -1: the request names none
    again: bool = False


class OffsetsForLeaderEpoch(Message, frozen=True, kw_only=True):
    """FOLLOWER or CLIENT -> leader: OffsetsForLeaderEpoch."""

    now_ms: int
    token: object
    replica: int
    current_leader_epoch: int
    epoch: int


class ListOffsets(Message, frozen=True, kw_only=True):
    """ANYBODY -> leader: ListOffsets. `latest` false asks the log start. A follower (replica >= 0) gets
    the LEO, a client the HW; DEBUGGING_CONSUMER the LEO, from a follower too."""

    now_ms: int
    token: object
    replica: int
    current_leader_epoch: int
    latest: bool


class FetchResponse(Message, frozen=True, kw_only=True):
    """LEADER -> follower. `asked` is the request it answers: a late answer is known by it and dropped."""

    now_ms: int
    leader: int
    asked: "FetchRequest"
    error: int
    hw: int
    diverging: EpochEnd | None
    batches: tuple[Batch, ...]


class EndOffsetResponse(Message, frozen=True, kw_only=True):
    """LEADER -> follower: the answer to an EndOffsetRequest (the generations that ask before they fetch)."""

    now_ms: int
    leader: int
    asked: "EndOffsetRequest"
    error: int
    end: EpochEnd | None  # None: undefined


class LogEndsResponse(Message, frozen=True, kw_only=True):
    """LEADER -> follower: the answer to a LogEndsRequest (after OFFSET_OUT_OF_RANGE)."""

    now_ms: int
    leader: int
    asked: "LogEndsRequest"
    error: int
    log_start: int
    log_end: int


class AlterPartitionResponse(Message, frozen=True, kw_only=True):
    """CONTROLLER -> leader: the answer to ProposeIsr. On error 0 the ISR is as given; otherwise ignored."""

    now_ms: int
    proposal: "ProposeIsr"
    error: int  # broker.protocol.errors.REQUEST_TIMED_OUT or NETWORK_EXCEPTION when no answer came: ask again
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


ReplicaEvent = (
    LeaderAndIsr | Produce | Fetch | OffsetsForLeaderEpoch | ListOffsets
    | FetchResponse | EndOffsetResponse | LogEndsResponse | AlterPartitionResponse | Tick
)


# -- requests that a follower sends to its leader (Replica.next_request()) --------------------------

class FetchRequest(Message, frozen=True, kw_only=True):
    leader: int
    leader_epoch: int  # the follower's current one: sent as current_leader_epoch where the rules fence
    offset: int
    last_fetched_epoch: int


class EndOffsetRequest(Message, frozen=True, kw_only=True):
    leader: int
    leader_epoch: int
    epoch: int  # whose end is requested


class LogEndsRequest(Message, frozen=True, kw_only=True):
    leader: int
    leader_epoch: int


FollowerRequest = FetchRequest | EndOffsetRequest | LogEndsRequest


# -- effects of a replica -------------------------------------------------------------------------------

class Append(Message, frozen=True, kw_only=True):
    """Write these batches at the end of the log (offsets and epochs are final) and honour flush.messages.
    With `leading` the server wakes delayed fetches."""

    batches: tuple[Batch, ...]
    leading: bool


class Truncate(Message, frozen=True, kw_only=True):
    """Cut the log so that its LEO is `to` (always a batch boundary; `was` the LEO before)."""

    to: int
    was: int
    cause: TruncationCause
    why: str  # for people
    answer: EpochEnd | None = None  # of the leader, by which it is cut; NO_EPOCH: the end of its log


class Reset(Message, frozen=True, kw_only=True):
    """Delete the whole log and begin a new one at `start` (the leader's log start is above our LEO)."""

    start: int


class SaveEpochs(Message, frozen=True, kw_only=True):
    """Write leader-epoch-checkpoint: durable before any later effect."""

    entries: tuple[tuple[int, int], ...]  # (epoch, start offset), ascending


class HwMoved(Message, frozen=True, kw_only=True):
    """The leader's HW has risen: wake clients' parked fetches (never followers')."""

    hw: int


class RoleChanged(Message, frozen=True, kw_only=True):
    """The leader or the epoch is new: try parked fetches again (they get an error), refresh the fetchers."""

    leading: bool
    leader: int
    leader_epoch: int


class ProduceAnswer(Message, frozen=True, kw_only=True):
    """error with base_offset >= 0: appended, fate unknown; with -1: certainly not appended."""

    token: object
    error: int
    base_offset: int
    log_start: int
    last_offset: int = -1  # of the last record appended; for the trace
    acks: int = -1  # as the client requested them; for the trace


class FetchAnswer(Message, frozen=True, kw_only=True):
    """Answer a Fetch with whole batches from the one that holds `start` up to `end` (exclusive; start == end:
    nothing to read yet), with this HW, read before the fetch was credited."""

    token: object
    error: int
    hw: int
    log_start: int
    start: int
    end: int
    diverging: EpochEnd | None = None


class EndOffsetAnswer(Message, frozen=True, kw_only=True):
    token: object
    error: int
    end: EpochEnd | None


class ListOffsetsAnswer(Message, frozen=True, kw_only=True):
    token: object
    error: int
    offset: int
    leader_epoch: int


class ProposeIsr(Message, frozen=True, kw_only=True):
    """Ask the controller for this ISR, by compare-and-set on both epochs; one in flight a partition."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]  # (broker, broker epoch), in the order of the assignment


ReplicaEffect = (
    Append | Truncate | Reset | SaveEpochs | HwMoved | RoleChanged | ProduceAnswer | FetchAnswer
    | EndOffsetAnswer | ListOffsetsAnswer | ProposeIsr
)


# -- events of the controller -----------------------------------------------------------------------------

class Register(Message, frozen=True, kw_only=True):
    """BROKER -> controller: a new incarnation. Answered by Registered, after what it implies is durable."""

    now_ms: int
    token: object
    broker: int
    incarnation: str
    host: str
    port: int
    clean: bool  # its last stop was orderly


class Heartbeat(Message, frozen=True, kw_only=True):
    """BROKER -> controller. A fenced broker whose `metadata_version` is not below the one of its registration
    is unfenced; `stopping` asks for a controlled shutdown."""

    now_ms: int
    token: object
    broker: int
    broker_epoch: int
    metadata_version: int
    stopping: bool


class AlterPartition(Message, frozen=True, kw_only=True):
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


class Elect(Message, frozen=True, kw_only=True):
    """HARNESS or admin client -> controller: ElectLeaders. Empty `partitions` means all. `leader` is the
    harness's alone: elect this one, as a reassignment followed by a preferred election would; NO_LEADER
    leaves the choice to the controller."""

    now_ms: int
    token: object
    partitions: tuple[tuple[str, int], ...]
    unclean: bool
    leader: int = -1


class CreateTopic(Message, frozen=True, kw_only=True):
    """CLIENT -> controller (through any broker). `assignment` empty: the controller spreads the replicas."""

    now_ms: int
    token: object
    topic: str
    topic_id: str  # hex of a new uuid, made by the server: the machine uses no randomness
    partitions: int
    replication_factor: int
    assignment: tuple[tuple[int, ...], ...]
    configs: Mapping[str, str]
    validate_only: bool = False


class AlterTopic(Message, frozen=True, kw_only=True):
    """CLIENT -> controller: these are the topic's configs from now on."""

    now_ms: int
    token: object
    topic: str
    configs: Mapping[str, str]


class GrowTopic(Message, frozen=True, kw_only=True):
    """CLIENT -> controller: `partitions` in all. `assignment`: where each of the new ones goes; empty: the
    controller spreads them."""

    now_ms: int
    token: object
    topic: str
    partitions: int
    assignment: tuple[tuple[int, ...], ...]
    validate_only: bool = False


class DeleteTopic(Message, frozen=True, kw_only=True):
    """CLIENT -> controller. Its replicas delete their logs when they hear of it."""

    now_ms: int
    token: object
    topic: str


class AllocateProducerIds(Message, frozen=True, kw_only=True):
    """BROKER -> controller: a block of producer ids, durable before it is used and never given twice."""

    now_ms: int
    token: object
    broker: int
    broker_epoch: int


class Expire(Message, frozen=True, kw_only=True):
    """HARNESS -> controller: end this broker's session now."""

    now_ms: int
    token: object
    broker: int


ControllerEvent = (
    Register | Heartbeat | AlterPartition | Elect | CreateTopic | AlterTopic | GrowTopic | DeleteTopic
    | AllocateProducerIds | Expire | Tick
)  # fmt: skip


# -- effects of the controller ------------------------------------------------------------------------------

class Persist(Message, frozen=True, kw_only=True):
    """Append these records (JSON objects; Controller takes them back) and fsync before any later effect."""

    records: tuple[Mapping[str, object], ...]


class Publish(Message, frozen=True, kw_only=True):
    """The metadata has a new version: every registered broker is to be sent the leader-and-isr message."""

    version: int


class Registered(Message, frozen=True, kw_only=True):
    token: object
    error: int
    broker_epoch: int


class HeartbeatAnswer(Message, frozen=True, kw_only=True):
    token: object
    error: int
    fenced: bool
    may_stop: bool


class AlterPartitionAnswer(Message, frozen=True, kw_only=True):
    """error 0: the ISR as it now is."""

    token: object
    error: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class ElectAnswer(Message, frozen=True, kw_only=True):
    token: object
    results: tuple[tuple[str, int, int], ...]  # topic, partition, error


class CreateAnswer(Message, frozen=True, kw_only=True):
    token: object
    error: int
    message: str
    topic_id: str = ""
    partitions: int = -1
    replication_factor: int = -1


class TopicAnswer(Message, frozen=True, kw_only=True):
    """To AlterTopic, GrowTopic and DeleteTopic."""

    token: object
    error: int
    message: str


class ProducerIdsAnswer(Message, frozen=True, kw_only=True):
    token: object
    error: int
    first: int
    count: int


class ExpireAnswer(Message, frozen=True, kw_only=True):
    token: object
    error: int


ControllerEffect = (
    Persist | Publish | Registered | HeartbeatAnswer | AlterPartitionAnswer | ElectAnswer | CreateAnswer
    | TopicAnswer | ProducerIdsAnswer | ExpireAnswer
)
