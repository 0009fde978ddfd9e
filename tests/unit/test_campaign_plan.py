"""A campaign's plan: what it accepts, what it refuses and at which line; the order of runs; its gates."""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from command_line import floodmark
from golden_text import answered_as_written
from readme import CAMPAIGNS, blocks

from floodmark.harness import catalog
from floodmark.harness.campaign.plan import (
    _TOP,
    PRESETS,
    SEEDS,
    Weighted,
    case_of_json,
    case_to_json,
    draws,
    load,
    preset_text,
    presets,
    read,
    seed_of,
)
from floodmark.harness.commands.campaign_processes import figures
from floodmark.harness.commands.campaign_run import with_gates
from floodmark.harness.errors import UsageError
from floodmark.harness.spec import RunSpec

SMALL = """
for = "20min"
duration = 15
[[system]]
rules = "kip-320"
weight = 3
[[system]]
rules = "kip-320"
bugs = ["trunc_hw"]
config = { "replica.lag.time.max.ms" = 1000 }
[[guarantees]]
acks = "1"
config = { "min.insync.replicas" = "1" }
[[nemesis]]
nemesis = "crash,cut"
interval = 2
[[nemesis]]
scenario = "double-failover"
[[except]]
bugs = ["trunc_hw"]
scenario = "double-failover"
"""


@pytest.mark.parametrize("name", presets("3.9.2"))
def test_a_preset_for_kafka_tests_that_version_alone(name: str) -> None:
    plan = read(preset_text(name, "3.9.2"), "x")
    assert {one.case.system for one in plan.cases} == {"kafka-3.9.2+kip-320"}
    assert floodmark("campaign", "plan", name, "--kafka", "3.9.2").out == preset_text(name, "3.9.2")


@pytest.mark.parametrize("name", presets())
def test_presets_can_be_read(name: str) -> None:
    plan = load(PRESETS / f"{name}.toml")
    assert plan.budget_s
    assert plan.disk_bytes
    assert all(one.case.faults for one in plan.cases)


def cases_or_refusal(line: str) -> str:
    """Of a plan as JSON, behind SMALL: its time and its cases, each with its weight and its settings that are
    not usual; or why it is refused."""
    try:
        plan = read(json.loads(line).replace("SMALL", SMALL), "plan.toml")
    except UsageError as error:
        return f"! {error}".partition(" TOML: ")[0]  # what Python's reader says is its own
    usual, told = asdict(RunSpec()), [f"= {len(plan.cases)} cases in {plan.budget_s} s"]
    for one in plan.cases:
        more = {name: sorted(value) if isinstance(value, frozenset) else value
                for name, value in asdict(one.case).items() if value != usual[name]}
        told.append(f"= {one.weight:g} of {one.case.system}, {one.case.faults}: {more}")
        assert case_of_json(case_to_json(one.case)) == one.case
    return "\n".join(told)


def test_a_plan_gives_its_cases_or_is_refused_with_the_line(request: pytest.FixtureRequest) -> None:
    answered_as_written("plans.txt", cases_or_refusal, request)


# -- the order of runs --------------------------------------------------------------------------------------


def test_the_plan_of_the_page_has_every_key_and_is_valid() -> None:
    (text,) = blocks("toml", CAMPAIGNS)[:1]
    assert len(read(text, "the page").cases) == 4
    assert tomllib.loads(text).keys() == {*_TOP}


def cases(*weights: float) -> list[Weighted]:
    return [Weighted(case=RunSpec(rules="kip-320", nodes=position + 1), weight=weight)
            for position, weight in enumerate(weights)]


def test_each_case_has_its_share_whenever_the_campaign_stops() -> None:
    weights = (3, 1, 1)
    for count in range(1, 60):
        counts = Counter(draw.case.nodes for draw in islice(draws(cases(*weights), 7), count))
        for node, weight in enumerate(weights, 1):
            assert abs(counts[node] - count * weight / 5) <= 1


def test_the_same_seed_gives_the_same_runs_and_another_gives_others() -> None:
    first, again, other = (list(islice(draws(cases(2, 1), seed), 20)) for seed in (7, 7, 8))
    assert first == again
    assert {draw.seed for draw in first}.isdisjoint({draw.seed for draw in other})
    assert len({draw.seed for draw in first}) == 20


def test_the_bank_comes_first_with_its_own_seeds() -> None:
    known = RunSpec(rules="kip-101")
    drawn = list(islice(draws(cases(1), 7, [(known, 42)]), 3))
    assert [(draw.number, draw.case.rules, draw.seed) for draw in drawn] == [
        (1, "kip-101", 42), (2, "kip-320", seed_of(7, 2)), (3, "kip-320", seed_of(7, 3))]


def test_the_runs_of_a_campaign_have_consecutive_seeds_of_their_own() -> None:
    """Drawn settings go round with the seed. Two campaigns hardly ever share one."""
    seeds = [seed_of(7, number) for number in range(1, 200)]
    assert [(later - seeds[0]) % SEEDS for later in seeds] == [*range(199)]
    assert not {*seeds} & {seed_of(8, number) for number in range(1, 200)}


@pytest.mark.parametrize("line", [f"disk = '{'9' * 400} GB'", f"for = '{'9' * 400}h'", "disk = '0.1 B'"])
def test_a_quantity_beyond_all_numbers_is_none(line: str) -> None:
    with pytest.raises(UsageError, match=r"plan.toml:1: .* is (not a size|more than a year)"):
        read(line, "plan.toml")


# -- gates --------------------------------------------------------------------------------------------------

GATES = {"max_unavailable_s": 10.0, "max_recovery_s": 2.0, "min_acked": 100.0}
KIP_320, SCENARIO = RunSpec(rules="kip-320"), RunSpec(rules="kip-320", scenario="double-failover")


@pytest.mark.parametrize(("case", "changes", "kind", "broken"), [
    (KIP_320, {}, "valid", []),  # exactly at the limits
    (KIP_320, {"acked": 99}, "gate", ["min_acked"]),
    (KIP_320, {"measures": {"max_unavailable_s": 10.001}}, "gate", ["max_unavailable_s"]),
    (KIP_320, {"measures": {"max_recovery_s": 2.001}}, "gate", ["max_recovery_s"]),
    (KIP_320, {"acked": 0, "measures": {"max_unavailable_s": 11, "max_recovery_s": 3}}, "gate", [*GATES]),
    (KIP_320, {"measures": {"max_unavailable_s": None, "max_recovery_s": None}}, "valid", []),  # no fault
    (KIP_320, {"kind": "invalid", "acked": 99}, "invalid", ["min_acked"]),
    # Nothing was acked because nothing was judged, or the run ended early: that is 4, and not 1.
    *((KIP_320, {"kind": kind, "acked": 0, "harness": True}, kind, [])
      for kind in ("failed in the harness", "interrupted")),
    (SCENARIO, {"acked": 1}, "valid", []),  # its load is not asked for
], ids=repr)
def test_a_valid_run_that_breaks_a_gate_is_of_the_kind_gate(
        case: RunSpec, changes: Mapping[str, Any], kind: str, broken: list[str]) -> None:
    answer = {"kind": "valid", "acked": 100, **changes,
              "measures": {"max_unavailable_s": 10.0, "max_recovery_s": 2.0, **changes.get("measures", {})}}
    found = with_gates(answer, GATES, case)
    assert (found["kind"], [row["gate"] for row in found["gates"]]) == (kind, broken)


def test_a_run_that_could_not_be_measured_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(folders: object) -> None:
        raise RuntimeError("the JVM is gone\nat some line")

    monkeypatch.setattr(catalog, "measure", fails)
    (unmeasured,) = figures([tmp_path])
    assert unmeasured == {"unmeasured": "RuntimeError: the JVM is gone"}
    for gates, kind in ((GATES, "unknown"), ({"min_acked": 100.0}, "valid"), ({}, "valid")):
        assert with_gates({"kind": "valid", "acked": 100, **unmeasured}, gates, KIP_320)["kind"] == kind
