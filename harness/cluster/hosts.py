"""The protocols between a cluster and the place it runs in: Hosts (processes), Network and Disks.

BrokerCluster (broker_cluster.py) is the same in every place; each place has its own House: processes and
proxies on loopback (local/), or containers with their network and volumes (containers/). system.py decides
what runs: a house gets the command of each process.

Rules
1. Every call returns when its effect is complete: a killed process is gone, a paused one is stopped by the
   kernel, and no byte passes a cut link.
2. A process's end is requested (kill, terminate), or expected, or it died by itself; `deaths` lists the last.
   If the parent of all processes ends (a supervisor, an engine), `lost` says so, and none of them is in
   `deaths`.
3. All waits have time-outs and raise FloodmarkError.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from floodmark.harness import runtime
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.log_extents import Lost
from floodmark.harness.errors import FloodmarkError

PYTHON = "python"  # a command's program by its name: each place knows its path

Command = Callable[[str], Sequence[str]]  # process name -> its command: a program's name, then arguments
ExpectsExit = Callable[[str, int], bool]  # whether this exit (name, code) was expected, though not requested


class Death(NamedTuple):
    """The end of a process that was not requested and that nothing explains."""

    name: str
    words: str  # how it ended and the end of its log, in lines
    time_ns: int  # monotonic

    @classmethod
    def now(cls, name: str, words: str) -> "Death":
        return cls(name=name, words=words, time_ns=runtime.current.monotonic_ns())


class FaultedExit(NamedTuple):
    """The end of a process that was not requested and is caused by a fault in force."""

    name: str
    why: str  # "disk full", "memory limit"
    time_ns: int  # monotonic


def expects_no_exit(_name: str, _code: int) -> bool:
    return False


def no_command(name: str) -> Sequence[str]:
    raise FloodmarkError(f"there is no command for the process {name}")


class Hosts(Protocol):
    """The processes of one run by name: brokers and the controller."""

    expects_exit: ExpectsExit  # the cluster sets these, before begin()
    command: Command

    @property
    def deaths(self) -> Sequence[Death]: ...  # in order; a name may be in it twice
    @property
    def lost(self) -> str | None: ...  # why all processes count as dead; None: they do not
    @property
    def faulted_exits(self) -> Sequence[FaultedExit]: ...  # ends caused by a fault in force; not in deaths

    async def begin(self) -> None: ...  # makes what processes need
    async def spawn(self, name: str) -> None: ...  # FloodmarkError if it runs already
    async def kill(self, name: str) -> None: ...  # SIGKILL; does nothing if it does not run
    async def terminate(self, name: str, *, timeout_s: float) -> None: ...  # SIGTERM
    async def pause(self, name: str) -> None: ...
    async def resume(self, name: str) -> None: ...
    def lives(self, name: str) -> bool: ...  # true for a paused one too
    def paused(self, name: str) -> bool: ...
    async def is_stopped(self, name: str) -> bool: ...  # by the kernel's state, not our own record
    def last_words(self, name: str) -> str: ...  # the end of its log, for a message
    async def end(self) -> None: ...  # kills and removes everything; safe twice


class Network(Protocol):
    """The links between the processes, and from clients. Names may be CLIENTS and CONTROLLER."""

    @property
    def why_not(self) -> str | None: ...  # why it cannot be cut, and what to do; None: it can
    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool) -> None: ...  # adds cuts
    async def heal(self) -> None: ...
    async def mend(self) -> list[str]: ...  # heals; returns what is left
    async def close(self) -> None: ...  # safe twice


class Disks(Protocol):
    """The brokers' disks. wipe needs a dead node; power_cut kills it."""

    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost: ...  # see system.PowerLoss
    async def wipe(self, name: str) -> Lost: ...
    async def log_dir(self, name: str) -> Path: ...  # the directory, or a copy of its present state
    async def read(self, name: str, file: str) -> str | None: ...  # a file in it; None: no such file
    async def mend(self) -> list[str]: ...  # ends disk faults in force; returns what is left


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """Everything that a cluster runs in. close: releases the rest (ports) after all has ended; safe twice."""

    layout: Layout
    hosts: Hosts
    network: Network
    disks: Disks
    close: Callable[[], None]
