"""Scenario files: what is read from one, what is refused and on which line; rows and expected findings; on
which systems a scenario is played."""

import json
from pathlib import Path

import pytest
from golden_text import answered_as_written

from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.scenario import WHY_A_BUG, WIDTH, demo_acts, notes, rows_of
from floodmark.harness.errors import UsageError
from floodmark.harness.spec import RULES
from floodmark.harness.verdict import BUG, Finding, Unknown, Valid, Verdict
from floodmark.nemesis.scenario import (
    ELR,
    KRAFT,
    REFERENCE,
    SYSTEMS,
    ZOOKEEPER,
    Row,
    Scenario,
    Words,
    config_on,
    differences,
    load,
    parse,
    shipped,
    systems_of,
    why_not_played,
)

FILE = Path("mine.toml")
KNOWN = Words(
    generations=("high-watermark", "kip-320"), bugs=("no_leso", "trunc_hw"), switches=("two-phase",),
    workloads=("idempotent", "log"), findings=("diverged", "lost-write", "saw-then-lost", "unsafe-isr"),
)  # fmt: skip
TEXT = '''\
name = "mine"
zoo = "Z02"
title = "a title"
story = """
Two
lines."""
steps = """
send 0..1           # two ops

hold n1 at L.acked
kill n1 when n1 reaches L.acked
wait isr == n2
"""

[cluster]
nodes = 2

[config]
"replica.fetch.wait.max.ms" = 700

[[run]]
rules = "kip-320"
bugs = ["no_leso"]
latent = ["unsafe-isr"]
manifest = ["lost-write"]

[[run]]
rules = "every"
config = { "unclean.leader.election.enable" = true }
control = true
'''


def test_a_scenario_is_read_whole() -> None:
    """Each entry with its line, each row by itself, the defaults for what is left out."""
    scenario = parse(TEXT, FILE, KNOWN)
    assert (scenario.name, scenario.zoo, scenario.story) == ("mine", "Z02", "Two lines.")
    assert [entry.f for entry in scenario.schedule] == ["send", "send", "arm", "kill", "wait"]
    assert scenario.lines == (8, 8, 10, 11, 12)
    assert (scenario.spec.nodes, scenario.spec.replication_factor) == (2, 2)
    assert (scenario.spec.workload, scenario.spec.acks) == ("log", "all")
    assert {"min.insync.replicas=1", "replica.fetch.wait.max.ms=700",
            "broker.session.timeout.ms=60000"} <= {*scenario.spec.config}
    assert [row.label for row in scenario.rows] == [
        "kip-320 no_leso", "high-watermark unclean.leader.election.enable=true",
        "kip-320 unclean.leader.election.enable=true"]
    assert [row.control for row in scenario.rows] == [False, True, True]


def test_a_mistake_is_reported_with_file_and_line(request: pytest.FixtureRequest) -> None:
    """And with the valid words."""
    def refusal(line: str) -> str:
        old, new = json.loads(line)
        assert TEXT.count(old) == 1
        with pytest.raises(UsageError) as caught:
            parse(TEXT.replace(old, new), FILE, KNOWN)
        return f"! {caught.value}".partition(" TOML: ")[0]  # what Python's reader says is its own

    answered_as_written("scenario_mistakes.txt", refusal, request)


@pytest.mark.parametrize(("of_run", "of_step", "told"), [
    ("all", "1", True), ("all", "0", True), ("1", "0", True), ("all", "all", False), ("1", "1", False),
    ("1", "all", False)])
def test_sends_that_no_promise_covers_are_named(of_run: str, of_step: str, told: bool) -> None:
    text = TEXT.replace("nodes = 2", f'nodes = 2\nacks = "{of_run}"').replace(
        "send 0..1 ", f"send 0..1 acks {of_step} ")
    words = parse(text, FILE, KNOWN).uncovered_sends()
    assert words.startswith(f"line 8, send 0..1 acks {of_step}: recorded as info") is told
    assert words.endswith("is no finding") is told


def test_a_scenario_without_a_row_or_without_a_step_is_refused() -> None:
    with pytest.raises(UsageError, match="on which rules"):
        parse(TEXT.partition("[[run]]")[0], FILE, KNOWN)
    steps = TEXT.partition('steps = """')[2].partition('"""')[0]
    with pytest.raises(UsageError, match=r"mine.toml:7: steps has no step"):
        parse(TEXT.replace(steps, "\n# nothing\n"), FILE, KNOWN)


# -- as expected --------------------------------------------------------------------------------------------


def shown(line: str) -> str:
    """A row (what must be found: latent, manifest, permitted; what may be: also, spared partitions) and a
    verdict: bugs (@ their partitions, * how many), permitted:FINDING, unknown:WHAT; without a whole trace.
    Below it, what differs."""
    words, _, seen = line.partition(" | ")
    given = [word.partition("=") for word in words.split()]
    row = {name: frozenset(value.split(",")) for name, _, value in given}
    spared = {int(key): frozenset({"lost-write"}) for key in row.pop("spared", ())}
    control = row.pop("control", None) is not None
    found, unknown = list[Finding](), list[Unknown]()
    for word in seen.removesuffix(" untraced").replace("nothing", "").split():
        klass, _, name = word.rpartition(":")
        if klass == "unknown":
            unknown.append(Unknown(names=tuple(name.split(",")), reason="not settled"))
            continue
        name, _, count = name.partition("*")
        name, _, places = name.partition("@")
        examples = tuple({"partition": int(key)} for key in filter(None, places.split(",")))
        found.append(Finding(name=name, klass=klass or BUG, permitted_by="acks" if klass else None,
                             count=int(count or len(examples) or 1), examples=examples))
    valid: Valid = not any(one.klass == BUG for one in found) and (not unknown or "unknown")
    verdict = Verdict(valid=valid, findings=tuple(found), unknown=tuple(unknown))
    told = differences(Row(rules="kip-320", control=control, spared=spared, **row), verdict,
                       traced=not seen.endswith(" untraced"))
    return f"= {'; '.join(told) or 'as expected'}"


def test_a_row_must_be_met_exactly(request: pytest.FixtureRequest) -> None:
    """All that must be found, nothing besides, no control that is unknown."""
    answered_as_written("scenario_rows.txt", shown, request)


# -- those that are shipped ---------------------------------------------------------------------------------


def test_the_broker_knows_the_generations_that_the_command_line_offers() -> None:
    """Its names are read in a process of its own."""
    assert scenario_words().generations == RULES
    assert {"trunc_hw", "no_leso"} <= set(scenario_words().bugs)
    assert "two-phase" in scenario_words().switches


@pytest.fixture(scope="module")
def every() -> tuple[Scenario, ...]:
    return shipped(scenario_words())


def test_every_shipped_scenario_is_read_and_named_for_its_file(every: tuple[Scenario, ...]) -> None:
    assert [scenario.source.stem for scenario in every] == [scenario.name for scenario in every]
    assert len({scenario.name for scenario in every}) == len(every)


def test_a_scenario_that_is_not_there_is_told_plainly(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml cannot be read: No such file or directory$"):
        load(tmp_path / "absent.toml", KNOWN)


def test_every_shipped_scenario_shows_something_and_has_a_control(every: tuple[Scenario, ...]) -> None:
    """And the sample that is played at each change has one row of each."""
    for scenario in every:
        sample = rows_of(scenario, None, sample=True)
        assert [row.control for row in sample] == [False, True], scenario.name
        assert "kip-320" in {row.rules for row in scenario.rows}, scenario.name


def test_each_bug_of_the_demo_has_its_reason_below_the_table() -> None:
    assert WHY_A_BUG.keys() == {bug for part in demo_acts() for bug in part.row.bugs}
    assert max(map(len, notes(demo_acts()).splitlines())) <= WIDTH


# -- systems -----------------------------------------------------------------------------------------------


@pytest.fixture(name="named", scope="module")
def by_name(every: tuple[Scenario, ...]) -> dict[str, Scenario]:
    return {one.name: one for one in every}


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
def test_the_systems_of_a_scenario(name: str, systems: tuple[str, ...], named: dict[str, Scenario]) -> None:
    assert systems_of(named[name]) == systems


def test_a_row_that_is_not_played_has_a_reason(named: dict[str, Scenario]) -> None:
    one = named["double-failover-expired"]
    rows = {bool(row.topics): row for row in one.rows}
    assert why_not_played(one.schedule, rows[True], ZOOKEEPER) is None
    assert "settings of their own" in (why_not_played(one.schedule, rows[True], REFERENCE) or "")
    assert "no sessions" in (why_not_played(one.schedule, rows[False], KRAFT) or "")


def test_eligible_leader_replicas_are_of_kraft_and_need_not_be_turned_off_elsewhere(
        named: dict[str, Scenario]) -> None:
    one = named["last-replica-after-stops"]
    level = {row.config[ELR]: row for row in one.rows if row.rules == "kip-320" and ELR in row.config}
    for system in (REFERENCE, ZOOKEEPER):
        assert "eligible leader replicas" in (why_not_played(one.schedule, level["1"], system) or "")
        assert why_not_played(one.schedule, level["0"], system) is None
        assert config_on(level["0"].config, system) == {}
    assert why_not_played(one.schedule, level["1"], KRAFT) is None
    assert config_on(level["0"].config, KRAFT) == {ELR: "0"}


def test_a_sample_has_only_rows_of_its_system(named: dict[str, Scenario]) -> None:
    one = named["last-replica-after-stops"]
    controls = {system: rows_of(one, None, sample=True, system=system)[1] for system in (REFERENCE, KRAFT)}
    assert controls[KRAFT].config == {ELR: "1"}
    assert ELR not in controls[REFERENCE].config
