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
CUT = {"id": 5, "do": "cut", "nodes": ["n1"], "others": [], "one_way": False, "reset": False}


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
    (b"{", "no line of JSON"), (b"", "no line of JSON"), (b"\xff", "no line of JSON"),
    (b"[" * 900, "no line of JSON"), (b'"' + b"x" * 3000 + b'"', "no line of JSON"), (b"7", "no JSON object"),
    (b"{}", "'id' is missing, or of another type than int"), (b'{"id": 1}', "'do' is missing"),
    (b'{"id": 1, "do": 5}', "'do' is missing"), (b'{"id": 1, "do": "kill", "nodes": "n1"}', "'nodes' is"),
    (b'{"id": 1, "do": "kill", "nodes": [5]}', "than list of texts"),
    (b'{"id": 1, "do": "nemesis", "schedule": []}', "'schedule' is missing, or of another type than dict"),
    (b'{"id": 1, "do": "struck"}', "no nemesis has begun"),
    *((json.dumps({name: value for name, value in CUT.items() if name != left_out}).encode(), f"'{left_out}'")
      for left_out in CUT),
])
def test_a_malformed_line_is_answered_and_the_next_one_served(line: bytes, message: str) -> None:
    good = json.dumps({**CUT, "id": 6, "nodes": ["n7"]}).encode()
    first, *_, last = answers([line, good])
    assert (message in first["error"], first["usage"]) == (True, True), first
    assert last == {"id": 6, "error": "no node 'n7': there are n1, n2, controller, clients", "usage": True}
