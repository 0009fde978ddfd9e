"""Spark gives the verdicts that the judge gives without it: tales of all modules, judged whole and cut up.

Each module of tales judges its own in the test's process (judging.py), by the product's code without Spark.
Here are enough of them to show each finding of each class, each unknown name and each module; all with
FLOODMARK_ALL_CASES (make soak).
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import here
import pytest
from how_many import cases
from judging import Case, Tales

from floodmark.checkers.judge import bags
from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.judge.report import as_json
from floodmark.harness.verdict import Verdict

pytestmark = pytest.mark.spark
CUT_UP = 5
# And one more: what the driver knows of processes must reach the task that looks for cycles.
ALSO_CUT_UP = "ops_of_a_process_after_an_info_have_no_order"
FILES = sorted(Path(__file__).parent.glob("*.py"))
MODULES = [path for path in FILES if "\nTALES = Tales(" in path.read_text()]


def tales_of(module: Path) -> Tales:
    spec = importlib.util.spec_from_file_location(f"tales_of_{module.stem}", module)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    tales: Tales = loaded.TALES
    return tales


def labels_of(module: Path, case: Case) -> set[str]:
    """The findings and unknown names that a tale shows, and its module."""
    found = {one.rpartition(" ")[0] for one in case.found}
    return {module.stem, *found, *case.unknown, f"{len(found)} of them at once"}


def chosen(every: dict[tuple[Path, str], set[str]]) -> Iterator[tuple[Path, str]]:
    """Tales, by module and name, that together show all labels, and the one that is always cut up."""
    missing = set[str]().union(*every.values())
    yield from (one for one in every if one[1] == ALSO_CUT_UP)
    while missing:
        best = max(every, key=lambda one: len(every[one] & missing))
        missing -= every[best]
        yield best


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("tales")
    modules = {module: tales_of(module) for module in MODULES}
    every = {(module, name): labels_of(module, case)
             for module, tales in modules.items() for name, case in tales.by_name.items()}
    assert len(every) > 440
    few = list(dict.fromkeys(chosen(every)))
    return [modules[module].write_one(root / module.stem, name)
            for module, name in list(every)[:cases(len(every), few=0)] or few]


@pytest.fixture(scope="module")
def without_spark(folders: list[Path]) -> list[dict[str, Any]]:
    return [comparable(verdict) for verdict in here.judge(folders)]


def comparable(verdict: Verdict) -> dict[str, Any]:
    """verdict.json without the timings."""
    return {key: value for key, value in as_json(verdict).items() if key != "timings_s"}


def richest(verdicts: list[dict[str, Any]]) -> list[int]:
    """Some of these verdicts, with findings of many names."""
    names = [{one["name"] for one in verdict["findings"]} for verdict in verdicts]
    missing, chosen = set[str]().union(*names), list[int]()
    for _ in range(CUT_UP):
        chosen.append(max(range(len(names)), key=lambda number: len(names[number] & missing)))
        missing -= names[chosen[-1]]
    return chosen


def test_runs_that_are_judged_whole(folders: list[Path], without_spark: list[dict[str, Any]]) -> None:
    assert len(folders) > 40
    for folder, verdict, expected in zip(folders, SparkJudge().judge(folders), without_spark, strict=True):
        assert comparable(verdict) == expected, folder


def test_runs_that_are_cut_up(
    folders: list[Path], without_spark: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some: a unit of one run costs as much as one of hundreds. More is in test_two_passes.py."""
    monkeypatch.setattr(bags, "BIG_BYTES", 0)
    some = richest(without_spark)
    some += [number for number, folder in enumerate(folders) if folder.name == ALSO_CUT_UP]

    for number, verdict in zip(some, SparkJudge().judge([folders[one] for one in some]), strict=True):
        assert comparable(verdict) == without_spark[number], folders[number]
