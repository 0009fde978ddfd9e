"""Proxies every connection: a listening port for each ordered pair (dialer, listener), cut by direction.

Run as `python -m floodmark.harness.cluster.local.link_proxies`, a process of its own (in the harness's loop a
stalled harness would stall replication). It takes orders as JSON lines on its standard input, a socket.

Rules
1. A cut is of (says, hears) pairs, over every connection between the two, whoever dialled: with (n1, n2)
   cut, requests n1 sends to n2 are stopped, and so are n1's answers on connections n2 dialled.
2. Silent: bytes are held, in order, and delivered at the heal. That a peer closed or died is held as its
   bytes are: the hearer learns of it after them. A dial through a cut is taken and hears nothing; one given
   up before the heal never was, as an unfinished handshake is in TCP.
3. Reset: connections that cross the cut are reset, whichever way it goes, and so are new ones.
4. A change is answered when it is in force: not a byte is passed on afterwards that it stops.
5. Without a cut nothing is lost, doubled or turned round, and a slow hearer slows the speaker.
6. Where nobody listens at the far side, the dialer is reset at once.
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
# Beyond this a cut connection is read no further: then TCP holds the bytes, and at last the speaker blocks.
HELD_BYTES_MAX = 16 * 2**20
BACKLOG = 512

NEAR: Final = 0  # the end towards the dialer
FAR: Final = 1  # the end towards the listener

Pair = tuple[str, str]  # (says, hears)

# One buffer for all: asyncio reads into it and hands it over within one callback (BufferedProtocol), and
# a copy of what was read costs less than an allocation of what might have been.
_BUFFER = bytearray(256 * 1024)
_VIEW = memoryview(_BUFFER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    dialer: str
    listener: str
    host: str  # where the dialer finds it
    port: int
    to: tuple[str, int]  # where the listener listens


@dataclass(slots=True, kw_only=True)
class Cut:
    """What is cut now."""

    silent: frozenset[Pair] = frozenset()
    reset: frozenset[Pair] = frozenset()

    def resets(self, link: Link) -> bool:
        return (link.dialer, link.listener) in self.reset or (link.listener, link.dialer) in self.reset


@dataclass(slots=True, kw_only=True)
class Flow:
    """One direction of one connection. Invariant: held_bytes is the size of all in held."""

    pair: Pair
    blocked: bool = False
    over: bool = False  # who says has gone: once all is delivered, the hearing end is closed
    held: list[bytes] = field(default_factory=list)
    held_bytes: int = 0

    def hold(self, data: bytes) -> None:
        self.held.append(data)
        self.held_bytes += len(data)

    def drop(self) -> None:
        self.held.clear()
        self.held_bytes = 0


class End(asyncio.BufferedProtocol):
    """One socket of a conversation: tells it what happens."""

    def __init__(self, conversation: "Conversation", side: int) -> None:
        self._conversation = conversation
        self._side = side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._conversation.joined(self._side, cast(asyncio.Transport, transport))

    def get_buffer(self, sizehint: int) -> bytearray:
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self._conversation.said(self._side, bytes(_VIEW[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._conversation.left(self._side)

    def pause_writing(self) -> None:
        self._conversation.filled(self._side, True)

    def resume_writing(self) -> None:
        self._conversation.filled(self._side, False)


class Conversation:
    """One dialled connection, its two ends and two flows; flows[side] is what that side says."""

    def __init__(self, links: "Links", link: Link) -> None:
        self._links = links
        self.link = link
        self.flows = tuple(
            Flow(pair=pair) for pair in ((link.dialer, link.listener), (link.listener, link.dialer))
        )
        self._ends: list[asyncio.Transport | None] = [None, None]
        self._gone = [False, False]
        self._full = [False, False]  # that end takes no more bytes for now
        self._dialling: asyncio.Task[None] | None = None
        self._was_reset = False

    def joined(self, side: int, transport: asyncio.Transport) -> None:
        self._ends[side] = transport
        if side == NEAR:
            # Not before: asyncio makes its protocol an instant earlier, and a change between would be missed.
            self._links.conversations.add(self)
            for flow in self.flows:
                flow.blocked = flow.pair in self._links.cut.silent
            self._was_reset = self._links.cut.resets(self.link)
        if self._was_reset:
            self.reset()
        else:
            self.go_on()

    def said(self, side: int, data: bytes) -> None:
        flow, hearer = self.flows[side], self._ends[1 - side]
        if self._gone[1 - side]:
            return
        if flow.blocked or hearer is None:
            flow.hold(data)
            self._read_or_rest(side)
        elif not hearer.is_closing():
            hearer.write(data)

    def left(self, side: int) -> None:
        self._gone[side] = True
        self.flows[side].over = True
        self.flows[1 - side].drop()
        never_dialled = side == NEAR and self._ends[FAR] is None and self._dialling is None
        if all(self._gone) or (never_dialled and self.flows[NEAR].blocked):
            self._links.conversations.discard(self)
        else:
            self._deliver(side)

    def filled(self, side: int, full: bool) -> None:
        self._full[side] = full
        self._read_or_rest(1 - side)

    def go_on(self) -> None:
        """Dial if that is still to be done, and deliver what may pass now."""
        if self._ends[FAR] is None and self._dialling is None and not self.flows[NEAR].blocked:
            self._dialling = asyncio.create_task(self._dial())
        for side in (NEAR, FAR):
            self._deliver(side)

    def reset(self) -> None:
        """End both ends with a reset, not an orderly close; one that is still being dialled, as it comes."""
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
            self.left(FAR)

    def _deliver(self, side: int) -> None:
        flow, hearer = self.flows[side], self._ends[1 - side]
        if flow.blocked or hearer is None or self._gone[1 - side]:
            return
        for data in flow.held:
            hearer.write(data)
        flow.drop()
        if not flow.over:
            self._read_or_rest(side)
        elif side == FAR and self._ends[FAR] is None:
            _reset(hearer)  # nobody listened there
        else:
            hearer.close()  # after what was written to it

    def _read_or_rest(self, side: int) -> None:
        transport = self._ends[side]
        if transport is None or transport.is_closing():
            return
        if self._full[1 - side] or self.flows[side].held_bytes >= HELD_BYTES_MAX:
            transport.pause_reading()
        else:
            transport.resume_reading()


def _reset(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):  # it may have been closed meanwhile
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Links:
    """All links of one cluster."""

    def __init__(self) -> None:
        self.cut = Cut()
        self.conversations: set[Conversation] = set()
        self._servers: list[asyncio.Server] = []

    async def obey(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out one request; the answer's `ok`. OSError if a port is taken."""
        match request["do"]:
            case "listen":
                for told in request["links"]:
                    await self._listen(
                        Link(
                            dialer=told["dialer"],
                            listener=told["listener"],
                            host=told["host"],
                            port=told["port"],
                            to=(told["to"][0], told["to"][1]),
                        )
                    )
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
        # Every flow is marked before any delivers: the map changes at once.
        for conversation in self.conversations:
            for flow in conversation.flows:
                flow.blocked = flow.pair in silent
        for conversation in list(self.conversations):
            if self.cut.resets(conversation.link):
                conversation.reset()
            else:
                conversation.go_on()

    def _state(self) -> dict[str, Any]:
        held_bytes = sum(flow.held_bytes for one in self.conversations for flow in one.flows)
        return {
            "silent": sorted(self.cut.silent),
            "reset": sorted(self.cut.reset),
            "connections": len(self.conversations),
            "held_bytes": held_bytes,
        }


def _pairs(told: list[list[str]]) -> frozenset[Pair]:
    return frozenset((says, hears) for says, hears in told)


async def serve(harness: socket.socket) -> None:
    """Until the harness's end of the socket closes."""
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
