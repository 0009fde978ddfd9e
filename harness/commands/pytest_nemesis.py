"""Applies faults to a test's cluster, by the clock, and mends it at the end.

Rules
1. The schedule is the one that `floodmark run` makes for these nemeses and this seed.
2. At the end, for whatever reason, everything is mended and every replica is in the ISR again; else the test
   fails.
3. A broker that died by itself, a fault that could not be applied, and a moment that did not come fail the
   test: nothing strikes after it.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

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
    nemesis = Nemesis(cluster=cluster, entries=entries({
        "seed": SEED, "interval": 1.0, **keywords, "nemesis": names, "duration": AT_MOST_S,
        "nodes": len(cluster.state()["nodes"])}))
    thread = threading.Thread(target=nemesis.strike, daemon=True)
    thread.start()
    try:
        yield nemesis.struck
    finally:
        nemesis.stop_event.set()
        thread.join()
        mend(cluster)
    if nemesis.failure is not None:
        raise nemesis.failure


@dataclass(slots=True, kw_only=True)
class Nemesis:
    """Carries out entries with moments `time` and `state` (healthy), one after the other."""

    cluster: ClusterUp
    entries: Sequence[Mapping[str, Any]]
    stop_event: threading.Event = field(default_factory=threading.Event)
    struck: list[str] = field(default_factory=list)
    failure: Exception | None = None

    def strike(self) -> None:
        began_s = done_s = time.monotonic()
        try:
            for entry in self.entries:
                if not self._reached(entry.get("moment", {}), began_s, done_s):
                    return
                if entry["f"] != "wait":
                    self.cluster.carry_out(entry)
                    label = " ".join((entry["f"], *entry.get("nodes", ())))
                    self.struck.append(f"{time.monotonic() - began_s:.3f} s {label}")
                done_s = time.monotonic()
        except Exception as error:  # raised in the test's own thread, which must not pass without faults
            self.failure = error

    def _reached(self, moment: Mapping[str, Any], began_s: float, done_s: float) -> bool:
        """Waits for the moment; False if it was stopped before. FloodmarkError if it does not come."""
        if moment.get("at") == "state":
            if await_healthy(self.cluster, self.stop_event):
                return True
            if not self.stop_event.is_set():
                raise FloodmarkError(f"the nemesis stopped after {len(self.struck)} strikes: the cluster was "
                                     f"not healthy within {HEALTHY_WITHIN_S:g} s, which the next one needs")
            return False
        due_s = max(began_s + moment.get("time", 0) / 1e9, done_s + moment.get("after_ns", 0) / 1e9)
        return not self.stop_event.wait(max(0.0, due_s - time.monotonic()))


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
    if not await_healthy(cluster, threading.Event()):
        raise FloodmarkError(f"not every replica was in the ISR again within {HEALTHY_WITHIN_S:g} s: "
                             f"{cluster.state()['partitions']}")


def await_healthy(cluster: ClusterUp, stop_event: threading.Event) -> bool:
    """Waits until the cluster is healthy; False if it was stopped or took longer than HEALTHY_WITHIN_S."""
    until_s = time.monotonic() + HEALTHY_WITHIN_S
    while time.monotonic() < until_s:
        with suppress(FloodmarkError):  # nobody answered
            if is_healthy(cluster.state()):
                return True
        if stop_event.wait(LOOK_EVERY_S):
            return False
    return False


def is_healthy(state: State) -> bool:
    nodes = set(state["nodes"])
    return nodes == set(state["running"]) == set(state["unfenced"]) and all(
        one["truth"] is not None and set(one["truth"]["isr"]) == set(one["replicas"])
        for one in state["partitions"])
