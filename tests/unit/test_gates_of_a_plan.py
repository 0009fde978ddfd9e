"""The gates of a campaign's plan: which runs break them, how that is reported, and the exit code."""

import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from nights import empty_state

from floodmark.harness import catalog
from floodmark.harness.campaign.ledger import Ledger
from floodmark.harness.commands.campaign_judge import figures
from floodmark.harness.commands.campaign_run import with_gates
from floodmark.harness.report.night import Results, night_junit, night_markdown, results_of, summary
from floodmark.harness.spec import RunSpec

NOW = datetime.datetime(2026, 2, 3, tzinfo=datetime.UTC)
GATES = {"max_unavailable_s": 10.0, "max_recovery_s": 2.0, "min_acked": 100.0}
CASE = RunSpec(rules="kip-320")
GOOD = {"max_unavailable_s": 10.0, "max_recovery_s": 2.0}  # exactly at the limits


def answer(kind: str = "valid", acked: int = 100, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "acked": acked, "signatures": [], "faults": {}, "size_bytes": 1, **more}


@pytest.mark.parametrize(
    ("acked", "measures", "kind", "gates"),
    [
        (100, GOOD, "valid", []),
        (99, GOOD, "gate", ["min_acked"]),
        (100, {**GOOD, "max_unavailable_s": 10.001}, "gate", ["max_unavailable_s"]),
        (100, {**GOOD, "max_recovery_s": 2.001}, "gate", ["max_recovery_s"]),
        (0, {"max_unavailable_s": 11, "max_recovery_s": 3}, "gate", [*GATES]),
        (100, {"max_unavailable_s": None, "max_recovery_s": None}, "valid", []),  # no fault
    ],
)
def test_a_valid_run_that_breaks_a_gate_is_of_the_kind_gate(
    acked: int, measures: dict[str, Any], kind: str, gates: list[str]
) -> None:
    found = with_gates(answer(acked=acked, measures=measures), GATES, CASE)
    assert (found["kind"], [row["gate"] for row in found["gates"]]) == (kind, gates)


def test_an_invalid_run_stays_invalid_and_lists_its_gates_too() -> None:
    found = with_gates(answer("invalid", 99, measures=GOOD), GATES, CASE)
    assert (found["kind"], [row["gate"] for row in found["gates"]]) == ("invalid", ["min_acked"])


@pytest.mark.parametrize("kind", ["failed in the harness", "interrupted"])
def test_a_run_in_which_the_harness_failed_breaks_no_gate(kind: str) -> None:
    """Nothing was acked because nothing was judged, or the run ended early: that is 4, and not 1."""
    found = with_gates(answer(kind, 0, harness=True), GATES, CASE)
    assert (found["kind"], found["gates"]) == (kind, [])


def test_a_run_that_could_not_be_measured_is_unknown() -> None:
    unmeasured = answer(unmeasured="no history")
    assert with_gates(unmeasured, GATES, CASE)["kind"] == "unknown"
    assert with_gates(unmeasured, {"min_acked": 100.0}, CASE)["kind"] == "valid"  # in the verdict
    assert with_gates(unmeasured, {}, CASE)["kind"] == "valid"


def results_with(**judged: Any) -> Results:
    state = empty_state()
    state.begin(1, 7, RunSpec(rules="kip-320"), "runs/00001")
    state.end_run(1, {})
    state.judge(1, answer(**judged), None)
    return results_of(state, Ledger(), {}, [RunSpec(rules="kip-320")], folder="night")


def test_a_broken_gate_fails_a_campaign_like_a_bug_and_is_reported() -> None:
    measures = {"max_unavailable_s": 12.34, "max_recovery_s": 0.5}
    rows = with_gates(answer(acked=99, measures=measures), GATES, CASE)["gates"]
    results = results_with(kind="gate", gates=rows)
    assert results.exit_code == 1
    text = summary(results)
    assert "1 run: 1 gate;" in text
    assert ("gate: kip-320 none seed 7: a partition was not acked for 12.3 s while a fault was in force, "
            "10 s are allowed (max_unavailable_s); 99 writes were acked, at least 100 are required; "
            "runs/00001") in text
    case = next(one for one in ElementTree.fromstring(night_junit(results, NOW)).iter("testcase")
                if one.get("name") == "kip-320 none")
    failure = case.find("failure")
    assert failure is not None
    assert "1 that broke a gate of 1 run; night/runs/00001 (seed 7): a partition was not acked" in str(
        failure.get("message"))
    assert "### Runs that broke a gate" in night_markdown(results).decode()


def test_a_run_within_its_gates_or_without_any_passes() -> None:
    assert results_with(gates=[]).exit_code == results_with().exit_code == 0
    assert "gate" not in summary(results_with(gates=[]))


def test_a_failed_measurement_leaves_the_verdicts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(folders: object) -> None:
        raise RuntimeError("the JVM is gone\nat some line")

    monkeypatch.setattr(catalog, "measure", fails)
    assert figures([tmp_path, tmp_path]) == [{"unmeasured": "RuntimeError: the JVM is gone"}] * 2


def test_min_acked_does_not_apply_to_a_scenario() -> None:
    scenario = RunSpec(rules="kip-320", scenario="double-failover")
    assert with_gates(answer(acked=1, measures=GOOD), GATES, scenario)["gates"] == []
