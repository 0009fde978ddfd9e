"""Prints at the end of a test run which kinds of tests were left out, why, and how to run them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

# Kind (a marker of setup.cfg) -> how to run it; a test with several kinds counts for the first of them.
KINDS: Mapping[str, str] = {
    "docker": "they need a Docker engine that answers: pytest -m docker",
    "kafka": "they run Apache Kafka, whose jars Maven fetches once: make test-kafka",
    "long": "they take long, and .ci/run runs them: make test-long",
    "kcat": "they need kcat: apt-get install kcat",
    "java": "they need a JDK and Maven: apt-get install default-jdk-headless maven",
    "browser": "they open pages in Debian's chromium: apt-get install chromium",
    "spark": "they need Java 17 or newer: pytest -m spark",
    "cluster": "they start brokers on loopback: pytest -m cluster",
}
OTHERS = "other"
NAMED = frozenset({"kafka"})  # kinds whose modules are listed
OUTPUT = "left out"
Counts = dict[str, dict[str, int]]  # kind -> module -> tests of it
_deselected = pytest.StashKey[Counts]()


def kind_of(words: Iterable[str]) -> str:
    """The kind of a test with these markers."""
    markers = set(words)
    return next((kind for kind in KINDS if kind in markers), OTHERS)


def lines(deselected: Mapping[str, Mapping[str, int]], skipped: Sequence[tuple[str, str]], why: str
          ) -> list[str]:
    """One line for each kind that was deselected (kind -> module -> tests), one for each reason for a skip
    (kind, reason)."""
    rows = [
        f"{kind}: {sum(modules.values())} not selected ({why}); "
        f"{KINDS.get(kind, 'run without that option')}"
        + (f" ({', '.join(f'{module} {number}' for module, number in sorted(modules.items()))})"
           if kind in NAMED else "")
        for kind, modules in sorted(deselected.items())
    ]
    rows += [f"{kind}: {number} skipped: {reason}"
             for (kind, reason), number in sorted(Counter(skipped).items())]
    return rows or ["nothing"]


def selection(config: pytest.Config) -> str:
    """The options that selected the tests, as typed."""
    options = (("-m", config.getoption("markexpr", "")), ("-k", config.getoption("keyword", "")))
    return " ".join(f"{option} {words!r}" for option, words in options if words) or "by hand"


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """pytest's hook: counts the kinds of the tests that were not selected."""
    for item in items:
        modules = item.config.stash.setdefault(_deselected, {}).setdefault(
            kind_of(mark.name for mark in item.iter_markers()), {})
        modules[item.path.stem] = modules.get(item.path.stem, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """pytest's hook: a worker process sends its counts to the first process, which selects nothing itself."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output[OUTPUT] = session.config.stash.get(_deselected, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """xdist's hook: keeps one worker's counts, because every worker selects from the same tests."""
    if output := getattr(node, "workeroutput", {}).get(OUTPUT):  # a worker that crashed has sent nothing
        node.config.stash[_deselected] = output


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """pytest's hook: writes the section at the end."""
    skipped = [
        (kind_of(report.keywords), str(report.longrepr[2]).removeprefix("Skipped: "))
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    ]
    terminalreporter.section("left out")
    for line in lines(config.stash.get(_deselected, {}), skipped, selection(config)):
        terminalreporter.line(line)
