"""Finds the nodes that a role means: from a view of the cluster, the assignment, the faults in force and the
armed failpoints. Pure.

ActiveFaults is a value; `after` returns the next one. harness/faults.py says which act undoes which fault. An
armed failpoint is no fault in force: it harms nobody until a node reaches it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from floodmark.harness.faults import FAULTS, MENDING
from floodmark.harness.schedule.failpoints import CRASH
from floodmark.harness.schedule.views import CONTROLLER, View

ROLES = frozenset({"leader", "follower", "last-in-isr", "controller", "down", "paused"})
EVERY = "every"  # as a state's `replica`: every replica of the partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """A failpoint that an entry has armed."""

    node: str
    point: Mapping[str, Any]
    began_ns: int  # when the arming began: a point met later may be this one
    live: bool = True  # neither released since, nor ended with its process


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveFaults:
    """The lasting faults, in order, none twice: (f, node; of links the kind of cut); and every arming."""

    lasting: tuple[tuple[str, str], ...] = ()
    armed: tuple[Armed, ...] = ()

    def after(self, f: str, nodes: Sequence[str], *, point: Mapping[str, Any] | None = None,
              began_ns: int = 0) -> "ActiveFaults":
        """The active faults after f has struck these nodes. A heal undoes all faults of links."""
        if f == "arm":
            arms = (Armed(node=node, point=point or {}, began_ns=began_ns) for node in nodes)
            return replace(self, armed=(*self.armed, *arms))
        if f == "release":
            named = {key: value for key, value in (point or {}).items() if key != "keep"}
            certain = not (point or {}).get("keep") and "through_epoch" not in named
            return replace(self, armed=tuple(replace(one, live=one.live and not (
                certain and one.node in nodes and all(one.point.get(key, value) == value
                                                      for key, value in named.items())))
                for one in self.armed))
        if f in MENDING:
            return replace(self, lasting=tuple(
                (of, node) for of, node in self.lasting
                if FAULTS[of].undone_by != f or (f != "heal" and node not in nodes)))
        fault, lasting, armed = FAULTS.get(f), self.lasting, self.armed
        if fault is None:  # another distribution's fault: it is over when its strike has returned
            return self
        if fault.takes_down:  # a process that has ended is not paused any more, nor killed twice
            lasting = tuple((of, node) for of, node in lasting
                            if not FAULTS[of].of_process or node not in nodes)
            armed = tuple(replace(one, live=one.live and one.node not in nodes) for one in armed)
        new = ((f, node) for node in nodes if fault.undone_by is not None and (f, node) not in lasting)
        return ActiveFaults(lasting=(*lasting, *new), armed=armed)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What resolves roles, besides a view."""

    replicas: Mapping[int, tuple[str, ...]]  # partition -> its assignment, preferred leader first
    faults: ActiveFaults = field(default_factory=ActiveFaults)
    besides: tuple[str, ...] = ()  # nodes that must be up too, though they may have no replica

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node that has a replica, and those besides."""
        return tuple(sorted({*self.besides, *(node for nodes in self.replicas.values() for node in nodes)}))


def needs_view(names: Sequence[str]) -> bool:
    """Whether any of these is a role that only a view of the cluster can resolve."""
    return any(name in ROLES - {"controller", "down", "paused"} for name in names)


def nodes_with_role(name: str, partition: int, view: View | None, stage: Stage) -> tuple[str, ...]:
    """The nodes that a name or a role of this partition means. Empty: no node has the role now."""
    assigned = stage.replicas.get(partition, ())
    if name not in ROLES:
        return assigned if name == EVERY else (name,)
    if name == "controller":
        return (CONTROLLER,)
    if name in ("down", "paused"):
        return stage.faults.down if name == "down" else stage.faults.paused
    assert view is not None, f"{name} needs a view of the cluster"
    seen = view.partitions.get(partition)
    if seen is not None and name == "last-in-isr":
        return tuple(node for node in assigned if node in seen.isr)[-1:]
    if seen is None or seen.leader is None:
        return ()
    return (seen.leader,) if name == "leader" else tuple(
        node for node in assigned if node != seen.leader)[:1]


def resolve(names: Sequence[str], partition: int, view: View | None, stage: Stage) -> tuple[str, ...] | None:
    """All nodes that these names and roles mean, each once, in order. None: no node has one of the roles."""
    found = [nodes_with_role(name, partition, view, stage) for name in names]
    return tuple(dict.fromkeys(node for nodes in found for node in nodes)) if all(found) else None
