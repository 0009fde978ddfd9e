"""Defines the protocol's rules as data: what each generation of Kafka did, switch by switch.

Rules
1. A generation is a value; the machines ask a switch and never a generation's name.
2. Every switch is named so that True is what the correct protocol of today does, unless its comment says that
   it belongs to an older generation or is another correct way (SWITCHES).
3. A known-bad rule (broker.testing.bugs) is a generation with one switch inverted; the invariants that it
   breaks are then not asserted.
4. What another correct broker does (SWITCHES) breaks nothing, and every invariant that it keeps is asserted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

# What an acks=all answer waits for: every ISR member's copy, min.insync.replicas copies, the leader's own.
AckRule = Literal["isr", "min-insync-copies", "append"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One rule set. The replica's first, then the server's, then the controller's."""

    generation: str
    bugs: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()

    # -- epochs and truncation ---------------------------------------------------------------------------
    keeps_epochs: bool = True  # leader-epoch cache and leader-epoch-checkpoint (KIP-101)
    truncates_to_hw: bool = False  # a new follower cuts its log at its own HW (before KIP-101)
    truncates_by_log_end: bool = False  # out of range: cut at the leader's end, as 2.8.2 without epochs
    leader_keeps_log: bool = True  # a new leader truncates nothing
    epoch_at_election: bool = True  # a new leader notes its epoch before it writes (KAFKA-7415)
    truncates_by_epoch: bool = True  # a follower learns by epochs where its log leaves its leader's (KIP-101)
    truncates_on_fetch: bool = True  # ... from Fetch itself (KAFKA-10554); False: asked before, until 2.6
    answers_with_epoch: bool = True  # ... the largest epoch <= the one asked, and its end (KIP-279)
    truncates_before_hw: bool = True  # of an answer that diverges the HW is not used (KAFKA-14704)
    cuts_epoch_tail: bool = True  # truncating to the LEO still drops the entries there (KAFKA-10706)
    recalls_epochs: bool = True  # a restarted replica remembers the epochs it has seen
    follows_same_leader_anew: bool = True  # a new epoch of the same leader is a new role (KAFKA-7164)
    sees_missed_epochs: bool = True  # ... at least where an epoch was missed in between (2.0.1)
    checks_base_offsets: bool = True  # a follower appends only what begins at its LEO

    # -- fencing -----------------------------------------------------------------------------------------
    fences_followers: bool = True  # the current_leader_epoch of a follower's Fetch is compared (KIP-320)
    fences_epoch_requests: bool = True  # ... and of its OffsetsForLeaderEpoch
    credits_this_epoch_only: bool = True  # a fetch counts for the HW only if made in the leader's epoch
    answers_need_epoch: bool = True  # an answer of an older epoch is dropped (KAFKA-18991)
    leads_an_epoch_once: bool = True  # nobody leads an epoch that its log already knows (Z28a)

    # -- high watermark and acks ------------------------------------------------------------------------
    ack_rule: AckRule = "isr"
    hw_needs_min_insync: bool = True  # the HW does not move below min.insync.replicas (KAFKA-15583)
    hw_awaits_joiners: bool = True  # caught-up replicas about to join hold the HW (KAFKA-4485)
    rechecks_min_insync: bool = True  # error 20 at the ack
    fails_parked_on_demotion: bool = True  # error 6 with the offset for parked produces
    hw_only_rises: bool = True  # False: a replica about to join takes it back; the leader's invariant ends it
    clamps_follower_hw: bool = True  # min(LEO, leader's HW)
    follower_hw_from_leader: bool = True  # False: a follower takes its LEO for the HW
    credits_diverging: bool = False  # KAFKA-13141
    credits_on_send: bool = False  # what was sent counts as received

    # -- ISR ---------------------------------------------------------------------------------------------
    counts_pending_expand: bool = True  # maximal ISR (KIP-497)
    adopts_unconfirmed_shrink: bool = False
    keeps_pending_on_refusal: bool = True  # what a refused proposal named stays in the maximal ISR
    takes_refusal_for_success: bool = False
    expand_needs_hw: bool = True
    expand_needs_leso: bool = True  # the leader epoch's start offset (KAFKA-7128)
    checks_broker_epochs: bool = True  # KIP-903

    # -- clients -----------------------------------------------------------------------------------------
    consumers_below_hw: bool = True
    followers_serve_clients: bool = False  # KIP-392: a follower is read from, below its own HW
    guards_list_offsets: bool = True  # KIP-207
    list_offsets_ends_at_hw: bool = True  # False: a consumer is given the LEO for the end of the log
    out_of_range_above_leo_only: bool = True  # False: also between HW and LEO
    checks_sequences: bool = True
    recovers_producers: bool = True  # producer state is rebuilt from the log

    # -- the server --------------------------------------------------------------------------------------
    checkpoints_every_partition: bool = True  # also those that have no role yet (KAFKA-1647)
    recovery_checks_batches: bool = True  # a torn or damaged batch is cut off at a restart
    recovery_keeps_segments: bool = True  # ... and nothing before it
    recovery_keeps_last_batch: bool = True  # also the last batch that is good
    recovery_mends_epochs: bool = True  # leader-epoch-checkpoint is fitted to what the log still holds
    control_needs_broker_epoch: bool = True  # leader-and-isr for another incarnation is refused (KIP-380)

    # -- the controller ----------------------------------------------------------------------------------
    alter_compares_epochs: bool = True
    alter_refuses_fenced: bool = True  # KIP-841
    bounce_is_a_failure: bool = True  # a new incarnation leaves the ISRs and its leaderships
    election_bumps_epoch: bool = True
    elects_from_isr: bool = True
    elects_unfenced: bool = True
    expires_one_by_one: bool = True  # each from the ISR as it then is (KAFKA-13173)

    @property
    def keeps_lineage(self) -> bool:
        """Whether a follower's log, once it fetches records, is a prefix of its leader's."""
        fenced = self.fences_followers and self.fences_epoch_requests
        return self.truncates_by_epoch and self.answers_with_epoch and fenced and not self.bugs

    @property
    def asks_before_fetching(self) -> bool:
        """Whether a new follower asks OffsetsForLeaderEpoch, and fetches only when it has truncated."""
        return self.truncates_by_epoch and not self.truncates_on_fetch


KIP_320 = Rules(generation="kip-320")

HIGH_WATERMARK = Rules(
    generation="high-watermark",
    keeps_epochs=False,
    truncates_to_hw=True,
    truncates_by_log_end=True,
    epoch_at_election=False,
    truncates_by_epoch=False,
    fences_followers=False,
    credits_this_epoch_only=False,
    hw_needs_min_insync=False,
    expand_needs_leso=False,
    guards_list_offsets=False,
)

# 0.11 to 1.1: epochs in the log, an end offset without its epoch, and nothing fenced
KIP_101 = Rules(
    generation="kip-101",
    truncates_by_log_end=True,
    epoch_at_election=False,
    truncates_on_fetch=False,
    answers_with_epoch=False,
    follows_same_leader_anew=False,
    sees_missed_epochs=False,
    fences_followers=False,
    fences_epoch_requests=False,
    credits_this_epoch_only=False,
    answers_need_epoch=False,
    hw_needs_min_insync=False,
    expand_needs_leso=False,
    guards_list_offsets=False,
)

# 2.0.1: KIP-279, KAFKA-7415 and KAFKA-7128, half of KAFKA-7164, and still nothing fenced
KIP_279 = replace(
    KIP_101,
    generation="kip-279",
    epoch_at_election=True,
    answers_with_epoch=True,
    sees_missed_epochs=True,
    expand_needs_leso=True,
)

GENERATIONS: dict[str, Rules] = {
    rules.generation: rules for rules in (HIGH_WATERMARK, KIP_101, KIP_279, KIP_320)
}

# Other correct brokers, by name: the judge must find nothing wrong with them.
SWITCHES: Mapping[str, Mapping[str, object]] = {
    # 2.1 to 2.6: a follower asks where to truncate before it fetches, fenced by its leader epoch
    "two-phase": {"truncates_on_fetch": False, "truncates_by_log_end": True},
    # until 3.6 (KAFKA-15583): the HW moves on below min.insync.replicas, and the ack is error 20
    "hw-below-min-isr": {"hw_needs_min_insync": False},
    # until 0.10.1 (KAFKA-4485): the ISR alone holds the HW; a matter of liveness only
    "hw-isr-only": {"hw_awaits_joiners": False},
    # from 2.4 (KIP-392)
    "follower-reads": {"followers_serve_clients": True},
}
