"""The known-bad rules that no scenario shows do harm by their schedules; a correct broker does none."""

from itertools import chain
from pathlib import Path

import oracles
import pytest
import schedules_by_hand
import twin
from memory_cluster import MemoryCluster
from memory_trace import attach, write_folder
from schedules import LAG_MS
from simulated_scenarios import ALL
from teeth_table import ROWS, Row

from floodmark.broker.protocol.rules import GENERATIONS, SWITCHES
from floodmark.broker.testing.bugs import BUGS


# Bugs that no finding of history, logs or trace names: for a while the ISR has a member that cannot be
# elected.
def a_follower_misses_two_records(cluster: MemoryCluster) -> None:
    """It is back before replica.lag.time.max.ms is over, and so about to join."""
    cluster.send(1, "a")
    cluster.stabilize()
    cluster.crash(3)
    cluster.expire(3)
    cluster.send(1, "b", "c")
    cluster.stabilize()
    cluster.start(3)
    cluster.stabilize()


FATAL = {"hw_falls": a_follower_misses_two_records}
UNAVAILABLE = {
    "alter_no_fence": schedules_by_hand.fenced_joins,
    "stale_isr_batch": schedules_by_hand.two_sessions_end,
}


def played(row: Row, *, control: bool = False) -> MemoryCluster:
    cluster = row.cluster(control=control)
    row.play(cluster)
    return cluster


def harm(cluster: MemoryCluster) -> dict[str, list[str]]:
    """Everything that an oracle sees, by finding; without `stuck`, which sends something."""
    found = {name: see(cluster) for name, see in oracles.FINDERS.items() if name != "stuck"}
    return {name: each for name, each in found.items() if each}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_bug_is_seen(row: Row) -> None:
    """The schedule makes the bug do each harm that its row names."""
    cluster = played(row)

    named = (*row.manifest, *row.permitted)
    assert named
    assert [name for name in named if not oracles.FINDERS[name](cluster)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_correct_broker_comes_through(row: Row) -> None:
    """The same schedule does no harm where the rule is right; afterwards all are in the ISR and it acks."""
    cluster = played(row, control=True)

    assert harm(cluster) == {}
    assert oracles.fenced_members(cluster) == []
    if row.mend:
        assert oracles.out_of_isr(cluster) == []
        assert oracles.incomplete_members(cluster) == []
        assert oracles.stuck(cluster) == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_judge_of_the_folder_finds_what_the_row_names(row: Row, tmp_path: Path) -> None:
    """The play is recorded as a run: the twin finds each of the row's names, with its class; in the control
    no bug."""
    found = {}
    for control in (False, True):
        cluster = row.cluster(control=control)
        attach(cluster)
        row.play(cluster)
        judged = twin.judge(write_folder(cluster, tmp_path / str(control)))["findings"]
        found[control] = {(one["class"], one["name"]) for one in judged}

    named = {("bug", name) for name in (*row.latent, *row.manifest)}
    assert named | {("permitted", name) for name in row.permitted} <= found[False]
    assert [name for kind, name in found[True] if kind == "bug"] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_older_hw_rule_is_no_bug(row: Row) -> None:
    """The look-alike: before 0.10.2 only the ISR held back the HW, which concerns only liveness."""
    cluster = row.cluster(control=True, switches=("hw-isr-only",))
    row.play(cluster)

    assert harm(cluster) == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row.control.rules == "kip-320"], ids=lambda r: r.name)
def test_a_follower_hw_that_is_not_clamped_does_no_more(row: Row) -> None:
    """The other look-alike has a HW above a LEO and no other effect if elections are clean."""
    cluster = row.cluster(control=True, bugs=("hw_noclamp",))
    row.play(cluster)

    assert set(harm(cluster)) <= {"malformed-log"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_harm_comes_at_the_same_step_each_time(row: Row) -> None:
    """No finding depends on luck, and none is there before the first step."""
    steps = row.steps_to_harm()

    assert steps == row.steps_to_harm()
    assert steps is None if {*row.manifest} == {"stuck"} else steps and steps > 0


@pytest.mark.parametrize("bug", UNAVAILABLE)
def test_a_member_that_cannot_be_elected(bug: str) -> None:
    """A fenced broker is in the ISR, where a correct controller has none."""
    for bugs, seen in (((bug,), True), ((), False)):
        cluster = MemoryCluster("kip-320", bugs, lag_ms=LAG_MS)
        UNAVAILABLE[bug](cluster)
        assert bool(oracles.fenced_members(cluster)) is seen


@pytest.mark.parametrize("bug", FATAL)
def test_a_broker_whose_own_invariant_ends_it(bug: str) -> None:
    """Before it does harm: the finding is broker-died, which only real processes show (test_cli_run.py)."""
    FATAL[bug](MemoryCluster("kip-320", lag_ms=60_000))
    with pytest.raises(AssertionError, match="a leader's HW fell in epoch 0: 3 -> 1"):
        FATAL[bug](MemoryCluster("kip-320", (bug,), lag_ms=60_000))


def test_every_bug_and_every_generation_has_its_row() -> None:
    """Each one has its row, in a scenario played in memory or here; and each switch is used by some row or
    test."""
    sides = [side for row in ROWS for side in (row.side, row.control)]
    scenario_rows = [part.row for part in ALL]

    here = set(chain.from_iterable(row.side.bugs for row in ROWS))
    shown = set(chain.from_iterable(row.bugs for row in scenario_rows if not row.control))
    assert here | shown | set(UNAVAILABLE) | set(FATAL) == set(BUGS)
    assert len(here | shown) >= 43
    assert {*(side.rules for side in sides), *(row.rules for row in scenario_rows)} == set(GENERATIONS)
    switches = chain.from_iterable(side.switches for side in (*sides, *scenario_rows))
    assert {*switches, "hw-isr-only"} == set(SWITCHES)
