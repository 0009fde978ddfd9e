"""The faults by name: what each does, what undoes it, and which of them lose data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from floodmark.harness.errors import UsageError
from floodmark.harness.registered import owner_of_fault

# What can befall a disk. After the first the node is down; the others last until the disk is mended.
DISKS_DAMAGED = ("wiped", "corrupt", "truncated")
DISKS_BAD = ("full", "read-only", "failing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    f: str
    does: str
    undone_by: str | None = None  # the f that mends it; None: nothing lasts
    loses: bool = False  # data that had been written may be gone ("lost": true in the history)


FAULTS: dict[str, Fault] = {
    fault.f: fault
    for fault in (
        Fault(f="kill", does="SIGKILL to the broker", undone_by="start"),
        Fault(f="stop", does="SIGTERM: an orderly stop, leadership handed over", undone_by="start"),
        Fault(f="start", does="start a broker that is not running"),
        Fault(f="pause", does="SIGSTOP to the broker", undone_by="resume"),
        Fault(f="resume", does="SIGCONT to the broker"),
        Fault(f="cut", does="drop bytes between nodes, by direction", undone_by="heal"),
        Fault(f="heal", does="let every byte pass again"),
        Fault(f="power_cut", does="kill and lose what was not fsynced", undone_by="start", loses=True),
        Fault(f="expire", does="the controller ends the broker's session now"),
        Fault(f="elect", does="ask the controller for a preferred or unclean election, or for one leader"),
        Fault(f="packet", does="lose, hold up or throttle packets between nodes", undone_by="heal"),
        Fault(f="reset", does="reset the connections between nodes, once"),
        Fault(f="disk", does="kill, and wipe or damage what the disk held", undone_by="start", loses=True),
        Fault(f="bad_disk", does="fill the disk, or make it fail", undone_by="mend_disk", loses=True),
        Fault(f="mend_disk", does="give the broker a healthy disk again; what was lost stays lost"),
        Fault(f="clock", does="set the broker's wall clock off", undone_by="reset_clock"),
        Fault(f="reset_clock", does="let the broker's wall clock be right again"),
        Fault(f="memory", does="limit the broker's memory", undone_by="free_memory"),
        Fault(f="free_memory", does="let the broker have memory again"),
        Fault(f="arm", does="arm a failpoint in a process", undone_by="release"),
        Fault(f="release", does="let go what a failpoint holds, and disarm it"),
    )
}
LOSES = frozenset(f for f, fault in FAULTS.items() if fault.loses)
MENDING = frozenset(fault.undone_by for fault in FAULTS.values() if fault.undone_by)
UNSEEN = frozenset({"arm", "release"})  # a failpoint harms nobody until it is met
_END_WITH_THE_PROCESS = frozenset({"pause"})


def loses(f: str, args: Mapping[str, Any]) -> bool:
    """Whether such a strike takes data that had been written: what a full disk held before, it holds."""
    fault = FAULTS.get(f) or registered_fault(f)
    return fault is not None and fault.loses and args.get("kind") != "full"


@cache
def registered_fault(f: str) -> Fault | None:
    """The fault of this name that a nemesis of another distribution brings, which is imported for it; None:
    nobody does. UsageError where that nemesis is unfit."""
    owner = owner_of_fault(f)
    if owner is None:
        return None
    for fault in getattr(owner.load(), "faults", ()):
        if fault.f == f:
            if fault.undone_by is not None:
                raise UsageError(f"the {owner} has the fault {f!r}, undone by {fault.undone_by!r}: one of "
                                 "its own is over when its strike returns, so let undone_by be None")
            made: Fault = fault
            return made
    return None


def undoes(f: str, nodes: Sequence[str], of: str, node: str | None) -> bool:
    """Whether an act (on these nodes; none named: on all) undoes a fault (node: on which; None: on none in
    particular). A process that starts anew is not paused."""
    fault = FAULTS.get(of)
    if fault is None or (fault.undone_by != f and not (f == "start" and of in _END_WITH_THE_PROCESS)):
        return False
    return not nodes or node is None or node in nodes


def ends_pause(f: str) -> bool:
    """Whether a node that stood still does no longer: it goes on, or its process is gone."""
    return undoes(f, (), "pause", None) or FAULTS[f].undone_by == "start"
