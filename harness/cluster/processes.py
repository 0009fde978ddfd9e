"""The processes of a cluster: which of them live, how the others ended, and what they said last; requests to
processes of ours, as JSON lines: supervisor and links over socket pairs, nodes over TCP.

Rules
1. The end of a process is known when the place calls `ended`; a kill returns then.
2. An end is requested (kill), or explained (an armed failpoint, a fault in force), or else it is in `deaths`.
   When everything is `lost`, no process has died by itself.
3. The last lines of the log are read when the end becomes known: a node that is started again appends to the
   same log. Only what the process wrote since its own start counts. The last errors are in the first sentence
   if none ends the log: after an error a broker may write many lines about its stop. Long lines are cut: a
   line may contain a batch of records.
4. Each request has one answer, matched by id, and a time-out; several may be open. If the connection is lost,
   open requests fail. A line without an id is passed to `on_event`.
"""

import asyncio
import contextlib
import errno
import itertools
import json
import os
import re
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from floodmark.harness import runtime
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import wait_until

KILL_S = 60.0  # from a kill to the report of the end: a busy engine once took 3 s
STOPPED_S = 60.0
# Signals that come from outside: from a person, or from the kernel when memory is short. An abort, a
# segmentation fault or an exit code is the process's own end.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FRAME = re.compile(r"\s+(at [^ ]+\(.*\)|\.\.\. \d+ (more|common frames omitted))\s*$")  # in Java
_ERROR = re.compile(r"(?:^|\s)(?:ERROR|FATAL)\s|^error\s")  # log4j's levels, and the reference broker's
LINES = 20
SHOWN_LINES = 2  # of the end, by every report
LAST_WORDS_LINES = 5
LINE_CHARS = 500
_TAIL_BYTES = 1 << 18
# Errors of the operating system that are not the process's fault: its port is taken, the disk is full or
# failing, a limit of files or memory is reached. In a broker's last line they mean that the machine caused
# its end. (If a fault of the nemesis causes the same, the end is explained before this is checked.)
_OF_THE_MACHINE = tuple(os.strerror(number) for number in (
    errno.EADDRINUSE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENFILE,
    errno.ENOMEM))


class Death(NamedTuple):
    """The end of a process that was not requested and that nothing explains."""

    name: str
    words: str  # how it ended and the end of its log, in lines
    time_ns: int  # monotonic

    @classmethod
    def now(cls, name: str, words: str) -> "Death":
        return cls(name=name, words=words, time_ns=runtime.current.monotonic_ns())


@dataclass(slots=True, kw_only=True)
class Start:
    log: Path
    log_bytes: int
    time_s: float  # monotonic

    @classmethod
    def now(cls, log: Path) -> "Start":
        return cls(log=log, log_bytes=log.stat().st_size if log.exists() else 0, time_s=runtime.monotonic_s())


def exit_report(start: Start, code: int) -> str:
    """With its last error, then the end of its log. code: a subprocess's, minus the number for a signal."""
    first = f"{_exit_sentence(code)}, {runtime.monotonic_s() - start.time_s:.1f} s after its start"
    lines = log_tail(start.log, _TAIL_BYTES, start.log_bytes)
    errors = [line for line in lines if _ERROR.search(line)][-SHOWN_LINES:]
    if errors and errors[-1] not in lines[-SHOWN_LINES:]:
        first += f"; its last errors: {' | '.join(errors)}"
    return "\n".join([first, *(lines[-LINES:] or ["it left no log"])])


def log_tail(log: Path, lines: int = LINES, since: int = 0) -> list[str]:
    """The last lines without blank ones and frames of stack traces. since: bytes to leave out at first."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    kept = [line.strip() for line in text if line.strip() and _FRAME.match(line) is None][-lines:]
    return [line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}... ({len(line)} characters)"
            for line in kept]


def last_words(log: Path, *besides: str) -> str:
    """The end of a log on one line, for a message. besides: further facts about the end."""
    if not log.exists():
        return "it left no log"
    return " | ".join([*log_tail(log, LAST_WORDS_LINES), *besides]) or "its log is empty"


def is_stopped(process: Path) -> bool:
    """Whether the kernel has stopped all threads of a process. process: its folder in /proc."""
    with contextlib.suppress(OSError):
        # pid (name, which may contain anything) state ...
        return all((thread / "stat").read_text().rpartition(")")[2].split()[0] in "Tt"
                   for thread in (process / "task").iterdir())
    return False


def machine_failure(report: str) -> str | None:
    """A signal from outside, or an error of the system in the last line. None: it was not the machine."""
    first, last = report.splitlines()[0], report.splitlines()[-1]
    killed = next((sentence for sentence in _KILLED if first.startswith(sentence)), None)
    if killed is not None:
        return f"{killed} (from the kernel for lack of memory, or from another process)"
    return next((phrase for phrase in _OF_THE_MACHINE if phrase in last), None)


def _exit_sentence(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"{name} ended it, which floodmark did not send"


_KILLED = frozenset(_exit_sentence(-number) for number in _FROM_OUTSIDE)


@dataclass(slots=True, kw_only=True)
class Process:
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
        if (process := self.alive.get(name)) is None:
            return
        process.wanted = True
        await self._send(name, process, by)
        try:
            await asyncio.wait_for(process.has_ended.wait(), timeout_s)
        except TimeoutError:
            raise FloodmarkError(f"{name} did not end within {timeout_s:g} s of {by.name}") from None

    async def pause(self, name: str) -> None:
        if (process := self.alive.get(name)) is None:
            raise FloodmarkError(f"cannot pause {name}: {self.lost or 'it is not running'}")
        process.paused = True
        await self._send(name, process, signal.SIGSTOP)

        async def still_running() -> str | None:
            return "it still runs" if name in self.alive and not await self._is_stopped(name) else None

        await wait_until(still_running, f"{name} to be stopped", STOPPED_S)

    async def resume(self, name: str) -> None:
        if (process := self.alive.get(name)) is not None:
            await self._send(name, process, signal.SIGCONT)
            process.paused = False

    def ended(self, name: str, code: int) -> None:
        """A process has ended. code: as a subprocess's, minus the number for a signal."""
        if (process := self.alive.pop(name, None)) is None:
            return
        if not (process.wanted or self.ending or self._explained(name, process, code)):
            self.deaths.append(Death.now(name, exit_report(process.begun, code)))
        process.has_ended.set()

    def lose(self, why: str) -> None:
        if not self.ending and self.lost is None:
            self.lost = why
        for process in self.alive.values():
            process.has_ended.set()
        self.alive.clear()


# -- requests ------------------------------------------------------------------------------------------------

ANSWER_BYTES_MAX = 64 * 2**20  # a state of many partitions is one line

OnEvent = Callable[[Mapping[str, Any]], None]


class ControlError(FloodmarkError):
    """A process of the cluster did not answer, or refused; the message names it and the request."""


class Refused(ControlError):
    """The process answered with an error."""


class Lines:
    def __init__(self, who: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *,
                 on_event: OnEvent | None = None, lost: Callable[[], None] | None = None) -> None:
        self._who, self._reader, self._writer = who, reader, writer
        self._on_event, self._lost = on_event, lost
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self.open = True
        self._listening = asyncio.create_task(self._listen(), name=f"lines from {who}")

    async def ask(self, do: str, *, timeout_s: float, **besides: Any) -> Mapping[str, Any]:
        """Returns the answer's `ok`. ControlError if there is no answer, Refused if it is an error."""
        if not self.open:
            raise ControlError(f"{self._who} is gone: it cannot be asked to {do}")
        number = next(self._ids)
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._writer.write(json.dumps({"id": number, "do": do, **besides}).encode() + b"\n")
            async with asyncio.timeout(timeout_s):
                message = await answer
        except TimeoutError:
            raise ControlError(f"{self._who} did not answer '{do}' in {timeout_s:g} s") from None
        finally:
            self._waiting.pop(number, None)
        if "error" in message:
            raise Refused(f"{self._who} refused '{do}': {message['error']}")
        ok: Mapping[str, Any] = message["ok"]
        return ok

    async def close(self) -> None:
        self._writer.close()
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                message: Mapping[str, Any] = json.loads(line)
                answer = self._waiting.get(message.get("id", -1))
                if answer is not None and not answer.done():
                    answer.set_result(message)
                elif "id" not in message and self._on_event is not None:
                    self._on_event(message)
        except (OSError, ValueError):
            pass  # a reset, or no JSON: counts as closed
        finally:
            self.open = False
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ControlError(f"{self._who} closed the connection without an answer"))
            if self._lost is not None:
                self._lost()


async def open_lines(connection: socket.socket, who: str, *, on_event: OnEvent | None = None,
                     lost: Callable[[], None] | None = None) -> Lines:
    """Over one end of a socket pair."""
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=ANSWER_BYTES_MAX)
    return Lines(who, reader, writer, on_event=on_event, lost=lost)
