"""How events of a trace, faults, ops, strikes, changes of a verdict and signatures are told: words.txt."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from golden_text import answered_as_written
from trace_laws import FIELDS

from floodmark.harness.campaign.signatures import signatures
from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.report import verdict_text
from floodmark.harness.report.model import TraceLine
from floodmark.harness.report.phrases import clause_of, op_line
from floodmark.harness.report.run_summary import strikes_of, strikes_text

INVOKED = {"index": 0, "time": 1_000, "process": 5, "type": "invoke", "sends": [{"partition": 0, "value": 7}]}
FOUND = {"name": "G0", "class": "bug", "permitted_by": None, "count": 1, "examples": [
    {"partition": 0, "offset": 1, "value": 7, "nodes": [], "ops": [0, 1], "text": "It is."}]}

BLAMED = {  # lines of a trace, by number
    5: {"node": "n3", "event": "truncate", "why": "to the high watermark"},
    9: {"node": "n1", "event": "truncate", "why": "epoch 3 ends at 17 on the leader"},
    12: {"node": "controller", "event": "isr"},
    20: {"node": "n2", "event": "ack"},
    21: {"node": "n2", "event": "hw", "role": "leader"},
}


def in_words(given: dict[str, Any], folder: Path) -> str:
    match given:
        case {"line": fields}:
            return clause_of(TraceLine(number=7, fields=fields))
        case {"fault": f, **fields}:
            struck = Op(index=7, time=1_500_000_000, process=NEMESIS, type=Type.INFO, f=f, fault=fields)
            return op_line(struck)
        case {"strikes": strikes, "run": run}:
            acts = [one if isinstance(one, dict) else {one: None} for one in strikes]
            return strikes_text(strikes_of([
                Op(index=index, time=index, process=NEMESIS, type=Type.INFO, f=f,
                   fault={"nodes": ["n1"], **({"error": error} if error else {})})
                for index, act in enumerate(acts) for f, error in act.items()], run))
        case {"before": before, "now": now}:
            return click.unstyle("\n= ".join(verdict_text.changes(before, now)))
        case {"findings": findings}:
            return "\n= ".join(f"{one.finding}; {one.how}; {one.step}"
                              for one in signatures({"findings": findings}, {}, BLAMED))
    op = given["op"]
    (folder / "history.jsonl").write_text(f"{json.dumps({**INVOKED, 'f': op['f']})}\n{json.dumps(op)}\n")
    (account,) = verdict_text.reading_of(folder, {"valid": False, "findings": [FOUND]}, {}).accounts
    return dict(account.parts)["when"]


def test_all_words(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Fields of a foreign history with wrong types are left out."""
    answered_as_written(
        "words.txt", lambda line: f"= {in_words(json.loads(line), tmp_path)}".rstrip(), request)


@pytest.mark.parametrize("event", [*FIELDS, "unheard-of", None, 5])
def test_a_line_without_its_fields_still_has_a_clause(event: object) -> None:
    for fields in ({}, dict.fromkeys((*FIELDS.get(str(event), ()), "epoch", "leo", "hw"), "?")):
        assert clause_of(TraceLine(number=1, fields={"event": event, **fields})).endswith(" (trace.jsonl:1)")
