"""One node of a memory cluster: its disk, its replica, its open requests; and the messages and sends."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import Batch, Fetch, FollowerRequest
from floodmark.broker.protocol.purgatory import DelayedFetchPurgatory
from floodmark.broker.protocol.replica import RecoveredState, Replica
from floodmark.broker.protocol.rules import Rules

CONTROLLER = 100
DAMAGED = b"\xff"  # the data of a torn batch; no value begins so


@dataclass(slots=True, kw_only=True)
class Disk:
    """The part that survives a crash; a power cut loses what is above `flushed` batches."""

    log_start: int = 0
    batches: list[Batch] = field(default_factory=list)
    flushed: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    hw: int = 0  # of the checkpoint

    def recovered(self, rules: Rules) -> RecoveredState:
        """The state after a restart, which cuts the log at the first invalid batch; one segment."""
        expected, good = self.log_start, 0
        for batch in self.batches:
            if batch.data == DAMAGED or batch.base_offset != expected:
                break
            expected, good = batch.last_offset + 1, good + 1
        if good < len(self.batches) and rules.recovery_checks_batches:
            del self.batches[good if rules.recovery_keeps_segments else 0 :]
        if self.batches and not rules.recovery_keeps_last_batch:
            del self.batches[-1]
        self.flushed = min(self.flushed, len(self.batches))
        frames = [replace(batch, data=b"") for batch in self.batches]
        return RecoveredState(log_start=self.log_start, batches=frames, epochs=self.epochs, hw=self.hw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message under way. `incarnation` is the receiver's when it was sent."""

    kind: str  # metadata, fetch, ends, epoch (and each with -answer), alter, alter-answer
    sender: int
    to: int
    incarnation: int
    body: Any


@dataclass(slots=True, kw_only=True)
class Sent:
    """One produce and its outcome."""

    values: tuple[str, ...]
    node: int
    acks: int
    producer: tuple[int, int, int] = (-1, -1, -1)  # id, epoch, first sequence
    error: int | None = None  # None: no answer yet
    offset: int = -1

    @property
    def acked(self) -> bool:
        return self.error == errors.NONE and self.acks == -1

    @property
    def batch(self) -> Batch:
        """The batch as a client sends it."""
        producer_id, producer_epoch, base_sequence = self.producer
        return Batch(
            base_offset=0, last_offset=len(self.values) - 1, epoch=-1, data=",".join(self.values).encode(),
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence,
        )  # fmt: skip


def values(batches: Sequence[Batch]) -> dict[int, tuple[str, int]]:
    """offset -> (value, epoch); if two batches have one offset, the later counts."""
    entries = {}
    for batch in batches:
        for index, value in enumerate(batch.data.decode(errors="replace").split(",")):
            entries[batch.base_offset + index] = (value, batch.epoch)
    return entries


@dataclass(slots=True, kw_only=True)
class Node:
    id: int
    disk: Disk = field(default_factory=Disk)
    replica: Replica | None = None  # None: not running
    incarnation: int = 0
    broker_epoch: int = -1
    metadata_version: int = -1
    purgatory: DelayedFetchPurgatory = field(default_factory=DelayedFetchPurgatory)
    asked: FollowerRequest | None = None  # the request whose answer it waits for
    waiting: dict[object, tuple[Fetch, Message]] = field(default_factory=dict)  # fetches at this node

    def numbers(self) -> str:
        """A leader's LEO, HW and what it knows of the others; a follower's LEO and HW."""
        replica = self.replica
        if replica is None:
            return f"n{self.id} down"
        if not replica.leading:
            return f"n{self.id} LEO {replica.leo} HW {replica.hw}"
        remotes = ", ".join(f"n{k}: {leo}" for k, leo in replica.remote_leos.items())
        isr = ",".join(f"n{k}" for k in replica.maximal_isr)
        text = f"n{self.id}* epoch {replica.leader_epoch} LEO {replica.leo} HW {replica.hw} "
        return text + f"remotes {{{remotes}}} isr {{{isr}}}"
