"""A replica that follows, for one leader epoch: what it asks, what it takes over, where it truncates.

Rules
1. An answer counts only if it answers what would be asked now; a late one is dropped (KAFKA-18991).
2. The leader's batches are appended as they are, and continue the log without a gap.
3. A diverging answer truncates and does nothing else: neither records nor HW of it are used (KAFKA-14704).
4. HW = min(LEO, leader's HW); it may fall.
5. A follower whose leader epoch is fenced asks nothing until it hears of a newer one.
"""

from broker import errors
from broker.errors import IllegalEvent
from broker.messages import (
    NO_EPOCH,
    NO_LEADER,
    Batch,
    EpochEnd,
    FetchAnswered,
    FetchWish,
    LogEndsAnswered,
    LogEndsWish,
    Wish,
)
from broker.state import State


class Follower:
    """One leader epoch under another's lead, or under nobody's."""

    __slots__ = ("_halted", "_wants_ends", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self._wants_ends = False  # after OFFSET_OUT_OF_RANGE: where does the leader's log begin and end?
        self._halted = False  # fenced, or (without epochs) stuck on a batch that does not fit
        if state.rules.truncates_to_hw:
            state.truncate(state.hw, "to the high watermark")

    def wish(self) -> Wish | None:
        """What would be asked now."""
        state = self.state
        if state.leader == NO_LEADER or self._halted:
            return None
        if self._wants_ends:
            return LogEndsWish(leader=state.leader, leader_epoch=state.leader_epoch)
        return FetchWish(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            offset=state.log.end,
            last_fetched_epoch=state.epochs.latest if state.rules.truncates_by_epoch else NO_EPOCH,
        )

    def fetched(self, event: FetchAnswered) -> None:
        """Take over what the leader answered to a fetch."""
        if not self._answers_wish(event):
            return
        if event.error == errors.OFFSET_OUT_OF_RANGE:
            self._wants_ends = True
        elif event.error == errors.FENCED_LEADER_EPOCH:
            self._halted = True
        elif event.error:
            return  # the shell backs off and asks again
        elif event.diverging is not None:
            self._diverged(event.diverging)
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
        """Truncate to the end of the largest epoch both logs know (KIP-279); ask again if that was not it."""
        state = self.state
        mine = state.epochs.end_offset_for(end.epoch, state.log.end)
        if mine is None:
            to = end.end_offset  # nothing so old here
        elif mine.epoch != end.epoch:
            to = mine.end_offset
        else:
            to = min(mine.end_offset, end.end_offset)
        before = (state.log.end, state.epochs.latest)
        state.truncate(min(to, state.log.end), f"epoch {end.epoch} ends at {end.end_offset} on the leader")
        assert (state.log.end, state.epochs.latest) != before or not state.rules.cuts_epoch_tail, (
            f"diverging at {end} but nothing to truncate: LEO, epoch {before}, {state.epochs.entries}"
        )

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
