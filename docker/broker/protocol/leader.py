"""Leads a partition for one leader epoch: appends, answers fetches, moves the HW and maintains the ISR.

Rules
1. What an ack rests on is decided in `_answer_acks`; when the HW moves, in `maybe_increment_hw`.
2. A follower's LEO is the offset it fetched from in this leader epoch and this incarnation of it; before
   that it is unknown (-1), and a replica of unknown LEO that is counted holds the HW where it is.
3. A fetch is answered with the HW as it was before the fetch was credited: a follower learns the HW one fetch
   late.
4. A fetch that is refused, out of range or diverging is not credited (KAFKA-13141, KAFKA-8400).
"""

from bisect import insort

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.isr import Isr
from floodmark.broker.protocol.messages import (
    CONSUMER,
    NO_EPOCH,
    AlterPartitionResponse,
    Batch,
    EndOffsetAnswer,
    EpochEnd,
    Fetch,
    FetchAnswer,
    HwMoved,
    ListOffsets,
    ListOffsetsAnswer,
    OffsetsForLeaderEpoch,
    Produce,
    ProduceAnswer,
    ProposeIsr,
)
from floodmark.broker.protocol.producer_state_manager import BatchMetadata
from floodmark.broker.protocol.replica_state import DelayedProduce, ReplicaState

NEVER_MS = -(2**62)  # the time of something that has never happened


class RemoteReplica:
    """The fetch state of one follower in this leader epoch, as the leader knows it."""

    __slots__ = ("broker", "broker_epoch", "caught_up_ms", "fetched_ms", "leader_leo", "leo")

    def __init__(self, broker: int, caught_up_ms: int) -> None:
        self.broker = broker
        self.leo = -1
        self.broker_epoch = -1  # of the incarnation that fetched
        self.caught_up_ms = caught_up_ms  # when its log last reached the leader's LEO
        self.fetched_ms = NEVER_MS  # its last fetch
        self.leader_leo = -1  # the leader's LEO at its last fetch


class Leader:
    """The leader's role in one leader epoch. The log and the HW are in ReplicaState, because they outlive
    it."""

    __slots__ = ("_isr_remotes", "_other_remotes", "isr", "remotes", "start", "state")

    def __init__(self, state: ReplicaState, now_ms: int) -> None:
        self.state = state
        self.start = state.log.end  # where this leader epoch starts (KAFKA-7128)
        self.isr = Isr(committed=state.isr, partition_epoch=state.partition_epoch, rules=state.rules)
        self.remotes = {
            broker: RemoteReplica(broker, now_ms if broker in state.isr else NEVER_MS)
            for broker in state.replicas
            if broker != state.me
        }
        self._recompute_isr_members()

    # -- appending ---------------------------------------------------------------------------------------

    def handle_produce(self, event: Produce) -> None:
        """Append, and answer now (acks 0, 1) or when the ISR has it (acks -1)."""
        state = self.state
        error, known = self._check_produce(event)
        if error:
            self._refuse_produce(event, error)
            return
        if known is None:
            base = state.log.end
            batches = self._assign_offsets(event.batches)
            state.append(batches, leading=True)
            required = state.log.end
        else:  # a retry of a batch that is in the log: the answer it would have had
            base, required = known.base_offset, known.last_offset + 1
        parked = DelayedProduce(
            token=event.token,
            base_offset=base,
            required=required,
            deadline_ms=event.now_ms + event.timeout_ms,
            acks=event.acks,
        )
        if event.acks != -1 or state.rules.ack_rule == "append":
            state.answer_produce(parked, errors.NONE)
            self.maybe_increment_hw(event.now_ms)
            return
        insort(state.delayed_produces, parked, key=_required_hw)
        self.maybe_increment_hw(event.now_ms)

    def _check_produce(self, event: Produce) -> tuple[int, BatchMetadata | None]:
        """The error that refuses the produce, or the earlier batch that this one repeats."""
        state = self.state
        if event.acks == -1 and len(self.isr.committed) < state.min_insync:
            return errors.NOT_ENOUGH_REPLICAS, None
        idempotent = [batch for batch in event.batches if batch.producer_id >= 0]
        if not idempotent:
            return errors.NONE, None
        if len(event.batches) > 1:
            return errors.INVALID_RECORD, None
        error, known = state.producers.check_batch(idempotent[0])
        if error and not state.rules.checks_sequences:
            return errors.NONE, None
        return error, known

    def _refuse_produce(self, event: Produce, error: int) -> None:
        self.state.emit(
            ProduceAnswer(token=event.token, error=error, base_offset=-1, log_start=self.state.log.start)
        )

    def _assign_offsets(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """Copy the batches with the offsets and the epoch that this leader assigns."""
        base, epoch = self.state.log.end, self.state.leader_epoch
        stamped = []
        for batch in batches:
            last = base + batch.last_offset - batch.base_offset
            stamped.append(
                Batch(
                    base_offset=base,
                    last_offset=last,
                    epoch=epoch,
                    data=batch.data,
                    producer_id=batch.producer_id,
                    producer_epoch=batch.producer_epoch,
                    base_sequence=batch.base_sequence,
                )
            )
            base = last + 1
        return tuple(stamped)

    # -- reading -----------------------------------------------------------------------------------------

    def handle_fetch(self, event: Fetch) -> None:
        """Answer a fetch; credit the follower that sent it, unless the purgatory only tries it again."""
        state = self.state
        log, rules = state.log, state.rules
        hw, leo = state.hw, log.end  # read before this fetch is credited
        consumer, follower = event.replica == CONSUMER, event.replica >= 0
        remote = self.remotes.get(event.replica)
        if follower:
            if remote is None:  # a fetcher that names the epoch may know of a new assignment (KIP-320)
                named = event.current_leader_epoch != NO_EPOCH
                error = errors.UNKNOWN_LEADER_EPOCH if named else errors.NOT_LEADER_OR_FOLLOWER
                self._answer_fetch_error(event, error)
                return
            if rules.checks_broker_epochs and event.broker_epoch < self._latest_broker_epoch(remote):
                self._answer_fetch_error(
                    event, errors.NOT_LEADER_OR_FOLLOWER
                )  # KIP-903: an earlier incarnation
                return
        error, diverging = self._find_divergence(event)
        limit = leo if not consumer or not rules.consumers_below_hw else hw
        if not error and diverging is None:
            above = leo if rules.out_of_range_above_leo_only or not consumer else limit
            if not log.start <= event.offset <= above:
                error = errors.OFFSET_OUT_OF_RANGE
        if error:
            self._answer_fetch_error(event, error)
            return
        end = event.offset if diverging is not None or limit < event.offset else limit
        state.emit(
            FetchAnswer(
                token=event.token, error=errors.NONE, hw=hw, log_start=log.start, start=event.offset, end=end,
                diverging=diverging,
            )
        )  # fmt: skip
        if remote is None:
            return
        if not event.again and (diverging is None or rules.credits_diverging):
            self._update_fetch_state(remote, event, leo)
        if rules.credits_on_send and end > remote.leo:
            remote.leo = end
            self.maybe_increment_hw(event.now_ms)

    def _latest_broker_epoch(self, remote: RemoteReplica) -> int:
        """The latest broker epoch known of a follower."""
        return max(remote.broker_epoch, self.state.broker_epochs.get(remote.broker, -1))

    def _find_divergence(self, event: Fetch) -> tuple[int, EpochEnd | None]:
        """Compare the fetcher's last epoch with this log (Fetch v12): (error, where its log diverges or
        None)."""
        state = self.state
        by_epoch = state.rules.truncates_by_epoch and state.rules.truncates_on_fetch
        if event.last_fetched_epoch == NO_EPOCH or not by_epoch:
            return errors.NONE, None
        if event.last_fetched_epoch == state.log.last_epoch and event.offset <= state.log.end:
            return errors.NONE, None  # the common case, without the search
        end = self._end_offset_for(event.last_fetched_epoch)
        if end is None or event.offset < state.log.start:
            return errors.OFFSET_OUT_OF_RANGE, None
        other_epoch = NO_EPOCH < end.epoch < event.last_fetched_epoch
        if other_epoch or end.end_offset < event.offset:
            return errors.NONE, end
        return errors.NONE, None

    def _answer_fetch_error(self, event: Fetch, error: int) -> None:
        state = self.state
        state.emit(
            FetchAnswer(
                token=event.token, error=error, hw=state.hw, log_start=state.log.start,
                start=event.offset, end=event.offset,
            )
        )  # fmt: skip

    def handle_offsets_for_leader_epoch(self, event: OffsetsForLeaderEpoch) -> None:
        """Answer OffsetsForLeaderEpoch: where the requested epoch ends in this log."""
        self.state.emit(
            EndOffsetAnswer(token=event.token, error=errors.NONE, end=self._end_offset_for(event.epoch))
        )

    def _end_offset_for(self, epoch: int) -> EpochEnd | None:
        state = self.state
        if state.rules.answers_with_epoch:
            return state.epochs.end_offset_for(epoch, state.log.end)
        return state.epochs.kip_101_end_offset_for(epoch, state.log.end)

    def handle_list_offsets(self, event: ListOffsets) -> None:
        """Answer ListOffsets: a client gets the HW, but not before the HW covers this epoch's start
        (KIP-207)."""
        state = self.state
        if event.replica != CONSUMER or not event.latest:
            state.answer_log_offset(event)
            return
        error, offset = errors.NONE, state.hw if state.rules.list_offsets_ends_at_hw else state.log.end
        if state.rules.guards_list_offsets and state.hw < self.start:
            error, offset = errors.OFFSET_NOT_AVAILABLE, -1
        state.emit(
            ListOffsetsAnswer(
                token=event.token, error=error, offset=offset, leader_epoch=state.leader_epoch
            )
        )

    # -- credit, HW, acks ----------------------------------------------------------------------------------

    def _update_fetch_state(self, remote: RemoteReplica, event: Fetch, leo: int) -> None:
        """Credit a follower: one that fetches from an offset has every record below it."""
        state = self.state
        if event.current_leader_epoch != state.leader_epoch and state.rules.credits_this_epoch_only:
            return
        if event.offset >= leo:
            remote.caught_up_ms = max(remote.caught_up_ms, event.now_ms)
        elif event.offset >= remote.leader_leo >= 0:
            remote.caught_up_ms = max(remote.caught_up_ms, remote.fetched_ms)
        remote.leo = event.offset
        remote.broker_epoch = event.broker_epoch
        remote.fetched_ms = event.now_ms
        remote.leader_leo = leo
        if (
            remote.broker not in self.isr.committed
            and self.isr.pending is None
            and self._can_join_isr(remote)
        ):
            self._propose_isr({*self.isr.committed, remote.broker})
        self.maybe_increment_hw(event.now_ms)

    def _can_join_isr(self, remote: RemoteReplica) -> bool:
        """Whether it has all that is or may be committed (KAFKA-7128) and is that incarnation (KIP-841,
        KIP-903)."""
        state, rules = self.state, self.state.rules
        if rules.expand_needs_hw and remote.leo < state.hw:
            return False
        if rules.expand_needs_leso and remote.leo < self.start:
            return False
        return self._is_isr_eligible(remote)

    def _is_isr_eligible(self, remote: RemoteReplica) -> bool:
        registered = self.state.broker_epochs.get(remote.broker)
        if registered is None:
            return not self.state.rules.alter_refuses_fenced
        return registered == remote.broker_epoch or not self.state.rules.checks_broker_epochs

    def maybe_increment_hw(self, now_ms: int) -> None:
        """HW = max(HW, the least LEO of the maximal ISR and of caught-up replicas that are about to join
        it)."""
        state = self.state
        if state.rules.hw_needs_min_insync and len(self.isr.committed) < state.min_insync:
            return  # KAFKA-15583
        least = state.log.end
        for remote in self._isr_remotes:
            least = min(least, remote.leo)
        rises = state.rules.hw_only_rises
        if self._other_remotes and (least > state.hw or not rises):
            lag_ms = state.config.replica_lag_time_max_ms
            joiners = self._other_remotes if state.rules.hw_awaits_joiners else ()
            for remote in joiners:  # KAFKA-4485, KAFKA-15021: else they might never reach the HW
                caught_up = now_ms - remote.caught_up_ms <= lag_ms
                if remote.leo < least and caught_up and self._is_isr_eligible(remote):
                    least = remote.leo
        if least > state.hw or (0 <= least < state.hw and not rises):
            state.hw = least
            state.emit(HwMoved(hw=least))
        if state.delayed_produces:
            self._answer_acks()

    def _answer_acks(self) -> None:
        """Answer the acks=all produces whose records are below the HW; an ack has no other reason."""
        state = self.state
        parked = state.delayed_produces
        if state.rules.ack_rule == "min-insync-copies":
            self._answer_acks_by_copies()
            return
        passed = 0
        while passed < len(parked) and parked[passed].required <= state.hw:
            passed += 1
        if not passed:
            return
        enough = len(self.isr.maximal) >= state.min_insync or not state.rules.rechecks_min_insync
        error = errors.NONE if enough else errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        state.answer_produces(parked[:passed], error)
        del parked[:passed]

    def _answer_acks_by_copies(self) -> None:
        """Answer by the mutant's rule: min.insync.replicas copies exist."""
        state = self.state
        leos = sorted((state.log.end, *(remote.leo for remote in self.remotes.values())), reverse=True)
        copied = leos[state.min_insync - 1]
        done = [one for one in state.delayed_produces if one.required <= max(copied, state.hw)]
        state.answer_produces(done, errors.NONE)
        del state.delayed_produces[: len(done)]

    # -- ISR and time ------------------------------------------------------------------------------------

    def _propose_isr(self, members: set[int]) -> None:
        state = self.state
        isr = tuple((broker, self._broker_epoch(broker)) for broker in state.replicas if broker in members)
        proposal = ProposeIsr(
            leader_epoch=state.leader_epoch, partition_epoch=self.isr.partition_epoch, isr=isr
        )
        self.isr.propose(proposal)
        self._recompute_isr_members()
        state.emit(proposal)

    def _broker_epoch(self, broker: int) -> int:
        """The broker epoch that a proposal names: that of the incarnation whose fetches were credited, if
        any."""
        remote = self.remotes.get(broker)
        if remote is not None and (remote.leo >= 0 or broker not in self.isr.committed):
            return remote.broker_epoch
        return self.state.broker_epochs.get(broker, -1)

    def tick(self, now_ms: int) -> None:
        """Expire produces, repeat a proposal that had no answer, propose an ISR without the laggards."""
        state = self.state
        expired = [parked for parked in state.delayed_produces if parked.deadline_ms <= now_ms]
        if expired:
            state.delayed_produces[:] = [
                parked for parked in state.delayed_produces if parked.deadline_ms > now_ms
            ]
            state.answer_produces(expired, errors.REQUEST_TIMED_OUT)
        again = self.isr.take_resend()
        if again is not None:
            state.emit(again)
        if self.isr.pending is None:
            laggards = self._out_of_sync_replicas(now_ms)
            if laggards:
                self._propose_isr(set(self.isr.committed) - laggards)
        self.maybe_increment_hw(now_ms)

    def _out_of_sync_replicas(self, now_ms: int) -> set[int]:
        """Members that have not been caught up for replica.lag.time.max.ms (KAFKA-7152: nor are now)."""
        since_ms = now_ms - self.state.config.replica_lag_time_max_ms
        return {
            broker
            for broker, remote in self.remotes.items()
            if broker in self.isr.committed
            and remote.leo != self.state.log.end
            and remote.caught_up_ms < since_ms
        }

    def handle_alter_partition_response(self, event: AlterPartitionResponse) -> None:
        """Take the controller's answer to a proposal."""
        if self.isr.handle_response(event):
            self._adopt_isr(event.now_ms)

    def handle_metadata(self, isr: tuple[int, ...], partition_epoch: int, now_ms: int) -> None:
        """Take the controller's metadata for this same leader epoch."""
        if self.isr.apply_metadata(isr, partition_epoch):
            self._adopt_isr(now_ms)

    def _adopt_isr(self, now_ms: int) -> None:
        state = self.state
        state.isr, state.partition_epoch = self.isr.committed, self.isr.partition_epoch
        self._recompute_isr_members()
        self.maybe_increment_hw(now_ms)

    def assert_committed(self) -> None:
        """Assert, after the HW has moved, that every counted replica has all below it and that they are
        enough."""
        rules, hw = self.state.rules, self.state.hw
        if rules.counts_pending_expand and not rules.adopts_unconfirmed_shrink:
            short = [remote.broker for remote in self._isr_remotes if remote.leo < hw]
            assert not short, f"HW {hw} above the LEO of {short} of the ISR {self.isr.maximal}"
        if rules.hw_needs_min_insync:
            members = self.isr.committed
            assert len(members) >= self.state.min_insync, f"HW {hw} moved with an ISR of {members}"

    def _recompute_isr_members(self) -> None:
        maximal = self.isr.maximal
        self._isr_remotes = [self.remotes[broker] for broker in maximal if broker != self.state.me]
        self._other_remotes = [remote for broker, remote in self.remotes.items() if broker not in maximal]


def _required_hw(parked: DelayedProduce) -> int:
    return parked.required
