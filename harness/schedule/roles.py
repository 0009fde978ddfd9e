"""Resolves roles (leader, follower, down, ...) to the nodes that have them in one view of the cluster.
Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from floodmark.harness.schedule.active_faults import ActiveFaults
from floodmark.harness.schedule.views import CONTROLLER, View

ROLES = frozenset({"leader", "follower", "last-in-isr", "controller", "down", "paused"})
EVERY = "every"  # as a state's `replica`: every replica of the partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The information that a view of the cluster lacks: the replica assignment, and the faults in force."""

    replicas: Mapping[int, tuple[str, ...]]  # partition -> its assignment, preferred leader first
    ledger: ActiveFaults = field(default_factory=ActiveFaults)
    besides: tuple[str, ...] = ()  # nodes that count though they may have no replica

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node that has a replica, and those besides."""
        return tuple(sorted({*self.besides, *(node for nodes in self.replicas.values() for node in nodes)}))


def needs_view(names: Sequence[str]) -> bool:
    """Whether any of these is a role that only a view of the cluster can resolve."""
    return any(name in ROLES - {"controller", "down", "paused"} for name in names)


def players(name: str, partition: int, view: View | None, stage: Stage) -> tuple[str, ...]:
    """The nodes that a name or a role of this partition means. Empty: no node has the role now."""
    if name == "controller":
        return (CONTROLLER,)
    if name == "down":
        return stage.ledger.down
    if name == "paused":
        return stage.ledger.paused
    if name == EVERY:
        return stage.replicas.get(partition, ())
    if name not in ROLES:
        return (name,)
    assert view is not None, f"{name} needs a view of the cluster"
    return _find_players(name, partition, view, stage)


def _find_players(role: str, partition: int, view: View, stage: Stage) -> tuple[str, ...]:
    seen = view.partitions.get(partition)
    if seen is None:
        return ()
    assigned = stage.replicas.get(partition, ())
    if role == "last-in-isr":
        return tuple(node for node in assigned if node in seen.isr)[-1:]
    if seen.leader is None:
        return ()
    if role == "leader":
        return (seen.leader,)
    assert role == "follower", role
    return tuple(node for node in assigned if node != seen.leader)[:1]


def resolve(names: Sequence[str], partition: int, view: View | None, stage: Stage) -> tuple[str, ...] | None:
    """All nodes that these names and roles mean, each once, in order. None: no node has one of the roles."""
    found: list[str] = []
    for name in names:
        meant = players(name, partition, view, stage)
        if not meant:
            return None
        found += (node for node in meant if node not in found)
    return tuple(found)
