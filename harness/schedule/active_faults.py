"""Tracks which faults are in force and which failpoints are armed. Pure.

ActiveFaults is a value; `after` returns the next one. harness/faults.py says which act undoes which fault. An
armed failpoint is no fault in force: it harms nobody until a node reaches it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from floodmark.harness.faults import FAULTS, MENDING
from floodmark.harness.schedule.failpoints import CRASH


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """A failpoint that an entry has armed."""

    node: str
    point: Mapping[str, Any]
    began_ns: int  # when the arming began: a point met later may be this one
    live: bool = True  # neither released since, nor ended with its process


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveFaults:
    """The lasting faults as (f, node), in the order of the strikes, none twice; and every arming so far."""

    lasting: tuple[tuple[str, str], ...] = ()
    armed: tuple[Armed, ...] = ()

    def after(self, f: str, nodes: Sequence[str], *, point: Mapping[str, Any] | None = None,
              began_ns: int = 0) -> "ActiveFaults":
        """The active faults after f has struck these nodes. A heal undoes every cut and every packet
        fault."""
        if f == "arm":
            new_arms = (Armed(node=node, point=point or {}, began_ns=began_ns) for node in nodes)
            return replace(self, armed=(*self.armed, *new_arms))
        if f == "release":
            return self._disarm(lambda armed: armed.node in nodes and _disarms(armed.point, point or {}))
        if f in MENDING:
            return self._remove(lambda lasting: FAULTS[lasting[0]].undone_by == f
                                 and (f == "heal" or lasting[1] in nodes))
        kept = self
        fault = FAULTS.get(f)
        if fault is None:  # another distribution's fault: it is over when its strike has returned
            return self
        if fault.takes_down:  # a process that has ended is not paused any more, nor killed twice
            kept = self._remove(lambda lasting: FAULTS[lasting[0]].of_process and lasting[1] in nodes)
            kept = kept._disarm(lambda armed: armed.node in nodes)
        if fault.undone_by is None:
            return kept
        new = ((f, node) for node in nodes if (f, node) not in kept.lasting)
        return replace(kept, lasting=(*kept.lasting, *new))

    @property
    def down(self) -> tuple[str, ...]:
        """Nodes whose process a fault has ended."""
        return tuple(node for f, node in self.lasting if FAULTS[f].takes_down)

    @property
    def paused(self) -> tuple[str, ...]:
        return tuple(node for f, node in self.lasting if f == "pause")

    @property
    def may_crash(self) -> bool:
        """Whether an armed crash may still end a node."""
        return any(one.live and one.point.get("action") == CRASH for one in self.armed)

    @property
    def cut(self) -> bool:
        return any(f == "cut" for f, _ in self.lasting)

    def describe(self) -> tuple[str, ...]:
        """The lasting faults in words: `kill n1`, `cut halves`."""
        return tuple(f"{f} {node}" for f, node in self.lasting)

    def _remove(self, ended: Callable[[tuple[str, str]], bool]) -> "ActiveFaults":
        return replace(self, lasting=tuple(lasting for lasting in self.lasting if not ended(lasting)))

    def _disarm(self, ended: Callable[[Armed], bool]) -> "ActiveFaults":
        return replace(self, armed=tuple(
            replace(one, live=False) if one.live and ended(one) else one for one in self.armed))


def _disarms(armed: Mapping[str, Any], released: Mapping[str, Any]) -> bool:
    """Whether this release certainly disarms it: not one with `keep` or `through_epoch`."""
    if released.get("keep") or "through_epoch" in released:
        return False
    return all(armed.get(key, value) == value for key, value in released.items() if key != "keep")
