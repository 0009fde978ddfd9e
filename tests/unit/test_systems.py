"""On which systems a scenario is played, and rows that compare topics of one cluster."""

import pytest

from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.scenario import rows_of
from floodmark.harness.verdict import BUG, PERMITTED, Finding, Unknown, Verdict
from floodmark.nemesis import scenario
from floodmark.nemesis.scenario import (
    ELR,
    KRAFT,
    REFERENCE,
    SYSTEMS,
    ZOOKEEPER,
    Row,
    Scenario,
    config_on,
    differences,
    systems_of,
    why_not_played,
)


@pytest.fixture(name="shipped", scope="module")
def the_shipped() -> dict[str, Scenario]:
    return {one.name: one for one in scenario.shipped(scenario_words())}


@pytest.mark.parametrize(("name", "systems"), [
    ("double-failover", (REFERENCE,)),  # it holds a broker at a failpoint
    ("double-failover-expired", (REFERENCE, ZOOKEEPER)),  # sessions are ended by hand
    ("power-divergence-two-topics", (REFERENCE, ZOOKEEPER)),
    ("unclean-after-a-cut", (REFERENCE, ZOOKEEPER)),
    ("uneven-epochs", (REFERENCE, ZOOKEEPER)),
    ("reassigned-around-a-sleeper", SYSTEMS),
    ("last-replica-crashes", SYSTEMS),
    ("last-replica-after-stops", SYSTEMS),
    ("unclean-by-hand", SYSTEMS),
    ("deposed-with-a-record", SYSTEMS),
])
def test_the_systems_of_a_scenario(name: str, systems: tuple[str, ...], shipped: dict[str, Scenario]) -> None:
    assert systems_of(shipped[name]) == systems


def test_a_row_that_is_not_played_has_a_reason(shipped: dict[str, Scenario]) -> None:
    one = shipped["double-failover-expired"]
    rows = {bool(row.topics): row for row in one.rows}
    assert why_not_played(one.schedule, rows[True], ZOOKEEPER) is None
    assert "settings of their own" in (why_not_played(one.schedule, rows[True], REFERENCE) or "")
    assert "no sessions" in (why_not_played(one.schedule, rows[False], KRAFT) or "")


def lost(*partitions: int, count: int | None = None) -> Verdict:
    return Verdict(valid=False, findings=(Finding(
        name="lost-write", klass=BUG, permitted_by=None, count=count or len(partitions),
        examples=tuple({"partition": key} for key in partitions)),))


def in_doubt(*names: str) -> Verdict:
    """A permitted loss, and these names are unknown."""
    return Verdict(valid="unknown", findings=(Finding(
        name="lost-write", klass=PERMITTED, permitted_by="unclean.leader.election.enable", count=1,
        examples=()),), unknown=(Unknown(names=names, reason="no trace"),))


LOSS = frozenset({"lost-write"})
SPARED = Row(rules="kip-320", manifest=LOSS, spared={1: LOSS})
LATENT = Row(rules="kip-320", latent=frozenset({"candidate-incomplete"}), manifest=LOSS)
ALLOWED = Row(rules="kip-320", permitted=LOSS)


@pytest.mark.parametrize(("row", "verdict", "traced", "expected"), [
    (SPARED, lost(0), True, []),
    (SPARED, lost(0, 1), True, ["lost-write of partition 1, which must be spared"]),
    (SPARED, lost(0, count=2), True,
     ["lost-write 2 times, too often for all to be named: partition 1 may have one"]),
    # without a whole trace latent findings may be missing, and a permission may stay in doubt
    (LATENT, lost(0), True, ["no candidate-incomplete"]), (LATENT, lost(0), False, []),
    (ALLOWED, in_doubt("lost-write", "inconsistent-offsets"), False, []),
    (ALLOWED, in_doubt("lost-write"), True, ["unknown: no trace"]),
    (ALLOWED, in_doubt("lost-write", "diverged"), False, ["unknown: no trace"]),
])
def test_how_a_verdict_differs_from_its_row(
        row: Row, verdict: Verdict, traced: bool, expected: list[str]) -> None:
    assert differences(row, verdict, traced=traced) == expected


def test_eligible_leader_replicas_are_of_kraft_and_need_not_be_turned_off_elsewhere(
        shipped: dict[str, Scenario]) -> None:
    one = shipped["last-replica-after-stops"]
    level = {row.config[ELR]: row for row in one.rows if row.rules == "kip-320" and ELR in row.config}
    for system in (REFERENCE, ZOOKEEPER):
        assert "eligible leader replicas" in (why_not_played(one.schedule, level["1"], system) or "")
        assert why_not_played(one.schedule, level["0"], system) is None
        assert config_on(level["0"].config, system) == {}
    assert why_not_played(one.schedule, level["1"], KRAFT) is None
    assert config_on(level["0"].config, KRAFT) == {ELR: "0"}


def test_a_sample_has_only_rows_of_its_system(shipped: dict[str, Scenario]) -> None:
    one = shipped["last-replica-after-stops"]
    controls = {system: rows_of(one, None, sample=True, system=system)[1] for system in (REFERENCE, KRAFT)}
    assert controls[KRAFT].config == {ELR: "1"}
    assert ELR not in controls[REFERENCE].config
