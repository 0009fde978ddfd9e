"""The links as a process, with real sockets: what a cut stops, what passes, and what a heal delivers.

The stories are in tests/golden/links.txt: `a: n1 dials n2` is a connection that n2 has accepted (in vain: not
yet), a.n1 and a.n2 are its ends; `cut n1>n2` stops what n1 says to n2.
"""

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from golden_text import cases_of

from floodmark.harness.cluster import processes
from floodmark.harness.cluster.layout import HOST, Ports
from floodmark.harness.cluster.local.link_proxies import BUFFERED_BYTES_MAX

WAIT_S = 120.0
SILENCE_S = 0.15  # long enough for any byte that passes to arrive on loopback
ONE_READ = 256 << 10  # bytes
STORIES = {title: story.split("\n") for title, (story,) in cases_of("links.txt").items()}

T = TypeVar("T")
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(kw_only=True)
class Net:
    """Two nodes, n1 and n2, that listen, a link in each direction, and the ends of connections."""

    lines: processes.Lines
    links: dict[tuple[str, str], int]  # (dialer, listener) -> port
    accepted: dict[str, "asyncio.Queue[Stream]"]
    listeners: dict[str, asyncio.Server]
    ends: dict[str, Stream] = field(default_factory=dict)  # CONNECTION.NODE

    async def dial(self, name: str, dialer: str, listener: str) -> None:
        stream = await within(asyncio.open_connection(HOST, self.links[dialer, listener]))
        self.ends[f"{name}.{dialer}"] = stream

    async def accept(self, name: str, listener: str) -> None:
        self.ends[f"{name}.{listener}"] = await within(self.accepted[listener].get())

    async def cut(self, pairs: str = "", *, reset: bool = False) -> None:
        """pairs: SPEAKER>HEARER, with spaces between them; none: the heal."""
        asked = [pair.split(">") for pair in pairs.split()]
        await self.lines.ask("set", timeout_s=WAIT_S, silent=[] if reset else asked,
                             reset=asked if reset else [])

    async def held_bytes(self) -> int:
        """What has arrived at the links, which hold it back."""
        return int((await self.lines.ask("state", timeout_s=WAIT_S))["held_bytes"])

    async def held(self, size: int) -> None:
        while await self.held_bytes() != size:
            await asyncio.sleep(0.01)

    async def says(self, end: str, data: bytes) -> None:
        self.ends[end][1].write(data)
        await within(self.ends[end][1].drain())

    async def hears(self, end: str, data: bytes) -> None:
        """Reads exactly these bytes next."""
        assert await within(self.ends[end][0].readexactly(len(data))) == data

    async def hears_nothing(self, end: str) -> None:
        """Neither a byte nor an end of the stream."""
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(self.ends[end][0].read(1), SILENCE_S)

    async def hears_the_end(self, end: str) -> None:
        assert await within(self.ends[end][0].read()) == b""

    async def is_reset(self, end: str) -> None:
        with pytest.raises(ConnectionResetError):
            await within(self.ends[end][0].read())

    async def is_reset_dialling(self, name: str, dialer: str, listener: str) -> None:
        """While it connects, or right after."""
        async def dial_and_read() -> None:
            await self.dial(name, dialer, listener)
            await within(self.ends[f"{name}.{dialer}"][0].read())

        with pytest.raises(ConnectionResetError):
            await dial_and_read()

    def is_not_dialled(self, node: str) -> None:
        assert self.accepted[node].empty()

    async def do(self, step: str) -> None:
        for pattern, act in STEPS.items():
            if found := re.fullmatch(pattern, step):
                done = act(self, *found.groups())
                if done is not None:
                    await done
                return
        raise ValueError(step)


async def joined(net: Net, name: str, dialer: str, listener: str) -> None:
    await net.dial(name, dialer, listener)
    await net.accept(name, listener)


STEPS: dict[str, Callable[..., Awaitable[None] | None]] = {
    r"(\w): (\w+) dials (\w+)": joined,
    r"(\w): (\w+) dials (\w+) in vain": Net.dial,
    r"(\w): (\w+) dials (\w+) and is reset": Net.is_reset_dialling,
    r"(\w): (\w+) accepts": Net.accept,
    r"cut (.+)": Net.cut,
    r"reset (.+)": lambda net, pairs: net.cut(pairs, reset=True),
    r"heal": Net.cut,
    r"(\d+) bytes are held": lambda net, size: net.held(int(size)),
    r"(\w\.\w+) hears nothing": Net.hears_nothing,
    r"(\w\.\w+) hears the end": Net.hears_the_end,
    r"(\w\.\w+) says (.+)": lambda net, end, text: net.says(end, text.encode()),
    r"(\w\.\w+) hears (.+)": lambda net, end, text: net.hears(end, text.encode()),
    r"(\w\.\w+) is reset": Net.is_reset,
    r"(\w\.\w+) closes": lambda net, end: net.ends[end][1].close(),
    r"(\w\.\w+) aborts": lambda net, end: net.ends[end][1].transport.abort(),
    r"(\w+) is not dialled": Net.is_not_dialled,
    r"(\w+) stops listening": lambda net, node: net.listeners[node].close(),
}


async def within(what: "Awaitable[T]") -> "T":
    return await asyncio.wait_for(what, WAIT_S)


@asynccontextmanager
async def net() -> AsyncIterator[Net]:
    ports = Ports()
    ours, its = socket.socketpair()
    argv = [sys.executable, "-m", "floodmark.harness.cluster.local.link_proxies"]
    process = subprocess.Popen(argv, stdin=its)
    its.close()
    lines = await processes.open_lines(ours, "the links")
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
        for _, writer in one.ends.values():
            writer.transport.abort()
        for server in listeners.values():
            server.close()
        await lines.close()
        assert await asyncio.to_thread(process.wait, WAIT_S) == 0, "the links end when their harness does"
        ports.close()


def taker(queue: "asyncio.Queue[Stream]") -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
    return lambda reader, writer: queue.put_nowait((reader, writer))


@pytest.mark.parametrize("title", STORIES)
async def test_a_story_of_links(title: str) -> None:
    async with net() as one:
        for step in filter(None, STORIES[title]):
            await one.do(step)


async def test_a_heal_delivers_all_that_was_held_in_order_and_once() -> None:
    """More than the links hold at most: the rest waits in the kernel and at the sender."""
    data = os.urandom(40 << 20)
    async with net() as one:
        for step in ("a: n1 dials n2", "a.n1 says before", "a.n2 hears before", "cut n1>n2"):
            await one.do(step)
        speaking = asyncio.create_task(one.says("a.n1", data))
        while await one.held_bytes() < BUFFERED_BYTES_MAX:
            await asyncio.sleep(0.01)
        await one.hears_nothing("a.n2")
        assert await one.held_bytes() < BUFFERED_BYTES_MAX + ONE_READ
        await one.cut()
        await one.hears("a.n2", data)
        await speaking
        await one.do("a.n1 says after")
        await one.do("a.n2 hears after")


async def test_a_taken_port_is_reported() -> None:
    """And the links go on."""
    async with net() as one:
        (port, *_) = one.links.values()
        with pytest.raises(processes.Refused, match="in use"):
            await one.lines.ask("listen", timeout_s=WAIT_S, links=[
                {"dialer": "n1", "listener": "n2", "host": HOST, "port": port, "to": [HOST, 1]}])
        for step in ("a: n1 dials n2", "a.n1 says still-here", "a.n2 hears still-here"):
            await one.do(step)
