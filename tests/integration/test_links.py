"""The links as a process, with real sockets: what a cut stops, what passes, and what a heal delivers."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from floodmark.harness.cluster import control_client
from floodmark.harness.cluster.ports import HOST, Ports

WAIT_S = 120.0
SILENCE_S = 0.15  # long enough for any byte that passes to arrive on loopback

T = TypeVar("T")
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(kw_only=True)
class Net:
    """Two nodes, n1 and n2, that listen, a link in each direction, and the connections that arrived."""

    lines: control_client.Lines
    links: dict[tuple[str, str], int]  # (dialer, listener) -> port
    accepted: dict[str, "asyncio.Queue[Stream]"]
    listeners: dict[str, asyncio.Server]
    opened: list[asyncio.StreamWriter] = field(default_factory=list)

    async def dial(self, dialer: str, listener: str) -> Stream:
        stream = await within(asyncio.open_connection(HOST, self.links[dialer, listener]))
        self.opened.append(stream[1])
        return stream

    async def accept(self, listener: str) -> Stream:
        stream = await within(self.accepted[listener].get())
        self.opened.append(stream[1])
        return stream

    async def joined(self, dialer: str, listener: str) -> tuple[Stream, Stream]:
        near = await self.dial(dialer, listener)
        return near, await self.accept(listener)

    async def cut(self, *pairs: Sequence[str]) -> None:
        await self.lines.ask("set", timeout_s=WAIT_S, silent=pairs, reset=[])

    async def cut_by_reset(self, *pairs: Sequence[str]) -> None:
        await self.lines.ask("set", timeout_s=WAIT_S, silent=[], reset=pairs)

    async def heal(self) -> None:
        await self.cut()

    async def held(self, size: int) -> None:
        """Returns when that many bytes have arrived at the links, which hold them back."""
        while (await self.lines.ask("state", timeout_s=WAIT_S))["held_bytes"] != size:
            await asyncio.sleep(0.01)


async def within(what: "Awaitable[T]") -> "T":
    return await asyncio.wait_for(what, WAIT_S)


@asynccontextmanager
async def net() -> AsyncIterator[Net]:
    ports = Ports()
    ours, its = socket.socketpair()
    argv = [sys.executable, "-m", "floodmark.harness.cluster.local.link_proxies"]
    process = subprocess.Popen(argv, stdin=its)
    its.close()
    lines = await control_client.open_lines(ours, "the links")
    accepted: dict[str, asyncio.Queue[Stream]] = {node: asyncio.Queue() for node in ("n1", "n2")}
    listens = {node: ports.choose() for node in accepted}
    links = {pair: ports.choose() for pair in (("n1", "n2"), ("n2", "n1"))}
    listeners = {node: await asyncio.start_server(taker(accepted[node]), HOST, port)
                 for node, port in listens.items()}
    await lines.ask("listen", timeout_s=WAIT_S, links=[
        {"dialer": dialer, "listener": listener, "host": HOST, "port": port, "to": [HOST, listens[listener]]}
        for (dialer, listener), port in links.items()])
    one = Net(lines=lines, links=links, accepted=accepted, listeners=listeners)
    try:
        yield one
    finally:
        for writer in one.opened:
            writer.transport.abort()
        for server in listeners.values():
            server.close()
        await lines.close()
        assert await asyncio.to_thread(process.wait, WAIT_S) == 0, "the links end when their harness does"
        ports.close()


def taker(queue: "asyncio.Queue[Stream]") -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
    return lambda reader, writer: queue.put_nowait((reader, writer))


async def says(speaker: Stream, data: bytes) -> None:
    speaker[1].write(data)
    await within(speaker[1].drain())


async def hears(hearer: Stream, data: bytes) -> None:
    """Reads exactly these bytes next."""
    assert await within(hearer[0].readexactly(len(data))) == data


async def hears_nothing(hearer: Stream) -> None:
    """Neither a byte nor an end of the stream."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(hearer[0].read(1), SILENCE_S)


async def hears_the_end(hearer: Stream) -> None:
    assert await within(hearer[0].read()) == b""


async def test_without_a_cut_bytes_pass_both_ways() -> None:
    """And the end of a stream passes as such, after the bytes before it."""
    async with net() as one:
        n1, n2 = await one.joined("n1", "n2")
        await says(n1, b"question")
        await hears(n2, b"question")
        await says(n2, b"answer")
        n2[1].close()
        await hears(n1, b"answer")
        await hears_the_end(n1)


async def test_a_cut_stops_requests_and_the_answers_on_connections_dialled_the_other_way() -> None:
    """n2 gets nothing from n1, whichever side connected; n1 gets everything from n2."""
    async with net() as one:
        n1_dialling, n2_dialled = await one.joined("n1", "n2")
        n2_dialling, n1_dialled = await one.joined("n2", "n1")
        await one.cut(("n1", "n2"))

        await says(n1_dialling, b"request of n1")
        await says(n1_dialled, b"answer of n1")
        await hears_nothing(n2_dialled)
        await hears_nothing(n2_dialling)
        await says(n2_dialled, b"answer of n2")
        await says(n2_dialling, b"request of n2")
        await hears(n1_dialling, b"answer of n2")
        await hears(n1_dialled, b"request of n2")

        await one.heal()
        await hears(n2_dialled, b"request of n1")
        await hears(n2_dialling, b"answer of n1")


async def test_a_heal_delivers_all_that_was_held_in_order_and_once() -> None:
    """More than the links hold at most, so that the rest waits in the kernel and at the sender."""
    data = os.urandom(1 << 20) * 40
    async with net() as one:
        n1, n2 = await one.joined("n1", "n2")
        await says(n1, b"before")
        await hears(n2, b"before")
        await one.cut(("n1", "n2"), ("n2", "n1"))
        speaking = asyncio.create_task(says(n1, data))
        await hears_nothing(n2)
        assert not speaking.done(), "the speaker is slowed at last"
        await one.heal()
        await hears(n2, data)
        await speaking
        await says(n1, b"after")
        await hears(n2, b"after")


async def test_one_map_follows_another_at_once() -> None:
    """A pair that both maps cut stays cut: nothing passes in between."""
    async with net() as one:
        n1, n2 = await one.joined("n1", "n2")
        await one.cut(("n1", "n2"))
        await says(n1, b"held")
        await one.held(4)
        await one.cut(("n1", "n2"), ("n2", "n1"))
        await says(n2, b"too")
        await hears_nothing(n2)
        await hears_nothing(n1)
        await one.cut(("n2", "n1"))
        await hears(n2, b"held")
        await hears_nothing(n1)


async def test_a_new_connection_through_a_cut_connects_and_hears_nothing() -> None:
    """The listener gets nothing either: it gets the connection at the heal, with all that was sent."""
    async with net() as one:
        await one.cut(("n1", "n2"))
        n1 = await one.dial("n1", "n2")
        await says(n1, b"anybody there?")
        await hears_nothing(n1)
        assert one.accepted["n2"].empty()
        await one.heal()
        n2 = await one.accept("n2")
        await hears(n2, b"anybody there?")
        await says(n2, b"yes")
        await hears(n1, b"yes")


async def test_a_dial_through_a_cut_given_up_before_the_heal_never_was() -> None:
    """Like a handshake that was not finished; a connection that stayed open is delivered."""
    async with net() as one:
        await one.cut(("n1", "n2"))
        impatient = await one.dial("n1", "n2")
        await says(impatient, b"impatient")
        patient = await one.dial("n1", "n2")
        await says(patient, b"patient")
        await one.held(16)
        impatient[1].close()
        await one.held(7)
        await one.heal()
        await hears(await one.accept("n2"), b"patient")
        assert one.accepted["n2"].empty()


async def test_what_a_dead_speaker_said_is_delivered_at_the_heal_and_then_its_end() -> None:
    """Until then the receiver does not even learn that the sender has ended."""
    async with net() as one:
        n1, n2 = await one.joined("n1", "n2")
        await one.cut(("n1", "n2"))
        await says(n1, b"last words")
        await one.held(10)
        n1[1].transport.abort()
        await hears_nothing(n2)
        await says(n2, b"to nobody")
        await hears_nothing(n2)
        await one.heal()
        await hears(n2, b"last words")
        await hears_the_end(n2)


async def test_a_cut_by_reset_resets_what_crosses_it_old_and_new_and_the_heal_ends_that() -> None:
    """Both ends notice it, though only one direction is named."""
    async with net() as one:
        n1, n2 = await one.joined("n1", "n2")
        await one.cut_by_reset(("n2", "n1"))
        for end in (n1, n2):
            with pytest.raises(ConnectionResetError):
                await within(end[0].read())
        with pytest.raises(ConnectionResetError):  # while it connects, or right after
            await within((await one.dial("n1", "n2"))[0].read())
        assert one.accepted["n2"].empty()
        await one.heal()
        n1, n2 = await one.joined("n1", "n2")
        await says(n1, b"again")
        await hears(n2, b"again")


async def test_where_nobody_listens_the_dialer_is_reset_at_once() -> None:
    """Unless the reset itself is cut off, too: then at the heal."""
    async with net() as one:
        one.listeners["n2"].close()
        with pytest.raises(ConnectionResetError):
            await within((await one.dial("n1", "n2"))[0].read())
        await one.cut(("n2", "n1"))
        n1 = await one.dial("n1", "n2")
        await hears_nothing(n1)
        await one.heal()
        with pytest.raises(ConnectionResetError):
            await within(n1[0].read())


async def test_a_taken_port_is_reported() -> None:
    """And the links go on."""
    async with net() as one:
        (port, *_) = one.links.values()
        with pytest.raises(control_client.Refused, match="in use"):
            await one.lines.ask("listen", timeout_s=WAIT_S, links=[
                {"dialer": "n1", "listener": "n2", "host": HOST, "port": port, "to": [HOST, 1]}])
        n1, n2 = await one.joined("n1", "n2")
        await says(n1, b"still here")
        await hears(n2, b"still here")
