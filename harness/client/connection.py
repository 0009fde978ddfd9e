"""Implements a connection to one broker, and tells of each request whether a byte was sent.

Rules
1. Unsent means that no byte of the request was sent, Lost that some bytes may have been sent. Only this
   decides between fail and info.
2. A connection that missed one response (time-out, cancellation, invalid bytes) is aborted, so that a late
   response is never mistaken for another request's.
3. Unless the versions are known, a connection requests ApiVersions before its first use, so that a proxy in
   front of a dead broker is detected before any byte of an op is sent.
"""

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

_INT32 = struct.Struct(">i")
_CORRELATION_AT = 8  # after the size, the api key and the version
_MAX_RESPONSE_BYTES = 64 << 20
_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 0, -1)  # ApiVersions 0, header 1, client id null
_VERSIONS_HEAD = struct.Struct(">hi")
_VERSION_RANGE = struct.Struct(">hhh")


class Unsent(Exception):
    """No byte of the request was sent. Its text, if any, says what is there instead of a broker."""


class Lost(Exception):
    """Bytes may have been sent, and no response came. `timed_out`: a time-out, not a broken connection."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__("no answer in time" if timed_out else "the connection broke")
        self.timed_out = timed_out


class Connection(asyncio.Protocol):
    """`versions`: api key -> (lowest, highest) that the broker serves."""

    def __init__(self) -> None:
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._in_flight: deque[tuple[int, asyncio.Future[bytes]]] = deque()  # correlation id, response
        self._correlation = 0
        self._loop = asyncio.get_running_loop()

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, frame: bytearray, timeout_s: float) -> bytes:
        """Send a request frame (its correlation id is written here); returns the response after its
        correlation id. Several may be in flight: responses keep their order. Raises Unsent or Lost."""
        response: asyncio.Future[bytes] = self._loop.create_future()
        self.send_unanswered(frame)
        self._in_flight.append((self._correlation, response))
        timer = self._loop.call_later(timeout_s, self._time_out, response)
        try:
            return await response
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            timer.cancel()

    def send_unanswered(self, frame: bytearray) -> None:
        """Send a request that has no response (acks=0), or whose response exchange awaits. Raises Unsent."""
        if self._transport is None or self._transport.is_closing():
            raise Unsent
        self._correlation += 1
        _INT32.pack_into(frame, _CORRELATION_AT, self._correlation)
        self._transport.write(bytes(frame))

    def close(self) -> None:
        """Close after everything written has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._received and len(data) >= 8 and _INT32.unpack_from(data)[0] == len(data) - 4:
            self._receive(data)  # one complete frame in one piece, which is nearly always so
            return
        self._received += data
        while len(self._received) >= 8:
            size = _INT32.unpack_from(self._received)[0]
            if not 4 <= size <= _MAX_RESPONSE_BYTES:
                self.abort()
                return
            if len(self._received) < size + 4:
                return
            frame = bytes(self._received[:size + 4])
            del self._received[:size + 4]
            self._receive(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        for _, response in self._in_flight:
            if not response.done():
                response.set_exception(Lost(timed_out=False))
        self._in_flight.clear()

    def _receive(self, frame: bytes) -> None:
        correlation, response = self._in_flight[0] if self._in_flight else (None, None)
        if response is None or response.done() or _INT32.unpack_from(frame, 4)[0] != correlation:
            self.abort()  # a response without a request
        else:
            self._in_flight.popleft()
            response.set_result(frame[8:])

    def _time_out(self, response: asyncio.Future[bytes]) -> None:
        if not response.done():
            response.set_exception(Lost(timed_out=True))
            self.abort()


Dial = Callable[[str, int, float], Awaitable[Connection]]  # host, port, time-out in seconds; as connect


async def connect(host: str, port: int, timeout_s: float, *, tls: ssl.SSLContext | None = None,
                  versions: Mapping[int, tuple[int, int]] | None = None) -> Connection:
    """versions: those of a broker that need not be asked for them. Raises Unsent, never Lost."""
    connection: Connection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, host, port, ssl=tls)
            if versions is None:
                response = await connection.exchange(bytearray(_API_VERSIONS_REQUEST), timeout_s)
                error_code, count = _VERSIONS_HEAD.unpack_from(response)
                if error_code:
                    raise struct.error(f"ApiVersions answered {error_code}")
                rows = (_VERSION_RANGE.unpack_from(response, _VERSIONS_HEAD.size + _VERSION_RANGE.size * nth)
                        for nth in range(count))
                versions = {key: (lowest, highest) for key, lowest, highest in rows}
        connection.versions = versions
    except (OSError, Unsent, Lost, struct.error) as error:
        if connection is not None:
            connection.abort()
        raise Unsent(_describe(error, connection, timeout_s)) from error
    return connection


def _describe(error: Exception, connection: Connection | None, timeout_s: float) -> str:
    """What is there instead of a broker, as far as it can be told."""
    if connection is not None and connection._received.startswith((b"HTTP", b"<")):
        return "HTTP answers there, not Kafka"
    if isinstance(error, TimeoutError):
        taken = "no connection" if connection is None else "it takes the connection, and does not answer"
        return f"{taken} within {timeout_s:g} s"
    if connection is not None:
        return "the connection is closed, with no answer of Kafka's: does it want TLS (--client-config)?"
    return "the host's name is not known" if isinstance(error, socket.gaierror) else "nothing answers there"

