"""floodmark's fixtures for pytest: a judged run, a schedule, a cluster, a nemesis.

    def test_nothing_is_lost(floodmark_run):
        run = floodmark_run(nemesis="crash,cut", duration=5, interval=1)
        assert run.valid

    floodmark_run(...)
        Plays a run, judges it, and gives it: folder, verdict, findings, bugs, valid, unknown. Its words are
        the options of `floodmark run` (`config` is a dict, `schedule` a list of entries or a file;
        `settings="drawn"` draws from the seed what no other word says); or
        `scenario`, a name or a FILE.toml, with rules, bugs, config and cluster. Besides: `strict`, `allow`,
        `allow_unknown`, as of `floodmark check`.
    floodmark_schedule(...)
        The entries that a nemesis would carry out in such a run, as data: to be changed, and given to
        floodmark_run(schedule=...).
    floodmark_cluster(...)
        A cluster for any Kafka client, up until the test ends: bootstrap, kill("n1"), start, stop, pause,
        resume, expire, power_cut, cut("n1"), heal(), state(). Its words are the options of
        `floodmark cluster up`.

    floodmark_nemesis(cluster, nemesis="crash,cut", interval=1, seed=7)
        A context: meanwhile faults strike that cluster, at its end it is mended. nemesis: crash, restart,
        pause, cut, power, expire. Gives the list of what has struck up to now.

Rules
1. Nothing is imported and nothing starts before a test asks for a fixture.
2. One Spark judges all runs of the test session (of each worker of pytest-xdist); it is started before the
   first of them.
3. What the harness failed at is an error, never a run that is not valid: `assert not run.valid` is a sharp
   statement.
4. A test that fails shows the report of each of its runs, and where its folder and its page are.
5. Run folders go where `floodmark_out` of the ini file says, in a folder for each session; else into pytest's
   temporary folder.
"""

import datetime
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
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
    """Spark, ready. It ends with this process."""
    with _own_warnings():
        from floodmark.harness.commands.pytest_support import start_judge

        start_judge()


@pytest.fixture
def floodmark_run(
    request: pytest.FixtureRequest, floodmark_out: Path, _floodmark_judge: None
) -> "Callable[..., JudgedRun]":
    """Plays and judges a run; see the module's head."""
    with _own_warnings():
        from floodmark.harness.commands.pytest_support import judged_run

    runs: list[JudgedRun] = request.node.stash.setdefault(_RUNS, [])

    def run(**words: Any) -> "JudgedRun":
        __tracebackhide__ = True
        with _own_warnings():
            runs.append(judged_run(_next_folder(floodmark_out, request.node.nodeid), words))
        return runs[-1]

    return run


@pytest.fixture
def floodmark_schedule() -> Callable[..., list[dict[str, Any]]]:
    """What a nemesis would do, as data; see the module's head."""
    with _own_warnings():
        from floodmark.harness.commands.pytest_support import entries

    return lambda **words: entries(words)


@pytest.fixture
def floodmark_cluster(
    request: pytest.FixtureRequest, floodmark_out: Path
) -> "Iterator[Callable[..., ClusterUp]]":
    """A cluster for any client; see the module's head."""
    with _own_warnings():
        from floodmark.harness.commands.pytest_support import cluster_up

    with ExitStack() as clusters:

        def up(**words: Any) -> "ClusterUp":
            folder = _next_folder(floodmark_out, request.node.nodeid)
            return clusters.enter_context(cluster_up(folder, words))

        yield up


@pytest.fixture
def floodmark_nemesis() -> "Callable[..., AbstractContextManager[Sequence[str]]]":
    """Strikes a cluster while a test works with it; see the module's head."""
    with _own_warnings():
        from floodmark.harness.commands.pytest_nemesis import striking

    return lambda cluster, **words: striking(cluster, words)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of a test that failed, the reports of its runs."""
    report = yield
    if report.failed and report.when == "call":
        report.sections += [(f"floodmark: {run.folder}", run.report) for run in item.stash.get(_RUNS, [])]
    return report


@contextmanager
def _own_warnings() -> Iterator[None]:
    """What the libraries that floodmark stands on warn of is no matter of the test's, which may take every
    warning for an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _next_folder(parent: Path, test: str) -> Path:
    """One that is not there, called for the test."""
    parent.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "-", test)[-NAME_CHARS:].strip("-")
    number = 1
    while (folder := parent / f"{name}-{number}").exists():
        number += 1
    return folder
