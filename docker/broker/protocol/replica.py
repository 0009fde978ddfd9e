"""Runs one replica of one partition as a pure machine: step(event) -> effects.

Rules
1. Every change of epoch, ISR, LEO or HW happens here (and in the role that this module calls).
2. Effects are carried out in the order given; what an ack rests on is decided in one function
   (Leader._answer_acks).
3. A stale epoch changes nothing and says so: a request is answered 74, 75 or 6, a late answer or an outdated
   leader-and-isr has no effect at all.
4. An illegal event raises IllegalEvent and changes nothing.
5. After every step the invariants of the rule set in force are asserted. A mutant's broken rule is not, or it
   would kill itself before it harms.

Theory of operation: ReplicaState outlives a role (log, epochs, HW). Each leader epoch gets a new role (Leader
or Follower), so that nothing learnt in one epoch is credited in another (KIP-320).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.errors import IllegalEvent
from floodmark.broker.protocol.follower import Follower
from floodmark.broker.protocol.leader import Leader
from floodmark.broker.protocol.leader_epoch_cache import LeaderEpochFileCache
from floodmark.broker.protocol.log import Log
from floodmark.broker.protocol.messages import (
    CONSUMER,
    DEBUGGING_CONSUMER,
    NO_EPOCH,
    NO_LEADER,
    AlterPartitionResponse,
    Batch,
    EndOffsetAnswer,
    EndOffsetResponse,
    Fetch,
    FetchAnswer,
    FetchResponse,
    FollowerRequest,
    LeaderAndIsr,
    ListOffsets,
    ListOffsetsAnswer,
    LogEndsResponse,
    OffsetsForLeaderEpoch,
    Produce,
    ProduceAnswer,
    ReplicaEffect,
    ReplicaEvent,
    RoleChanged,
    Tick,
)
from floodmark.broker.protocol.producer_state_manager import ProducerStateManager
from floodmark.broker.protocol.replica_state import ReplicaConfig, ReplicaState
from floodmark.broker.protocol.rules import Rules

__all__ = ["RecoveredState", "Replica", "ReplicaConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredState:
    """What storage found when it opened the log."""

    log_start: int = 0
    batches: Sequence[Batch] = ()  # the frames (data empty), in the order of the log
    epochs: Sequence[tuple[int, int]] = ()  # leader-epoch-checkpoint, mended: (epoch, start offset)
    hw: int = 0  # as checkpointed


class Replica:
    """One replica. It follows nobody until its first LeaderAndIsr."""

    def __init__(self, *, me: int, config: ReplicaConfig, rules: Rules, recovered: RecoveredState) -> None:
        log = Log(recovered.log_start)
        for batch in recovered.batches:
            log.append(batch, anywhere=not rules.checks_base_offsets)
        remembers = rules.keeps_epochs and rules.recalls_epochs
        epochs = LeaderEpochFileCache(recovered.epochs if remembers else ())
        self._state = ReplicaState(
            me=me,
            config=config,
            rules=rules,
            log=log,
            epochs=epochs,
            producers=ProducerStateManager(recovered.batches if rules.recovers_producers else ()),
            hw=max(log.start, min(recovered.hw, log.end)),
            seen_epoch=epochs.latest_epoch,
        )
        self._leader: Leader | None = None
        self._follower: Follower | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            LeaderAndIsr: self._handle_leader_and_isr,
            Produce: self._handle_produce,
            Fetch: self._handle_fetch,
            OffsetsForLeaderEpoch: self._handle_offsets_for_leader_epoch,
            ListOffsets: self._handle_list_offsets,
            FetchResponse: self._handle_fetch_response,
            EndOffsetResponse: self._handle_end_offset_response,
            LogEndsResponse: self._handle_log_ends_response,
            AlterPartitionResponse: self._handle_alter_partition_response,
            Tick: self._handle_tick,
        }

    def step(self, event: ReplicaEvent) -> list[ReplicaEffect]:
        """Raises IllegalEvent and changes nothing if no correct sender can have sent the event."""
        state = self._state
        hw, epoch = state.hw, state.leader_epoch
        state.effects = []
        self._handlers[type(event)](event)
        self._assert_invariants(hw, epoch)
        return state.effects

    def configure(self, config: ReplicaConfig) -> None:
        """Use the topic's new configs for every request from now on."""
        self._state.config = config

    def next_request(self) -> FollowerRequest | None:
        """The request that this replica, if it follows, sends to its leader next; None if it has none."""
        return self._follower.next_request() if self._follower is not None else None

    # -- state that others may read -------------------------------------------------------------------------

    @property
    def leading(self) -> bool:
        return self._leader is not None

    @property
    def leader(self) -> int:
        return self._state.leader

    @property
    def leader_epoch(self) -> int:
        return self._state.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self._state.partition_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR as committed by the controller, as far as this replica knows."""
        return self._state.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The replicas that a leader's HW waits for: the committed ISR and the proposed one."""
        return self._leader.isr.maximal if self._leader is not None else self._state.isr

    @property
    def proposing(self) -> bool:
        """Whether this leader has proposed an ISR and does not know yet whether it was accepted."""
        return self._leader is not None and self._leader.isr.pending is not None

    @property
    def leo(self) -> int:
        return self._state.log.end

    @property
    def hw(self) -> int:
        return self._state.hw

    @property
    def log_start(self) -> int:
        return self._state.log.start

    @property
    def epochs(self) -> tuple[tuple[int, int], ...] | None:
        """(epoch, start offset) ascending; None where the rules keep none."""
        return tuple(self._state.epochs.entries) if self._state.rules.keeps_epochs else None

    # -- roles ---------------------------------------------------------------------------------------------

    def _handle_leader_and_isr(self, event: LeaderAndIsr) -> None:
        state = self._state
        if event.leader_epoch < max(state.seen_epoch, state.leader_epoch):
            return
        if event.leader_epoch == state.leader_epoch and not self._has_other_leader(event):
            self._update_same_epoch(event)
            return
        if event.leader == state.me and not self._may_lead(event):
            return
        keeps_role = self._keeps_following(event)
        state.leader, state.leader_epoch = event.leader, event.leader_epoch
        state.seen_epoch = event.leader_epoch
        self._copy_metadata(event)
        if event.leader == state.me:
            self._become_leader(event)
        elif not keeps_role:
            self._become_follower()
        state.emit(RoleChanged(leading=self.leading, leader=event.leader, leader_epoch=event.leader_epoch))

    def _has_other_leader(self, event: LeaderAndIsr) -> bool:
        """Whether the event names another leader for the same epoch, as only a controller that bumps no
        epochs does."""
        state = self._state
        if event.leader == state.leader:
            return False
        if state.rules.election_bumps_epoch:
            raise IllegalEvent(f"epoch {event.leader_epoch} led by {state.leader} and by {event.leader}")
        return event.partition_epoch > state.partition_epoch

    def _keeps_following(self, event: LeaderAndIsr) -> bool:
        """Whether a follower treats a new epoch of the same leader as the old one (KAFKA-7164)."""
        state, rules = self._state, self._state.rules
        if self._follower is None or event.leader != state.leader or rules.follows_same_leader_anew:
            return False
        missed = event.leader_epoch > state.leader_epoch + 1
        return event.leader != NO_LEADER and not (missed and rules.sees_missed_epochs)

    def _update_same_epoch(self, event: LeaderAndIsr) -> None:
        """Take over a new ISR or new broker epochs; the leader has not changed."""
        state = self._state
        if event.leader != state.leader:
            return  # older metadata than this replica has
        state.broker_epochs = event.broker_epochs
        if event.partition_epoch <= state.partition_epoch:
            return
        self._copy_metadata(event)
        if self._leader is not None:
            self._leader.handle_metadata(event.isr, event.partition_epoch, event.now_ms)

    def _copy_metadata(self, event: LeaderAndIsr) -> None:
        state = self._state
        state.isr, state.partition_epoch = event.isr, event.partition_epoch
        state.replicas, state.broker_epochs = event.replicas, event.broker_epochs

    def _may_lead(self, event: LeaderAndIsr) -> bool:
        """Whether this replica may lead: nobody leads an epoch twice, because nobody could tell the records
        of the two terms apart."""
        state = self._state
        legal = state.me in event.isr or not state.rules.alter_compares_epochs
        if not legal or state.me not in event.replicas:
            raise IllegalEvent(
                f"leader {state.me} of epoch {event.leader_epoch} is not in the ISR {event.isr}"
            )
        if not state.rules.leads_an_epoch_once or not state.rules.keeps_epochs:
            return True
        return event.leader_epoch > max(state.seen_epoch, state.log.last_epoch)

    def _become_leader(self, event: LeaderAndIsr) -> None:
        state = self._state
        if not state.rules.leader_keeps_log:
            state.truncate(state.hw, "hw", "a new leader to its high watermark")
        if not state.rules.recovers_producers:
            state.producers.clear()
        self._follower, self._leader = None, Leader(state, event.now_ms)
        assigns_epoch = state.rules.keeps_epochs and state.rules.epoch_at_election
        if assigns_epoch and state.epochs.assign(event.leader_epoch, state.log.end):
            state.save_epochs()
        self._leader.maybe_increment_hw(event.now_ms)

    def _become_follower(self) -> None:
        """Follow. Then, as in Kafka after the truncation, parked produces fail with their offset: they were
        in this log, and may yet be in the leader's."""
        state = self._state
        self._leader, self._follower = None, Follower(state)
        if state.rules.fails_parked_on_demotion:
            state.answer_produces(state.delayed_produces, errors.NOT_LEADER_OR_FOLLOWER)
            state.delayed_produces.clear()

    # -- requests to a leader ------------------------------------------------------------------------------

    def _handle_produce(self, event: Produce) -> None:
        if not event.batches:
            raise IllegalEvent("a produce without a batch")
        if self._leader is None:
            self._refuse_produce(event, errors.NOT_LEADER_OR_FOLLOWER)
        elif event.acks not in (-1, 0, 1):
            self._refuse_produce(event, errors.INVALID_REQUIRED_ACKS)
        else:
            self._leader.handle_produce(event)

    def _refuse_produce(self, event: Produce, error: int) -> None:
        state = self._state
        state.emit(ProduceAnswer(token=event.token, error=error, base_offset=-1, log_start=state.log.start))

    def _request_error(self, replica: int, current_leader_epoch: int, *, fences: bool) -> int:
        """Kafka's order: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, then NOT_LEADER_OR_FOLLOWER."""
        state = self._state
        if replica < 0 or fences:
            error = state.check_leader_epoch(current_leader_epoch)
            if error:
                return error
        return errors.NONE if self._leader is not None else errors.NOT_LEADER_OR_FOLLOWER

    def _handle_fetch(self, event: Fetch) -> None:
        state = self._state
        if event.replica == state.me:
            raise IllegalEvent(f"replica {state.me} fetches from itself")
        fences = state.rules.fences_followers
        error = self._request_error(event.replica, event.current_leader_epoch, fences=fences)
        if not error and self._leader is not None:
            self._leader.handle_fetch(event)
            return
        at = end = event.offset
        if self._may_serve_consumer(event, error):
            error, end = errors.NONE, max(at, min(state.hw, state.log.end))
            if not state.log.start <= at <= state.log.end:
                error, end = errors.OFFSET_OUT_OF_RANGE, at
        state.emit(
            FetchAnswer(
                token=event.token, error=error, hw=state.hw, log_start=state.log.start, start=at, end=end
            )
        )

    def _may_serve_consumer(self, event: Fetch, error: int) -> bool:
        """Whether this follower answers a client (KIP-392), below the HW that it knows."""
        reads = event.replica == CONSUMER and error == errors.NOT_LEADER_OR_FOLLOWER
        return reads and self._follower is not None and self._state.rules.followers_serve_clients

    def _handle_offsets_for_leader_epoch(self, event: OffsetsForLeaderEpoch) -> None:
        fences = self._state.rules.fences_epoch_requests
        error = self._request_error(event.replica, event.current_leader_epoch, fences=fences)
        if not error and self._leader is not None:
            self._leader.handle_offsets_for_leader_epoch(event)
        else:
            self._state.emit(EndOffsetAnswer(token=event.token, error=error, end=None))

    def _handle_list_offsets(self, event: ListOffsets) -> None:
        fences = self._state.rules.fences_followers
        error = self._request_error(event.replica, event.current_leader_epoch, fences=fences)
        debugs = event.replica == DEBUGGING_CONSUMER and error == errors.NOT_LEADER_OR_FOLLOWER
        if not error and self._leader is not None:
            self._leader.handle_list_offsets(event)
        elif debugs and self._follower is not None:
            self._state.answer_log_offset(event)
        else:
            self._state.emit(
                ListOffsetsAnswer(token=event.token, error=error, offset=-1, leader_epoch=NO_EPOCH)
            )

    # -- responses to a follower and from the controller ---------------------------------------------------

    def _handle_fetch_response(self, event: FetchResponse) -> None:
        if self._follower is not None:
            self._follower.handle_fetch_response(event)

    def _handle_end_offset_response(self, event: EndOffsetResponse) -> None:
        if self._follower is not None:
            self._follower.handle_end_offset_response(event)

    def _handle_log_ends_response(self, event: LogEndsResponse) -> None:
        if self._follower is not None:
            self._follower.handle_log_ends_response(event)

    def _handle_alter_partition_response(self, event: AlterPartitionResponse) -> None:
        if self._leader is not None and event.proposal.leader_epoch == self._state.leader_epoch:
            self._leader.handle_alter_partition_response(event)

    def _handle_tick(self, event: Tick) -> None:
        if self._leader is not None:
            self._leader.tick(event.now_ms)
        elif self._follower is not None:
            self._follower.tick()

    # -- invariants ----------------------------------------------------------------------------------------

    def _assert_invariants(self, hw_before: int, epoch_before: int) -> None:
        state = self._state
        rules, log, hw = state.rules, state.log, state.hw
        in_bounds = log.start <= hw <= log.end or not rules.clamps_follower_hw
        assert in_bounds, f"{log.start=} {hw=} {log.end=}"
        assert state.leader_epoch >= epoch_before, f"epoch {epoch_before} -> {state.leader_epoch}"
        leader = self._leader
        if leader is None:
            none_parked = not state.delayed_produces or not rules.fails_parked_on_demotion
            assert none_parked, f"{state.delayed_produces=} but not leading"
            return
        if state.leader_epoch == epoch_before:
            assert hw >= hw_before, f"a leader's HW fell in epoch {epoch_before}: {hw_before} -> {hw}"
        if hw > hw_before:
            leader.assert_committed()
        if rules.epoch_at_election:
            latest = state.epochs.latest_epoch
            assert latest == state.leader_epoch, f"leads {state.leader_epoch}, the cache ends with {latest}"
        if state.delayed_produces and rules.ack_rule == "isr" and rules.fails_parked_on_demotion:
            assert state.delayed_produces[0].required > hw, (
                f"HW {hw} has passed {state.delayed_produces[0]}, unanswered"
            )
