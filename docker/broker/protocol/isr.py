"""Tracks the ISR of a leader: committed, proposed, and the larger of both, the maximal ISR (KIP-497).

Rules
1. One proposal is in flight at a time, a compare-and-set on leader epoch and partition epoch.
2. Until its fate is known the HW counts every replica that may be in the ISR: an expansion counts at once, a
   shrink not before it is confirmed. `maximal` is what is counted.
3. A proposal that was certainly refused because of a member (INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED)
   is undone. One refused because of an epoch stays counted until the controller's metadata overrides it:
   another request has changed the partition, perhaps an earlier attempt of this very proposal.
4. An attempt without an answer may still arrive. A later refusal then proves nothing about it, so the
   committed ISR itself is proposed: once that is accepted the partition epoch has moved and the old attempt
   is void.
"""

from dataclasses import dataclass, replace

from msgspec import structs

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import AlterPartitionResponse, ProposeIsr
from floodmark.broker.protocol.rules import Rules

_MEMBER_REFUSED = frozenset({errors.INELIGIBLE_REPLICA, errors.OPERATION_NOT_ATTEMPTED})
_EPOCH_REFUSED = frozenset(
    {
        errors.FENCED_LEADER_EPOCH,
        errors.INVALID_UPDATE_VERSION,
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.UNKNOWN_TOPIC_ID,
        errors.INVALID_REQUEST,
        errors.NEW_LEADER_ELECTED,
    }
)
_NOT_TRIED = frozenset({errors.STALE_BROKER_EPOCH, errors.NOT_CONTROLLER})


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingIsr:
    """A proposal whose fate is not known."""

    proposal: ProposeIsr
    counted: tuple[int, ...]  # the maximal ISR while it is pending
    to_send: bool = False  # at the next tick
    unanswered: bool = False  # some attempt at this partition epoch had no answer
    overruled: bool = False  # refused because of an epoch: wait for metadata


class Isr:
    """The ISR as the leader of one leader epoch knows it."""

    __slots__ = ("committed", "partition_epoch", "pending", "rules")

    def __init__(self, *, committed: tuple[int, ...], partition_epoch: int, rules: Rules) -> None:
        self.committed = committed
        self.partition_epoch = partition_epoch
        self.pending: PendingIsr | None = None
        self.rules = rules

    @property
    def maximal(self) -> tuple[int, ...]:
        """The replicas that the HW waits for."""
        if self.pending is None:
            return self.committed
        proposed = tuple(broker for broker, _ in self.pending.proposal.isr)
        if self.rules.adopts_unconfirmed_shrink and len(proposed) < len(self.committed):
            return proposed
        return self.pending.counted if self.rules.counts_pending_expand else self.committed

    def propose(self, proposal: ProposeIsr) -> None:
        """Remember the proposal; its members and the committed ones are all counted from now on."""
        assert self.pending is None, f"a second proposal in flight: {proposal} beside {self.pending}"
        added = tuple(broker for broker, _ in proposal.isr if broker not in self.committed)
        self.pending = PendingIsr(proposal=proposal, counted=self.committed + added)

    def apply_metadata(self, isr: tuple[int, ...], partition_epoch: int) -> bool:
        """Adopt the controller's ISR if it is newer than the one known here; returns whether it was."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.committed, self.partition_epoch, self.pending = isr, partition_epoch, None
        return True

    def handle_response(self, answer: AlterPartitionResponse) -> bool:
        """Take the answer to the proposal in flight; returns whether the maximal ISR may have changed."""
        pending = self.pending
        if pending is None or answer.proposal != pending.proposal or pending.to_send:
            return False
        if answer.error == errors.NONE:
            other_epoch = answer.leader_epoch != pending.proposal.leader_epoch
            if other_epoch and self.rules.alter_compares_epochs:
                return False
            return self.apply_metadata(answer.isr, answer.partition_epoch)
        if self.rules.takes_refusal_for_success:
            self.committed = tuple(broker for broker, _ in pending.proposal.isr)
            self.pending = None
        elif answer.error in _MEMBER_REFUSED and not pending.unanswered:
            self.pending = None
        elif answer.error in _EPOCH_REFUSED:
            kept = self.rules.keeps_pending_on_refusal
            self.pending = replace(pending, overruled=True) if kept else None
        else:
            lost = answer.error not in _NOT_TRIED and answer.error not in _MEMBER_REFUSED
            self.pending = self._schedule_resend(
                pending, member_refused=answer.error in _MEMBER_REFUSED, lost=lost
            )
        return True

    def take_resend(self) -> ProposeIsr | None:
        """Return the proposal that is to be sent again now, if any."""
        pending = self.pending
        if pending is None or not pending.to_send:
            return None
        self.pending = replace(pending, to_send=False)
        return pending.proposal

    def _schedule_resend(self, pending: PendingIsr, *, member_refused: bool, lost: bool) -> PendingIsr:
        proposal = pending.proposal
        if member_refused:
            members = tuple(one for one in proposal.isr if one[0] in self.committed)
            proposal = structs.replace(proposal, isr=members)
        return replace(pending, proposal=proposal, to_send=True, unanswered=pending.unanswered or lost)
