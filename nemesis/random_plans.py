"""Draws the schedule of random nemeses from a seed; and finds the entries of any schedule that do more harm
than Kafka's guarantees tolerate. Pure.

The budget: an acked write survives any number of kills, pauses and cuts, because the kernel keeps what was
written. It survives one lost page cache at a time, if acks rest on at least two copies. So within the budget
1. no election is unclean;
2. a power cut, or a wiped disk, strikes one node, while every broker is up, every ISR full and no fault in
   force (`healthy`), and nothing is armed that could yet strike;
3. after it nothing strikes until the cluster is healthy again, except the start of nodes that are down, and
   cuts of what the struck node alone hears: what others have does not change by that;
4. and neither happens with min.insync.replicas=1; but with flush.messages=1 a power cut loses nothing (a
   wiped disk does). The controller may be killed, paused or cut at any time: it fsyncs its decisions before
   anybody learns of them. A failpoint that is reached kills, pauses, or loses, delays or doubles a message,
   which the budget allows too; only around a loss (2, 3) must nothing be armed. A schedule within the budget
   can have no permitted findings.

Random plans
5. The same arguments give the same schedule: randomness is the scope's, and choices are from sorted
   sequences.
6. Without `overspend` a plan stays within the budget.
7. Patterns may overlap, but steps do not take all nodes down or pause them together, except alone and for a
   moment (crashes that are armed may strike the others meanwhile); and after HARM_S of harm there is a calm
   time. The rhythm is drawn too: storms, lulls, one long fault.
8. A plan mends everything it breaks by duration_s, if the cluster keeps up. If it does not, entries come late
   and in order, with at least half of the planned time between them: the times of harm are never squeezed to
   nothing.
9. Most plans end with a blackout or the like: nothing changes after it, so what it leaves wrong stays wrong.
10. Each nemesis that was asked for strikes once before anything else is drawn, as far as there is time. Then
   no kind of pattern is drawn again before all others were: a run has more kinds so.
11. Requests to the controller (expire, elect) are not sent while a pattern has it down or cut off.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from types import MappingProxyType

from floodmark.harness.faults import FAULTS, MENDING, REPORT, SPARES_FLUSHED, loses
from floodmark.harness.schedule.moments import (
    ACTS,
    HEALTHY,
    MOMENT_TIMEOUT_S,
    Entry,
    FirstOf,
    Moment,
    Schedule,
    Time,
    read_moment,
)
from floodmark.harness.schedule.patterns import (
    LEAST_S,
    LONGEST_S,
    SESSION_S,
    DrawPattern,
    FaultPattern,
    PatternScope,
    Step,
)
from floodmark.harness.schedule.views import CONTROLLER
from floodmark.nemesis.fault_patterns import ENDINGS, HEALTHY_TIMEOUT_S, MAKERS, MIXTURES, STILL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Overspent:
    """One entry that goes beyond the budget, and why."""

    position: int
    why: str


def overspends(schedule: Schedule, *, min_insync_replicas: int = 2,
               flush_every: bool = False) -> tuple[Overspent, ...]:
    """Every entry of the schedule that overspends, in order; a schedule within the budget has none."""
    found: list[Overspent] = []
    lost_at: int | None = None  # the last loss, until the cluster is known to have recovered from it
    armed: dict[str, int] = {}  # node, or role -> its last failpoint, which may strike at any time
    for position, entry in enumerate(schedule):
        if entry.moment is not None and entry.moment.saw_healthy:
            lost_at = None
        if entry.f == "elect" and entry.args.get("unclean"):
            found.append(Overspent(position=position, why="an unclean election may lose acked writes"))
        if entry.f == "release" and not entry.args.get("point"):
            armed = {node: at for node, at in armed.items() if node not in entry.nodes}
        if entry.f in ACTS or entry.f in MENDING:
            continue
        if entry.f == "arm" and entry.args["point"]["action"] == REPORT:  # it harms nobody
            continue
        hearers = {*entry.args.get("grudge", ())} if entry.f == "cut" else set()
        if lost_at is not None and not (hearers and hearers <= {*schedule[lost_at].nodes}):
            found.append(Overspent(position=position, why=(
                f"{entry.f} strikes before the cluster has been seen healthy after entry {lost_at}")))
        if entry.f == "arm":
            armed |= dict.fromkeys(entry.nodes, position)
        if loses(entry.f, entry.args) and not (flush_every and entry.f in SPARES_FLUSHED):
            found += [Overspent(position=position, why=why) for why in _of_a_loss(entry, min_insync_replicas)]
            found += [Overspent(position=position, why=(
                f"the failpoint armed by entry {at} may strike before the loss is recovered"))
                for at in sorted({*armed.values()})]
            lost_at = position
    return tuple(found)


def _of_a_loss(entry: Entry, min_insync_replicas: int) -> list[str]:
    why, fault = [], FAULTS.get(entry.f)
    if len(entry.nodes) != 1 or entry.nodes[0] in ("down", "paused"):
        data = "all their data" if fault is None else fault.loses_what
        why.append(f"{len(entry.nodes)} nodes lose {data} together")
    if min_insync_replicas < 2:
        why.append("an ack may rest on the one copy that loses power (min.insync.replicas is 1)")
    if entry.moment is None or not entry.moment.saw_healthy:
        what = (f"{entry.args['kind']} disk" if fault is not None and fault.kinds
                else entry.f.replace("_", " "))
        why.append(f"a {what} that does not wait for a healthy cluster may take the last copy")
    return why


# -- random plans -------------------------------------------------------------------------------------------

HARM_S = 8.0  # the longest harm without a pause
CALM_S = 2.5
FIRST_S = 1.0
LAST_S = 1.0  # before the end, with everything mended
LEAST_GAP_S = 0.3
MISFITS_MAX = 20  # the plan is full when this many patterns were drawn that would end too late
LAST_SHARE, LAST_FROM_S = 0.7, 15.0  # how many plans have an ending, and how long they are at least
EACH_S = 2.5  # a nemesis needs so long to strike once: a plan without time for all has no ending
START_TAKES_S = 0.6  # entries are carried out one after the other: starts delay the following ones


def plan(names: Iterable[str], scope: PatternScope, *, duration_s: float, interval_s: float,
         registered: Mapping[str, DrawPattern] = MappingProxyType({})) -> Schedule:
    """Draw a schedule of these nemeses in the given time, with a mean of interval_s from strike to strike in
    a steady rhythm. registered: the nemeses of other distributions that are among the names."""
    wanted, random = {*names}, scope.random
    makers = {name: draw for name, draw in {**MAKERS, **registered}.items() if name in wanted}
    assert makers.keys() == wanted, f"unknown: {wanted - makers.keys()}"
    if not makers or not scope.nodes:
        return ()
    # Each is drawn as often as it is listed. Moments have the most variants; a power cut waits until all is
    # quiet, and would be squeezed out.
    draws = [*makers.values(), *2 * [makers[name] for name in makers if name in ("moments", "power")],
             *(draw for draw, needs in MIXTURES.items() if needs <= wanted)]
    scope = replace(scope, nodes=tuple(sorted(scope.nodes)), elects="elect" in wanted)
    until_s = duration_s - LAST_S
    endings = [draw for draw in ENDINGS if MIXTURES[draw] <= wanted]
    last = None
    if duration_s >= max(LAST_FROM_S, EACH_S * len(makers)) and endings and random.random() < LAST_SHARE:
        last = random.choice(endings)(replace(scope, free=scope.nodes))
        until_s -= last.length_s + START_TAKES_S * _count_starts(last) + LEAST_GAP_S
    placed = _Placed(scope, until_s=until_s)
    _fill(placed, draws, draws[:len(makers)], interval_s, {*registered.values()})
    if last is not None:
        placed.patterns.append((until_s + LEAST_GAP_S, last))
    return _entries(placed.patterns)


def _fill(placed: "_Placed", draws: Sequence[DrawPattern], first: Sequence[DrawPattern], interval_s: float,
          registered: Container[DrawPattern]) -> None:
    """Place each of `first` once, then patterns of `draws`, until the time is over."""
    random, until_s = placed.scope.random, placed.until_s
    rhythms = _Rhythms(random)
    asked = random.sample(first, len(first))
    left: list[DrawPattern] = []
    at_s = FIRST_S + random.random()
    misfits = 0
    while at_s < until_s and misfits < MISFITS_MAX:
        at_s, rhythm = rhythms.at(at_s)
        if asked:
            rhythm = rhythm.within(max(LEAST_GAP_S, until_s - at_s) / len(asked), interval_s)
        elif not left:
            left = random.sample(draws, len(draws))
        queue = asked or left
        draw = queue.pop()
        began_s = placed.place(draw, at_s, rhythm, foreign=draw in registered)
        if began_s is None:
            misfits += 1
            rhythms.end()
            if queue is asked and misfits <= MISFITS_MAX // 2:
                asked.insert(0, draw)
            continue
        rhythms.struck()
        gap_s = rhythm.gap * interval_s
        at_s = began_s + max(LEAST_GAP_S, min(random.expovariate(1 / gap_s), 3 * gap_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How faults follow one another for a while."""

    gap: float  # from strike to strike, as a share of the interval; 0: nothing strikes
    lasts_s: tuple[float, float]  # at least and at most
    least_s: float = LEAST_S  # of a fault
    longest_s: float = LONGEST_S
    strikes: float = inf  # then the next rhythm begins

    def within(self, share_s: float, interval_s: float) -> "Rhythm":
        """A rhythm in which a strike and the gap after it take about share_s at most."""
        return replace(self, gap=min(self.gap, share_s / 6 / interval_s),
                       least_s=min(self.least_s, share_s / 2), longest_s=min(self.longest_s, share_s))


RHYTHMS = (  # each is drawn as often as it is listed here
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
        self._strikes_left = inf

    def at(self, time_s: float) -> tuple[float, Rhythm]:
        """(the time, its rhythm); during a lull the time at its end."""
        while time_s >= self._until_s or self._strikes_left == 0 or not self._now.gap:
            if not self._now.gap:
                time_s = max(time_s, self._until_s)
            self._now = self._random.choice(RHYTHMS)
            self._until_s = time_s + self._random.uniform(*self._now.lasts_s)
            self._strikes_left = self._now.strikes
        return time_s, self._now

    def end(self) -> None:
        """End this rhythm, because its pattern would take too long."""
        self._strikes_left = 0

    def struck(self) -> None:
        self._strikes_left -= 1


class _Placed:
    """The patterns so far, until when each node is disturbed, and until when one pattern has the things that
    only one at a time may use: the links (a heal heals all), the controller, the failpoints."""

    def __init__(self, scope: PatternScope, *, until_s: float) -> None:
        self.patterns: list[tuple[float, FaultPattern]] = []
        self.scope = scope
        self.until_s = until_s
        self._pace = min(1.0, scope.session_s / SESSION_S)  # rhythms are made for sessions of SESSION_S
        self._busy_until_s = dict.fromkeys(scope.nodes, 0.0)
        self._taken_until_s = dict.fromkeys(_SHARED, 0.0)
        self._end_s = 0.0  # of all so far
        self._alone_until_s = 0.0
        self._harm_since_s = 0.0

    def place(self, draw: DrawPattern, at_s: float, rhythm: Rhythm, *, foreign: bool) -> float | None:
        """Draw a pattern and place it where it fits, at at_s or later. None: it would end too late. foreign:
        it is another distribution's, which may do anything to the links."""
        # If there was harm without a pause up to now, a calm time comes first.
        harmed = at_s <= self._end_s and at_s - self._harm_since_s > HARM_S
        at_s = max(at_s, self._alone_until_s, self._end_s + CALM_S if harmed else 0.0)
        at_s = max(at_s, sorted(self._busy_until_s.values())[min(1, len(self._busy_until_s) - 1)])
        free = tuple(node for node in self.scope.nodes if self._busy_until_s[node] <= at_s)
        pattern = draw(replace(self.scope, free=free, least_s=rhythm.least_s * self._pace,
                               longest_s=rhythm.longest_s * self._pace))
        if pattern.alone:
            at_s = max(at_s, self._end_s + LEAST_GAP_S)
        takes = {*_SHARED} if foreign else _shared(pattern)
        at_s = max(at_s, *(self._taken_until_s[one] for one in sorted(takes)), 0.0)
        end_s = at_s + pattern.length_s + START_TAKES_S * max(0, _count_starts(pattern) - 1)
        if end_s > self.until_s:
            return None
        if at_s > self._end_s:
            self._harm_since_s = at_s
        self.patterns.append((at_s, pattern))
        self._busy_until_s |= {node: max(end_s, until_s) for node, until_s in self._busy_until_s.items()
                               if node in pattern.touches}
        self._taken_until_s |= dict.fromkeys(takes, end_s + STILL_S)
        self._end_s = max(self._end_s, end_s)
        self._alone_until_s = end_s + LEAST_GAP_S if pattern.alone else self._alone_until_s
        return at_s


_SHARED = ("links", "controller", "failpoints")


def _count_starts(pattern: FaultPattern) -> int:
    return sum(step.f == "start" for step in pattern.steps)


def _shared(pattern: FaultPattern) -> set[str]:
    """The shared things that it needs alone; requests to the controller need that up and reachable."""
    taken = {{"heal": "links", "release": "failpoints"}.get(step.f, "") for step in pattern.steps} - {""}
    asks = any(CONTROLLER in step.nodes or (step.f in FAULTS and FAULTS[step.f].asks_controller)
               for step in pattern.steps)
    return taken | ({"controller"} if asks else set())


def _entries(patterns: Sequence[tuple[float, FaultPattern]]) -> Schedule:
    """All steps in the order of their times; those of one pattern keep theirs, as sorting is stable."""
    steps = sorted(((began_s + step.at_s, step) for began_s, pattern in patterns for step in pattern.steps),
                   key=lambda timed: timed[0])
    befores_s = [0.0, *(at_s for at_s, _ in steps)]
    return tuple(_entry(step, at_s, gap_s=at_s - before_s)
                 for (at_s, step), before_s in zip(steps, befores_s, strict=False))


def _entry(step: Step, at_s: float, *, gap_s: float) -> Entry:
    moment: Moment = HEALTHY if step.healthy else Time(time=_ns(at_s), after_ns=_ns(gap_s / 2))
    if step.sooner is not None:
        sooner = step.sooner
        if not isinstance(sooner, Moment):
            sooner = read_moment(sooner, f"{step.f}: sooner")
        moment = FirstOf(of=(sooner, moment))
    return Entry(f=step.f, nodes=step.nodes, moment=moment, args=step.args,
                 timeout_s=HEALTHY_TIMEOUT_S if step.healthy else MOMENT_TIMEOUT_S)


def _ns(time_s: float) -> int:
    return round(time_s * 1000) * 1_000_000
