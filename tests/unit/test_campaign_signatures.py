"""Signatures: the same for one cause however it shows, different for different causes."""

from typing import Any

from floodmark.harness.campaign.signatures import events_of, guarantees_of, signatures
from floodmark.harness.run import system_of

ABOUT = {
    "rules": "high-watermark",
    "config": {"n1": {"floodmark.bugs": "b,a"}, "n2": {}},
    "guarantees": {"acks": "all", "min_insync_replicas": 2, "unclean_leader_election": False, "flush": "os"},
}
TRACE = {
    5: {"node": "n3", "event": "truncate", "why": "to the high watermark"},
    9: {"node": "n1", "event": "truncate", "why": "epoch 3 ends at 17 on the leader"},
    12: {"node": "controller", "event": "isr"},
    20: {"node": "n2", "event": "ack"},
    21: {"node": "n2", "event": "hw", "role": "leader"},
}


def found(name: str, *examples: dict[str, Any], klass: str = "bug", by: str | None = None) -> dict[str, Any]:
    return {"name": name, "class": klass, "permitted_by": by, "count": 1, "examples": list(examples)}


def causes(*findings: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one.finding, one.how, one.step)
            for one in signatures({"findings": list(findings)}, ABOUT, TRACE)]


TRUNCATION = ("unsafe-truncation", "", "truncate: to the high watermark")


def test_the_first_step_is_the_cause_whatever_follows_from_it() -> None:
    alone = causes(found("unsafe-truncation", {"event": 5, "how": "cut", "nodes": ["n3"], "offset": 3}))
    with_loss = causes(
        found("lost-write", {"event": 5, "how": "overwritten", "offset": 8}),
        found("unsafe-truncation", {"event": 9, "how": "cut", "nodes": ["n1"]}),
        found("diverged", {"event": 21}),
    )
    assert alone == with_loss == [TRUNCATION]


def test_numbers_and_nodes_are_left_out() -> None:
    assert causes(found("unsafe-truncation", {"event": 9, "nodes": ["n1"]})) == [
        ("unsafe-truncation", "", "truncate: epoch N ends at N on the leader")]


def test_a_broken_rule_outranks_its_consequences() -> None:
    assert causes(found("lost-write", {"event": 5}), found("ack-rule", {"event": 20, "how": "isr"})) == [
        ("ack-rule", "isr", "ack")]


def test_two_ways_to_break_a_rule_are_two_causes() -> None:
    isr, hw = (causes(found("ack-rule", {"event": 20, "how": how})) for how in ("isr", "hw"))
    assert isr != hw
    assert causes(found("unsafe-isr", {"event": 12, "how": "behind"})) == [
        ("unsafe-isr", "behind", "isr as controller")]


def test_two_leaders_is_one_cause_whatever_event_shows_it() -> None:
    one, other = (causes(found("two-leaders", {"event": event, "nodes": ["n1", "n2"]})) for event in (20, 21))
    assert one == other == [("two-leaders", "", "")]


def test_without_a_trace_the_worst_finding_is_the_signature() -> None:
    assert causes(found("inconsistent-offsets", {"ops": [1]}), found("lost-write", {"how": "gone"})) == [
        ("lost-write", "gone", "")]
    assert causes(found("end-offset-regressed", {})) == [("end-offset-regressed", "", "")]


def test_a_permitted_finding_is_a_signature_of_its_own() -> None:
    both = causes(found("lost-write", {"event": 5}),
              found("lost-write", {"event": 9}, klass="permitted", by="acks"))
    assert len(both) == 2
    assert both[0] == TRUNCATION


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


def test_a_valid_run_has_no_signature() -> None:
    assert causes() == []
