"""The bench's run folders: the healthy ones are valid, and the damage of each damaged one is found."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import here
import pytest
import real_like
import twin
from twin_compare import spoken

from floodmark.checkers.judge.report import as_json

OPS = 2_000  # enough for every kind of op and fault


Verdicts = Mapping[str, dict[str, Any]]  # by the run's name
HEALTHY = {(transactions, trace): f"{transactions=} {trace=}"
           for transactions in (False, True) for trace in (False, True)}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """The verdicts of all healthy runs and of all damaged ones, in one call."""
    root = tmp_path_factory.mktemp("real-like")
    folders = {name: real_like.write(root / name, ops=OPS, transactions=transactions, trace=trace)
               for (transactions, trace), name in HEALTHY.items()}
    folders |= {damage: real_like.write(root / damage, ops=OPS, damage=damage)
                for damage in real_like.DAMAGES}
    return dict(zip(folders, map(as_json, here.judge([*folders.values()])), strict=True))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def bugs(verdict: dict[str, Any]) -> set[str]:
    return {one["name"] for one in verdict["findings"] if one["class"] == "bug"}


@pytest.mark.parametrize(("transactions", "trace"), HEALTHY, ids=HEALTHY.values())
def test_a_healthy_run_is_valid(judged: Verdicts, transactions: bool, trace: bool) -> None:
    verdict = judged[HEALTHY[transactions, trace]]

    assert (verdict["valid"], verdict["findings"], verdict["unknown"]) == (True, [], [])


@pytest.mark.parametrize(("transactions", "trace"), HEALTHY, ids=HEALTHY.values())
def test_the_twin_finds_a_small_run_valid(tmp_path: Path, transactions: bool, trace: bool) -> None:
    ops = 80 if trace else 200
    small = real_like.write(tmp_path / "run", ops=ops, trace=trace, transactions=transactions)

    verdict = spoken(twin.judge(small))

    assert verdict[0] is True
    assert verdict[2:] == ([], [])


@pytest.mark.parametrize(("damage", "name"), real_like.DAMAGES.items())
def test_each_damage_is_found(judged: Verdicts, damage: str, name: str) -> None:
    assert name in bugs(judged[damage])
    assert judged[damage]["unknown"] == []


def test_a_run_has_the_ops_and_events_of_real_runs(tmp_path: Path) -> None:
    folder = real_like.write(tmp_path / "run", ops=5 * OPS, trace=True)
    lines = lines_of(folder / "history.jsonl")
    ops = Counter((line["f"], line["type"]) for line in lines)
    events = Counter(line["event"] for line in lines_of(folder / "trace.jsonl"))
    row = lines_of(folder / "replicas.jsonl")[0]

    expected = {("send", kind) for kind in ("ok", "fail", "info")} | {
        ("poll", "fail"), ("assign", "ok"), ("subscribe", "ok"), ("crash", "ok"), ("list_offsets", "ok"),
        ("kill", "info"), ("start", "info"),
    }  # fmt: skip
    assert expected <= ops.keys()
    assert {"append", "fetch", "hw", "ack", "truncate", "elect", "isr", "isr_proposed", "become_leader",
            "become_follower", "register", "fence", "unfence", "start"} == events.keys()  # fmt: skip
    assert len(row["epochs"]) > 2
    assert {line["process"] for line in lines} & set(range(10, 1_000))  # renumbered after an info


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    one, other = (real_like.write(tmp_path / name, ops=200, trace=True) for name in ("one", "other"))

    for path in sorted(one.rglob("*.json*")):
        assert path.read_bytes() == (other / path.relative_to(one)).read_bytes()
