"""Draws the schedule of random nemeses from a seed.

Rules
1. The same arguments give the same schedule: chance is Random(seed), and choices are from sorted sequences.
2. Without `overspend` a plan stays within the budget (nemesis/budget.py).
3. Episodes may overlap, but not all nodes are down or paused together, except alone and for a moment; and
   after HARRIED_S of harm there is calm. The rhythm is drawn too: storms, lulls, one long fault.
4. What a plan breaks is mended by duration_s, if the cluster keeps pace. When it does not, entries come late
   and in order, no closer than half of what was planned: harm is never squeezed into nothing.
5. What is asked of the controller (expire, elect) is not asked while an episode has it away.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import Any

from floodmark.harness.errors import UsageError
from floodmark.harness.protocols import CONTROLLER
from floodmark.harness.schedule.entry import MOMENT_TIMEOUT_S, Entry, Schedule
from floodmark.harness.schedule.patterns import (
    LEAST_S,
    LONGEST_S,
    SESSION_S,
    DrawPattern,
    FaultPattern,
    PatternScope,
    Step,
)
from floodmark.nemesis.fault_mixtures import MIXTURES, STILL_S
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
MISFITS = 20  # so many episodes in all are drawn that would end too late; then the plan is full
START_TAKES_S = 0.6  # entries are carried out one after the other: starts hold up what follows
_ASK_CONTROLLER = frozenset({"expire", "elect"})


def known_nemeses(names: Iterable[str], makers: Mapping[str, DrawPattern] = MAKERS) -> tuple[str, ...]:
    """The nemeses named, each once, in their own order. UsageError for a name that is none."""
    wanted = set(names)
    strange = sorted(wanted - set(makers))
    if strange:
        raise UsageError(f"no nemesis {', '.join(strange)}; valid: {', '.join(makers)}")
    return tuple(name for name in makers if name in wanted)


def plan(names: Iterable[str], *, seed: int, nodes: Sequence[str], partitions: Sequence[int],
         duration_s: float, interval_s: float, overspend: bool = False, session_s: float = SESSION_S,
         links_cut: bool = True, flush_every: bool = False,
         registered: Mapping[str, DrawPattern] = MappingProxyType({})) -> Schedule:
    """What these nemeses do to these nodes in so long, at a mean of interval_s from strike to strike in a
    steady rhythm.

    session_s: after such a silence the controller fences a broker. links_cut: whether links can be cut, which
    some may that were not asked for as `cut`. flush_every: every write is fsynced. registered: the nemeses of
    other distributions that are among the names."""
    makers = {**MAKERS, **registered}
    chosen = known_nemeses(names, makers)
    if interval_s <= 0:
        raise UsageError(f"the interval is {interval_s:g} s, should be more than 0")
    if not chosen or not nodes:
        return ()
    random = Random(seed)
    draws = [(name, makers[name]) for name in chosen]
    # Moments have the most to choose from; a power cut waits for calm, and would be squeezed out.
    draws += 2 * [(name, draw) for name, draw in draws if name in ("moments", "power")]
    draws += ((name, mixture.draw) for name, mixture in MIXTURES.items() if mixture.needs <= {*chosen})
    scope = PatternScope(random=random, nodes=tuple(sorted(nodes)), free=(),
                         partitions=tuple(sorted(partitions)), overspend=overspend, session_s=session_s,
                         links_cut=links_cut, flush_every=flush_every)
    placed = _Placed(scope, until_s=duration_s - LAST_S)
    rhythms = _Rhythms(random)
    at_s = FIRST_S + random.random()
    misfits = 0
    while at_s < duration_s and misfits < MISFITS:
        at_s, rhythm = rhythms.at(at_s)
        name, draw = random.choice(draws)
        began_s = placed.place(draw, at_s, rhythm, foreign=name in registered)
        if began_s is None:
            misfits += 1
            rhythms.end()
            continue
        rhythms.struck()
        gap_s = rhythm.gap * interval_s
        at_s = began_s + max(LEAST_GAP_S, min(random.expovariate(1 / gap_s), 3 * gap_s))
    return _entries(placed.episodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How faults follow one another for a while."""

    gap: float  # from strike to strike, as a share of the interval; 0: nothing strikes
    lasts_s: tuple[float, float]  # at least and at most
    least_s: float = LEAST_S  # of a fault
    longest_s: float = LONGEST_S
    strikes: int | None = None  # then the next rhythm begins; None: any number


RHYTHMS = (  # each as often as it stands here
    Rhythm(gap=1.0, lasts_s=(6.0, 14.0)),
    Rhythm(gap=1.0, lasts_s=(6.0, 14.0)),
    Rhythm(gap=0.2, lasts_s=(5.0, 9.0), least_s=0.1, longest_s=1.2),  # a storm
    Rhythm(gap=0.2, lasts_s=(5.0, 9.0), least_s=0.1, longest_s=3.0),
    Rhythm(gap=0.0, lasts_s=(2.0, 4.0)),  # a lull
    Rhythm(gap=1.0, lasts_s=(6.0, 10.0), least_s=5.0, longest_s=8.0, strikes=1),  # one long fault
)


class _Rhythms:
    """The rhythm at each time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = RHYTHMS[0]  # a short run has time for no other
        self._until_s = random.uniform(*self._now.lasts_s)
        self._strikes_left: int | None = None

    def at(self, time_s: float) -> tuple[float, Rhythm]:
        """The rhythm then, or when the lull is over."""
        while time_s >= self._until_s or self._strikes_left == 0 or not self._now.gap:
            if not self._now.gap:
                time_s = max(time_s, self._until_s)
            self._now = self._random.choice(RHYTHMS)
            self._until_s = time_s + self._random.uniform(*self._now.lasts_s)
            self._strikes_left = self._now.strikes
        return time_s, self._now

    def end(self) -> None:
        """What it would have struck takes too long: the next one begins."""
        self._strikes_left = 0

    def struck(self) -> None:
        if self._strikes_left is not None:
            self._strikes_left -= 1


class _Placed:
    """The episodes so far, and until when each node is disturbed, and what only one episode at a time may
    have: the links (a heal heals all), the controller, the failpoints."""

    def __init__(self, scope: PatternScope, *, until_s: float) -> None:
        self.episodes: list[tuple[float, FaultPattern]] = []
        self._scope = scope
        self._until_s = until_s
        self._busy_until_s = dict.fromkeys(scope.nodes, 0.0)
        self._taken_until_s = dict.fromkeys(_SHARED, 0.0)
        self._end_s = 0.0  # of all so far
        self._alone_until_s = 0.0
        self._harried_since_s = 0.0

    def place(self, draw: DrawPattern, at_s: float, rhythm: Rhythm, *, foreign: bool) -> float | None:
        """Draws an episode and puts it where it fits, at at_s or after. None: it would end too late.
        foreign: of another distribution, which may do anything to the links."""
        at_s = max(at_s, self._alone_until_s, self._calm_after(at_s))
        at_s = max(at_s, sorted(self._busy_until_s.values())[min(1, len(self._busy_until_s) - 1)])
        free = tuple(node for node in self._scope.nodes if self._busy_until_s[node] <= at_s)
        episode = draw(replace(self._scope, free=free, least_s=rhythm.least_s, longest_s=rhythm.longest_s))
        if episode.alone:
            at_s = max(at_s, self._end_s + LEAST_GAP_S)
        takes = {*_SHARED} if foreign else _shared(episode)
        at_s = max(at_s, *(self._taken_until_s[one] for one in sorted(takes)), 0.0)
        starts = sum(step.f == "start" for step in episode.steps)
        end_s = at_s + episode.length_s + START_TAKES_S * (starts - 1 if starts else 0)
        if end_s > self._until_s:
            return None
        if at_s > self._end_s:
            self._harried_since_s = at_s
        self.episodes.append((at_s, episode))
        self._busy_until_s |= {node: max(end_s, until_s) for node, until_s in self._busy_until_s.items()
                               if node in episode.touches}
        self._taken_until_s |= dict.fromkeys(takes, end_s + STILL_S)
        self._end_s = max(self._end_s, end_s)
        self._alone_until_s = end_s + LEAST_GAP_S if episode.alone else self._alone_until_s
        return at_s

    def _calm_after(self, at_s: float) -> float:
        """When the next strike may come, harm having gone on without a pause up to at_s."""
        harried = at_s <= self._end_s and at_s - self._harried_since_s > HARRIED_S
        return self._end_s + CALM_S if harried else at_s


_SHARED = ("links", "controller", "failpoints")


def _shared(episode: FaultPattern) -> set[str]:
    """Of these, what it needs to itself: expiries and elections are asked of the controller, which must
    not be away then."""
    taken = set()
    for step in episode.steps:
        if step.f == "heal":
            taken.add("links")
        if CONTROLLER in step.nodes or step.f in _ASK_CONTROLLER:
            taken.add("controller")
        if step.f == "release":
            taken.add("failpoints")
    return taken


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
    if step.sooner is not None:
        moment = {"at": "first", "of": [step.sooner, moment]}
    return Entry(f=step.f, nodes=step.nodes, moment=moment, args=step.args,
                 timeout_s=HEALTHY_TIMEOUT_S if step.healthy else MOMENT_TIMEOUT_S)


def _ns(time_s: float) -> int:
    return round(time_s * 1000) * 1_000_000
