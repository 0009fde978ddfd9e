"""The last words of a test run: which kinds of tests were left out, why, and how to have them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

# Kind (a marker of setup.cfg) -> how to have it; the first that a test bears names it.
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
NAMED = frozenset({"kafka"})  # kinds whose modules are named
OUTPUT = "left out"
Counts = dict[str, dict[str, int]]  # kind -> module -> tests of it
_deselected = pytest.StashKey[Counts]()


def kind_of(words: Iterable[str]) -> str:
    """The kind of a test that bears these markers."""
    borne = set(words)
    return next((kind for kind in KINDS if kind in borne), OTHERS)


def lines(deselected: Mapping[str, Mapping[str, int]], skipped: Sequence[tuple[str, str]], why: str
          ) -> list[str]:
    """One line a kind that was deselected (kind -> module -> tests), one a reason for skipping (kind,
    reason)."""
    told = [
        f"{kind}: {sum(modules.values())} not selected ({why}); "
        f"{KINDS.get(kind, 'leave that out to have them')}"
        + (f" ({', '.join(f'{module} {number}' for module, number in sorted(modules.items()))})"
           if kind in NAMED else "")
        for kind, modules in sorted(deselected.items())
    ]
    told += [f"{kind}: {number} skipped: {reason}"
             for (kind, reason), number in sorted(Counter(skipped).items())]
    return told or ["nothing"]


def selection(config: pytest.Config) -> str:
    """What selected the tests, as it was typed."""
    options = (("-m", config.getoption("markexpr", "")), ("-k", config.getoption("keyword", "")))
    return " ".join(f"{option} {words!r}" for option, words in options if words) or "by hand"


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """pytest's hook: counts the kinds of what was not selected."""
    for item in items:
        modules = item.config.stash.setdefault(_deselected, {}).setdefault(
            kind_of(mark.name for mark in item.iter_markers()), {})
        modules[item.path.stem] = modules.get(item.path.stem, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """pytest's hook: one of several processes tells the first of them, which selects nothing itself."""
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told[OUTPUT] = session.config.stash.get(_deselected, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """xdist's hook: every process has selected from the same tests."""
    if told := getattr(node, "workeroutput", {}).get(OUTPUT):  # nothing of one that crashed
        node.config.stash[_deselected] = told


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """pytest's hook: the section at the end."""
    skipped = [
        (kind_of(report.keywords), str(report.longrepr[2]).removeprefix("Skipped: "))
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    ]
    terminalreporter.section("left out")
    for line in lines(config.stash.get(_deselected, {}), skipped, selection(config)):
        terminalreporter.line(line)
