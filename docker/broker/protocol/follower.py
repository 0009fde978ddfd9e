"""Follows a leader for one leader epoch: what to request next, what to append, where to truncate.

Rules
1. An answer counts only if it answers the request that would be sent now; a late one is dropped
   (KAFKA-18991).
2. The leader's batches are appended as they are, and continue the log without a gap.
3. A diverging answer truncates and does nothing else: neither records nor HW of it are used (KAFKA-14704).
4. HW = min(LEO, leader's HW); it may fall.
5. A follower whose leader epoch is fenced sends nothing until it receives a newer one.
6. In the generations that ask before they fetch (OffsetsForLeaderEpoch), nothing is fetched until the leader
   has answered where the last epoch of this log ends in its own.
"""

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.errors import IllegalEvent
from floodmark.broker.protocol.messages import (
    NO_EPOCH,
    NO_LEADER,
    Batch,
    EndOffsetRequest,
    EndOffsetResponse,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FollowerRequest,
    LogEndsRequest,
    LogEndsResponse,
    TruncationCause,
)
from floodmark.broker.protocol.replica_state import ReplicaState


class Follower:
    """The follower's role in one leader epoch; the leader may be NO_LEADER."""

    __slots__ = ("_deferred_divergence", "_halted", "_must_ask_end_offset", "_must_ask_log_ends", "state")

    def __init__(self, state: ReplicaState) -> None:
        self.state = state
        # set by OFFSET_OUT_OF_RANGE: ask where the leader's log begins and ends
        self._must_ask_log_ends = False
        self._halted = False  # fenced, or (without epochs) stuck on a batch that does not fit
        self._must_ask_end_offset = state.rules.asks_before_fetching
        # only by the rule hw_before_trunc: where to truncate at the next tick
        self._deferred_divergence: EpochEnd | None = None
        if state.leader == NO_LEADER:
            return  # KAFKA-1647: without a leader there is no log to compare with
        if state.rules.truncates_to_hw:
            state.truncate(state.hw, "hw", "to the high watermark")
        elif self._must_ask_end_offset and state.epochs.latest_epoch == NO_EPOCH:
            self._truncate_to_hw("there is no epoch to ask for")

    def next_request(self) -> FollowerRequest | None:
        """The request to send to the leader now; None if there is none."""
        state = self.state
        rules = state.rules
        if state.leader == NO_LEADER or self._halted or self._deferred_divergence is not None:
            return None
        if self._must_ask_end_offset:
            return EndOffsetRequest(
                leader=state.leader, leader_epoch=state.leader_epoch, epoch=state.epochs.latest_epoch
            )
        if self._must_ask_log_ends:
            return LogEndsRequest(leader=state.leader, leader_epoch=state.leader_epoch)
        by_epoch = rules.truncates_by_epoch and rules.truncates_on_fetch
        return FetchRequest(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            offset=state.log.end,
            last_fetched_epoch=state.epochs.latest_epoch if by_epoch else NO_EPOCH,
        )

    def handle_fetch_response(self, event: FetchResponse) -> None:
        """Handle the leader's response to a fetch: append, truncate, or set the HW."""
        state = self.state
        if not self._answers_current_request(event):
            return
        if event.error == errors.OFFSET_OUT_OF_RANGE:
            self._must_ask_log_ends = True
        elif event.error == errors.FENCED_LEADER_EPOCH:
            self._halted = True
        elif event.error:
            return  # the server backs off and sends the request again
        elif event.diverging is not None and state.rules.truncates_before_hw:
            self._truncate_diverging(event.diverging)
        elif event.diverging is not None:
            state.hw = max(state.log.start, min(state.log.end, event.hw))
            self._deferred_divergence = event.diverging
        else:
            self._append_fetched(event)

    def _answers_current_request(self, event: FetchResponse) -> bool:
        current = self.next_request()
        if event.asked == current and event.leader == event.asked.leader:
            return True
        late_allowed = not self.state.rules.answers_need_epoch and isinstance(current, FetchRequest)
        return (
            late_allowed and event.leader == self.state.leader and event.asked.offset == self.state.log.end
        )

    def _answers_current_epoch_request(self, event: EndOffsetResponse) -> bool:
        if not self._must_ask_end_offset:
            return False
        if event.asked == self.next_request() and event.leader == event.asked.leader:
            return True
        return not self.state.rules.answers_need_epoch and event.leader == self.state.leader

    def _append_fetched(self, event: FetchResponse) -> None:
        state = self.state
        if event.batches:
            if self._cannot_continue_log(event.batches):
                return
            state.append(event.batches, leading=False)
        leo = state.log.end
        if not state.rules.follower_hw_from_leader:
            state.hw = leo
        elif state.rules.clamps_follower_hw:
            state.hw = max(state.log.start, min(leo, event.hw))
        else:
            state.hw = event.hw

    def _cannot_continue_log(self, batches: tuple[Batch, ...]) -> bool:
        """Whether the batches cannot continue this log. With epochs this is impossible; without them a log
        that has diverged unnoticed from its leader's may receive a batch that begins below its LEO (Z05),
        and Kafka gives up on the partition until the next leader epoch."""
        state = self.state
        strict = state.rules.keeps_lineage
        end, epoch = state.log.end, state.log.last_epoch
        for batch in batches:
            gap = batch.base_offset != end or batch.last_offset < batch.base_offset
            if gap and not state.rules.checks_base_offsets:
                return False
            if gap and not strict:
                self._halted = True
                return True
            if gap or (strict and not epoch <= batch.epoch <= state.leader_epoch):
                raise IllegalEvent(
                    f"batch {batch.base_offset}-{batch.last_offset} of epoch {batch.epoch} cannot follow "
                    f"LEO {end}, epoch {epoch} under leader epoch {state.leader_epoch}"
                )
            end, epoch = batch.last_offset + 1, batch.epoch
        return False

    def _truncate_diverging(self, end: EpochEnd) -> None:
        """Truncate after a diverging fetch: there is something to cut, or the logs had not diverged."""
        state = self.state
        before = (state.log.end, state.epochs.latest_epoch)
        self._truncate_to_common_epoch(end, "diverged")
        assert (state.log.end, state.epochs.latest_epoch) != before or not state.rules.keeps_lineage, (
            f"diverging at {end} but nothing to truncate: LEO, epoch {before}, {state.epochs.entries}"
        )

    def _truncate_to_common_epoch(self, end: EpochEnd, cause: TruncationCause) -> bool:
        """Truncate to the end of the largest epoch that both logs have (KIP-279). Returns whether it was
        found; if not, the follower asks again. An end without its epoch (KIP-101) is taken as it is."""
        state = self.state
        to, found = end.end_offset, True
        if end.epoch == NO_EPOCH:
            why = f"the epoch ends at {end.end_offset} on the leader"
        else:
            why = f"epoch {end.epoch} ends at {end.end_offset} on the leader"
            mine = state.epochs.end_offset_for(end.epoch, state.log.end)
            if mine is not None:  # else this log has no epoch that old
                found = mine.epoch == end.epoch
                to = min(mine.end_offset, end.end_offset) if found else mine.end_offset
        state.truncate(min(to, state.log.end), cause, why, end)
        return found

    def handle_end_offset_response(self, event: EndOffsetResponse) -> None:
        """Take where the leader says this log's last epoch ends: truncate, then fetch, or ask again."""
        if not self._answers_current_epoch_request(event):
            return
        if event.error:
            self._halted = event.error == errors.FENCED_LEADER_EPOCH  # else asked again
        elif event.end is None:
            self._truncate_to_hw("the leader knows no end of the epoch")
        elif self._truncate_to_common_epoch(event.end, "epoch"):
            self._must_ask_end_offset = False
        elif self.state.epochs.latest_epoch == NO_EPOCH:
            self._truncate_to_hw("there is no epoch left to ask for")

    def _truncate_to_hw(self, why: str) -> None:
        """Truncate to the HW, KIP-101's fallback; no end offset need be asked for any more."""
        self._must_ask_end_offset = False
        self.state.truncate(self.state.hw, "hw", f"to the high watermark: {why}")

    def tick(self) -> None:
        """Truncate (a mutant only) what should have been truncated before the HW was taken over."""
        if self._deferred_divergence is not None:
            diverging, self._deferred_divergence = self._deferred_divergence, None
            self._truncate_diverging(diverging)

    def handle_log_ends_response(self, event: LogEndsResponse) -> None:
        """Recover from OFFSET_OUT_OF_RANGE: begin where the leader begins, or (no epochs) end where it
        ends."""
        state = self.state
        if event.asked != self.next_request():
            return
        if event.error:
            self._halted = event.error == errors.FENCED_LEADER_EPOCH
            return
        self._must_ask_log_ends = False
        leo = state.log.end
        if event.log_start > leo or (leo > event.log_end and leo == state.log.start):
            state.reset(event.log_start)  # this log has nothing that the leader's log continues
        elif event.log_end < leo and state.rules.truncates_by_log_end:
            end = EpochEnd(epoch=NO_EPOCH, end_offset=event.log_end)
            state.truncate(event.log_end, "other", f"the leader's log ends at {event.log_end}", end)
