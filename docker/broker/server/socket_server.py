"""Accepts connections and reads request frames; a connection has one request in progress at a time.

Rules
1. A connection has one request in progress; the next is handled when its response has been written (Kafka
   mutes the channel likewise). A fetch that waits therefore delays its own connection and no other.
2. Garbage (WireError, a frame of an impossible size) closes its connection and nothing else.
3. A client that reads slowly gets no more responses until it has read: responses do not accumulate.
"""

import asyncio
import struct
from collections.abc import Callable

from floodmark.broker.process_log import halt_process, log
from floodmark.broker.wire.codec import WireError

_SIZE = struct.Struct(">i")
_READ_AHEAD_BYTES = 1 << 20  # of requests after the one in progress

Handler = Callable[["Connection", bytes], None]


class Connection(asyncio.Protocol):
    """One client's connection. The handler gets each frame, and must at last call `answer` or `close`."""

    def __init__(self, handler: Handler, max_frame_bytes: int) -> None:
        self._handler = handler
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()
        self._request_in_progress = False
        self._full = False  # the transport's write buffer
        self._reading = True
        self._handling_frames = False
        self._transport: asyncio.Transport | None = None
        self.on_close: list[Callable[[], None]] = []  # called when the client has left

    @property
    def peer(self) -> str:
        address = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{address[0]}:{address[1]}" if address else "?"

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for callback in self.on_close:
            callback()
        self.on_close.clear()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._handle_frames()
        self._limit_reading()

    def _limit_reading(self) -> None:
        """Stop reading when much has come behind a request that must wait. The rest of a request is always
        read, however long it is."""
        waits = self._request_in_progress or self._full
        reading = not waits or len(self._buffer) <= _READ_AHEAD_BYTES
        if self._transport is None or reading == self._reading:
            return
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        if (
            not buffer
            and not self._request_in_progress
            and not self._full
            and len(data) >= 4
            and (_SIZE.unpack_from(data)[0] == len(data) - 4 <= self._max_frame_bytes)
        ):
            self._handle_frame(data[4:])
            return
        buffer += data
        self._handle_frames()
        self._limit_reading()

    def answer(self, frame: bytes | None) -> None:
        """Write the response to the request in progress; None: it gets none (acks=0)."""
        transport = self._transport
        if transport is None:
            return
        if frame is not None:
            transport.write(frame)
        self._request_in_progress = False
        if self._buffer:
            self._handle_frames()
        self._limit_reading()

    def close(self, why: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            log("warning", "connection-closed", peer=self.peer, why=why)
            self._transport.abort()

    def _handle_frames(self) -> None:
        """Handle complete frames while no request is in progress. Not re-entered: the handler may answer at
        once."""
        if self._handling_frames:
            return
        self._handling_frames = True
        try:
            while not self._request_in_progress and not self._full and not self.closed:
                buffer = self._buffer
                if len(buffer) < 4:
                    return
                size = _SIZE.unpack_from(buffer)[0]
                if not 0 <= size <= self._max_frame_bytes:
                    self.close(f"a frame of {size} bytes")
                    return
                if len(buffer) < 4 + size:
                    return
                frame = bytes(memoryview(buffer)[4 : 4 + size])
                del buffer[: 4 + size]
                self._handle_frame(frame)
        finally:
            self._handling_frames = False

    def _handle_frame(self, frame: bytes) -> None:
        self._request_in_progress = True
        try:
            self._handler(self, frame)
        except WireError as error:
            self.close(f"garbage: {error}")
        except Exception as error:  # a bug of ours: the state is unknown, so that no answer may follow
            halt_process("request-handler-failed", error)


class SocketServer:
    """The listening socket and its connections."""

    def __init__(self, handler: Handler, max_frame_bytes: int) -> None:
        self._handler = handler
        self._max_frame_bytes = max_frame_bytes
        self._server: asyncio.Server | None = None
        self._connections: dict[Connection, None] = {}  # in order

    async def open(self, host: str, port: int) -> None:
        """Start to listen; OSError where the port is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._new_connection, host, port, reuse_address=True, backlog=512
        )

    def _new_connection(self) -> Connection:
        connection = Connection(self._handler, self._max_frame_bytes)
        self._connections[connection] = None
        connection.on_close.append(lambda: self._connections.pop(connection, None))
        return connection

    def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            transport = connection._transport
            if transport is not None:
                transport.close()
