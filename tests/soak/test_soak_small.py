"""A small soak: random runs and their mutations keep the laws of soak_laws.py, and these laws can fail."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from soak_batches import Soak
from soak_wide import wide

from floodmark.checkers.judge.job import SparkJudge
from floodmark.harness.verdict import Verdict

pytestmark = pytest.mark.spark
SEED = os.environ.get("FLOODMARK_SEED", "1")
MISTYPED = int(os.environ.get("FLOODMARK_SOAK_MISTYPED", "20"))
MUTATED = int(os.environ.get("FLOODMARK_SOAK_MUTATED", "80"))
PARTITIONS = int(os.environ.get("FLOODMARK_SOAK_PARTITIONS", "25000"))


def test_a_few_mutated_folders(tmp_path: Path) -> None:
    """The laws of soak_laws.py, in one call."""
    soak = Soak(tmp_path / "work", tmp_path / "kept", seed=SEED, batch=MUTATED, inline=True)
    tally = soak.run("mutated", 0, MUTATED)

    assert tally.folders == MUTATED
    assert set(tally.kinds) >= {"base", "harmless", "unreadable", "tampering"}
    assert not tally.wrongs, tally.kept


def test_a_few_mistyped_runs(tmp_path: Path) -> None:
    """Judge and twin agree on every finding, but that the judge may leave more open. In one call."""
    soak = Soak(tmp_path / "work", tmp_path / "kept", seed=SEED, batch=MISTYPED, inline=True)
    tally = soak.run("mistyped", 0, MISTYPED)

    assert tally.folders == MISTYPED
    assert not tally.wrongs, tally.kept


def test_very_many_partitions(tmp_path: Path) -> None:
    """Each costs a little, and the damage in the last one is found (`make soak` uses a million)."""
    (verdict,) = SparkJudge().judge([wide(tmp_path / "wide", partitions=PARTITIONS)])

    assert [(one.name, one.klass, one.count) for one in verdict.findings] == [("lost-write", "bug", 1)]
    assert [one["partition"] for one in verdict.findings[0].examples] == [PARTITIONS - 1]
    assert (verdict.valid, verdict.unknown) == (False, ())


def test_a_wrong_verdict_is_seen() -> None:
    """The laws can fail: a healthy folder called broken, a broken one called valid."""
    from soak_laws import beside_twin, broken, broken_base

    from floodmark.harness.verdict import Finding, Unknown

    lost = Finding(name="lost-write", klass="bug", permitted_by=None, count=1)
    healthy, ill = Verdict(valid=True), Verdict(valid=False, findings=(lost,))
    failed = Verdict(valid="unknown", unknown=(Unknown(names=("unfit",), reason="the judge failed: x"),))
    files = {"run.json": json.dumps({"guarantees": {"unclean_leader_election": False}}).encode()}

    def laws(kind: str, name: str, base: Verdict, verdict: Verdict) -> list[str]:
        return [breach.partition(":")[0] for breach in broken(kind, name, files, base, verdict)]

    assert laws("unreadable", "logs/n1.jsonl", healthy, ill) == ["false alarm"]
    assert laws("unreadable", "history.jsonl", healthy, healthy) == ["false valid"]
    assert laws("quiet", "history.jsonl", healthy, healthy) == []
    assert laws("harmless", "history.jsonl", healthy, ill) == ["not as it was"]
    assert laws("tampering", "history.jsonl", healthy, ill) == []
    assert laws("tampering", "history.jsonl", healthy, failed) == ["traceback"]
    late = Finding(name="realtime-order", klass="bug", permitted_by=None, count=1)
    order = Verdict(valid=False, findings=(late,))
    unknown = Verdict(valid="unknown")
    assert laws("unreadable", "logs/n1.jsonl", order, unknown) == ["false outranks unknown"]
    unseen = Verdict(valid=False, findings=(Finding(name="unseen", klass="bug", permitted_by=None, count=1),))
    assert laws("unreadable", "logs/n1.jsonl", unseen, ill) == []  # the final reads replace the log
    assert laws("unreadable", "logs/n1.jsonl", ill, unseen) == ["false alarm"]
    for reason, breaks in (("logs/n1.jsonl:3: 1 line is no entry", []), ("not settled", ["false alarm"])):
        torn = Verdict(valid="unknown", unknown=(Unknown(names=("unseen",), reason=reason),))
        assert laws("unreadable", "logs/n1.jsonl", torn, ill) == breaks
    short = Finding(name="leader-incomplete", klass="bug", permitted_by=None, count=1)
    excused = (replace(short, klass="permitted", permitted_by="fault budget"),)
    perhaps = Verdict(valid="unknown", findings=excused,
                      unknown=(Unknown(names=(short.name,), reason="a line of the nemesis is broken"),))
    blamed = Verdict(valid=False, findings=(short,))
    assert laws("unreadable", "history.jsonl", blamed, perhaps) == []  # that line may have been the excuse
    surely = replace(perhaps, unknown=())
    assert laws("unreadable", "history.jsonl", blamed, surely) == ["false outranks unknown"]
    assert list(broken_base(frozenset({"lost-write"}), healthy)) != []
    assert list(broken_base(frozenset(), ill)) != []
    assert list(broken_base(frozenset({"lost-write"}), ill)) == []
    valid, lossy = (True, [], []), (False, [("lost-write", "bug", "", 1)], [])
    pairs = (valid, lossy), (lossy, valid), (lossy, lossy)
    assert [len(list(beside_twin(*both))) for both in pairs] == [1, 2, 0]
    assert not list(beside_twin(lossy, ("unknown", [], ["lost-write"])))
