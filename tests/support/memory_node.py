"""One node of a memory cluster: its disk, its replica, what it waits for; the messages and sends of all."""

from dataclasses import dataclass, field
from typing import Any

from broker import errors
from broker.messages import Batch, Fetch, Wish
from broker.purgatory import Purgatory
from broker.replica import Replica

CONTROLLER = 100


@dataclass(slots=True, kw_only=True)
class Disk:
    """What survives a crash; what is above `flushed` batches does not survive a power cut."""

    log_start: int = 0
    batches: list[Batch] = field(default_factory=list)
    flushed: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    hw: int = 0  # as checkpointed


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message under way. `incarnation` is the receiver's when it was sent."""

    kind: str  # metadata, fetch, fetch-answer, ends, ends-answer, alter, alter-answer
    sender: int
    to: int
    incarnation: int
    body: Any


@dataclass(slots=True, kw_only=True)
class Sent:
    """One produce and its fate."""

    values: tuple[str, ...]
    node: int
    acks: int
    error: int | None = None  # None: no answer yet
    offset: int = -1

    @property
    def acked(self) -> bool:
        return self.error == errors.NONE and self.acks == -1


@dataclass(slots=True, kw_only=True)
class Node:
    id: int
    disk: Disk = field(default_factory=Disk)
    replica: Replica | None = None  # None: not running
    incarnation: int = 0
    broker_epoch: int = -1
    metadata_version: int = -1
    purgatory: Purgatory = field(default_factory=Purgatory)
    asked: Wish | None = None  # what it waits for an answer to
    waiting: dict[object, tuple[Fetch, Message]] = field(default_factory=dict)  # fetches at this node
