"""Options of the whole test suite, and its last words."""

import asyncio
import functools
import inspect
import os

import pytest
from hypothesis import settings

os.environ.setdefault("FLOODMARK_NO_CLASS_ARCHIVE", "1")  # no test leaves a process that works on behind it

pytest.register_assert_rewrite("golden_text")  # a difference is shown

# How long one example takes is decided by what else the machine does: no example fails by the clock.
settings.register_profile("floodmark", deadline=None)
settings.load_profile("floodmark")

# Files that take longest begin first: one that begins last keeps one worker busy alone.
LONGEST = ("test_simulated_scenarios.py", "test_judge_failures.py", "test_every_path.py", "test_corpus.py",
           "test_foreign.py", "test_laws_growth.py", "test_judge_twin.py")

# Kinds of tests that `make test` leaves out, and how to run them.
LEFT_OUT = {
    "docker": "they need a Docker engine that answers: make test-docker",
    "kafka": "they run Apache Kafka, whose jars Maven fetches once: make test-kafka",
    "long": "they take long, and .ci/run runs them: make test-long",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the golden stories as they now come out; then read the diff",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tells which kinds an option has left out; what was skipped, and why, `-ra` tells."""
    for kind, how in LEFT_OUT.items():
        if f"not {kind}" in config.getoption("markexpr", ""):
            terminalreporter.line(f"left out: {kind}: {how}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that need an engine are left out where there is none, with the reason; never where it is promised
    (docker/engine.sh run -- ...), for there its silence is a failure."""
    if item.get_closest_marker("docker") is not None and (why := no_engine()) is not None:
        pytest.skip(f"no Docker engine: {why}")


@functools.cache
def no_engine() -> str | None:
    """Why there is none; None: there is, or should be."""
    why = os.environ.get("FLOODMARK_NO_ENGINE")
    if why or os.environ.get("FLOODMARK_ENGINE"):
        return why or None
    from floodmark.harness.cluster.containers import engine_client
    from floodmark.harness.errors import FloodmarkError

    try:
        engine_client.connect().close()
    except FloodmarkError as error:
        return str(error)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine is played by its stage, or runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    play = next((one.play for one in given.values() if hasattr(one, "play")), asyncio.run)
    play(pyfuncitem.obj(**given))
    return True
