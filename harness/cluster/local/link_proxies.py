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
from dataclasses import dataclass, field
from typing import Any, Final, cast

HOST = "127.0.0.1"
# A cut connection is not read beyond this: TCP's buffers fill up then, and at last the sender blocks.
BUFFERED_BYTES_MAX = 16 * 2**20
BACKLOG = 512

NEAR: Final = 0  # the dialer's end
FAR: Final = 1  # the listener's end

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
    """The cuts in force."""

    silent: frozenset[Pair] = frozenset()
    reset: frozenset[Pair] = frozenset()

    def resets(self, link: Link) -> bool:
        return (link.dialer, link.listener) in self.reset or (link.listener, link.dialer) in self.reset


@dataclass(slots=True, kw_only=True)
class Flow:
    """One direction of one connection. Invariant: buffered_bytes is the size of all data in `buffered`."""

    pair: Pair
    blocked: bool = False
    over: bool = False  # the sender has closed: the receiver's end is closed after the last byte
    buffered: list[bytes] = field(default_factory=list)
    buffered_bytes: int = 0

    def buffer(self, data: bytes) -> None:
        self.buffered.append(data)
        self.buffered_bytes += len(data)

    def drop(self) -> None:
        self.buffered.clear()
        self.buffered_bytes = 0


class End(asyncio.BufferedProtocol):
    """One socket of a conversation: reports its events to it."""

    def __init__(self, conversation: "Conversation", side: int) -> None:
        self._conversation = conversation
        self._side = side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._conversation.connected(self._side, cast(asyncio.Transport, transport))

    def get_buffer(self, sizehint: int) -> bytearray:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self._conversation.received(self._side, bytes(_VIEW[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._conversation.closed(self._side)

    def pause_writing(self) -> None:
        self._conversation.set_full(self._side, True)

    def resume_writing(self) -> None:
        self._conversation.set_full(self._side, False)


class Conversation:
    """One proxied connection: its two ends and two flows; flows[side] is what that side sends."""

    def __init__(self, links: "Links", link: Link) -> None:
        self._links = links
        self.link = link
        self.flows = tuple(
            Flow(pair=pair) for pair in ((link.dialer, link.listener), (link.listener, link.dialer))
        )
        self._ends: list[asyncio.Transport | None] = [None, None]
        self._gone = [False, False]
        self._full = [False, False]  # that end's write buffer is full
        self._dialling: asyncio.Task[None] | None = None
        self._was_reset = False

    def connected(self, side: int, transport: asyncio.Transport) -> None:
        self._ends[side] = transport
        if side == NEAR:
            # Not earlier: asyncio makes the protocol before this, and a change in between would be missed.
            self._links.conversations.add(self)
            for flow in self.flows:
                flow.blocked = flow.pair in self._links.cut.silent
            self._was_reset = self._links.cut.resets(self.link)
        if self._was_reset:
            self.reset()
        else:
            self.advance()

    def received(self, side: int, data: bytes) -> None:
        flow, receiver = self.flows[side], self._ends[1 - side]
        if self._gone[1 - side]:
            return
        if flow.blocked or receiver is None:
            flow.buffer(data)
            self._set_reading(side)
        elif not receiver.is_closing():
            receiver.write(data)

    def closed(self, side: int) -> None:
        self._gone[side] = True
        self.flows[side].over = True
        self.flows[1 - side].drop()
        never_dialled = side == NEAR and self._ends[FAR] is None and self._dialling is None
        if all(self._gone) or (never_dialled and self.flows[NEAR].blocked):
            self._links.conversations.discard(self)
        else:
            self._deliver(side)

    def set_full(self, side: int, full: bool) -> None:
        self._full[side] = full
        self._set_reading(1 - side)

    def advance(self) -> None:
        """Connects to the listener if that is not done, and delivers the bytes that may pass."""
        if self._ends[FAR] is None and self._dialling is None and not self.flows[NEAR].blocked:
            self._dialling = asyncio.create_task(self._dial())
        for side in (NEAR, FAR):
            self._deliver(side)

    def reset(self) -> None:
        """Resets both ends; an end that is still being connected, as soon as it is."""
        self._was_reset = True
        for flow in self.flows:
            flow.blocked = False
            flow.drop()
        for side, transport in enumerate(self._ends):
            if transport is not None and not self._gone[side]:
                _reset(transport)
        if self._ends[FAR] is None and self._dialling is None:
            self._gone[FAR] = True

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: End(self, FAR), *self.link.to)
        except OSError:
            self.closed(FAR)

    def _deliver(self, side: int) -> None:
        flow, receiver = self.flows[side], self._ends[1 - side]
        if flow.blocked or receiver is None or self._gone[1 - side]:
            return
        for data in flow.buffered:
            receiver.write(data)
        flow.drop()
        if not flow.over:
            self._set_reading(side)
        elif side == FAR and self._ends[FAR] is None:
            _reset(receiver)  # nobody listens there
        else:
            receiver.close()  # after the bytes written to it

    def _set_reading(self, side: int) -> None:
        transport = self._ends[side]
        if transport is None or transport.is_closing():
            return
        if self._full[1 - side] or self.flows[side].buffered_bytes >= BUFFERED_BYTES_MAX:
            transport.pause_reading()
        else:
            transport.resume_reading()


def _reset(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):  # it may be closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Links:
    """All links of one cluster."""

    def __init__(self) -> None:
        self.cut = Cut()
        self.conversations: set[Conversation] = set()
        self._servers: list[asyncio.Server] = []

    async def obey(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carries out one request; returns the answer's `ok`. OSError if a port is taken."""
        match request["do"]:
            case "listen":
                for fields in request["links"]:
                    await self._listen(Link(**{**fields, "to": tuple(fields["to"])}))
            case "set":
                self._set(_pairs(request["silent"]), _pairs(request["reset"]))
            case "state":
                pass
            case other:
                raise ValueError(f"unknown request {other!r}")
        return self._state()

    async def _listen(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        self._servers.append(
            await loop.create_server(
                lambda: End(Conversation(self, link), NEAR), link.host, link.port, backlog=BACKLOG
            )
        )

    def _set(self, silent: frozenset[Pair], reset: frozenset[Pair]) -> None:
        self.cut = Cut(silent=silent, reset=reset)
        # All flows are marked before any of them delivers: a change takes effect at once.
        for conversation in self.conversations:
            for flow in conversation.flows:
                flow.blocked = flow.pair in silent
        for conversation in list(self.conversations):
            if self.cut.resets(conversation.link):
                conversation.reset()
            else:
                conversation.advance()

    def _state(self) -> dict[str, Any]:
        buffered_bytes = sum(flow.buffered_bytes for one in self.conversations for flow in one.flows)
        return {
            "silent": sorted(self.cut.silent),
            "reset": sorted(self.cut.reset),
            "connections": len(self.conversations),
            "held_bytes": buffered_bytes,
        }


def _pairs(lists: list[list[str]]) -> frozenset[Pair]:
    return frozenset((sender, receiver) for sender, receiver in lists)


async def serve(harness: socket.socket) -> None:
    """Serves until the harness's end of the socket closes."""
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
