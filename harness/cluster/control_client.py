"""Sends requests as JSON lines to other processes: supervisor and links over socket pairs, nodes over TCP.

Rules
1. Each request has one answer, matched by id; several may be open. A line without an id is passed to
   `on_event`.
2. Every request has a time-out. If the connection is lost, open requests fail.
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
