"""What one strike of a random nemesis is, as data: its steps, and what it may draw on.

A nemesis draws fault patterns one at a time (nemesis/fault_patterns.py has floodmark's own), and
nemesis/random_plans.py places them in time: within the budget, with calm between, mended at the end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

LEAST_S, LONGEST_S = 0.5, 4.0
SESSION_S = 2.0  # of a test cluster, unless it is set otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One entry, `at_s` after its episode begins. healthy: not before the cluster is. sooner: a moment at
    which it strikes if that comes before `at_s`."""

    at_s: float
    f: str
    nodes: tuple[str, ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    healthy: bool = False
    sooner: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPattern:
    """Steps in order, at least one. touches: nodes it disturbs till its end. alone: no other overlaps it."""

    steps: tuple[Step, ...]
    touches: tuple[str, ...] = ()
    alone: bool = False

    @property
    def cuts(self) -> bool:
        """Whether a heal is its: one heals every cut there is."""
        return any(step.f == "heal" for step in self.steps)

    @property
    def length_s(self) -> float:
        return self.steps[-1].at_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternScope:
    """What an episode may draw on. free: nodes that no other episode disturbs, at least one. session_s: after
    such a silence the controller fences a broker. least_s, longest_s: how long a fault lasts in the rhythm of
    the plan just then. links_cut: whether links can be cut. flush_every: every write is fsynced, so that a
    power cut takes nothing that was acked, however many lose power."""

    random: Random
    nodes: tuple[str, ...]
    free: tuple[str, ...]
    partitions: tuple[int, ...]
    overspend: bool
    session_s: float = SESSION_S
    least_s: float = LEAST_S
    longest_s: float = LONGEST_S
    links_cut: bool = True
    flush_every: bool = False

    def victim(self) -> str:
        return self.random.choice(self.free)

    def victims(self, count: int) -> tuple[str, ...]:
        """So many of the free nodes, or as many as leave one node undisturbed; at least one."""
        spare = len(self.free) - 1
        return tuple(self.random.sample(self.free, max(1, min(count, spare))))

    def while_s(self, least: float | None = None, most: float | None = None) -> float:
        """A length drawn between these; those not given are the rhythm's."""
        longest_s = self.longest_s if most is None else most
        least_s = self.least_s if least is None else least if most is not None else max(least, self.least_s)
        return round(self.random.uniform(least_s, max(least_s, longest_s)), 3)


DrawPattern = Callable[[PatternScope], FaultPattern]
