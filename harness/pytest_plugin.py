"""Fixtures for pytest: a judged run, a schedule, a cluster, a nemesis.

    def test_nothing_is_lost(floodmark_run):
        run = floodmark_run(nemesis="crash,cut", duration=5, interval=1)
        assert run.valid

Rules
1. Nothing is imported or started before a test uses a fixture.
2. One Spark session judges all runs of the test session (of each worker of pytest-xdist); it is started
   before the first run.
3. A failure of the harness is an error of the test, never an invalid run: `assert not run.valid` passes only
   if the run was really found invalid or unknown.
4. A failing test shows the report of each of its runs, with the run's folder and page.
5. Run folders are made in the folder that the ini option `floodmark_out` names, in a new folder for each
   session; without it, in pytest's temporary folder.
"""

import datetime
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from floodmark.harness.commands.pytest_support import ClusterUp, JudgedRun

OUT = "floodmark_out"
NAME_CHARS = 80
_RUNS = pytest.StashKey["list[JudgedRun]"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(OUT, "where floodmark's run folders are kept (absent: in pytest's temporary folder)",
                  default="")


@pytest.fixture(scope="session")
def floodmark_out(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parent of this session's run folders."""
    asked = str(pytestconfig.getini(OUT))
    if not asked:
        return tmp_path_factory.mktemp("floodmark")
    session = f"{datetime.datetime.now():%Y%m%dT%H%M%S}-{os.getpid()}"
    return Path(pytestconfig.rootpath, asked, session)


@pytest.fixture(scope="session")
def _floodmark_judge() -> None:
    """Start the judge's Spark, which ends with this process."""
    with _own_warnings() as support:
        support.start_judge()


@pytest.fixture
def floodmark_run(
    request: pytest.FixtureRequest, floodmark_out: Path, _floodmark_judge: None
) -> "Callable[..., JudgedRun]":
    """floodmark_run(...) makes a run, judges it, and returns it: folder, verdict, findings, bugs, valid,
    unknown. Its keyword arguments are the options of `floodmark run` (`config` is a dict, `schedule` a list
    of entries or a file; `settings="drawn"` draws all options that are not given from the seed); or
    `scenario`, a name or a FILE.toml, with rules, bugs, config and cluster. Also `strict`, `allow` and
    `allow_unknown`, as in `floodmark check`."""
    runs: list[JudgedRun] = request.node.stash.setdefault(_RUNS, [])

    def run(**keywords: Any) -> "JudgedRun":
        __tracebackhide__ = True
        with _own_warnings() as support:
            runs.append(support.judged_run(_next_folder(floodmark_out, request.node.nodeid), keywords))
        return runs[-1]

    return run


@pytest.fixture
def floodmark_schedule() -> Callable[..., list[dict[str, Any]]]:
    """floodmark_schedule(...) returns the entries that a nemesis would carry out in such a run, as data; a
    test can change them and pass them to floodmark_run(schedule=...)."""
    with _own_warnings() as support:
        return lambda **keywords: support.entries(keywords)


@pytest.fixture
def floodmark_cluster(
    request: pytest.FixtureRequest, floodmark_out: Path
) -> "Iterator[Callable[..., ClusterUp]]":
    """floodmark_cluster(...) starts a cluster for any Kafka client, which runs until the test ends:
    bootstrap, kill("n1"), start, stop, pause, resume, expire, power_cut, cut("n1"), heal(), state(). Its
    keyword arguments are the options of `floodmark cluster up`."""
    with _own_warnings() as support:
        cluster_up = support.cluster_up

    with ExitStack() as clusters:

        def up(**keywords: Any) -> "ClusterUp":
            folder = _next_folder(floodmark_out, request.node.nodeid)
            made: ClusterUp = clusters.enter_context(cluster_up(folder, keywords))
            return made

        yield up


@pytest.fixture
def floodmark_nemesis() -> "Callable[..., AbstractContextManager[Sequence[str]]]":
    """floodmark_nemesis(cluster, nemesis="crash,cut", interval=1, seed=7) is a context manager: inside it
    faults strike that cluster, at its end the cluster is mended. nemesis: crash, restart, pause, cut, power,
    expire. Its value is the list of strikes so far."""
    with _own_warnings() as support:
        return lambda cluster, **keywords: support.striking(cluster, keywords)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the reports of its runs to a test that failed."""
    report = yield
    if report.failed and report.when == "call":
        report.sections += [(f"floodmark: {run.folder}", run.report) for run in item.stash.get(_RUNS, [])]
    return report


@contextmanager
def _own_warnings() -> Iterator[ModuleType]:
    """What the fixtures call, without its libraries' warnings: the test may turn them into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from floodmark.harness.commands import pytest_support

        yield pytest_support


def _next_folder(parent: Path, test: str) -> Path:
    """A folder that does not exist yet, named after the test."""
    parent.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "-", test)[-NAME_CHARS:].strip("-")
    return next(folder for number in count(1) if not (folder := parent / f"{name}-{number}").exists())
