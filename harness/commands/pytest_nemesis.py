"""Applies faults to a test's cluster, and mends it at the end.

Rules
1. The schedule is the one that `floodmark run` makes for these nemeses and this seed; the cluster's process
   carries it out (served_nemesis.py).
2. At the end, for whatever reason, everything is mended and every replica is in the ISR again; else the test
   fails.
3. A broker that died by itself, a fault that could not be applied, and a moment that did not come fail the
   test: nothing strikes after it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, overload

from floodmark.harness import catalog
from floodmark.harness.commands.pytest_support import SEED, ClusterUp, Keywords, entries, refuse_unknown
from floodmark.harness.errors import FloodmarkError, UsageError

NEMESES = ("crash", "restart", "pause", "cut", "power", "expire")
NEMESIS_KEYWORDS = ("nemesis", "interval", "seed")
AT_MOST_S = 3600.0  # of faults
HEALTHY_WITHIN_S = 60.0
LOOK_EVERY_S = 0.05
State = Mapping[str, Any]


@contextmanager
def striking(cluster: ClusterUp, keywords: Keywords) -> Iterator[Sequence[str]]:
    """A context in which faults strike; yields the list of those that struck so far, a line each."""
    refuse_unknown("floodmark_nemesis", keywords, NEMESIS_KEYWORDS)
    names = keywords.get("nemesis", "crash")
    names = names if isinstance(names, str) else ",".join(names)
    for name in catalog.named(names):
        if name not in NEMESES:
            raise UsageError(f"floodmark_nemesis has no {name!r}; it has: {', '.join(NEMESES)}")
    schedule = entries({"seed": SEED, "interval": 1.0, **keywords, "nemesis": names, "duration": AT_MOST_S,
                        "nodes": len(cluster.state()["nodes"])})
    cluster.ask("nemesis", schedule={"entries": schedule})
    try:
        yield StruckSoFar(cluster)
    finally:
        failure = cluster.ask("end_nemesis")["failure"]
        mend(cluster)
    if failure is not None:
        raise FloodmarkError(failure)


@dataclass(frozen=True, slots=True)
class StruckSoFar(Sequence[str]):
    """The strikes so far, a line each; the cluster's process knows them."""

    cluster: ClusterUp

    def __len__(self) -> int:
        return len(self._now())

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._now()[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __repr__(self) -> str:
        return repr(self._now())

    def _now(self) -> list[str]:
        struck: list[str] = self.cluster.ask("struck")["struck"]
        return struck


def mend(cluster: ClusterUp) -> None:
    """Mends; returns when every broker is up and every replica in the ISR, else FloodmarkError."""
    state = cluster.state()
    if state["cuts"]:
        cluster.heal()
    cluster.resume(*state["paused"])
    if state["died"]:
        raise FloodmarkError(f"{', '.join(state['died'])} died without a fault: its log is in "
                             f"{cluster.folder / 'work'}")
    cluster.start(*(node for node in state["nodes"] if node not in state["running"]))
    if not await_healthy(cluster):
        raise FloodmarkError(f"not every replica was in the ISR again within {HEALTHY_WITHIN_S:g} s: "
                             f"{cluster.state()['partitions']}")


def await_healthy(cluster: ClusterUp) -> bool:
    """Waits until the cluster is healthy; False if that took longer than HEALTHY_WITHIN_S."""
    until_s = time.monotonic() + HEALTHY_WITHIN_S
    while time.monotonic() < until_s:
        with suppress(FloodmarkError):  # nobody answered
            if is_healthy(cluster.state()):
                return True
        time.sleep(LOOK_EVERY_S)
    return False


def is_healthy(state: State) -> bool:
    nodes = set(state["nodes"])
    return nodes == set(state["running"]) == set(state["unfenced"]) and all(
        one["truth"] is not None and set(one["truth"]["isr"]) == set(one["replicas"])
        for one in state["partitions"])
