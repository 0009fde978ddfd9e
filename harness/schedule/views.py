"""What can be seen of a cluster: its replicas, its partitions, the failpoints that were met; and by whom. And
the nodes that a role means: from a view of the cluster, the assignment, and the faults in force. Pure.

ActiveFaults is a value; `after` returns the next one. harness/faults.py says which act undoes which fault. An
armed failpoint is no fault in force: it harms nobody until a node reaches it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Literal, Protocol

from floodmark.harness.faults import CRASH, FAULTS, MENDING

CLIENTS = "clients"  # in a grudge: all clients of the harness, as one pseudo-node
CONTROLLER = "controller"  # the name of the controller's process


class Unknown(Enum):
    """The type of UNKNOWN: a value that a system does not show. None is different: there is no such value."""

    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return str(self.value)


UNKNOWN: Final = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One replica as its own broker sees it, as far as the system shows that. LEO and HW come from Kafka's
    wire protocol where the system has them there."""

    node: str
    partition: int  # the history's key
    leo: int | Unknown = UNKNOWN
    hw: int | Unknown = UNKNOWN
    leader: str | Unknown | None = UNKNOWN  # the leader that it knows
    epoch: int | Unknown = UNKNOWN
    log_start: int | Unknown = UNKNOWN
    isr: tuple[str, ...] | Unknown = UNKNOWN  # the ISR that it knows
    checkpointed_hw: int | Unknown = UNKNOWN  # the HW that a restart would begin with
    # leader-epoch cache; "unreadable": its file is (logdir.py); None: it has none
    epochs: tuple[tuple[int, int], ...] | Literal["unreadable"] | Unknown | None = UNKNOWN
    clean: bool | Unknown = UNKNOWN  # whether its last stop was orderly
    proposing: bool | Unknown = UNKNOWN  # whether it leads, proposed another ISR and has no response yet


@dataclass(frozen=True, slots=True, kw_only=True)
class FailpointHit:
    """One time that a node met (reached) an armed failpoint. None: unknown, or it does not apply."""

    node: str
    name: str  # F.truncated, ...
    action: str | None  # what it did there; None: not reported
    time_ns: int  # by the node's own clock: monotonic from a cluster, since the run began from a RunObserver
    partition: int | None = None  # the history's key
    epoch: int | None = None
    peer: str | None = None
    offset: int | None = None
    held: bool = False  # whether it is still stopped there


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition as the controller sees it. This counts as the truth."""

    partition: int
    leader: str | None
    epoch: int
    isr: tuple[str, ...]
    partition_epoch: int
    elr: tuple[str, ...] = ()  # eligible leader replicas, outside the ISR (KIP-966); few systems have any


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The state of the cluster at one moment. A broker that did not answer has no replicas here."""

    time_ns: int  # monotonic, when all answers were there
    replicas: Mapping[tuple[str, int], ReplicaView]
    partitions: Mapping[int, PartitionView]
    running: frozenset[str]  # brokers whose process is alive (also a paused one)
    unfenced: frozenset[str]  # brokers that the controller considers alive
    # Of a system of which only the wire is seen: brokers whose Metadata names a controller; and those of them
    # that also name all brokers, and know none of our topics.
    answering: frozenset[str] = frozenset()
    topic_unknown: frozenset[str] = frozenset()


class RunObserver(Protocol):
    """The state of a run that moments can observe."""

    def now_ns(self) -> int: ...  # since the run began
    def acks(self, partition: int) -> int: ...  # acked micro-sends so far
    async def ack_or(self, timeout_s: float) -> None: ...  # waits for the next ack of any partition
    def acks_given(self, partition: int, leader: str) -> int: ...  # acks of this leader, from the trace
    async def view(self) -> View: ...
    async def met(self, node: str) -> Sequence[FailpointHit]: ...
    def crashes(self) -> Sequence[FailpointHit]: ...  # as ExplainsDeaths.crashes
    def died(self) -> Sequence[str]: ...  # nodes that ended by themselves, without a fault


# -- roles --------------------------------------------------------------------------------------------------

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
class FaultContext:
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


def nodes_with_role(name: str, partition: int, view: View | None, context: FaultContext) -> tuple[str, ...]:
    """The nodes that a name or a role of this partition means. Empty: no node has the role now."""
    assigned = context.replicas.get(partition, ())
    if name not in ROLES:
        return assigned if name == EVERY else (name,)
    if name == "controller":
        return (CONTROLLER,)
    if name in ("down", "paused"):
        return context.faults.down if name == "down" else context.faults.paused
    assert view is not None, f"{name} needs a view of the cluster"
    seen = view.partitions.get(partition)
    if seen is not None and name == "last-in-isr":
        return tuple(node for node in assigned if node in seen.isr)[-1:]
    if seen is None or seen.leader is None:
        return ()
    return (seen.leader,) if name == "leader" else tuple(
        node for node in assigned if node != seen.leader)[:1]


def resolve(names: Sequence[str], partition: int, view: View | None, context: FaultContext
            ) -> tuple[str, ...] | None:
    """All nodes that these names and roles mean, each once, in order. None: no node has one of the roles."""
    found = [nodes_with_role(name, partition, view, context) for name in names]
    return tuple(dict.fromkeys(node for nodes in found for node in nodes)) if all(found) else None
