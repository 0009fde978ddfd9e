"""The server of a cluster that is up: it answers every line, whatever it is."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from floodmark.harness.commands.cluster import ClusterServer
from floodmark.harness.protocols import Cluster

LIMIT = 1000  # of a line, in bytes


class Writer:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        self.data += b"closed"


def answers(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The server's answers to these lines, up to the end of the connection."""
    class Nodes:
        nodes = ("n1", "n2")

    async def out() -> bytes:
        reader, writer = asyncio.StreamReader(limit=LIMIT), Writer()
        reader.feed_data(b"".join(line + b"\n" for line in lines))
        reader.feed_eof()
        server = ClusterServer(cluster=cast(Cluster, Nodes()), folder=Path(), say=lambda _: None)
        await server.answer(reader, cast(asyncio.StreamWriter, writer))
        return writer.data

    said = asyncio.run(out())
    assert said.endswith(b"closed")
    return [json.loads(line) for line in said.removesuffix(b"closed").splitlines()]


@pytest.mark.parametrize(("line", "message"), [
    (b"{", "truncated"), (b"", "truncated"), (b"\xff", "malformed"), (b"[" * 900, "Expected `object`"),
    (b'"' + b"x" * 3000 + b'"', "truncated"), (b"7", "Expected `object`"),
    (b"{}", "missing required field `id`"), (b'{"id": 1}', "missing required field `do`"),
    (b'{"id": 1, "do": 5}', "Expected `str`, got `int` - at `$.do`"),
    (b'{"id": 1, "do": "kill", "nodes": "n1"}', "Expected `array`, got `str` - at `$.nodes`"),
    (b'{"id": 1, "do": "kill", "nodes": [5]}', "at `$.nodes[0]`"),
    (b'{"id": 1, "do": "nemesis", "schedule": {}}', "Expected `array`, got `object` - at `$.schedule`"),
    (b'{"id": 1, "do": "struck"}', "no nemesis has begun"),
    (b'{"id": 1, "do": "cut", "nodes": []}', "a cut needs two sides"),
])
def test_a_malformed_line_is_answered_and_the_next_one_served(line: bytes, message: str) -> None:
    good = b'{"id": 6, "do": "cut", "nodes": ["n7"]}'
    first, *_, last = answers([line, good])
    assert (message in first["error"], first["usage"]) == (True, True), first
    assert last == {"id": 6, "error": "no node 'n7': there are n1, n2, controller, clients", "usage": True}
