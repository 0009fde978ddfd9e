"""Lists the faults: what each does, which fault undoes it, and which of them lose data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from floodmark.harness.errors import UsageError
from floodmark.harness.registered import owner_of_fault

# Kinds of disk faults. DISKS_DAMAGED take the node down; DISKS_BAD last until the disk is mended.
DISKS_DAMAGED = ("wiped", "corrupt", "truncated")
DISKS_BAD = ("full", "read-only", "failing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, by the name `f` that schedules and histories use."""

    f: str
    does: str
    undone_by: str | None = None  # the f that mends it; None: its effect does not last
    loses: bool = False  # written data may be lost ("lost": true in the history)


FAULTS: dict[str, Fault] = {
    fault.f: fault
    for fault in (
        Fault(f="kill", does="SIGKILL to the broker", undone_by="start"),
        Fault(f="stop", does="SIGTERM: an orderly stop, which moves leadership away first",
              undone_by="start"),
        Fault(f="start", does="start a broker that is not running"),
        Fault(f="pause", does="SIGSTOP to the broker", undone_by="resume"),
        Fault(f="resume", does="SIGCONT to the broker"),
        Fault(f="cut", does="drop bytes between nodes, by direction", undone_by="heal"),
        Fault(f="heal", does="let every byte pass again"),
        Fault(f="power_cut", does="kill and lose what was not fsynced", undone_by="start", loses=True),
        Fault(f="expire", does="the controller ends the broker's session now"),
        Fault(f="elect", does="ask the controller for a preferred or unclean election, or for one leader"),
        Fault(f="packet", does="drop, delay or throttle packets between nodes", undone_by="heal"),
        Fault(f="reset", does="reset the connections between nodes, once"),
        Fault(f="disk", does="kill, and wipe or damage what the disk held", undone_by="start", loses=True),
        Fault(f="bad_disk", does="fill the disk, or make it fail", undone_by="mend_disk", loses=True),
        Fault(f="mend_disk", does="give the broker a healthy disk again; what was lost stays lost"),
        Fault(f="clock", does="set the broker's wall clock wrong", undone_by="reset_clock"),
        Fault(f="reset_clock", does="set the broker's wall clock right again"),
        Fault(f="memory", does="limit the broker's memory", undone_by="free_memory"),
        Fault(f="free_memory", does="remove the limit on the broker's memory"),
        Fault(f="arm", does="arm a failpoint in a process", undone_by="release"),
        Fault(f="release", does="release what a failpoint holds, and disarm it"),
    )
}
LOSES = frozenset(f for f, fault in FAULTS.items() if fault.loses)
MENDING = frozenset(fault.undone_by for fault in FAULTS.values() if fault.undone_by)
UNSEEN = frozenset({"arm", "release"})  # a failpoint has no effect until a node reaches it
_END_WITH_THE_PROCESS = frozenset({"pause"})


def loses(f: str, args: Mapping[str, Any]) -> bool:
    """Whether this strike can lose written data. A full disk keeps what it had."""
    fault = FAULTS.get(f) or registered_fault(f)
    return fault is not None and fault.loses and args.get("kind") != "full"


@cache
def registered_fault(f: str) -> Fault | None:
    """Find the fault of this name that a nemesis of another distribution defines (it is imported); None:
    there is none. UsageError where that nemesis cannot be used."""
    owner = owner_of_fault(f)
    if owner is None:
        return None
    for fault in getattr(owner.load(), "faults", ()):
        if fault.f == f:
            if fault.undone_by is not None:
                raise UsageError(f"the {owner} has the fault {f!r}, undone by {fault.undone_by!r}: a fault "
                                 "of its own is over when its strike returns, so undone_by must be None")
            made: Fault = fault
            return made
    return None


def undoes(f: str, nodes: Sequence[str], of: str, node: str | None) -> bool:
    """Whether the act `f` on these nodes (none: on all nodes) undoes the fault `of` on `node` (None: the
    fault is not on a single node). A process that is started again is no longer paused."""
    fault = FAULTS.get(of)
    if fault is None or (fault.undone_by != f and not (f == "start" and of in _END_WITH_THE_PROCESS)):
        return False
    return not nodes or node is None or node in nodes


def ends_pause(f: str) -> bool:
    """Whether this act ends a pause: the node resumes, or its process ends."""
    return undoes(f, (), "pause", None) or FAULTS[f].undone_by == "start"
