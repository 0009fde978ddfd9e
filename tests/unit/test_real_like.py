"""The bench's run folders: the healthy ones are valid, and of each damaged one its damage is found."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import here
import pytest
import real_like
import twin
from twin_compare import spoken

from floodmark.checkers.judge.report import as_json

OPS = 2_000  # enough for every kind of op and fault


def judged(folder: Path) -> dict[str, Any]:
    return dict(as_json(here.judge([folder])[0]))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def bugs(verdict: dict[str, Any]) -> set[str]:
    return {one["name"] for one in verdict["findings"] if one["class"] == "bug"}


@pytest.mark.parametrize("trace", [False, True], ids=["no trace", "trace"])
@pytest.mark.parametrize("transactions", [False, True], ids=["sends", "transactions"])
def test_a_healthy_run_is_valid(tmp_path: Path, transactions: bool, trace: bool) -> None:
    """Says the twin of a small one; that of a larger one says the judge. G-single alone may be found."""
    small, larger = (
        real_like.write(tmp_path / str(ops), ops=ops, trace=trace, transactions=transactions)
        for ops in (80 if trace else 200, OPS)
    )

    said = spoken(twin.judge(small))
    verdict = judged(larger)

    assert said[0] is True
    assert said[2:] == ([], [])
    assert {one["name"] for one in verdict["findings"]} <= {"G-single", "G2-item"}
    assert (verdict["valid"], verdict["unknown"]) == (True, [])


@pytest.mark.parametrize(("damage", "name"), real_like.DAMAGES.items())
def test_each_damage_is_found(tmp_path: Path, damage: str, name: str) -> None:
    folder = real_like.write(tmp_path / damage, ops=OPS, damage=damage)

    verdict = judged(folder)

    assert name in bugs(verdict)
    assert verdict["unknown"] == []


def test_a_run_holds_what_real_ones_hold(tmp_path: Path) -> None:
    folder = real_like.write(tmp_path / "run", ops=5 * OPS, trace=True)
    lines = lines_of(folder / "history.jsonl")
    ops = Counter((line["f"], line["type"]) for line in lines)
    events = Counter(line["event"] for line in lines_of(folder / "trace.jsonl"))
    row = lines_of(folder / "replicas.jsonl")[0]

    wanted = {("send", kind) for kind in ("ok", "fail", "info")} | {
        ("poll", "fail"), ("assign", "ok"), ("subscribe", "ok"), ("crash", "ok"), ("list_offsets", "ok"),
        ("kill", "info"), ("start", "info"),
    }  # fmt: skip
    assert wanted <= ops.keys()
    assert {"append", "fetch", "hw", "ack", "truncate", "elect", "isr", "isr_proposed", "become_leader",
            "become_follower", "register", "fence", "unfence", "start"} == events.keys()  # fmt: skip
    assert len(row["epochs"]) > 2
    assert {line["process"] for line in lines} & set(range(10, 1_000))  # renumbered after an info


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    one, other = (real_like.write(tmp_path / name, ops=200, trace=True) for name in ("one", "other"))

    for path in sorted(one.rglob("*.json*")):
        assert path.read_bytes() == (other / path.relative_to(one)).read_bytes()
