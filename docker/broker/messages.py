"""What a replica and the controller are told (events) and what they want done (effects): values only.

Rules
1. Every event carries `now_ms`, the shell's monotonic clock; a machine reads no clock of its own.
2. Effects are carried out in the order given, synchronously: when a ReadAnswer is carried out, the bytes
   it names are in storage, and when a ProduceAnswer is, so is everything the ack rests on.
3. `token` is the shell's name for a request that waits; a machine gives it back unread.
4. LEO and HW are exclusive (the next offset; the first offset not committed). -1 means "none" as on the wire.
5. `error` is a Kafka error code (broker.errors gives them names); 0 is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# ruff: noqa: PLC0414 -- known by this name to the shell as well
from broker.cluster_messages import (
    AllocateProducerIds as AllocateProducerIds,
)
from broker.cluster_messages import (
    AlterPartition as AlterPartition,
)
from broker.cluster_messages import (
    AlterTopic as AlterTopic,
)
from broker.cluster_messages import (
    ControllerEvent as ControllerEvent,
)
from broker.cluster_messages import (
    CreateTopic as CreateTopic,
)
from broker.cluster_messages import (
    DeleteTopic as DeleteTopic,
)
from broker.cluster_messages import (
    Elect as Elect,
)
from broker.cluster_messages import (
    Expire as Expire,
)
from broker.cluster_messages import (
    GrowTopic as GrowTopic,
)
from broker.cluster_messages import (
    Heartbeat as Heartbeat,
)
from broker.cluster_messages import (
    Persist as Persist,
)
from broker.cluster_messages import (
    Publish as Publish,
)
from broker.cluster_messages import (
    Register as Register,
)
from broker.cluster_messages import (
    Tick as Tick,
)

NO_EPOCH = -1
NO_LEADER = -1
CONSUMER = -1  # the replica id of a client's fetch


# -- values -------------------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One record batch v2, of which the machine reads the frame and never the records.

    base_offset and epoch rule over what `data` holds in their place: a leader assigns them by
    `dataclasses.replace`, and storage writes them into the header (both lie outside the CRC).
    Invariant: last_offset >= base_offset.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """Where an epoch ends in a log: the largest epoch <= the one asked, the offset after its last record."""

    epoch: int
    end_offset: int


# -- events of a replica ------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """CONTROLLER -> replica: who leads. The shell has refused those meant for another incarnation."""

    now_ms: int
    leader: int  # NO_LEADER while nobody may lead
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]  # as assigned, preferred leader first
    broker_epochs: Mapping[int, int]  # of every broker that is registered and not fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """CLIENT -> leader: append these (offsets and epochs are the leader's to give). acks is -1, 0 or 1."""

    now_ms: int
    token: object
    acks: int
    timeout_ms: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """FOLLOWER or CLIENT -> leader: read from `offset`. Answered at once by a ReadAnswer; whether an empty
    answer waits is the purgatory's matter, which asks again with `again` set: then nobody is credited and
    the HW is read afresh."""

    now_ms: int
    token: object
    replica: int  # CONSUMER for a client
    broker_epoch: int  # of the follower's incarnation; -1 unknown
    offset: int
    current_leader_epoch: int  # -1: the asker names none
    last_fetched_epoch: int  # -1: the asker names none
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsetAsked:
    """FOLLOWER or CLIENT -> leader: OffsetsForLeaderEpoch."""

    now_ms: int
    token: object
    replica: int
    current_leader_epoch: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAsked:
    """ANYBODY -> leader: ListOffsets. `latest` false asks the log start. A follower (replica >= 0) is told
    the LEO, a client the HW."""

    now_ms: int
    token: object
    replica: int
    current_leader_epoch: int
    latest: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswered:
    """LEADER -> follower. `asked` is the wish it answers, by which a late answer is known and dropped."""

    now_ms: int
    leader: int
    asked: "FetchWish"
    error: int
    hw: int
    log_start: int
    diverging: EpochEnd | None
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsetAnswered:
    """LEADER -> follower: the answer to an EpochWish (the generations that ask before they fetch)."""

    now_ms: int
    leader: int
    asked: "EpochWish"
    error: int
    end: EpochEnd | None  # None: undefined


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEndsAnswered:
    """LEADER -> follower: the answer to a LogEndsWish (after OFFSET_OUT_OF_RANGE)."""

    now_ms: int
    leader: int
    asked: "LogEndsWish"
    error: int
    log_start: int
    log_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterAnswered:
    """CONTROLLER -> leader: the answer to ProposeIsr. On error 0 the ISR is as given; otherwise ignored."""

    now_ms: int
    proposal: "ProposeIsr"
    error: int  # broker.errors.REQUEST_TIMED_OUT or NETWORK_EXCEPTION when no answer came: ask again
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


ReplicaEvent = (
    LeaderAndIsr | Produce | Fetch | EndOffsetAsked | OffsetAsked
    | FetchAnswered | EndOffsetAnswered | LogEndsAnswered | AlterAnswered | Tick
)


# -- wishes: what a follower would ask its leader next (Replica.wish()) ----------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class FetchWish:
    leader: int
    leader_epoch: int  # the follower's current one: sent as current_leader_epoch where the rules fence
    offset: int
    last_fetched_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochWish:
    leader: int
    leader_epoch: int
    epoch: int  # whose end is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEndsWish:
    leader: int
    leader_epoch: int


Wish = FetchWish | EpochWish | LogEndsWish


# -- effects of a replica -------------------------------------------------------------------------------

@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Write these batches at the end of the log (offsets and epochs are final) and honour flush.messages.
    `leading` tells the shell to wake parked fetches."""

    batches: tuple[Batch, ...]
    leading: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """Cut the log so that its LEO is `to` (always a batch boundary; `was` the LEO before)."""

    to: int
    was: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Throw the whole log away and begin anew at `start` (the leader's log start lies above our LEO)."""

    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveEpochs:
    """Write leader-epoch-checkpoint: durable before any later effect."""

    entries: tuple[tuple[int, int], ...]  # (epoch, start offset), ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class HwMoved:
    """The leader's HW has risen: wake clients' parked fetches (never followers')."""

    hw: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanged:
    """Leader or epoch is new: parked fetches are asked again (to find an error), fetchers look anew."""

    leading: bool
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceAnswer:
    """error with base_offset >= 0: appended, fate unknown; with -1: certainly not appended."""

    token: object
    error: int
    base_offset: int
    log_start: int
    last_offset: int = -1  # of the last record appended, and
    acks: int = -1  # as they were asked for: what an ack is told by


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """Answer a Fetch with whole batches from the one that holds `start` up to `end` (exclusive; start == end:
    nothing to read yet), with this HW, read before the fetch was credited."""

    token: object
    error: int
    hw: int
    log_start: int
    start: int
    end: int
    diverging: EpochEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsetAnswer:
    token: object
    error: int
    end: EpochEnd | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswer:
    token: object
    error: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeIsr:
    """Ask the controller for this ISR, by compare-and-set on both epochs; one in flight a partition."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]  # (broker, broker epoch), in the order of the assignment


ReplicaEffect = (
    Append | Truncate | Reset | SaveEpochs | HwMoved | RoleChanged | ProduceAnswer | ReadAnswer
    | EndOffsetAnswer | OffsetAnswer | ProposeIsr
)
