"""What belongs to a signature besides its cause (causes: tests/golden/words.jsonl)."""

from typing import Any

from floodmark.harness.campaign.signatures import events_of, guarantees_of, signatures
from floodmark.harness.run import system_of

ABOUT = {
    "rules": "high-watermark",
    "config": {"n1": {"floodmark.bugs": "b,a"}, "n2": {}},
    "guarantees": {"acks": "all", "min_insync_replicas": 2, "unclean_leader_election": False, "flush": "os"},
}


def found(name: str, *examples: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "class": "bug", "permitted_by": None, "count": 1, "examples": list(examples)}


def test_system_and_guarantees_are_part_of_a_signature() -> None:
    (mine,) = signatures({"findings": [found("diverged", {})]}, ABOUT, {})
    assert (mine.system, mine.guarantees) == ("high-watermark+a+b", "acks=all min_insync_replicas=2 flush=os")
    weaker = {**ABOUT, "guarantees": {**ABOUT["guarantees"], "acks": "1"}}  # type: ignore[dict-item]
    (other,) = signatures({"findings": [found("diverged", {})]}, weaker, {})
    assert other.id != mine.id
    assert "acks=1" in other.sentence


def test_a_damaged_run_json_has_names_too() -> None:
    assert system_of({}) == "?"
    assert system_of({"rules": "kip-320", "config": []}) == "kip-320"
    assert guarantees_of({"guarantees": 3}) == ""


def test_the_trace_lines_needed_are_those_of_the_examples() -> None:
    findings = [found("a", {"event": 5}, {"event": True}, {}), found("b", {"event": 9})]
    assert events_of({"findings": findings}) == {5, 9}
