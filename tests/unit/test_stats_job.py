"""Measuring many folders where Spark itself fails: down to the folder that causes it. No JVM."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from floodmark.checkers.stats import job
from floodmark.checkers.stats.job import Work
from floodmark.harness.errors import FloodmarkError


def results_of(monkeypatch: pytest.MonkeyPatch, names: str, error: Exception) -> tuple[dict[int, str], int]:
    """The result for each of the folders with these names, where the one called x fails every task it is in;
    and how often Spark was called."""
    calls: list[int] = []

    def together(context: object, works: Sequence[Work]) -> list[job.OfTask]:
        calls.append(len(works))
        if any(folder.name == "x" for _, folder in works):
            raise error
        return [job.OfTask(failures={number: "measured" for number, _ in works})]

    monkeypatch.setattr(job, "_together", together)
    spark = SimpleNamespace(context=None, restarted=lambda: False)
    works = [(number, Path(name)) for number, name in enumerate(names)]
    found = {number: why for answer in job._answers(spark, works) for number, why in answer.failures.items()}
    return found, len(calls)


def test_the_folder_that_fails_a_task_is_reported_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found, calls = results_of(monkeypatch, "abxd", PySparkException("lost"))
    failed = {number: why for number, why in found.items() if why != "measured"}
    assert failed == {2: "PySparkException: lost"}
    assert (sorted(found), calls) == ([0, 1, 2, 3], 5)  # four, ab, xd, x, d


def test_without_such_a_folder_spark_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert results_of(monkeypatch, "abcd", PySparkException("lost"))[1] == 1
    assert results_of(monkeypatch, "", PySparkException("lost")) == ({}, 0)


@pytest.mark.parametrize("error", [FloodmarkError("no java"), TypeError("a bug")])
def test_an_error_that_no_folder_causes_is_raised(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with pytest.raises(type(error)):
        results_of(monkeypatch, "abxd", error)
