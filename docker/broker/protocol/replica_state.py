"""Holds the state of a replica that outlives a role (log, epochs, producers, HW) and the effects of one step.

Rules
1. Log, epoch cache and producers change together, here and nowhere else.
2. Epochs are durable before the first batch written in them: SaveEpochs comes before its Append. A truncation
   comes before its SaveEpochs: recovery drops what a checkpoint says about offsets that the log lacks.
3. The HW never lies above the LEO nor below the log start.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.leader_epoch_cache import LeaderEpochFileCache
from floodmark.broker.protocol.log import Log
from floodmark.broker.protocol.messages import (
    NO_EPOCH,
    NO_LEADER,
    Append,
    Batch,
    EpochEnd,
    ListOffsets,
    ListOffsetsAnswer,
    ProduceAnswer,
    ReplicaEffect,
    Reset,
    SaveEpochs,
    Truncate,
    TruncationCause,
)
from floodmark.broker.protocol.producer_state_manager import ProducerStateManager
from floodmark.broker.protocol.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedProduce:
    """An acks=all produce that has been appended and is not answered yet."""

    token: object
    base_offset: int
    required: int  # the HW that answers it: one past its last record
    deadline_ms: int
    acks: int = -1


@dataclass(slots=True, kw_only=True)
class ReplicaState:
    """Mutable; shared by a replica and its role."""

    me: int
    config: ReplicaConfig
    rules: Rules
    log: Log
    epochs: LeaderEpochFileCache
    producers: ProducerStateManager
    hw: int
    # the highest leader epoch that this replica has ever received or written: it refuses lower ones
    seen_epoch: int = NO_EPOCH
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH  # of the role taken; NO_EPOCH until the first one since the start
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()  # as committed by the controller, as far as this replica knows
    replicas: tuple[int, ...] = ()
    broker_epochs: Mapping[int, int] = field(default_factory=dict)
    # ascending by `required`; empty unless leading
    delayed_produces: list[DelayedProduce] = field(default_factory=list)
    effects: list[ReplicaEffect] = field(default_factory=list)

    @property
    def min_insync(self) -> int:
        """min.insync.replicas, but never more than there are replicas (Kafka's effective minimum)."""
        return min(self.config.min_insync_replicas, len(self.replicas) or 1)

    def emit(self, effect: ReplicaEffect) -> None:
        self.effects.append(effect)

    def check_leader_epoch(self, epoch: int) -> int:
        """Compare a request's current_leader_epoch as Kafka does, before it checks who leads: error 74, 75
        or 0."""
        if epoch in (NO_EPOCH, self.leader_epoch):
            return errors.NONE
        return errors.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else errors.UNKNOWN_LEADER_EPOCH

    def answer_log_offset(self, event: ListOffsets) -> None:
        """Answer where this log begins or, asked for its latest offset, its LEO."""
        offset = self.log.end if event.latest else self.log.start
        epoch = self.leader_epoch if event.latest else self.log.epoch_at(offset)
        self.emit(ListOffsetsAnswer(token=event.token, error=errors.NONE, offset=offset, leader_epoch=epoch))

    # -- the log ---------------------------------------------------------------------------------------

    def append(self, batches: tuple[Batch, ...], *, leading: bool) -> None:
        """Append batches whose offsets and epochs are final and known to continue the log."""
        if self.rules.keeps_epochs:
            changed = False
            for batch in batches:
                changed = self.epochs.assign(batch.epoch, batch.base_offset) or changed
            if changed:
                self.save_epochs()
        anywhere = not self.rules.checks_base_offsets
        for batch in batches:
            self.log.append(batch, anywhere=anywhere)
            self.producers.update(batch)
        self.effects.append(Append(batches=batches, leading=leading))

    def truncate(self, to: int, cause: TruncationCause, why: str, answer: EpochEnd | None = None) -> None:
        """Truncate the log to the batch boundary at or below `to`; at or above the LEO only the epoch
        cache. answer: what the leader had said."""
        was = self.log.end
        if to < self.log.start:
            self.reset(to)
            return
        now = self.log.truncate_to(to)
        if now < was:
            self.producers.truncate_to(now)
            self.emit(Truncate(to=now, was=was, cause=cause, why=why, answer=answer))
            self.hw = min(self.hw, now)
        if (now < was or self.rules.cuts_epoch_tail) and self.epochs.truncate_from_end(now):
            self.save_epochs()

    def reset(self, start: int) -> None:
        """Drop the whole log and begin a new one at `start`."""
        self.log.reset(start)
        self.producers.clear()
        self.hw = start
        self.emit(Reset(start=start))
        if self.epochs.clear():
            self.save_epochs()

    def save_epochs(self) -> None:
        self.emit(SaveEpochs(entries=tuple(self.epochs.entries)))

    # -- delayed produces --------------------------------------------------------------------------------

    def answer_produce(self, parked: DelayedProduce, error: int) -> None:
        """Answer a produce that was appended; with an error its offset says that its fate is unknown."""
        self.emit(
            ProduceAnswer(
                token=parked.token, error=error, base_offset=parked.base_offset, log_start=self.log.start,
                last_offset=parked.required - 1, acks=parked.acks,
            )
        )

    def answer_produces(self, parked: Iterable[DelayedProduce], error: int) -> None:
        for one in parked:
            self.answer_produce(one, error)
