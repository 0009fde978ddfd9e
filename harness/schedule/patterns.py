"""Defines fault patterns, which are single strikes of a random nemesis as data, and what they are drawn from.

A nemesis draws fault patterns one at a time (nemesis/fault_patterns.py has floodmark's own);
nemesis/random_plans.py places them in time: within the budget, with pauses between them, all mended at the
end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from floodmark.harness.schedule.moments import Moment

LEAST_S, LONGEST_S = 0.5, 4.0
LEADERS_SHARE = 0.7  # of strikes at one node
SESSION_S = 2.0  # of a test cluster, by default


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One entry, `at_s` after the begin of its pattern. healthy: it also waits until the cluster is healthy.
    sooner: a moment, or its JSON form, at which it strikes if that comes before `at_s`."""

    at_s: float
    f: str
    nodes: tuple[str, ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    healthy: bool = False
    sooner: Moment | Mapping[str, Any] | None = None


def act(at_s: float, f: str, *nodes: str, healthy: bool = False, sooner: Moment | None = None, **args: Any
        ) -> Step:
    """A step in short: `act(0.5, "kill", "n1")`."""
    return Step(at_s=at_s, f=f, nodes=nodes, args=args, healthy=healthy, sooner=sooner)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPattern:
    """The steps of one strike, in order, at least one. touches: the nodes that it disturbs until its end.
    alone: no other pattern may overlap it."""

    steps: tuple[Step, ...]
    touches: tuple[str, ...] = ()
    alone: bool = False

    @property
    def length_s(self) -> float:
        return self.steps[-1].at_s


def pattern(*steps: Step, touches: Sequence[str] = (), alone: bool = False) -> FaultPattern:
    return FaultPattern(steps=tuple(sorted(steps, key=lambda step: step.at_s)), touches=tuple(touches),
                        alone=alone)


def pair(harm: str, mend: str, nodes: Sequence[str], length_s: float, *, alone: bool = False, **args: Any
         ) -> FaultPattern:
    """A fault and the act that undoes it after this time."""
    return pattern(act(0.0, harm, *nodes, **args), act(length_s, mend, *nodes), touches=nodes, alone=alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternScope:
    """What a pattern can be drawn from. free: nodes that no other pattern disturbs, at least one when it is
    drawn. session_s: the controller fences a broker after so long without a heartbeat. least_s, longest_s:
    how long a fault lasts at the plan's current pace. links_cut: whether links can be cut; cuts_reset,
    clients_cut: whether a cut may reset connections, and cut off clients. elects: whether elections may be
    requested. flush_every: every write is fsynced, so a power cut loses nothing that was acked, however many
    nodes lose power. leaders: the partitions' preferred ones; empty: unknown."""

    random: Random
    nodes: tuple[str, ...]
    partitions: tuple[int, ...]
    free: tuple[str, ...] = ()
    overspend: bool = False
    session_s: float = SESSION_S
    least_s: float = LEAST_S
    longest_s: float = LONGEST_S
    links_cut: bool = True
    cuts_reset: bool = True
    clients_cut: bool = True
    elects: bool = False
    flush_every: bool = False
    leaders: frozenset[str] = frozenset()

    def victim(self) -> str:
        """Draw one of the free nodes, mostly one that leads a partition where the preferred leaders do: other
        nodes' faults may concern no record."""
        leading = [node for node in self.free if node in self.leaders]
        return self.random.choice(leading if leading and self.drawn(LEADERS_SHARE) else self.free)

    def others(self, node: str) -> list[str]:
        return [one for one in self.nodes if one != node]

    def drawn(self, share: float) -> bool:
        """Draw whether, with this probability."""
        return self.random.random() < share

    def victims(self, count: int) -> tuple[str, ...]:
        """Draw `count` of the free nodes, or fewer, so that one stays undisturbed; at least one."""
        spare = len(self.free) - 1
        return tuple(self.random.sample(self.free, max(1, min(count, spare))))

    def while_s(self, least: float | None = None, most: float | None = None) -> float:
        """Draw a duration between `least` and `most`, by default the plan's current ones."""
        longest_s = self.longest_s if most is None else most
        least_s = self.least_s if least is None else least if most is not None else max(least, self.least_s)
        return round(self.random.uniform(least_s, max(least_s, longest_s)), 3)


DrawPattern = Callable[[PatternScope], FaultPattern]
