"""Cycles in runs with many transactions: a correct cluster makes none; too many edges are left out."""

import re
from pathlib import Path

import here
import pytest
from txn_tales import busy, mutual

from floodmark.checkers.laws import cycles
from floodmark.checkers.laws import finding_names as names


def test_two_thousand_transactions_of_a_correct_cluster_have_no_finding(tmp_path: Path) -> None:
    (verdict,) = here.judge([busy(3, 2_000).write(tmp_path / "run")])

    assert (verdict.valid, verdict.findings) == (True, ())


def test_a_run_with_too_many_edges_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reason; its neighbour is judged."""
    few, many = mutual().write(tmp_path / "few"), busy(3, 20).write(tmp_path / "many")
    monkeypatch.setattr(cycles, "MOST_EDGES", 10)

    by_name, left_out = here.judge([few, many])

    assert [one.name for one in by_name.findings] == ["G1c"]
    assert by_name.unknown == ()
    (unknown,) = left_out.unknown
    assert {*unknown.names} == {*names.CYCLES}
    assert re.match(r"\d\d+ dependencies among the ops of this run .* among 10 at the most", unknown.reason)
