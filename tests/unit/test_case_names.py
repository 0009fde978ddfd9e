"""The name of a run in a nightly report."""

import json
from typing import Any

import pytest
from golden_text import answered_as_written

from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario import Part, plan_of
from floodmark.harness.report.run_summary import CHARS, UNREADABLE, case_name, numbered
from floodmark.harness.runner import _initial_about
from floodmark.harness.spec import RunSpec
from floodmark.nemesis import scenario

RUN: dict[str, Any] = {
    "cluster": "local", "nodes": ["n1", "n2", "n3"], "rules": "kip-320", "workload": "log",
    "guarantees": {"acks": "all", "min_insync_replicas": 2, "unclean_leader_election": False}}
SUFFIX = "local cluster of 3, kip-320, workload log, acks=all, min.insync.replicas=2"
KILL, START = {"f": "kill", "nodes": ["leader"]}, {"f": "start", "nodes": ["down"]}


def test_a_name_states_what_was_tested(request: pytest.FixtureRequest) -> None:
    answered_as_written(
        "case_names.txt", lambda line: f"= {case_name({**RUN, **json.loads(line)})}", request)


@pytest.mark.parametrize("changed", [
    {"seed": 8}, {"id": "ff"}, {"commit": "0"}, {"missed": [1]}, {"history_lines": 7}, {"schedule": [KILL]},
    {"ended": "interrupted"}, {"died": ["n1"]}])
def test_a_name_contains_nothing_that_changes_from_night_to_night(changed: dict[str, Any]) -> None:
    assert case_name({**RUN, "nemesis": "crash", **changed}) == case_name({**RUN, "nemesis": "crash"})


def test_an_unreadable_run_has_a_name_and_a_long_name_is_cut() -> None:
    assert case_name(None) == UNREADABLE
    assert len(case_name({**RUN, "nemesis": "x" * 1000})) == CHARS


def test_repeated_names_are_numbered() -> None:
    assert numbered(["a", "b", "a", "a", "b"]) == ["a", "b", "a #2", "a #3", "b #2"]


def test_the_first_run_json_gives_the_name_too(tmp_path: Any) -> None:
    """Written before anything has started, so that a run that failed to start has its name."""
    options = RunSpec(nemesis="crash,pause", out=tmp_path / "run", duration=1.0)
    assert case_name(_initial_about(planned(options))) == f"nemesis crash,pause, {SUFFIX}"
    one = next(each for each in scenario.shipped(scenario_words()) if each.name == "double-failover")
    part = Part(scenario=one, row=one.rows[0])
    run_json = _initial_about(plan_of(part, "local", tmp_path / "part"))
    assert case_name(run_json) == f"scenario double-failover on {one.rows[0].label}, local cluster of 3"
