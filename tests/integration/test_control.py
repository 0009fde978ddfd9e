"""The control client on a real socket: answers, refusals, silence, and a node that was restarted."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from floodmark.harness.cluster.layout import HOST, Ports
from floodmark.harness.cluster.processes import ControlError, Refused
from floodmark.harness.cluster.reference.control_sockets import ControlSockets

WAIT_S = 120.0
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers in pairs, the later request first; refuses "moan"."""
    while len(lines := [await reader.readline(), await reader.readline()]) == 2 and lines[1]:
        for line in reversed(lines):
            request = json.loads(line)
            said = {"error": "no"} if request["do"] == "moan" else {"ok": {"heard": request["word"]}}
            writer.write(json.dumps({"id": request["id"], **said}).encode() + b"\n")
    writer.close()


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads everything and answers nothing, until the other side closes."""
    await reader.read()
    writer.close()


async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closes the connection at a request."""
    await reader.readline()
    writer.close()


@asynccontextmanager
async def listening(port: int, serve: Serve) -> AsyncIterator[None]:
    async with await asyncio.start_server(serve, HOST, port):
        yield


@asynccontextmanager
async def controlled() -> AsyncIterator[tuple[int, ControlSockets]]:
    """A port where nobody listens yet, and a control client of it."""
    ports = Ports()
    port = ports.choose()
    control = ControlSockets(SimpleNamespace(
        lives=lambda _: True, paused=lambda _: False,
        layout=SimpleNamespace(places={"n1": SimpleNamespace(asked=(HOST, port))})))
    try:
        async with asyncio.timeout(2 * WAIT_S):
            yield port, control
    finally:
        await control.hang_up()
        ports.close()


async def test_answers_find_their_requests_in_any_order() -> None:
    """Two requests at once over one connection, answered in reverse order; one is refused."""
    async with controlled() as (port, control), listening(port, echo):
        one, other = await asyncio.gather(
            control.ask("n1", "say", timeout_s=WAIT_S, word="one"),
            control.ask("n1", "say", timeout_s=WAIT_S, word="other"))
        assert (one["heard"], other["heard"]) == ("one", "other")
        said, refused = await asyncio.gather(
            control.ask("n1", "say", timeout_s=WAIT_S, word="again"),
            control.ask("n1", "moan", timeout_s=WAIT_S), return_exceptions=True)
        assert said == {"heard": "again"}
        assert isinstance(refused, Refused)
        assert str(refused) == "n1 refused 'moan': no"
        await control.hang_up()


async def test_silence_ends_with_the_time_out() -> None:
    """And the message names the node and the request."""
    async with controlled() as (port, control), listening(port, deaf):
        with pytest.raises(ControlError, match="n1 did not answer 'state' in"):
            await control.ask("n1", "state", timeout_s=0.1)
        await control.hang_up()


async def test_a_node_that_hangs_up_or_is_not_there_is_reported_and_dialled_again() -> None:
    """After a restart there is a new connection."""
    async with controlled() as (port, control):
        with pytest.raises(ControlError, match="does not listen"):
            await control.ask("n1", "state", timeout_s=WAIT_S)
        async with listening(port, rude):
            with pytest.raises(ControlError, match="closed the connection without an answer"):
                await control.ask("n1", "state", timeout_s=WAIT_S)
        async with listening(port, echo):
            answers = await asyncio.gather(
                *(control.ask("n1", "say", timeout_s=WAIT_S, word=word) for word in "ab"))
            assert [answer["heard"] for answer in answers] == ["a", "b"]
            await control.hang_up()
