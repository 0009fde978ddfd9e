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

OPS = 1_000  # enough for every kind of op and fault


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def bugs(verdict: dict[str, Any]) -> set[str]:
    return {one["name"] for one in verdict["findings"] if one["class"] == "bug"}


KINDS = [{"trace": trace, "transactions": transactions}
         for trace in (False, True) for transactions in (False, True)]


@pytest.fixture(scope="module", name="verdicts")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of a healthy run of each kind and one of each damage, all in one call."""
    root = tmp_path_factory.mktemp("runs")
    asked = [*KINDS, *({"damage": damage} for damage in real_like.DAMAGES)]
    folders = [real_like.write(root / str(number), ops=OPS, **more) for number, more in enumerate(asked)]
    return [dict(as_json(verdict)) for verdict in here.judge(folders)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_healthy_run_is_valid(
    kind: dict[str, bool], verdicts: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Says the twin of a small one; that of a larger one says the judge. G-single alone may be found."""
    small = real_like.write(tmp_path / "small", ops=80 if kind["trace"] else 200, **kind)

    said = spoken(twin.judge(small))
    verdict = verdicts[KINDS.index(kind)]

    assert said[0] is True
    assert said[2:] == ([], [])
    assert {one["name"] for one in verdict["findings"]} <= {"G-single", "G2-item"}
    assert (verdict["valid"], verdict["unknown"]) == (True, [])


@pytest.mark.parametrize("damage", real_like.DAMAGES)
def test_each_damage_is_found(damage: str, verdicts: list[dict[str, Any]]) -> None:
    verdict = verdicts[len(KINDS) + list(real_like.DAMAGES).index(damage)]

    assert real_like.DAMAGES[damage] in bugs(verdict)
    assert verdict["unknown"] == []


def test_a_run_holds_what_real_ones_hold(tmp_path: Path) -> None:
    folder = real_like.write(tmp_path / "run", ops=10 * OPS, trace=True)
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
