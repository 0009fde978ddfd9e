"""Sends requests to another node: one connection, one request at a time, every wait with a time-out.

Rules
1. A cut link accepts the connection and answers nothing: so every response has a time-out.
2. After any failure the connection is closed: a late response can never be taken for the next request's.
3. A failure of the other node is an Unreachable; its text says which node failed to do what.
"""

import asyncio
import itertools
import struct
from collections.abc import Callable
from typing import Any

from floodmark.broker.server.config import Address
from floodmark.broker.wire.codec import WireError, read_response, write_request

_SIZE = struct.Struct(">i")
_RESPONSE_BYTES_MAX = 1 << 30


class Unreachable(Exception):
    """The other node refused the connection, did not answer in time, or sent garbage."""


class _ResponseReader(asyncio.Protocol):
    """Reads the connection: one response frame at a time, into one future."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.waiting: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(Unreachable(f"the connection was lost ({exc or 'closed'})"))

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        if len(buffer) < 4:
            return
        size = _SIZE.unpack_from(buffer)[0]
        if not 0 <= size <= _RESPONSE_BYTES_MAX or self.waiting is None:
            self.abort()
        elif len(buffer) >= 4 + size and not self.waiting.done():
            self.waiting.set_result(bytes(memoryview(buffer)[4 : 4 + size]))
            del buffer[: 4 + size]

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class NodeConnection:
    """A connection to one node; it connects at the first request, and again after a failure. `find_address`
    is called before each request: the node may have moved."""

    def __init__(self, name: str, find_address: Callable[[], Address], client: str) -> None:
        self.name = name
        self._find_address = find_address
        self._client = client
        self._answers: _ResponseReader | None = None
        self._address: Address | None = None
        self._correlations = itertools.count(1)
        self._one_at_a_time = asyncio.Lock()

    async def send_request(self, key: int, version: int, body: Any, *, timeout_s: float) -> Any:
        """Send kio's request; returns kio's response."""
        return await self.send_frame(
            key,
            version,
            lambda number: write_request(key, version, number, self._client, body),
            timeout_s=timeout_s,
        )

    async def send_frame(
        self, key: int, version: int, frame: Callable[[int], bytes], *, timeout_s: float
    ) -> Any:
        """Send the frame that `frame` builds for a correlation id; returns kio's response."""
        number, answer = await self.exchange_frames(frame, timeout_s=timeout_s)
        try:
            return read_response(answer, key, version, number)
        except WireError as error:
            self.close()
            raise Unreachable(f"{self.name}: {error}") from error

    async def exchange_frames(self, frame: Callable[[int], bytes], *, timeout_s: float) -> tuple[int, bytes]:
        """Send a frame; returns (correlation id, response frame). The time-out includes the wait for the
        connection to be free."""
        number = next(self._correlations) & 0x7FFFFFFF
        try:
            async with asyncio.timeout(timeout_s), self._one_at_a_time:
                return number, await self._exchange(frame(number))
        except TimeoutError:
            raise Unreachable(f"{self.name} did not answer in {timeout_s:g} s") from None
        except OSError as error:
            raise Unreachable(f"{self.name} cannot be reached: {error}") from None

    async def _exchange(self, frame: bytes) -> bytes:
        try:
            answers = await self._connect()
            waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            answers.waiting = waiting
            if answers.transport is None:
                raise Unreachable(f"{self.name}: the connection was lost")
            answers.transport.write(frame)
            answer = await waiting
        except BaseException:  # a cancelled request (new epoch, time-out) may still be answered: never reuse
            self.close()
            raise
        answers.waiting = None
        return answer

    async def _connect(self) -> _ResponseReader:
        address = self._find_address()
        answers = self._answers
        if answers is not None and answers.transport is not None and address == self._address:
            return answers
        self.close()
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(_ResponseReader, *address)
        self._answers, self._address = made, address
        return made

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.abort()
