"""What is in force: which faults have struck and which of them were undone since. Pure.

A ledger is a value; `after` gives the next. What undoes what is harness.faults' word.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.faults import FAULTS

MENDING = frozenset(fault.undone_by for fault in FAULTS.values() if fault.undone_by)  # start, resume, heal


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """(f, on whom) of each fault that lasts, in the order they struck, none twice."""

    lasting: tuple[tuple[str, str], ...] = ()

    def after(self, f: str, nodes: Sequence[str]) -> "Ledger":
        """The ledger once f has struck these nodes. A heal undoes every cut, whoever it names."""
        if f in MENDING:
            return self._without(lambda lasting: FAULTS[lasting[0]].undone_by == f
                                 and (f == "heal" or lasting[1] in nodes))
        kept = self
        if FAULTS[f].undone_by == "start":  # a process that is gone is not paused any more, nor killed twice
            kept = self._without(lambda lasting: lasting[0] != "cut" and lasting[1] in nodes)
        if FAULTS[f].undone_by is None:
            return kept
        new = ((f, node) for node in nodes if (f, node) not in kept.lasting)
        return Ledger(lasting=(*kept.lasting, *new))

    @property
    def down(self) -> tuple[str, ...]:
        """Nodes whose process a fault has ended."""
        return tuple(node for f, node in self.lasting if FAULTS[f].undone_by == "start")

    @property
    def paused(self) -> tuple[str, ...]:
        return tuple(node for f, node in self.lasting if f == "pause")

    @property
    def cut(self) -> bool:
        return any(f == "cut" for f, _ in self.lasting)

    def told(self) -> tuple[str, ...]:
        """For people: `kill n1`, `cut halves`."""
        return tuple(f"{f} {node}" for f, node in self.lasting)

    def _without(self, ended: Callable[[tuple[str, str]], bool]) -> "Ledger":
        return Ledger(lasting=tuple(lasting for lasting in self.lasting if not ended(lasting)))
