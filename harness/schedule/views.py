"""What can be seen of a cluster: its replicas, its partitions, the failpoints that were met; and by whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Protocol

CLIENTS = "clients"  # in a grudge: all clients of the harness, as one pseudo-node
CONTROLLER = "controller"  # the name of the controller's process


class Unknown(Enum):
    """The type of UNKNOWN: a value that a system does not show. None is different: there is no such value."""

    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return str(self.value)


UNKNOWN: Final = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One replica as its own broker sees it, as far as the system shows that. LEO and HW come from Kafka's
    wire protocol where the system has them there."""

    node: str
    partition: int  # the history's key
    leo: int | Unknown = UNKNOWN
    hw: int | Unknown = UNKNOWN
    leader: str | Unknown | None = UNKNOWN  # the leader that it knows
    epoch: int | Unknown = UNKNOWN
    log_start: int | Unknown = UNKNOWN
    isr: tuple[str, ...] | Unknown = UNKNOWN  # the ISR that it knows
    checkpointed_hw: int | Unknown = UNKNOWN  # the HW that a restart would begin with
    # leader-epoch cache; "unreadable": its file is (logdir.py); None: it has none
    epochs: tuple[tuple[int, int], ...] | Literal["unreadable"] | Unknown | None = UNKNOWN
    clean: bool | Unknown = UNKNOWN  # whether its last stop was orderly
    proposing: bool | Unknown = UNKNOWN  # whether it leads, proposed another ISR and has no response yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """One time that a node met (reached) an armed failpoint. None: unknown, or it does not apply."""

    node: str
    name: str  # F.truncated, ...
    action: str | None  # what it did there; None: not reported
    time_ns: int  # by the node's own clock: monotonic from a cluster, since the run began from a Sight
    partition: int | None = None  # the history's key
    epoch: int | None = None
    peer: str | None = None
    offset: int | None = None
    held: bool = False  # whether it is still stopped there


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition as the controller sees it. This counts as the truth."""

    partition: int
    leader: str | None
    epoch: int
    isr: tuple[str, ...]
    partition_epoch: int
    elr: tuple[str, ...] = ()  # eligible leader replicas, outside the ISR (KIP-966); few systems have any


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The state of the cluster at one moment. A broker that did not answer has no replicas here."""

    time_ns: int  # monotonic, when all answers were there
    replicas: Mapping[tuple[str, int], ReplicaView]
    partitions: Mapping[int, PartitionView]
    running: frozenset[str]  # brokers whose process is alive (also a paused one)
    unfenced: frozenset[str]  # brokers that the controller considers alive
    # Of a system of which only the wire is seen: brokers whose Metadata names a controller; and those of them
    # that also name all brokers, and know none of our topics.
    answering: frozenset[str] = frozenset()
    topic_unknown: frozenset[str] = frozenset()


class Sight(Protocol):
    """The state of a run that moments can observe."""

    def now_ns(self) -> int: ...  # since the run began
    def acks(self, partition: int) -> int: ...  # acked micro-sends so far
    async def ack_or(self, timeout_s: float) -> None: ...  # waits for the next ack of any partition
    def acks_given(self, partition: int, leader: str) -> int: ...  # acks of this leader, from the trace
    async def view(self) -> View: ...
    async def met(self, node: str) -> Sequence[Met]: ...
    def crashes(self) -> Sequence[Met]: ...  # as ExplainsDeaths.crashes
    def died(self) -> Sequence[str]: ...  # nodes that ended by themselves, without a fault
