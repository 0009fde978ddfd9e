"""Each event of the trace as a clause; a line without its fields gives a shorter one."""

from typing import Any

import pytest
from trace_laws import FIELDS

from floodmark.harness.report.model import TraceLine
from floodmark.harness.report.phrases import clause_of, listed

STATE = {"epoch": 2, "leo": 5, "hw": 4}


@pytest.mark.parametrize(("event", "fields", "clause"), [
    ("truncate", {"from": 5, "to": 3, "why": "to the high watermark"},
     'n1 truncated its log from 5 to 3 ("to the high watermark") in epoch 2'),
    ("truncate", {"from": 5, "to": 3}, "n1 truncated its log from 5 to 3 in epoch 2"),
    ("become_leader", {"isr": ["n1", "n2"], "start": 5},
     "n1 began to lead epoch 2 with LEO 5, HW 4 and the ISR n1 and n2"),
    ("become_follower", {"leader": "n3"}, "n1 became a follower of n3 in epoch 2, its LEO 5"),
    ("append", {"role": "leader", "offset": 4, "count": 1}, "n1, leading, appended offset 4 in epoch 2"),
    ("append", {"role": "follower", "offset": 2, "count": 3},
     "n1, following, appended offsets 2 to 4 in epoch 2"),
    ("hw", {"role": "leader"}, "n1, leading, moved its HW to 4 in epoch 2"),
    ("fetch", {"follower": "n2", "offset": 4}, "n1 was asked by n2 for offset 4 in epoch 2"),
    ("ack", {"offset": 4, "acks": "all", "isr": ["n1"]},
     "n1 acked up to offset 4 with acks=all in epoch 2, its HW at 4 and its ISR n1"),
    ("isr_proposed", {"isr": ["n1", "n2", "n3"]}, "n1 proposed the ISR n1, n2 and n3 in epoch 2"),
    ("isr", {"isr": ["n1"]}, "n1 learned that the ISR is n1 in epoch 2"),
    ("start", {"clean": False}, "n1 started and found LEO 5, HW 4"),
    ("checkpoint", {"what": "hw", "value": 3}, "n1 recorded `checkpoint`"),
])
def test_the_clause_of_a_replicas_event(event: str, fields: dict[str, Any], clause: str) -> None:
    fields = {"node": "n1", "event": event, "time": 1_033_370_564, **STATE, **fields}
    line = TraceLine(number=7, fields=fields)
    assert clause_of(line) == f"at 1.033 s {clause} (trace.jsonl:7)"


@pytest.mark.parametrize(("event", "fields", "clause"), [
    ("elect", {"leader": "n2", "isr": ["n2"], "clean": True},
     "the controller chose n2 to lead epoch 2, its ISR n2 (a clean election)"),
    ("elect", {"leader": "n2", "isr": ["n2"], "clean": False},
     "the controller chose n2 to lead epoch 2, its ISR n2 (an UNCLEAN election)"),
    ("elect", {"leader": None, "isr": [], "clean": True},
     "the controller left it without a leader, its ISR nobody (a clean election)"),
    ("isr", {"isr": ["n1", "n2"]}, "the controller made the ISR n1 and n2 in epoch 2"),
    ("register", {"broker": "n2"}, "the controller registered n2"),
    ("fence", {"broker": "n2"}, "the controller fenced n2"),
    ("unfence", {"broker": "n2"}, "the controller unfenced n2"),
])
def test_the_clause_of_a_controllers_event(event: str, fields: dict[str, Any], clause: str) -> None:
    """The controller has neither LEO nor HW."""
    line = TraceLine(number=1, fields={"node": "controller", "event": event, "epoch": 2, **fields})
    assert clause_of(line) == f"{clause} (trace.jsonl:1)"


@pytest.mark.parametrize("event", [*FIELDS, "unheard-of", None, 5])
def test_a_line_without_its_fields_still_has_a_clause(event: object) -> None:
    for fields in ({}, dict.fromkeys((*FIELDS.get(str(event), ()), *STATE), "?")):
        assert clause_of(TraceLine(number=1, fields={"event": event, **fields})).endswith(" (trace.jsonl:1)")


def test_names_are_listed_with_commas_and_an_and() -> None:
    assert [listed(["a", "b", "c"][:count]) for count in range(4)] == ["nobody", "a", "a and b", "a, b and c"]
