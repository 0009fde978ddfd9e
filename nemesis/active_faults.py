"""Knows which faults are in force, which were undone since, and what is armed. Pure.

A ledger is a value; `after` gives the next. What undoes what is harness.faults' word. What is armed is no
fault in force: it harms nobody until it is met.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from floodmark.harness.faults import FAULTS, MENDING
from floodmark.harness.schedule.failpoints import CRASH

_OF_PROCESSES = ("start", "resume")  # what these undo ends with the process


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """A failpoint that an entry has armed."""

    node: str
    point: Mapping[str, Any]
    began_ns: int  # when the arming began: what is met from then on may be its doing
    live: bool = True  # neither released since, nor was its process ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveFaults:
    """(f, on whom) of each fault that lasts, in the order they struck, none twice; every arming so far."""

    lasting: tuple[tuple[str, str], ...] = ()
    armed: tuple[Armed, ...] = ()

    def after(self, f: str, nodes: Sequence[str], *, point: Mapping[str, Any] | None = None,
              began_ns: int = 0) -> "ActiveFaults":
        """The ledger once f has struck these nodes. A heal undoes every cut and all that packets suffer."""
        if f == "arm":
            new_arms = (Armed(node=node, point=point or {}, began_ns=began_ns) for node in nodes)
            return replace(self, armed=(*self.armed, *new_arms))
        if f == "release":
            return self._disarmed(lambda armed: armed.node in nodes and _released(armed.point, point or {}))
        if f in MENDING:
            return self._without(lambda lasting: FAULTS[lasting[0]].undone_by == f
                                 and (f == "heal" or lasting[1] in nodes))
        kept = self
        fault = FAULTS.get(f)
        if fault is None:  # another distribution's: over when its strike has returned
            return self
        if fault.undone_by == "start":  # a process that is gone is not paused any more, nor killed twice
            kept = self._without(lambda lasting: FAULTS[lasting[0]].undone_by in _OF_PROCESSES
                                 and lasting[1] in nodes)
            kept = kept._disarmed(lambda armed: armed.node in nodes)
        if fault.undone_by is None:
            return kept
        new = ((f, node) for node in nodes if (f, node) not in kept.lasting)
        return replace(kept, lasting=(*kept.lasting, *new))

    @property
    def down(self) -> tuple[str, ...]:
        """Nodes whose process a fault has ended."""
        return tuple(node for f, node in self.lasting if FAULTS[f].undone_by == "start")

    @property
    def paused(self) -> tuple[str, ...]:
        return tuple(node for f, node in self.lasting if f == "pause")

    @property
    def may_crash(self) -> bool:
        """Whether a node may yet end by what it is armed with."""
        return any(one.live and one.point.get("action") == CRASH for one in self.armed)

    @property
    def cut(self) -> bool:
        return any(f == "cut" for f, _ in self.lasting)

    def told(self) -> tuple[str, ...]:
        """For people: `kill n1`, `cut halves`."""
        return tuple(f"{f} {node}" for f, node in self.lasting)

    def _without(self, ended: Callable[[tuple[str, str]], bool]) -> "ActiveFaults":
        return replace(self, lasting=tuple(lasting for lasting in self.lasting if not ended(lasting)))

    def _disarmed(self, ended: Callable[[Armed], bool]) -> "ActiveFaults":
        return replace(self, armed=tuple(
            replace(one, live=False) if one.live and ended(one) else one for one in self.armed))


def _released(armed: Mapping[str, Any], released: Mapping[str, Any]) -> bool:
    """Whether such a release disarms it: one that keeps, or lets go up to an epoch, does not for sure."""
    if released.get("keep") or "through_epoch" in released:
        return False
    return all(armed.get(key, value) == value for key, value in released.items() if key != "keep")
