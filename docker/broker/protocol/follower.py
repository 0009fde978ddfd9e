"""A replica that follows, for one leader epoch: what it asks, what it takes over, where it truncates.

Rules
1. An answer counts only if it answers what would be asked now; a late one is dropped (KAFKA-18991).
2. The leader's batches are appended as they are, and continue the log without a gap.
3. A diverging answer truncates and does nothing else: neither records nor HW of it are used (KAFKA-14704).
4. HW = min(LEO, leader's HW); it may fall.
5. A follower whose leader epoch is fenced asks nothing until it hears of a newer one.
6. In the generations that ask before they fetch (OffsetsForLeaderEpoch), nothing is fetched until the leader
   has told where the last epoch of this log ends in its own.
"""

from broker.protocol import errors
from broker.protocol.errors import IllegalEvent
from broker.protocol.messages import (
    NO_EPOCH,
    NO_LEADER,
    Batch,
    EndOffsetAnswered,
    EpochEnd,
    EpochWish,
    FetchAnswered,
    FetchWish,
    LogEndsAnswered,
    LogEndsWish,
    Wish,
)
from broker.protocol.replica_state import State


class Follower:
    """One leader epoch under another's lead, or under nobody's."""

    __slots__ = ("_asks_epoch", "_halted", "_parting", "_wants_ends", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self._wants_ends = False  # after OFFSET_OUT_OF_RANGE: where does the leader's log begin and end?
        self._halted = False  # fenced, or (without epochs) stuck on a batch that does not fit
        self._asks_epoch = state.rules.asks_before_fetching
        self._parting: EpochEnd | None = None  # the mutant's: where to truncate, later
        if state.leader == NO_LEADER:
            return  # KAFKA-1647: while nobody leads nothing is known to be wrong
        if state.rules.truncates_to_hw:
            state.truncate(state.hw, "to the high watermark")
        elif self._asks_epoch and state.epochs.latest == NO_EPOCH:
            self._truncate_to_hw("there is no epoch to ask for")

    def wish(self) -> Wish | None:
        """What would be asked now."""
        state = self.state
        rules = state.rules
        if state.leader == NO_LEADER or self._halted or self._parting is not None:
            return None
        if self._asks_epoch:
            return EpochWish(
                leader=state.leader, leader_epoch=state.leader_epoch, epoch=state.epochs.latest
            )
        if self._wants_ends:
            return LogEndsWish(leader=state.leader, leader_epoch=state.leader_epoch)
        by_epoch = rules.truncates_by_epoch and rules.truncates_on_fetch
        return FetchWish(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            offset=state.log.end,
            last_fetched_epoch=state.epochs.latest if by_epoch else NO_EPOCH,
        )

    def fetched(self, event: FetchAnswered) -> None:
        """Take over what the leader answered to a fetch."""
        state = self.state
        if not self._answers_wish(event):
            return
        if event.error == errors.OFFSET_OUT_OF_RANGE:
            self._wants_ends = True
        elif event.error == errors.FENCED_LEADER_EPOCH:
            self._halted = True
        elif event.error:
            return  # the shell backs off and asks again
        elif event.diverging is not None and state.rules.truncates_before_hw:
            self._diverged(event.diverging)
        elif event.diverging is not None:
            state.hw = max(state.log.start, min(state.log.end, event.hw))
            self._parting = event.diverging
        else:
            self._take_over(event)

    def _answers_wish(self, event: FetchAnswered) -> bool:
        wish = self.wish()
        if event.asked == wish and event.leader == event.asked.leader:
            return True
        late_allowed = not self.state.rules.answers_need_epoch and isinstance(wish, FetchWish)
        return (
            late_allowed and event.leader == self.state.leader and event.asked.offset == self.state.log.end
        )

    def _answers_epoch_wish(self, event: EndOffsetAnswered) -> bool:
        if not self._asks_epoch:
            return False
        if event.asked == self.wish() and event.leader == event.asked.leader:
            return True
        return not self.state.rules.answers_need_epoch and event.leader == self.state.leader

    def _take_over(self, event: FetchAnswered) -> None:
        state = self.state
        if event.batches:
            if self._misfit(event.batches):
                return
            state.append(event.batches, leading=False)
        leo = state.log.end
        if not state.rules.follower_hw_from_leader:
            state.hw = leo
        elif state.rules.clamps_follower_hw:
            state.hw = max(state.log.start, min(leo, event.hw))
        else:
            state.hw = event.hw

    def _misfit(self, batches: tuple[Batch, ...]) -> bool:
        """Whether the batches cannot continue this log. With epochs that cannot be; without them a log
        that has parted from its leader's unnoticed may meet a batch that begins below its LEO (Z05), and
        Kafka gives up on the partition until the next leader epoch."""
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

    def _diverged(self, end: EpochEnd) -> None:
        """A fetch that parted from the leader's log: there is something to cut, or it had not parted."""
        state = self.state
        before = (state.log.end, state.epochs.latest)
        self._truncate_to(end)
        assert (state.log.end, state.epochs.latest) != before or not state.rules.keeps_lineage, (
            f"diverging at {end} but nothing to truncate: LEO, epoch {before}, {state.epochs.entries}"
        )

    def _truncate_to(self, end: EpochEnd) -> bool:
        """Truncate to the end of the largest epoch both logs know (KIP-279); whether that was it, or is to
        be asked again. An end without its epoch (KIP-101) is taken as it is."""
        state = self.state
        to, found = end.end_offset, True
        if end.epoch == NO_EPOCH:
            why = f"the epoch ends at {end.end_offset} on the leader"
        else:
            why = f"epoch {end.epoch} ends at {end.end_offset} on the leader"
            mine = state.epochs.end_offset_for(end.epoch, state.log.end)
            if mine is not None:  # else nothing so old here
                found = mine.epoch == end.epoch
                to = min(mine.end_offset, end.end_offset) if found else mine.end_offset
        state.truncate(min(to, state.log.end), why)
        return found

    def end_offset(self, event: EndOffsetAnswered) -> None:
        """What the leader knows of this log's last epoch: truncate, then fetch, or ask again."""
        if not self._answers_epoch_wish(event):
            return
        if event.error:
            self._halted = event.error == errors.FENCED_LEADER_EPOCH  # else asked again
        elif event.end is None:
            self._truncate_to_hw("the leader knows no end of the epoch")
        elif self._truncate_to(event.end):
            self._asks_epoch = False
        elif self.state.epochs.latest == NO_EPOCH:
            self._truncate_to_hw("there is no epoch left to ask for")

    def _truncate_to_hw(self, why: str) -> None:
        """What KIP-101 falls back to; the truncation is complete then."""
        self._asks_epoch = False
        self.state.truncate(self.state.hw, f"to the high watermark: {why}")

    def tick(self) -> None:
        """The mutant truncates now what it should have truncated before it believed the HW."""
        if self._parting is not None:
            parting, self._parting = self._parting, None
            self._diverged(parting)

    def log_ends(self, event: LogEndsAnswered) -> None:
        """After OFFSET_OUT_OF_RANGE: begin where the leader begins, or (without epochs) end where it ends."""
        state = self.state
        if event.asked != self.wish():
            return
        if event.error:
            self._halted = event.error == errors.FENCED_LEADER_EPOCH
            return
        self._wants_ends = False
        leo = state.log.end
        if event.log_start > leo or (leo > event.log_end and leo == state.log.start):
            state.reset(event.log_start)  # nothing here that the leader's log continues
        elif event.log_end < leo and state.rules.truncates_by_log_end:
            state.truncate(event.log_end, f"the leader's log ends at {event.log_end}")
