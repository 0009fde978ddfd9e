"""The seams between a cluster and the place it lives in: Hosts (processes), Network and Disks.

BrokerCluster (broker_cluster.py) is the same everywhere; a house is what differs: processes and proxies on
loopback (local/), or containers, their network and their volumes (containers/). What runs is system.py's
question: a house is told the command of each process.

Rules
1. What is returned from is so: killed means gone, paused means stopped by the kernel, cut means no
   byte passes any more.
2. An end is asked for (kill, terminate), or foreseen, or the process died by itself: `died` keeps those.
   What bore them all may end too (a supervisor, an engine): `lost` says so, and none of them is in `died`.
3. All waits have time-outs and raise FloodmarkError.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.log_extents import Lost
from floodmark.harness.errors import FloodmarkError

PYTHON = "python"  # a command's program by its name: each place knows where it has that

Command = Callable[[str], Sequence[str]]  # name -> what its process is: a program's name, then arguments
Foreseen = Callable[[str, int], bool]  # whether this exit (name, code), which nobody asked for, was expected


class FaultedExit(NamedTuple):
    """The end of a process that nobody asked for and a fault in force explains."""

    name: str
    why: str  # "disk full", "memory limit"
    time_ns: int  # monotonic


def never_foreseen(_name: str, _code: int) -> bool:
    return False


def no_command(name: str) -> Sequence[str]:
    raise FloodmarkError(f"nobody has said what runs as {name}")


class Hosts(Protocol):
    """The processes of one run by name: brokers and the controller."""

    foreseen: Foreseen  # the cluster sets these, before begin()
    command: Command

    @property
    def died(self) -> Sequence[str]: ...  # in the order it happened; a name may stand there twice
    @property
    def died_words(self) -> Mapping[str, str]: ...  # of each: how it ended and the end of its log, in lines
    @property
    def lost(self) -> str | None: ...  # why everything here counts as dead
    @property
    def felled(self) -> Sequence[FaultedExit]: ...  # ends that a fault in force explains; never in died

    async def begin(self) -> None: ...  # what must be there before any process
    async def spawn(self, name: str) -> None: ...  # FloodmarkError if it runs already
    async def kill(self, name: str) -> None: ...  # SIGKILL; nothing if it is not there
    async def terminate(self, name: str, *, timeout_s: float) -> None: ...  # SIGTERM
    async def pause(self, name: str) -> None: ...
    async def resume(self, name: str) -> None: ...
    def lives(self, name: str) -> bool: ...  # a paused one does
    def paused(self, name: str) -> bool: ...
    async def stands_still(self, name: str) -> bool: ...  # what the kernel says, not what we remember
    def last_words(self, name: str) -> str: ...  # the end of its log, for a message
    async def end(self) -> None: ...  # kill everything, leave nothing; safe twice


class Network(Protocol):
    """What passes between the processes, and from clients. Names may be CLIENTS and CONTROLLER."""

    @property
    def why_not(self) -> str | None: ...  # it cannot be cut, and what to do; None: it can
    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool) -> None: ...  # adds up
    async def heal(self) -> None: ...
    async def mend(self) -> list[str]: ...  # heal, and read back what is left
    async def close(self) -> None: ...  # safe twice


class Disks(Protocol):
    """What brokers have written. The node of wipe is dead already; power_cut kills."""

    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost: ...  # see system.PowerLoss
    async def wipe(self, name: str) -> Lost: ...
    async def log_dir(self, name: str) -> Path: ...  # it, or a copy of it as it is now
    async def read(self, name: str, file: str) -> str | None: ...  # one file of it as it is now; None: none
    async def mend(self) -> list[str]: ...  # ends disk faults in force; what is left of them


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """Everything a cluster lives in. close: gives back the rest (ports), when all has ended; safe twice."""

    layout: Layout
    hosts: Hosts
    network: Network
    disks: Disks
    close: Callable[[], None]
