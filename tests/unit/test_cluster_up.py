"""`cluster up`: what it prints for people is what this system, in this place, can do; its server answers
every line."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from floodmark.harness.commands.cluster import ClusterServer, hints
from floodmark.harness.protocols import Cluster, Expires


class KillsOnly:
    """A cluster as far as hints look at it: nodes can be killed, and their sessions ended."""

    def __init__(self, lacks: dict[type, str], **system: str) -> None:
        self.lacks, self.system, self.abilities = lacks, system, ()

    async def kill(self, node: str) -> None: ...
    async def start_node(self, node: str) -> None: ...
    async def stop_node(self, node: str) -> None: ...
    async def expire(self, node: str) -> None: ...


class PausesAndCutsToo(KillsOnly):
    async def pause(self, node: str) -> None: ...
    async def resume(self, node: str) -> None: ...
    async def cut(self, grudge: Any, *, reset: bool = False) -> None: ...
    async def heal(self) -> None: ...


REFERENCE = {"name": "reference", "rules": "kip-320"}
KAFKA = {"name": "kafka", "version": "4.3.1", "form": "kraft"}


@pytest.mark.parametrize(("cluster", "commands", "says"), [
    (KillsOnly({}, **REFERENCE), ["state", "kill|start|stop|expire NODE..."], "There are no consumer groups"),
    (KillsOnly({Expires: "no sessions"}, **KAFKA), ["state", "kill|start|stop NODE..."],
     "This is Apache Kafka 4.3.1"),
    (PausesAndCutsToo({Expires: "no sessions"}, **KAFKA),
     ["state", "kill|start|stop|pause|resume NODE...", "cut NODE... | heal"], "This is Apache Kafka 4.3.1"),
    (KillsOnly({}, name="somebody's"), ["state", "kill|start|stop|expire NODE..."], ""),
])
def test_only_possible_faults_are_offered(cluster: Any, commands: list[str], says: str) -> None:
    """And what its clients can do."""
    lines = hints(cluster).splitlines()
    offered = [line.partition("floodmark cluster ")[2] for line in lines]
    assert [words for words in offered if words] == commands
    assert lines[0].startswith("From another terminal: floodmark cluster state")
    assert lines[-1] == "Ctrl-C ends it."
    assert says in hints(cluster)
    assert ("consumer groups" in hints(cluster)) == (cluster.system["name"] == "reference")


# -- its server answers every line, whatever it is -------------------------------------------------------


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
