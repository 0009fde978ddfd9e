"""The faults by name: what each does, what undoes it, and which of them lose data."""

from dataclasses import dataclass


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
        Fault(f="disk", does="kill and empty the log directory", undone_by="start", loses=True),
        Fault(f="arm", does="arm a failpoint in a process", undone_by="release"),
        Fault(f="release", does="let go what a failpoint holds, and disarm it"),
    )
}
LOSES = frozenset(f for f, fault in FAULTS.items() if fault.loses)
