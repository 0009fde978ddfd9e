"""The known-bad rules that no scenario file shows, each with the schedule that makes it do harm and the
finding.

Rules
1. A row's schedule harms the cluster of the row, and not the one of its control.
2. `manifest` and `permitted` are findings of history and logs, by format.md's names (permitted: its class);
   `latent` are findings of the trace. A judge finds each of them in the folder of the row.
3. A row without a bug is a generation of the protocol; the next generation mended its harm.
"""

from collections.abc import Callable
from dataclasses import dataclass

import schedules_by_hand as by_hand
from memory_cluster import MemoryCluster
from oracles import FINDERS
from schedules import LAG_MS, settled

Schedule = Callable[[MemoryCluster], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The rules of a cluster."""

    rules: str = "kip-320"
    bugs: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One bug, or one generation: the schedule that makes it do harm, and the findings of that harm."""

    zoo: str
    side: Side
    control: Side
    schedule: Schedule
    latent: tuple[str, ...]
    manifest: tuple[str, ...]
    permitted: tuple[str, ...]
    nodes: int
    min_insync: int
    mend: bool  # before the cluster is checked
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
        """A started cluster with nothing sent; it has these bugs and switches besides its own."""
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
        """How many events were stepped from the first send until the logs, or a client's answer, had the
        first manifest or permitted finding; None if it shows only when nothing more happens (stuck)."""
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
    """Reads `generation` or `+bug+bug ~switch`: kip-320 if no generation is named."""
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


JOIN = "unsafe-isr candidate-incomplete leader-incomplete"

ROWS = [
    row("Z11", "kip-279", by_hand.follower_misses_an_epoch, "diverged", "candidate-incomplete"),
    row("Z11", "+fetch_no_epoch_fence ~two-phase", by_hand.follower_misses_an_epoch, "diverged",
        "candidate-incomplete", control="~two-phase"),
    row("Z18", "+hw_before_trunc ~follower-reads", by_hand.reader_at_a_parting_follower, "saw-then-lost",
        control="~follower-reads", nodes=2, min_insync=1),
    row("Z19", "+keep_epoch_tail", by_hand.conflicting_epoch_tail, "stuck", nodes=2),
    row("Z20", "+hw_noclamp", by_hand.behind_by_several_fetches, "malformed-log", mend=False,
        fetch_batches=1),
    row("Z20", "+hw_eq_leo", by_hand.reader_after_failover, "saw-then-lost", "leader-incomplete"),
    row("Z30", "+elect_fenced", by_hand.last_member_bounces, "stuck"),
    row("Z31", "+unclean_by_default", by_hand.leader_dies_after_a_shrink, "lost-write",
        "unclean-election leader-incomplete"),
    row("Z35", "+oor_above_hw", by_hand.reader_ahead_of_the_hw, "poll-skip"),
    row("Z38", "+producer_state_leader_only", by_hand.retry_after_failover, "duplicate"),
    row("Z39", "+seq_gap_ok", by_hand.stray_duplicate, "duplicate"),
    row("Z42", "+recover_no_crc", by_hand.torn_write, "malformed-log", nodes=2, min_insync=1,
        flush_every=True),
    row("Z42", "+recover_drop_segment", by_hand.torn_write, "lost-write", "leader-incomplete", nodes=2,
        min_insync=1, flush_every=True),
    row("Z42", "+epochfile_not_rebuilt", by_hand.log_shorter_than_its_epochs, "epoch-lineage"),
    row("Z44", "+revert_on_unknown", by_hand.refused_and_reverted, "lost-write", JOIN),
]  # fmt: skip
