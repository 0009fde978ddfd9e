"""Draws the schedule of random nemeses from a seed.

Rules
1. The same arguments give the same schedule: chance is Random(seed), and choices are from sorted sequences.
2. Without `overspend` a plan stays within the budget (nemesis/budget.py).
3. Episodes may overlap, but not all nodes are down or paused together, except alone and for a moment; and
   after HARRIED_S of harm there is calm.
4. What a plan breaks is mended by duration_s, if the cluster keeps pace. When it does not, entries come late
   and in order, no closer than half of what was planned: harm is never squeezed into nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any

from floodmark.harness.errors import UsageError
from floodmark.harness.schedule.entry import MOMENT_TIMEOUT_S, Entry, Schedule
from floodmark.harness.schedule.patterns import DrawPattern, FaultPattern, PatternScope, Step
from floodmark.nemesis.fault_patterns import (
    HEALTHY,
    HEALTHY_TIMEOUT_S,
    MAKERS,
)

HARRIED_S = 8.0  # harm without a pause for at most so long
CALM_S = 2.5
FIRST_S = 1.0
LAST_S = 1.0  # before the end, with everything mended
LEAST_GAP_S = 0.3


def known_nemeses(names: Iterable[str], makers: Mapping[str, DrawPattern] = MAKERS) -> tuple[str, ...]:
    """The nemeses named, each once, in their own order. UsageError for a name that is none."""
    wanted = set(names)
    strange = sorted(wanted - set(makers))
    if strange:
        raise UsageError(f"no nemesis {', '.join(strange)}; valid: {', '.join(makers)}")
    return tuple(name for name in makers if name in wanted)


def plan(names: Iterable[str], *, seed: int, nodes: Sequence[str], partitions: Sequence[int],
         duration_s: float, interval_s: float, overspend: bool = False,
         registered: Mapping[str, DrawPattern] = MappingProxyType({})) -> Schedule:
    """What these nemeses do to these nodes in so long, at a mean of interval_s from strike to strike.

    registered: the nemeses of other distributions that are among the names."""
    makers = {**MAKERS, **registered}
    chosen = known_nemeses(names, makers)
    if interval_s <= 0:
        raise UsageError(f"the interval is {interval_s:g} s, should be more than 0")
    if not chosen or not nodes:
        return ()
    random = Random(seed)
    placed = _Placed(tuple(sorted(nodes)), tuple(sorted(partitions)), overspend, makers)
    at_s = FIRST_S + random.random()
    while True:
        began_s = placed.place(random.choice(chosen), at_s, random, until_s=duration_s - LAST_S)
        if began_s is None:
            return _entries(placed.episodes)
        at_s = began_s + max(LEAST_GAP_S, min(random.expovariate(1 / interval_s), 3 * interval_s))


class _Placed:
    """The episodes so far, and until when each node is disturbed."""

    def __init__(self, nodes: tuple[str, ...], partitions: tuple[int, ...], overspend: bool,
                 makers: Mapping[str, DrawPattern]) -> None:
        self.episodes: list[tuple[float, FaultPattern]] = []
        self._nodes = nodes
        self._partitions = partitions
        self._overspend = overspend
        self._makers = makers
        self._busy_until_s = dict.fromkeys(nodes, 0.0)
        self._cut_until_s = 0.0
        self._end_s = 0.0  # of all so far
        self._alone_until_s = 0.0
        self._harried_since_s = 0.0

    def place(self, name: str, at_s: float, random: Random, *, until_s: float) -> float | None:
        """Draws an episode and puts it where it fits, at at_s or after. None: it would end after until_s."""
        at_s = max(at_s, self._alone_until_s, self._calm_after(at_s))
        if name in ("cut", "packet") or name not in MAKERS:  # a heal heals all of both: one at a time
            at_s = max(at_s, self._cut_until_s)
        at_s = max(at_s, sorted(self._busy_until_s.values())[min(1, len(self._nodes) - 1)])
        free = tuple(node for node in self._nodes if self._busy_until_s[node] <= at_s)
        episode = self._makers[name](PatternScope(
            random=random, nodes=self._nodes, free=free, partitions=self._partitions,
            overspend=self._overspend))
        if episode.alone:
            at_s = max(at_s, self._end_s + LEAST_GAP_S)
        end_s = at_s + episode.length_s
        if end_s > until_s:
            return None
        if at_s > self._end_s:
            self._harried_since_s = at_s
        self.episodes.append((at_s, episode))
        self._busy_until_s |= {node: max(end_s, self._busy_until_s[node]) for node in episode.touches}
        self._end_s = max(self._end_s, end_s)
        self._cut_until_s = end_s if episode.cuts else self._cut_until_s
        self._alone_until_s = end_s + LEAST_GAP_S if episode.alone else self._alone_until_s
        return at_s

    def _calm_after(self, at_s: float) -> float:
        """When the next strike may come, harm having gone on without a pause up to at_s."""
        harried = at_s <= self._end_s and at_s - self._harried_since_s > HARRIED_S
        return self._end_s + CALM_S if harried else at_s


def _entries(episodes: Sequence[tuple[float, FaultPattern]]) -> Schedule:
    """All steps in the order of their times. Steps of one episode keep theirs, for sorting is stable."""
    steps = [(began_s + step.at_s, step) for began_s, episode in episodes for step in episode.steps]
    steps.sort(key=lambda timed: timed[0])
    entries = []
    before_s = 0.0
    for at_s, step in steps:
        entries.append(_entry(step, at_s, gap_s=at_s - before_s))
        before_s = at_s
    return tuple(entries)


def _entry(step: Step, at_s: float, *, gap_s: float) -> Entry:
    moment: dict[str, Any] = HEALTHY if step.healthy else {
        "at": "time", "time": _ns(at_s), "after_ns": _ns(gap_s / 2)}
    return Entry(f=step.f, nodes=step.nodes, moment=moment, args=step.args,
                 timeout_s=HEALTHY_TIMEOUT_S if step.healthy else MOMENT_TIMEOUT_S)


def _ns(time_s: float) -> int:
    return round(time_s * 1000) * 1_000_000
