"""Spark gives the verdicts that the judge gives without it: cases of tests/corpus, judged whole and cut up.

test_corpus.py judges all of them in the test's process, by the product's code without Spark. Here are enough
of them to show each finding of each class, each unknown name and each file of cases; all with
FLOODMARK_ALL_CASES (make soak).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest
from corpus import Case
from how_many import cases

from floodmark.checkers.judge import layout
from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.judge.report import as_json
from floodmark.harness.verdict import Verdict

pytestmark = pytest.mark.spark
CUT_UP = 5
# And one more: what the driver knows of processes must reach the task that looks for cycles.
ALSO_CUT_UP = "unknown: ops of a process after an info have no order"


def labels_of(case: Case) -> set[str]:
    """The findings and unknown names that a case shows, and its file."""
    found = [line for line in case.expected if ": " not in line]
    kinds = {f"{line.split()[0]} {'(' in line}" for line in found}
    unknown = {name for line in case.expected if ": " in line for name in line.split(": ")[1].split(", ")}
    return {case.file, f"{len(found)} of them at once", *kinds, *unknown}


def chosen(every: dict[Case, set[str]]) -> Iterator[Case]:
    """Cases that together show all labels, and the one that is always cut up."""
    missing = set[str]().union(*every.values())
    yield from (one for one in every if one.ident == ALSO_CUT_UP)
    while missing:
        best = max(every, key=lambda one: len(every[one] & missing))
        missing -= every[best]
        yield best


@pytest.fixture(scope="module")
def few() -> list[Case]:
    every = {case: labels_of(case) for case in corpus.cases()}
    return list(every)[: cases(len(every), few=0)] or list(dict.fromkeys(chosen(every)))


@pytest.fixture(scope="module")
def folders(few: list[Case], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("cases")
    return [case.write(root / str(number)) for number, case in enumerate(few)]


@pytest.fixture(scope="module")
def whole(folders: list[Path]) -> list[Verdict]:
    return [*SparkJudge().judge(folders)]


def comparable(verdict: Verdict) -> dict[str, Any]:
    """verdict.json without the timings."""
    return {key: value for key, value in as_json(verdict).items() if key != "timings_s"}


def richest(verdicts: list[Verdict]) -> list[int]:
    """Some of these verdicts, with findings of many names."""
    names = [{one.name for one in verdict.findings} for verdict in verdicts]
    missing, chosen = set[str]().union(*names), list[int]()
    for _ in range(CUT_UP):
        chosen.append(max(range(len(names)), key=lambda number: len(names[number] & missing)))
        missing -= names[chosen[-1]]
    return chosen


def test_runs_that_are_judged_whole(few: list[Case], whole: list[Verdict]) -> None:
    assert len(few) > 40
    for case, verdict in zip(few, whole, strict=True):
        assert corpus.said(verdict) == case.expected, case.ident
        sentences = corpus.sentences(verdict)
        assert [part for part in case.sentences if not any(part in one for one in sentences)] == []


def test_runs_that_are_cut_up(
    few: list[Case], folders: list[Path], whole: list[Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some: a unit of one run costs as much as one of hundreds. More is in test_passes.py."""
    monkeypatch.setattr(layout, "BIG_BYTES", 0)
    some = richest(whole)
    some += [number for number, case in enumerate(few) if case.ident == ALSO_CUT_UP]

    for number, verdict in zip(some, SparkJudge().judge([folders[one] for one in some]), strict=True):
        assert comparable(verdict) == comparable(whole[number]), folders[number]
