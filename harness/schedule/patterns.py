"""What one strike of a random nemesis is, as data: its steps, and what it may draw on.

A nemesis draws fault patterns one at a time (nemesis/fault_patterns.py has floodmark's own), and
nemesis/random_plans.py places them in time: within the budget, with calm between, mended at the end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

LONGEST_S = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One entry, `at_s` after its episode begins. healthy: not before the cluster is."""

    at_s: float
    f: str
    nodes: tuple[str, ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    healthy: bool = False


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
    """What an episode may draw on. free: nodes that no other episode disturbs, at least one."""

    random: Random
    nodes: tuple[str, ...]
    free: tuple[str, ...]
    partitions: tuple[int, ...]
    overspend: bool

    def victim(self) -> str:
        return self.random.choice(self.free)

    def while_s(self, least: float = 0.5, most: float = LONGEST_S) -> float:
        return round(self.random.uniform(least, most), 3)


DrawPattern = Callable[[PatternScope], FaultPattern]
