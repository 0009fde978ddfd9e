"""The processes of a place that have a pid: which of them live, and how the others ended.

Rules
1. The end of a process is known when the place calls `ended`; a kill returns then.
2. An end is requested (kill), or explained (an armed failpoint, a fault in force), or else it is
   in `deaths`. When everything is `lost`, no process has died by itself.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.harness.cluster.exit_reports import Start, exit_report
from floodmark.harness.cluster.place import KILL_S, Death
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError

STOPPED_S = 60.0


@dataclass(slots=True, kw_only=True)
class Process:
    """One process, from one start to its end."""

    begun: Start
    pid: int = 0  # if the place knows it; 0 until `starting` is done
    starting: asyncio.Task[Any] | None = None
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: bool = False  # its end was requested
    paused: bool = False
    out_of_memory: bool = False  # the kernel killed it for lack of memory


class Processes:
    """send: sends a signal; that the process has ended meanwhile is no error. is_stopped: whether the kernel
    has stopped it. explained: whether an end with this code, which was not requested, is no death."""

    def __init__(self, send: Callable[[str, Process, signal.Signals], Awaitable[None]],
                 is_stopped: Callable[[str], Awaitable[bool]],
                 explained: Callable[[str, Process, int], bool]) -> None:
        self.alive: dict[str, Process] = {}
        self.deaths: list[Death] = []
        self.lost: str | None = None  # why all of them count as dead
        self.ending = False  # from now on every end is wanted
        self._send, self._is_stopped, self._explained = send, is_stopped, explained

    def begin(self, name: str, log: Path) -> Process:
        """Lists a process, before its end can be reported."""
        if self.lost is not None or name in self.alive:
            raise FloodmarkError(f"cannot start {name}: {self.lost or 'it is running'}")
        self.alive[name] = Process(begun=Start.now(log))
        return self.alive[name]

    def lives(self, name: str) -> bool:
        return name in self.alive

    def paused(self, name: str) -> bool:
        return name in self.alive and self.alive[name].paused

    async def kill(self, name: str, by: signal.Signals = signal.SIGKILL, *, timeout_s: float = KILL_S
                   ) -> None:
        """Returns when the process has ended. Does nothing if it does not run."""
        process = self.alive.get(name)
        if process is None:
            return
        process.wanted = True
        await self._send(name, process, by)
        try:
            await asyncio.wait_for(process.has_ended.wait(), timeout_s)
        except TimeoutError:
            raise FloodmarkError(f"{name} did not end within {timeout_s:g} s of {by.name}") from None

    async def pause(self, name: str) -> None:
        """Returns when the kernel has stopped the process."""
        process = self.alive.get(name)
        if process is None:
            raise FloodmarkError(f"cannot pause {name}: {self.lost or 'it is not running'}")
        process.paused = True
        await self._send(name, process, signal.SIGSTOP)

        async def still_running() -> str | None:
            return "it still runs" if name in self.alive and not await self._is_stopped(name) else None

        await wait_until(still_running, f"{name} to be stopped", STOPPED_S)

    async def resume(self, name: str) -> None:
        process = self.alive.get(name)
        if process is not None:
            await self._send(name, process, signal.SIGCONT)
            process.paused = False

    def ended(self, name: str, code: int) -> None:
        """A process has ended. code: as a subprocess's, minus the number for a signal."""
        process = self.alive.pop(name, None)
        if process is None:
            return
        if not (process.wanted or self.ending or self._explained(name, process, code)):
            self.deaths.append(Death.now(name, exit_report(process.begun, code)))
        process.has_ended.set()

    def lose(self, why: str) -> None:
        """All have ended because of something else."""
        if not self.ending and self.lost is None:
            self.lost = why
        for process in self.alive.values():
            process.has_ended.set()
        self.alive.clear()
