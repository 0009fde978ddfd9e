"""Runs without rows of some kind, each alone in its unit: no law needs another run's rows."""

import json
from collections.abc import Callable
from pathlib import Path

import here
import pytest
from folders import Tale
from traced_story import Story
from txn_tales import txn

Change = Callable[[Tale], None]


def no_op(tale: Tale) -> None:
    """The run has no op."""


def consumers_alone(tale: Tale) -> None:
    tale.assign(7, 0).poll(7).poll(7, (0, 1)).ends(7, 0)


def an_empty_trace(tale: Tale) -> None:
    tale.acked(1).trace = []


def a_trace_of_the_controller_alone(tale: Tale) -> None:
    tale.acked(1).trace = [
        {"time": at, "node": "c", "seq": at, "event": event, "broker": "n1"}
        for at, event in enumerate(("register", "unfence", "fence"))
    ]


def a_trace_of_an_unknown_partition(tale: Tale) -> None:
    tale.acked(1).trace = Story().begin().say("n1", "start", partition=77, clean=True).lines


def unfenced_only(tale: Tale) -> None:
    tale.acked(1).run["clock_error_ns"] = "5"
    tale.trace = [
        {"time": 0, "node": node, "seq": 0, "event": "unfence", "broker": "n1"} for node in ("n1", "n2", "c")
    ]


def a_transaction_of_nothing(tale: Tale) -> None:
    txn(tale, 5)


def no_dumps(tale: Tale) -> None:
    tale.acked(1)
    tale.files |= {f"logs/{node}.jsonl": None for node in ("n1", "n2", "n3")}


def broken_lines_alone(tale: Tale) -> None:
    tale.acked(1).files["history.jsonl"] = "{\n[]\n"


CHANGES = (
    no_op, consumers_alone, an_empty_trace,
    a_trace_of_the_controller_alone, a_trace_of_an_unknown_partition, unfenced_only,
    a_transaction_of_nothing, no_dumps, broken_lines_alone,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_the_judge_does_not_fail(change: Change, tmp_path: Path) -> None:
    tale = Tale()
    change(tale)

    [verdict] = here.judge([tale.write(tmp_path / "run")])

    assert verdict.failure is None


@pytest.mark.parametrize("traced", [False, True])
def test_the_judge_does_not_fail_on_a_run_without_partitions(tmp_path: Path, traced: bool) -> None:
    tale = Tale()
    tale.trace = Story().begin().lines if traced else None
    folder = tale.write(tmp_path / "run")
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "partitions": {}, "leaders": {}}))

    [verdict] = here.judge([folder])

    assert verdict.failure is None
