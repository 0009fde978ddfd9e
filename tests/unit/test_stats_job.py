"""Measuring many folders where Spark itself fails: down to the folder that brings it about. No JVM."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from floodmark.checkers.stats import job
from floodmark.checkers.stats.job import Work
from floodmark.harness.errors import FloodmarkError


def answered(monkeypatch: pytest.MonkeyPatch, names: str, error: Exception) -> tuple[dict[int, str], int]:
    """What is said of the folders with these names, where the one called x kills every task it is in; and how
    often Spark was asked."""
    asked: list[int] = []

    def together(context: object, works: Sequence[Work]) -> list[job.OfTask]:
        asked.append(len(works))
        if any(folder.name == "x" for _, folder in works):
            raise error
        return [job.OfTask(data=None, failures={number: "measured" for number, _ in works}, unsaved={})]

    monkeypatch.setattr(job, "_together", together)
    spark = SimpleNamespace(context=None, restarted=lambda: False)
    works = [(number, Path(name)) for number, name in enumerate(names)]
    told = {number: why for answer in job._answers(spark, works) for number, why in answer.failures.items()}
    return told, len(asked)


def test_the_folder_that_kills_a_task_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    told, asked = answered(monkeypatch, "abxd", PySparkException("lost"))
    assert {number: why for number, why in told.items() if why != "measured"} == {2: "PySparkException: lost"}
    assert (sorted(told), asked) == ([0, 1, 2, 3], 5)  # four, ab, xd, x, d


def test_where_none_does_spark_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(monkeypatch, "abcd", PySparkException("lost"))[1] == 1
    assert answered(monkeypatch, "", PySparkException("lost")) == ({}, 0)


@pytest.mark.parametrize("error", [FloodmarkError("no java"), TypeError("a bug")])
def test_what_is_no_folder_s_fault_is_raised(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with pytest.raises(type(error)):
        answered(monkeypatch, "abxd", error)
