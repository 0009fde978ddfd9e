"""Strikes a cluster that is up beside a test's own client, by the clock, and mends it at the end.

Rules
1. What strikes, and when, is the schedule that `floodmark run` would have for these nemeses and this seed.
2. At the end, however it comes, everything is mended and every replica is in the ISR again, or the test
   fails.
3. A broker that died by itself, and a fault that could not be made, fail the test.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from floodmark.harness import catalog
from floodmark.harness.commands.pytest_support import SEED, ClusterUp, Words, entries, refuse_unknown
from floodmark.harness.errors import FloodmarkError, UsageError

NEMESES = ("crash", "restart", "pause", "cut", "power", "expire")
NEMESIS_WORDS = ("nemesis", "interval", "seed")
AT_MOST_S = 3600.0  # of strikes
HEALTHY_WITHIN_S = 60.0
LOOK_EVERY_S = 0.05
State = Mapping[str, Any]


@contextmanager
def striking(cluster: ClusterUp, words: Words) -> Iterator[Sequence[str]]:
    """Meanwhile faults strike; gives what has struck up to now, a line each."""
    refuse_unknown("floodmark_nemesis", words, NEMESIS_WORDS)
    names = words.get("nemesis", "crash")
    names = names if isinstance(names, str) else ",".join(names)
    for name in catalog.named(names):
        if name not in NEMESES:
            raise UsageError(f"floodmark_nemesis has no {name!r}; it has: {', '.join(NEMESES)}")
    nemesis = Nemesis(cluster=cluster, entries=entries({
        "seed": SEED, "interval": 1.0, **words, "nemesis": names, "duration": AT_MOST_S,
        "nodes": len(cluster.state()["nodes"])}))
    thread = threading.Thread(target=nemesis.strike, daemon=True)
    thread.start()
    try:
        yield nemesis.struck
    finally:
        nemesis.enough.set()
        thread.join()
        mend(cluster)
    if nemesis.failure is not None:
        raise nemesis.failure


@dataclass(slots=True, kw_only=True)
class Nemesis:
    """Carries out entries of moments `time` and `state` (healthy), one after the other."""

    cluster: ClusterUp
    entries: Sequence[Mapping[str, Any]]
    enough: threading.Event = field(default_factory=threading.Event)
    struck: list[str] = field(default_factory=list)
    failure: FloodmarkError | None = None

    def strike(self) -> None:
        began_s = time.monotonic()
        try:
            for entry in self.entries:
                if not self._reached(entry.get("moment", {}), began_s):
                    return
                self._carry_out(entry)
                if entry["f"] != "wait":
                    what = " ".join((entry["f"], *entry.get("nodes", ())))
                    self.struck.append(f"{time.monotonic() - began_s:.3f} s {what}")
        except FloodmarkError as error:
            self.failure = error

    def _reached(self, moment: Mapping[str, Any], began_s: float) -> bool:
        """Once it has come; False where it was enough before."""
        if moment.get("at") == "state":
            return await_healthy(self.cluster, self.enough)
        left_s = began_s + moment.get("time", 0) / 1e9 - time.monotonic()
        return not self.enough.wait(max(0.0, left_s))

    def _carry_out(self, entry: Mapping[str, Any]) -> None:
        f = entry["f"]
        if f == "cut":
            self.cluster.cut_by(entry["grudge"])
        elif f == "heal":
            self.cluster.heal()
        elif f != "wait":
            self.cluster.strike(f, *entry["nodes"])


def mend(cluster: ClusterUp) -> None:
    """Returns when every broker is up and every replica in the ISR; FloodmarkError where that does not come.
    """
    state = cluster.state()
    if state["cuts"]:
        cluster.heal()
    cluster.resume(*state["paused"])
    if state["died"]:
        raise FloodmarkError(f"{', '.join(state['died'])} died without being struck: its log is in "
                             f"{cluster.folder / 'work'}")
    cluster.start(*(node for node in state["nodes"] if node not in state["running"]))
    if not await_healthy(cluster, threading.Event()):
        raise FloodmarkError(f"not every replica was in the ISR again within {HEALTHY_WITHIN_S:g} s: "
                             f"{cluster.state()['partitions']}")


def await_healthy(cluster: ClusterUp, enough: threading.Event) -> bool:
    """False: it was enough before, or it took longer than HEALTHY_WITHIN_S."""
    until_s = time.monotonic() + HEALTHY_WITHIN_S
    while time.monotonic() < until_s:
        with suppress(FloodmarkError):  # of a look that nobody answered
            if is_healthy(cluster.state()):
                return True
        if enough.wait(LOOK_EVERY_S):
            return False
    return False


def is_healthy(state: State) -> bool:
    nodes = set(state["nodes"])
    return nodes == set(state["running"]) == set(state["unfenced"]) and all(
        one["truth"] is not None and set(one["truth"]["isr"]) == set(one["replicas"])
        for one in state["partitions"])
