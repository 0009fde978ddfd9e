"""The teeth matrix in memory: each known-bad rule, the schedule that brings it to harm, what must see it.

Rules
1. A row's schedule harms the cluster of the row, and not the one of its control.
2. `manifest` and `permitted` are findings of history and logs, by format.md's names (permitted: its class);
   `latent` are findings of the trace. A judge finds each of them in the folder of the row.
3. A row without a bug is a generation of the protocol, and its harm is what the next one mended.
"""

from collections.abc import Callable
from dataclasses import dataclass

import schedules_clients as clients
import schedules_epochs as epochs
import schedules_isr as isr
from memory_cluster import MemoryCluster
from oracles import FINDERS
from schedules import LAG_MS, settled

Schedule = Callable[[MemoryCluster], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What a cluster runs."""

    rules: str = "kip-320"
    bugs: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One bug, or one generation: how it is brought to harm, and by what name that is found."""

    zoo: str
    side: Side
    control: Side
    schedule: Schedule
    latent: tuple[str, ...]
    manifest: tuple[str, ...]
    permitted: tuple[str, ...]
    nodes: int
    min_insync: int
    mend: bool  # before the cluster is looked at
    flush_every: bool
    fetch_batches: int | None

    @property
    def name(self) -> str:
        side = self.side
        words = [side.rules] if side.rules != "kip-320" or not side.bugs else []
        return f"{self.zoo}-{'+'.join([*words, *side.bugs, *side.switches])}-{self.schedule.__name__}"

    def cluster(
        self, *, control: bool = False, bugs: tuple[str, ...] = (), switches: tuple[str, ...] = ()
    ) -> MemoryCluster:
        """Started, with nothing sent; with these bugs and switches beside its own."""
        side = self.control if control else self.side
        return MemoryCluster(
            side.rules, (*side.bugs, *bugs), switches=(*side.switches, *switches), nodes=self.nodes,
            min_insync=self.min_insync, lag_ms=LAG_MS, flush_every=self.flush_every,
            fetch_batches=self.fetch_batches,
        )  # fmt: skip

    def play(self, cluster: MemoryCluster) -> None:
        self.schedule(cluster)
        if self.mend:
            settled(cluster)

    def steps_to_harm(self) -> int | None:
        """How many events were stepped from the first send until the logs, or what a client was told, had
        the first manifest or permitted finding; None where it shows only when nothing more comes (stuck)."""
        cluster = self.cluster()
        begun = cluster.steps
        harm: list[int] = []

        def look() -> None:
            named = [finding for finding in (*self.manifest, *self.permitted) if finding != "stuck"]
            if not harm and any(FINDERS[finding](cluster) for finding in named):
                harm.append(cluster.steps - begun)

        cluster.on_step = look
        self.play(cluster)
        return harm[0] if harm else None


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def side(text: str) -> Side:
    """`generation` or `+bug+bug ~switch`: kip-320 where no generation is named."""
    found = words(text)
    rules = [word for word in found if word[0] not in "+~"]
    return Side(
        rules=rules[0] if rules else "kip-320",
        bugs=tuple(word[1:] for word in found if word[0] == "+"),
        switches=tuple(word[1:] for word in found if word[0] == "~"),
    )


def row(
    zoo: str,
    what: str,
    schedule: Schedule,
    manifest: str = "",
    latent: str = "",
    *,
    control: str = "",
    permitted: str = "",
    nodes: int = 3,
    min_insync: int = 2,
    mend: bool = True,
    flush_every: bool = False,
    fetch_batches: int | None = None,
) -> Row:
    return Row(
        zoo=zoo, side=side(what), control=side(control), schedule=schedule, latent=words(latent),
        manifest=words(manifest), permitted=words(permitted), nodes=nodes, min_insync=min_insync, mend=mend,
        flush_every=flush_every, fetch_batches=fetch_batches,
    )  # fmt: skip


CUT = "unsafe-truncation candidate-incomplete leader-incomplete"
BOUNCE = "+no_epoch_bump_on_bounce"
JOIN = "unsafe-isr candidate-incomplete leader-incomplete"

TRUNCATION = [
    row("Z01", f"high-watermark {BOUNCE}", epochs.restart_then_leader_dies, "lost-write", CUT,
        control=BOUNCE, nodes=2, min_insync=1),
    row("Z01", "high-watermark", epochs.restart_then_unclean, "", "", permitted="lost-write", nodes=2,
        min_insync=1),
    row("Z02", "high-watermark", epochs.double_failover, "lost-write", CUT),
    row("Z02", "+trunc_hw", epochs.double_failover, "lost-write", CUT),
    row("Z03", "high-watermark", epochs.leadership_flips, "lost-write", CUT, nodes=2, min_insync=1),
    row("Z04", "high-watermark", epochs.power_goes_after_the_follower, "diverged", "candidate-incomplete",
        nodes=2, min_insync=1),
    row("Z04", "+trunc_hw", epochs.power_goes_after_the_follower, "diverged", "candidate-incomplete",
        nodes=2, min_insync=1),
    row("Z05", "high-watermark +append_no_base_check", epochs.offsets_go_backwards,
        "malformed-log", nodes=2, min_insync=1),
    row("Z06", f"high-watermark {BOUNCE} +ckpt_drops_partition", epochs.checkpoint_before_a_role,
        "lost-write", CUT, control=f"high-watermark {BOUNCE}", nodes=2, min_insync=1),
    row("Z07", "+leader_trunc", epochs.failover, "lost-write", "unsafe-truncation leader-incomplete"),
    row("Z08", "kip-101", epochs.two_elections_in_a_row, "diverged", "candidate-incomplete",
        control="kip-279", nodes=2, min_insync=1),
    row("Z08", "+epoch_v0", epochs.two_elections_in_a_row, "diverged", "candidate-incomplete", nodes=2,
        min_insync=1),
    row("Z08", "+epoch_v0 ~two-phase", epochs.two_elections_in_a_row, "diverged", "candidate-incomplete",
        control="~two-phase", nodes=2, min_insync=1),
    row("Z09", "kip-101", epochs.idle_leader_deposed, "lost-write", CUT, control="kip-279"),
    row("Z09", "+no_epoch_on_elect ~two-phase", epochs.idle_leader_deposed, "lost-write", CUT,
        control="~two-phase"),
    row("Z10", "kip-101", epochs.same_leader_again, "lost-write", "candidate-incomplete",
        control="kip-279"),
    row("Z10", "+skip_same_leader ~two-phase", epochs.same_leader_again, "lost-write",
        "candidate-incomplete", control="~two-phase"),
    row("Z11", "kip-279", epochs.follower_misses_an_epoch, "diverged", "candidate-incomplete"),
    row("Z11", "+fetch_no_epoch_fence ~two-phase", epochs.follower_misses_an_epoch, "diverged",
        "candidate-incomplete", control="~two-phase"),
    row("Z12", "kip-279", epochs.truncation_against_a_stale_leader, "lost-write", "candidate-incomplete"),
    row("Z12", "+epoch_req_unfenced ~two-phase", epochs.truncation_against_a_stale_leader, "lost-write",
        "candidate-incomplete", control="~two-phase"),
    row("Z13", "kip-279", epochs.old_epoch_fetch, "lost-write", "candidate-incomplete"),
    row("Z13", "+hw_any_epoch", epochs.old_epoch_fetch, "lost-write", "candidate-incomplete"),
    row("Z14", "kip-101", epochs.expand_beside_a_slow_member, "lost-write", JOIN, control="kip-279"),
    row("Z14", "+no_leso", epochs.expand_before_epoch_start, "lost-write", JOIN),
    row("Z15", "+expand_no_hw", epochs.expand_below_hw, "lost-write", JOIN),
    row("Z16", "+resp_no_epoch_check", epochs.answer_of_an_older_epoch, "lost-write", CUT),
    row("Z17", "+credit_diverging", epochs.diverging_fetch, "lost-write", "ack-rule", nodes=2),
    row("Z18", "+hw_before_trunc ~follower-reads", epochs.reader_at_a_parting_follower, "saw-then-lost",
        control="~follower-reads", nodes=2, min_insync=1),
    row("Z19", "+keep_epoch_tail", epochs.conflicting_epoch_tail, "stuck", nodes=2),
    row("Z33", "+forget_epoch", epochs.restart_with_a_tail, "diverged", "candidate-incomplete"),
]  # fmt: skip

IN_SYNC = [
    row("Z20", "+hw_noclamp", isr.behind_by_several_fetches, "malformed-log", mend=False, fetch_batches=1),
    row("Z20", "+hw_eq_leo", isr.reader_after_failover, "saw-then-lost", "leader-incomplete"),
    row("Z21", "+hw_committed_isr", isr.expand_in_flight, "lost-write",
        "unsafe-isr candidate-incomplete leader-incomplete"),
    row("Z22", "+shrink_optimistic", isr.shrink_in_flight, "lost-write",
        "unsafe-isr candidate-incomplete leader-incomplete", min_insync=1),
    row("Z22", "+cas_fail_keeps_new", isr.zombie_writes_isr, "lost-write", "candidate-incomplete",
        min_insync=1),
    row("Z23", "+alter_no_cas", isr.zombie_writes_isr, "lost-write", "unsafe-isr", min_insync=1),
    row("Z24", "+ack_min_insync", isr.one_copy_then_leader_dies, "lost-write", "ack-rule"),
    row("Z24", "+ack_on_append", isr.ack_then_leader_dies, "lost-write", "ack-rule"),
    row("Z24", "+credit_on_send", isr.ack_then_leader_dies, "lost-write", "ack-rule"),
    row("Z25", "+no_minisr_recheck", isr.isr_of_one_then_disk, "", "ack-rule", permitted="lost-write",
        control="~hw-below-min-isr"),
    row("Z28a", BOUNCE, isr.bounce_within_session, "epoch-lineage", "hw-regressed leader-incomplete",
        mend=False),
    row("Z28b", "+no_broker_epoch", isr.empty_disk_joins, "lost-write", JOIN),
    row("Z30", "+elect_fenced", isr.last_member_bounces, "stuck"),
    row("Z31", "+unclean_by_default", isr.leader_dies_after_a_shrink, "lost-write",
        "unclean-election leader-incomplete"),
    row("Z33", "high-watermark +la_no_broker_epoch", isr.stale_leader_and_isr, "lost-write",
        "epoch-regressed unsafe-truncation", control="high-watermark", nodes=2, min_insync=1),
    row("Z40", "+no_epoch_bump", isr.two_leaders_in_one_epoch, "diverged epoch-lineage", "two-leaders",
        min_insync=1),
    row("Z44", "+revert_on_unknown", isr.refused_and_reverted, "lost-write",
        "unsafe-isr candidate-incomplete leader-incomplete"),
]  # fmt: skip

CLIENTS = [
    row("Z34", "+read_to_leo", clients.reader_before_commit, "saw-then-lost"),
    row("Z35", "+listoffsets_no_guard", clients.end_offset_after_failover, "end-offset-regressed"),
    row("Z35", "+oor_above_hw", clients.reader_ahead_of_the_hw, "poll-skip"),
    row("Z37", "+parked_survives_demotion", clients.deposed_and_elected_again, "lost-write"),
    row("Z38", "+producer_state_leader_only", clients.retry_after_failover, "duplicate"),
    row("Z39", "+seq_gap_ok", clients.stray_duplicate, "duplicate"),
    row("Z42", "+recover_no_crc", clients.torn_write, "malformed-log", nodes=2, min_insync=1,
        flush_every=True),
    row("Z42", "+recover_drop_segment", clients.torn_write, "lost-write", "leader-incomplete", nodes=2,
        min_insync=1, flush_every=True),
    row("Z42", "+epochfile_not_rebuilt", clients.log_shorter_than_its_epochs, "epoch-lineage"),
]  # fmt: skip

ROWS = [*TRUNCATION, *IN_SYNC, *CLIENTS]
