"""Injects failures into the judge's stages, in the driver and in Spark's Python workers.

A stage is MODULE.FUNCTION of the package checkers, named as its caller imports it, or `family.NAME`, a family
of laws; each fails for one run only, which is known by its folder's name. `whole MODULE.FUNCTION` is all of a
task.

A worker is another process, and is used again: a function that is shipped to it replaces the stage there, and
restores it at the end. This module is shipped with it, by value, because a worker cannot import it.
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark import SparkContext, cloudpickle

from floodmark.checkers.judge import many_runs
from floodmark.checkers.laws.unit import Unit

INJECTED = "injected by a test into"
# Families whose tables somebody else reads. The others are asked where they are to fail, and only there: what
# they find is not what is tried, and all of them take a second a run.
NEEDED = ("log", "values", "transactions", "dependencies", "of_the_run")
Broken = Mapping[str, str]  # the folder's name -> the stage that fails on it
Act = Callable[[str], object]

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def fail(stage: str) -> None:
    raise RuntimeError(f"{INJECTED} {stage}")


def run_out_of_memory(stage: str) -> None:
    raise MemoryError(f"{INJECTED} {stage}")


def die(_: str) -> None:
    """Ends the process as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def numbers_and_names(what: object) -> set[object]:
    """The numbers and names of the runs in an argument or a result."""
    if isinstance(what, Unit):
        return set(what.rows("select run from runs")["run"].to_pylist())
    if isinstance(what, pa.Table):
        return set(what["run"].to_pylist()) if "run" in what.column_names else set()
    if isinstance(what, Path):
        return {what.name, what.parent.name}
    if isinstance(what, dict):
        keys = {what["run"]} if "run" in what else set(what)
        return keys.union(*map(numbers_and_names, what.values()))
    if isinstance(what, (list, tuple)):
        return set().union(*map(numbers_and_names, what))
    number = getattr(what, "run", None)
    parts = [getattr(what, name, None) for name in ("run", "folder", "path", "facts")]
    names = (numbers_and_names(part) for part in parts if part is not None)
    return {number if isinstance(number, int) else None}.union(*names)


def failing_on(run: set[object], original: Callable[..., Any], stage: str, act: Act) -> Callable[..., Any]:
    """The same function, but it fails on this run, known by its number in the call or by its name."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        if run & numbers_and_names([*args, *kwargs.values(), made]):
            act(stage)
        return made

    return broken


@contextmanager
def injected(stages: Mapping[str, set[object]], act: Act) -> Iterator[None]:
    """A context in which these stages fail, each on one run."""
    families = {stage.split(".")[1]: stage for stage in stages if stage.startswith("family.")}
    asked = importlib.import_module("floodmark.checkers.laws.unit").run_families

    def ask(unit: Unit, asking: Any, *more: Any, **kwargs: Any) -> Any:
        few = [broken_family(family) for family in asking if family.__name__ in {*NEEDED, *families}]
        return asked(unit, few, *more, **kwargs)

    def broken_family(family: Any) -> Any:
        """It fails before it asks anything: what it would ask stands on families that are left out."""
        stage = families.get(family.__name__)
        made = family if family.__name__ in NEEDED else lambda _: None
        return family if stage is None else failing_on(stages[stage], made, stage, act)

    with ExitStack() as mended:
        mended.enter_context(patch("floodmark.checkers.judge.passes.run_families", ask))
        for stage, run in stages.items():
            if stage not in families.values():
                module, name = stage.rsplit(".", 1)
                home = importlib.import_module(f"floodmark.checkers.{module}")
                broken = failing_on(run, getattr(home, name), stage, act)
                mended.enter_context(patch.object(home, name, broken))
        yield


class Injection:
    """Makes stages of workers fail. `numbers`: the folder's name -> its position in the call, set again for
    each call, because the judge tries again with fewer runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: Broken, act: Act = fail) -> None:
        self.patch, self.broken, self.act = monkeypatch, broken, act
        self.numbers: dict[str, int] = {}
        self.jvm: list[int] = []
        original = many_runs.judge_together

        def noting(spark: SparkContext, folders: Any, *args: Any) -> Any:
            self.numbers.clear()
            self.numbers |= {folder.path.name: number for number, folder in enumerate(folders)}
            gateway = SparkContext._gateway
            assert gateway is not None
            self.jvm[:] = [gateway.proc.pid]
            return original(spark, folders, *args)

        monkeypatch.setattr(many_runs, "judge_together", noting)

    def into(self, *entries: str) -> None:
        """Injects the failures into tasks: each entry is a task's function, MODULE.FUNCTION."""
        for entry in entries:
            module, name = entry.rsplit(".", 1)
            self.patch.setattr(f"floodmark.checkers.{entry}", self.shipped(module, name))

    def shipped(self, module: str, name: str) -> Callable[..., Iterator[Any]]:
        broken, numbers, jvm, act = self.broken, self.numbers, self.jvm, self.act

        def work(*args: Any) -> Iterator[Any]:
            def doing(stage: str) -> None:
                if act is die_with_the_jvm:
                    os.kill(jvm[0], signal.SIGKILL)
                act(stage)

            stages = {stage: {run, numbers[run]} for run, stage in broken.items() if run in numbers}
            original = getattr(importlib.import_module(f"floodmark.checkers.{module}"), name)
            if f"whole {module}.{name}" in stages:
                doing(f"whole {module}.{name}")
            with injected(stages, doing):
                yield from original(*args)

        return work


def die_with_the_jvm(_: str) -> None:
    """Kills the JVM; the worker ends with it."""
    os.kill(os.getpid(), signal.SIGKILL)
