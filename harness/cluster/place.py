"""The protocol Place: where a cluster runs.

LocalPlace (local/), ContainersPlace (containers/) and SimulatedPlace (simulated/) are places. A System
(system.py: what runs) is attached to one; broker_cluster.py makes a cluster of both.

Rules
1. Every call returns when its effect is complete: a killed process is gone, a paused one is stopped by the
   kernel, and no byte passes a cut link.
2. A process's end is requested (kill), or expected (System.expects_exit), or it died by itself;
   `deaths` lists the last. If the parent of all processes ends (a supervisor, an engine), `lost` says so, and
   none of them is in `deaths`.
3. All waits have time-outs and raise FloodmarkError.
4. The abilities of harness.protocols that a place has are found on it, or on one of the objects in `can`.
   `cannot` has those that it does not have, with the reason.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, Signals
from typing import NamedTuple, Protocol

from floodmark.harness import runtime
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.log_extents import Lost
from floodmark.harness.protocols import BadDisks, Clocks, MemoryLimits, Packets
from floodmark.harness.schedule.views import Met

KILL_S = 60.0  # from a kill to the report of the end: a busy engine once took 3 s
PYTHON = "python"  # a command's program by its name: each place knows its path


def only_in_containers(place: str) -> dict[type, str]:
    """Why another place does not have the abilities of containers."""
    lacks: Mapping[type, str] = {
        BadDisks: "disks that could fail or be damaged", Clocks: "wall clocks that could be set",
        MemoryLimits: "processes whose memory could be limited",
        Packets: "packets that could be lost or late"}
    return {kind: f"the {place} cluster has no {what}: use --cluster containers"
            for kind, what in lacks.items()}


class Death(NamedTuple):
    """The end of a process that was not requested and that nothing explains."""

    name: str
    words: str  # how it ended and the end of its log, in lines
    time_ns: int  # monotonic

    @classmethod
    def now(cls, name: str, words: str) -> "Death":
        return cls(name=name, words=words, time_ns=runtime.current.monotonic_ns())


class Place(Protocol):
    """Where the processes of one system run: brokers and the controller, by name."""

    @property
    def name(self) -> str: ...
    @property
    def layout(self) -> Layout: ...  # NOT_STARTED before open()
    @property
    def can(self) -> Sequence[object]: ...
    @property
    def cannot(self) -> Mapping[type, str]: ...

    async def open(self) -> None: ...  # chooses addresses and files
    async def begin(self) -> None: ...  # makes what processes need; the system is attached already
    async def mend(self) -> list[str]: ...  # heals links, repairs disks; returns what is left
    async def close(self) -> None: ...  # kills and removes everything; safe twice, and without begin()

    # -- processes
    @property
    def deaths(self) -> Sequence[Death]: ...  # in order; a name may be in it twice
    @property
    def faulted_exits(self) -> Sequence[Met]: ...  # ends caused by a fault in force; not in deaths
    @property
    def lost(self) -> str | None: ...  # why all processes count as dead; None: they do not
    async def spawn(self, name: str) -> None: ...  # FloodmarkError if it runs already
    async def kill(self, name: str, by: Signals = SIGKILL, *, timeout_s: float = KILL_S) -> None: ...
    # by SIGTERM it is stopped in an orderly way; does nothing if it does not run
    async def pause(self, node: str) -> None: ...  # FloodmarkError if it does not run
    async def resume(self, node: str) -> None: ...  # does nothing if it does not run
    def lives(self, name: str) -> bool: ...  # true for a paused one too
    def paused(self, name: str) -> bool: ...
    async def is_stopped(self, name: str) -> bool: ...  # by the kernel's state, not our own record
    def last_words(self, name: str) -> str: ...  # the end of its log, for a message

    # -- links; see harness.protocols: Cuts
    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None: ...
    async def heal(self) -> None: ...

    # -- brokers' disks; wipe needs a dead broker, power_cut kills it
    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost: ...  # see system.PowerLoss
    async def wipe(self, name: str) -> Lost: ...
    async def log_dir(self, node: str) -> Path: ...  # the directory, or a copy of its present state
    @property
    def read(self) -> Callable[[str, str], Awaitable[str | None]] | None: ...
    # reads a broker's file by its name in the log directory; None: Layout's directories are the brokers' own
