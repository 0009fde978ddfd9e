"""Cycles in runs with many transactions: a correct cluster makes none; too many edges are left out."""

import re
from pathlib import Path
from random import Random

import here
import pytest
from stories import told

from floodmark.checkers.laws import cycles
from floodmark.checkers.laws import finding_names as names
from histories import RunFolder, healthy


def busy(steps: int) -> RunFolder:
    return healthy(Random(3), steps=steps, transacts=True)


def test_thousands_of_transactions_of_a_correct_cluster_have_no_bug(tmp_path: Path) -> None:
    """Records of two may lie between one another, which Kafka permits."""
    (verdict,) = here.judge([busy(9_000).write(tmp_path / "run")])

    assert (verdict.valid, {one.name for one in verdict.findings}) == (True, {names.G0})


def test_a_run_with_too_many_edges_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reason; its neighbour is judged."""
    few = told(tmp_path / "few", "partitions 2; log 10 1:20; 1 invoke txn 10; 2 invoke txn 1:20",
               "1 ok txn 10@0 reads 1:20@0; 2 ok txn 1:20@0 reads 10@0")
    many = busy(90).write(tmp_path / "many")
    monkeypatch.setattr(cycles, "MOST_EDGES", 10)

    by_name, left_out = here.judge([few, many])

    assert [one.name for one in by_name.findings] == ["G1c"]
    assert by_name.unknown == ()
    (unknown,) = left_out.unknown
    assert {*unknown.names} == {*names.CYCLES}
    assert re.match(r"\d\d+ dependencies among the ops of this run .* among 10 at the most", unknown.reason)
