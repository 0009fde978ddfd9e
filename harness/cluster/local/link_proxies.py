"""Proxies every connection of a local cluster: it has a port for each pair (dialer, listener) and cuts by
direction. Run as `python -m floodmark.harness.cluster.local.link_proxies` in a process of its own, so that a
busy harness does not slow replication down. It takes requests as JSON lines on its standard input, a socket.

Rules
1. A cut is a set of pairs (sender, receiver) and affects every connection between the two, whoever opened it:
   with (n1, n2) cut, n1's requests to n2 are stopped, and also n1's answers on connections that n2 opened.
2. A silent cut holds bytes back, in order, and delivers them at the heal. The close of a connection is held
   back too, after its bytes. A connection opened through a cut is accepted and gets no data; if it is closed
   before the heal, the listener never sees it, like an unfinished TCP handshake.
3. A cut by reset resets connections of the pair in both directions, existing and new ones.
4. A change is answered when it is in force: from then on no byte passes that it stops.
5. Without a cut no byte is lost, doubled or reordered, and a slow receiver slows the sender down.
6. If nobody listens at the far side, the dialer's connection is reset at once.
"""

import asyncio
import contextlib
import json
import signal
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

HOST = "127.0.0.1"
# A cut connection is not read beyond this: TCP's buffers fill up then, and at last the sender blocks.
BUFFERED_BYTES_MAX = 16 * 2**20
BACKLOG = 512

Pair = tuple[str, str]  # (sender, receiver)

# One buffer for all connections: asyncio reads into it and passes it on within one callback
# (BufferedProtocol), and copying what was read costs less than allocating a full buffer each time.
_BUFFER = bytearray(256 * 1024)
_VIEW = memoryview(_BUFFER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    dialer: str
    listener: str
    host: str  # where the dialer connects
    port: int
    to: tuple[str, int]  # the listener's address


@dataclass(slots=True, kw_only=True)
class Cut:
    silent: frozenset[Pair] = frozenset()
    reset: frozenset[Pair] = frozenset()

    def resets(self, link: Link) -> bool:
        return (link.dialer, link.listener) in self.reset or (link.listener, link.dialer) in self.reset


class End(asyncio.BufferedProtocol):
    """One end of a proxied connection, the dialer's or the listener's (is_far). `buffered` is what it has
    sent and its peer has not got; buffered_bytes is the size of that."""

    def __init__(self, links: "Links", link: Link, dialer: "End | None" = None) -> None:
        self.link = link
        self.is_far = dialer is not None
        self.pair: Pair = (link.listener, link.dialer) if self.is_far else (link.dialer, link.listener)
        self.blocked = False  # a silent cut holds back what it sends
        self.buffered_bytes = 0
        self._links = links
        self._buffered: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._is_gone = False  # it was closed, or never opened
        self._is_full = False  # what it should receive fills its write buffer
        self._was_reset = False
        self._dialling: asyncio.Task[None] | None = None
        self.peer: End = dialer or End(links, link, self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self.is_far:
            # Not earlier: asyncio makes the protocol before this, and a change in between would be missed.
            self._links.dialers.add(self)
            for end in (self, self.peer):
                end.blocked = end.pair in self._links.cut.silent
            self._was_reset = self._links.cut.resets(self.link)
        if self._dialer._was_reset:
            self._dialer.reset()
        else:
            self._dialer.advance()

    def get_buffer(self, sizehint: int) -> bytearray:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        data, receiver = bytes(_VIEW[:nbytes]), self.peer._transport
        if self.peer._is_gone:
            return
        if self.blocked or receiver is None:
            self._buffered.append(data)
            self.buffered_bytes += nbytes
            self._set_reading()
        elif not receiver.is_closing():
            receiver.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_gone = True
        self.peer._drop()
        never_dialled = not self.is_far and self.peer._transport is None and self._dialling is None
        if self.peer._is_gone or (never_dialled and self.blocked):
            self._links.dialers.discard(self._dialer)
        else:
            self._deliver()

    def pause_writing(self) -> None:
        self._is_full = True
        self.peer._set_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self.peer._set_reading()

    def advance(self) -> None:
        """Of the dialer's end: connects to the listener if that is not done, and delivers what may pass."""
        if not (self.blocked or self._dialling or self.peer._transport or self.peer._is_gone):
            self._dialling = asyncio.create_task(self._dial())
        self._deliver()
        self.peer._deliver()

    def reset(self) -> None:
        """Of the dialer's end: resets both ends; one that is still being connected, as soon as it is."""
        self._was_reset = True
        for end in (self, self.peer):
            end.blocked = False
            end._drop()
            if end._transport is not None and not end._is_gone:
                _reset(end._transport)
        if self.peer._transport is None and self._dialling is None:
            self.peer._is_gone = True

    @property
    def _dialer(self) -> "End":
        return self.peer if self.is_far else self

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.peer, *self.link.to)
        except OSError:
            self.peer.connection_lost(None)

    def _deliver(self) -> None:
        """Passes on what it has sent: bytes, then its close."""
        receiver = self.peer._transport
        if self.blocked or receiver is None or self.peer._is_gone:
            return
        for data in self._buffered:
            receiver.write(data)
        self._drop()
        if not self._is_gone:
            self._set_reading()
        elif self._transport is None:
            _reset(receiver)  # nobody listens there
        else:
            receiver.close()  # after the bytes written to it

    def _drop(self) -> None:
        self._buffered.clear()
        self.buffered_bytes = 0

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.peer._is_full or self.buffered_bytes >= BUFFERED_BYTES_MAX:
            transport.pause_reading()
        else:
            transport.resume_reading()


def _reset(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):  # it may be closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Links:
    def __init__(self) -> None:
        self.cut = Cut()
        self.dialers: set[End] = set()  # the dialers' ends of all connections
        self._servers: list[asyncio.Server] = []

    async def obey(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carries out one request; returns the answer's `ok`. OSError if a port is taken."""
        match request["do"]:
            case "listen":
                for fields in request["links"]:
                    await self._listen(Link(**{**fields, "to": tuple(fields["to"])}))
            case "set":
                silent, reset = (frozenset(map(tuple, request[kind])) for kind in ("silent", "reset"))
                self._set(silent, reset)
            case "state":
                pass
            case other:
                raise ValueError(f"unknown request {other!r}")
        return self._state()

    async def _listen(self, link: Link) -> None:
        self._servers.append(await asyncio.get_running_loop().create_server(
            lambda: End(self, link), link.host, link.port, backlog=BACKLOG))

    def _set(self, silent: frozenset[Pair], reset: frozenset[Pair]) -> None:
        self.cut = Cut(silent=silent, reset=reset)
        # All ends are marked before any of them delivers: a change takes effect at once.
        for dialer in self.dialers:
            for end in (dialer, dialer.peer):
                end.blocked = end.pair in silent
        for dialer in list(self.dialers):
            if self.cut.resets(dialer.link):
                dialer.reset()
            else:
                dialer.advance()

    def _state(self) -> dict[str, Any]:
        return {"silent": sorted(self.cut.silent), "reset": sorted(self.cut.reset),
                "connections": len(self.dialers),
                "held_bytes": sum(one.buffered_bytes + one.peer.buffered_bytes for one in self.dialers)}


async def serve(harness: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=harness)
    links = Links()
    while line := await reader.readline():
        request = json.loads(line)
        try:
            answer: Mapping[str, Any] = {"id": request["id"], "ok": await links.obey(request)}
        except (OSError, ValueError, KeyError) as error:
            answer = {"id": request["id"], "error": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(ConnectionError):
        asyncio.run(serve(socket.socket(fileno=0)))


if __name__ == "__main__":
    main()
