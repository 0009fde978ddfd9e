"""Every known-bad rule comes to harm by its schedule from the zoo; the correct broker does not."""

from collections.abc import Callable
from dataclasses import dataclass

import oracles
import pytest
import schedules
from memory_cluster import MemoryCluster

Oracle = Callable[[MemoryCluster], list[str]]
Schedule = Callable[[MemoryCluster], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tooth:
    """One bug: how it is brought about, and what then sees it."""

    bugs: tuple[str, ...]
    schedule: Schedule
    sees: Oracle
    nodes: int = 3
    min_insync: int = 2
    mend: bool = True  # before looking


def tooth(
    bugs: str, schedule: Schedule, sees: Oracle, *, nodes: int = 3, min_insync: int = 2, mend: bool = True
) -> Tooth:
    return Tooth(
        bugs=tuple(bugs.split("+")),
        schedule=schedule,
        sees=sees,
        nodes=nodes,
        min_insync=min_insync,
        mend=mend,
    )


TEETH = [
    tooth("ack_on_append", schedules.ack_then_leader_dies, oracles.acked_lost),
    tooth("credit_on_send", schedules.ack_then_leader_dies, oracles.acked_lost),
    tooth("ack_min_insync", schedules.one_copy_then_leader_dies, oracles.acked_lost),
    tooth("trunc_hw", schedules.double_failover, oracles.acked_lost),
    tooth("leader_trunc", schedules.failover, oracles.acked_lost),
    tooth("fetch_no_epoch_fence+hw_any_epoch", schedules.old_epoch_fetch, oracles.acked_lost),
    tooth("no_epoch_bump_on_bounce", schedules.bounce_within_session, oracles.two_records, mend=False),
    tooth("no_epoch_bump_on_bounce", schedules.bounce_within_session, oracles.acked_lost),
    tooth("forget_epoch", schedules.restart_with_a_tail, oracles.diverged),
    tooth("no_leso", schedules.expand_before_epoch_start, oracles.acked_lost),
    tooth("expand_no_hw", schedules.expand_below_hw, oracles.acked_lost),
    tooth("credit_diverging", schedules.diverging_fetch, oracles.acked_lost, nodes=2),
    tooth("hw_committed_isr", schedules.expand_in_flight, oracles.acked_lost),
    tooth("shrink_optimistic", schedules.shrink_in_flight, oracles.acked_lost, min_insync=1),
    tooth("alter_no_cas", schedules.zombie_writes_isr, oracles.acked_lost, min_insync=1),
    tooth("read_to_leo", schedules.reader_before_commit, oracles.seen_then_lost),
    tooth("parked_survives_demotion", schedules.deposed_and_elected_again, oracles.acked_lost),
    tooth("no_minisr_recheck", schedules.isr_of_one_then_disk, oracles.acked_lost),
    tooth("no_epoch_on_elect", schedules.idle_leader, oracles.out_of_isr),
    tooth("stale_isr_batch", schedules.two_sessions_end, oracles.fenced_members, mend=False),
]


def played(case: Tooth, bugs: tuple[str, ...]) -> MemoryCluster:
    cluster = MemoryCluster(
        "kip-320", bugs, nodes=case.nodes, min_insync=case.min_insync, lag_ms=schedules.LAG_MS
    )
    case.schedule(cluster)
    if case.mend:
        schedules.mended(cluster)
    return cluster


def name(case: Tooth) -> str:
    return f"{'+'.join(case.bugs)}-{case.sees.__name__}"


@pytest.mark.parametrize("case", TEETH, ids=name)
def test_the_bug_is_seen(case: Tooth) -> None:
    """The schedule brings the bug to the harm that its oracle looks for."""
    assert case.sees(played(case, case.bugs))


@pytest.mark.parametrize("case", TEETH, ids=name)
def test_the_correct_broker_comes_through(case: Tooth) -> None:
    """The same schedule harms nothing where the rule is right; afterwards everybody is back in the ISR."""
    cluster = played(case, ())
    assert oracles.damage(cluster) == []
    assert oracles.fenced_members(cluster) == []
    if case.mend:
        assert oracles.out_of_isr(cluster) == []
        assert oracles.incomplete_members(cluster) == []


@pytest.mark.parametrize("schedule", [schedules.double_failover], ids=["Z02"])
def test_the_old_generation_loses_as_history_tells(schedule: Schedule) -> None:
    """Before KIP-101 no bug is needed."""
    cluster = MemoryCluster("high-watermark", lag_ms=schedules.LAG_MS)
    schedule(cluster)
    schedules.mended(cluster)
    assert oracles.acked_lost(cluster)
