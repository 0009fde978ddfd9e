"""Asks other processes by JSON lines: supervisor and links over socket pairs, nodes over TCP.

Rules
1. One request, one answer, matched by id; several may be under way. A line without an id is told to `heard`.
2. Every request has a time-out. A lost connection fails what waits on it, and a `Control` dials anew at
   the next request: the node may have been restarted.
3. What goes wrong is a `ControlError` that says who was asked what.
"""

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

from floodmark.harness.errors import FloodmarkError

ANSWER_BYTES_MAX = 64 * 2**20  # a state of many partitions is one line

Heard = Callable[[Mapping[str, Any]], None]


class ControlError(FloodmarkError):
    """A process of the cluster did not answer, or refused."""


class Refused(ControlError):
    """It answered, with an error; `answer` is its message."""

    def __init__(self, text: str, answer: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.answer = answer


class Lines:
    """One connection, open until the other side or `close` ends it."""

    def __init__(
        self,
        who: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        heard: Heard | None = None,
        lost: Callable[[], None] | None = None,
    ) -> None:
        self._who = who
        self._reader = reader
        self._writer = writer
        self._heard = heard
        self._lost = lost
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self.open = True
        self._listening = asyncio.create_task(self._listen(), name=f"lines from {who}")

    async def ask(self, do: str, *, timeout_s: float, **besides: Any) -> Mapping[str, Any]:
        """The answer's `ok`. ControlError if there is none, Refused if it is an error."""
        if not self.open:
            raise ControlError(f"{self._who} has gone: it cannot be asked to {do}")
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
            raise Refused(f"{self._who} refused '{do}': {message['error']}", message)
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
                self._take(json.loads(line))
        except (OSError, ValueError):
            pass  # a reset, or no JSON: the same as gone
        finally:
            self.open = False
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ControlError(f"{self._who} went away before it answered"))
            if self._lost is not None:
                self._lost()

    def _take(self, message: Mapping[str, Any]) -> None:
        number = message.get("id")
        if number is None:
            if self._heard is not None:
                self._heard(message)
            return
        answer = self._waiting.get(number)
        if answer is not None and not answer.done():
            answer.set_result(message)


async def over(
    connection: socket.socket, who: str, *, heard: Heard | None = None, lost: Callable[[], None] | None = None
) -> Lines:
    """Lines over one end of a socket pair."""
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=ANSWER_BYTES_MAX)
    return Lines(who, reader, writer, heard=heard, lost=lost)


class Control:
    """A node's control socket: dialled when first asked, and again after it was lost."""

    def __init__(self, who: str, host: str, port: int) -> None:
        self.who = who
        self._address = (host, port)
        self._lines: Lines | None = None
        self._dialling = asyncio.Lock()

    async def ask(self, do: str, *, timeout_s: float, **besides: Any) -> Mapping[str, Any]:
        """As Lines.ask; the time-out counts the dialling too."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(timeout_s):
                lines = await self._connected()
        except TimeoutError:
            raise ControlError(f"{self.who} did not take a control connection in {timeout_s:g} s") from None
        except OSError as error:
            raise ControlError(
                f"{self.who} does not listen on its control socket "
                f"{self._address[0]}:{self._address[1]} ({error})"
            ) from None
        left_s = timeout_s - (asyncio.get_running_loop().time() - began)
        return await lines.ask(do, timeout_s=max(left_s, 0.001), **besides)

    async def hang_up(self) -> None:
        """Forget the connection (its node was killed); the next request dials."""
        lines, self._lines = self._lines, None
        if lines is not None:
            await lines.close()

    async def _connected(self) -> Lines:
        async with self._dialling:
            if self._lines is None or not self._lines.open:
                reader, writer = await asyncio.open_connection(*self._address, limit=ANSWER_BYTES_MAX)
                self._lines = Lines(self.who, reader, writer)
            return self._lines
