"""Starts the supervisor, starts processes through it, and knows which of them live.

Rules
1. An exit is requested (kill, terminate), or expected (an armed failpoint), or the process died by itself;
   `deaths` has the last for all of the run.
2. If the supervisor dies, all processes die with it. `lost` says so, and none of them is in `deaths`.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from floodmark.harness.cluster import control_client
from floodmark.harness.cluster.exit_reports import Start, exit_report, last_words
from floodmark.harness.cluster.hosts import Death, ExpectsExit, expects_no_exit
from floodmark.harness.errors import FloodmarkError

ANSWER_S = 60.0


@dataclass(slots=True, kw_only=True)
class SupervisedProcess:
    """One process, from one start to its end."""

    pid: int
    begun: Start
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: bool = False  # its end was requested
    paused: bool = False


class SupervisedProcesses:
    """The processes of one run, by name. `begin` starts the supervisor, `end` ends it."""

    def __init__(self, *, supervisor: subprocess.Popen[bytes], links_stdin: int, to_links: socket.socket
                ) -> None:
        self._supervisor = supervisor
        self._links_stdin = links_stdin
        self._to_links: socket.socket | None = to_links
        self._lines: control_client.Lines | None = None
        self._alive: dict[str, SupervisedProcess] = {}
        self._logs: dict[str, Path] = {}
        self._ending = False
        self.deaths: list[Death] = []  # in order
        self.lost: str | None = None
        self.expects_exit: ExpectsExit = expects_no_exit  # whether this exit (name, code) was expected

    @classmethod
    async def begin(cls, log: Path, module: str | None = None) -> "SupervisedProcesses":
        """Starts the supervisor. module: a program, as of `python -m`, for `fork`."""
        ours, its = socket.socketpair()
        to_links, links_stdin = socket.socketpair()
        with its, links_stdin, log.open("ab") as errors:
            supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "floodmark.harness.cluster.local.supervisor", str(os.getpid()),
                 *([module] if module is not None else [])],
                stdin=its.fileno(),
                stdout=errors,
                stderr=errors,
                pass_fds=[links_stdin.fileno()],
                start_new_session=True,
            )
            processes = cls(supervisor=supervisor, links_stdin=links_stdin.fileno(), to_links=to_links)
        processes._lines = await control_client.open_lines(
            ours, "the supervisor", on_event=processes._on_exit, lost=processes._all_lost)
        return processes

    def links_socket(self) -> socket.socket:
        """Our end of the socket whose other end is the links' standard input; the caller closes it."""
        assert self._to_links is not None, "it can be taken once"
        to_links, self._to_links = self._to_links, None
        return to_links

    async def spawn(self, name: str, argv: Sequence[str], log: Path, *, links: bool = False
                   ) -> SupervisedProcess:
        """Starts a process. links: it gets the links' socket as its standard input."""
        besides: dict[str, Any] = {"stdin": self._links_stdin} if links else {}
        return await self._start("spawn", name, log, argv=list(argv), **besides)

    async def fork(self, name: str, arguments: Sequence[str], log: Path) -> SupervisedProcess:
        """Starts a process of the module that was given to `begin`."""
        return await self._start("fork", name, log, arguments=list(arguments))

    async def _start(self, how: str, name: str, log: Path, **besides: Any) -> SupervisedProcess:
        if name in self._alive:
            raise FloodmarkError(f"cannot start {name}: it is running")
        # Added before the supervisor can report its exit: answer and event come over one ordered connection.
        process = SupervisedProcess(pid=0, begun=Start.now(log))
        self._logs[name] = log
        self._alive[name] = process
        try:
            ok = await self._ask(how, name=name, log=str(log), **besides)
        except control_client.ControlError:
            self._alive.pop(name, None)
            raise
        process.pid = ok["pid"]
        return process

    async def kill(self, name: str) -> None:
        """Sends SIGKILL; returns when the process is gone. Does nothing if it does not run."""
        process = self._alive.get(name)
        if process is not None:
            process.wanted = True
            await self._ask("kill", name=name)

    async def terminate(self, name: str, *, timeout_s: float) -> None:
        """Sends SIGTERM; returns when the process is gone."""
        process = self._alive.get(name)
        if process is None:
            return
        process.wanted = True
        await self._ask("terminate", name=name)
        try:
            await asyncio.wait_for(process.ended.wait(), timeout_s)
        except TimeoutError:
            raise FloodmarkError(f"{name} did not stop within {timeout_s:g} s of SIGTERM") from None

    async def pause(self, name: str) -> None:
        """Sends SIGSTOP; returns when the kernel has stopped the process."""
        self._living(name, "pause").paused = True
        await self._ask("pause", name=name)

    async def resume(self, name: str) -> None:
        process = self._living(name, "resume")
        await self._ask("resume", name=name)
        process.paused = False

    def lives(self, name: str) -> bool:
        return name in self._alive

    def paused(self, name: str) -> bool:
        process = self._alive.get(name)
        return process is not None and process.paused

    def stopped_by_the_kernel(self, name: str) -> bool:
        """Whether the process is stopped, by /proc and not by our own record."""
        process = self._alive.get(name)
        if process is None:
            return False
        with contextlib.suppress(OSError):
            # pid (name, which may contain anything) state ...
            return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False

    def last_words(self, name: str) -> str:
        """The end of the process's log, for a message."""
        return last_words(self._logs.get(name))

    async def end(self) -> None:
        """Kills everything, the supervisor last, and waits for it. Safe to call twice."""
        self._ending = True
        if self._to_links is not None:
            self.links_socket().close()
        if self._lines is not None:
            await self._lines.close()  # the supervisor then kills all children and ends
        try:
            await asyncio.to_thread(self._supervisor.wait, ANSWER_S)
        except subprocess.TimeoutExpired:
            self._supervisor.send_signal(signal.SIGKILL)  # its children die with it
            await asyncio.to_thread(self._supervisor.wait)
        self._alive.clear()

    def _living(self, name: str, do: str) -> SupervisedProcess:
        process = self._alive.get(name)
        if process is None:
            raise FloodmarkError(f"cannot {do} {name}: it is not running")
        return process

    async def _ask(self, do: str, **besides: Any) -> Mapping[str, Any]:
        assert self._lines is not None, "begin() opened them"
        return await self._lines.ask(do, timeout_s=ANSWER_S, **besides)

    def _on_exit(self, message: Mapping[str, Any]) -> None:
        name, code = message["exit"], message["code"]
        process = self._alive.pop(name, None)
        if process is None:
            return
        if not process.wanted and not self._ending and not self.expects_exit(name, code):
            self.deaths.append(Death.now(name, exit_report(process.begun, code)))
        process.ended.set()

    def _all_lost(self) -> None:
        if not self._ending:
            self.lost = "the supervisor, parent of all brokers, ended, and all brokers with it"
        for process in self._alive.values():
            process.ended.set()
        self._alive.clear()

