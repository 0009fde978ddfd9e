"""`cluster up` in one process with requests from another: what is possible is offered and carried out, every
line is answered, and nothing survives its end."""

import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from cluster_up import Up, cluster_up
from command_line import floodmark
from confluent_kafka import Producer
from golden_text import answered_as_written
from run_processes import wait_until_gone

from floodmark.harness import catalog
from floodmark.harness.cluster.broker_requests import create_topics, once
from floodmark.harness.cluster.processes import ANSWER_BYTES_MAX
from floodmark.harness.commands import cluster as commands
from floodmark.harness.protocols import Cluster

pytestmark = pytest.mark.cluster

WAIT_S = 120.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """For the tests in their order: each leaves both brokers running, and the last ends the cluster."""
    with cluster_up(tmp_path_factory.mktemp("cluster"), "--nodes", "2", "--links", "proxied") as one:
        yield one
    wait_until_gone(one.folder)


def test_only_possible_faults_are_offered(up: Up, tmp_path: Path) -> None:
    """And what its clients can do. Direct links cannot be cut."""
    screen = up.screen.read_text()
    assert """From another terminal: floodmark cluster state
                       floodmark cluster kill|start|stop|pause|resume|expire|power-cut NODE...
                       floodmark cluster cut NODE... | heal
Clients can list""" in screen
    assert "There are no consumer groups" in screen
    direct = catalog.cluster("local", tmp_path, 3, rules="kip-320", bugs=(), config={}, links="direct")
    assert "cluster cut" not in commands.hints(direct)
    kafka = SimpleNamespace(system={"name": "kafka", "version": "4.3.1"}, lacks={}, abilities=())
    offered = commands.hints(cast(Cluster, kafka))
    assert "This is Apache Kafka 4.3.1" in offered
    assert "kill" not in offered
    assert "consumer groups" not in offered


@pytest.mark.parametrize(("line", "message"), [
    (b"{", "truncated"), (b"", "truncated"), (b"\xff", "malformed"), (b"[" * 900, "Expected `object`"),
    (b"too long", "truncated"), (b"7", "Expected `object`"),
    (b"{}", "missing required field `id`"), (b'{"id": 1}', "missing required field `do`"),
    (b'{"id": 1, "do": 5}', "Expected `str`, got `int` - at `$.do`"),
    (b'{"id": 1, "do": "kill", "nodes": "n1"}', "Expected `array`, got `str` - at `$.nodes`"),
    (b'{"id": 1, "do": "kill", "nodes": [5]}', "at `$.nodes[0]`"),
    (b'{"id": 1, "do": "nemesis", "schedule": {}}', "Expected `array`, got `object` - at `$.schedule`"),
    (b'{"id": 1, "do": "struck"}', "no nemesis has begun"),
    (b'{"id": 1, "do": "cut", "nodes": []}', "a cut needs two sides"),
    (b'{"id": 1, "do": "tickle"}', "a cluster that is up cannot 'tickle'"),
    (b'{"id": 1, "do": "clock", "nodes": ["n1"]}', "clock is impossible on this cluster: "),
])
def test_a_malformed_line_is_answered_and_the_next_one_served(up: Up, line: bytes, message: str) -> None:
    line = line if line != b"too long" else b"x" * (ANSWER_BYTES_MAX + 1)
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as lines:
        connection.connect(commands.find_cluster(up.folder)[1])
        connection.sendall(line + b'\n{"id": 6, "do": "cut", "nodes": ["n7"]}\n')
        first, last = (json.loads(lines.readline()) for _ in range(2))
    assert (message in first["error"], first["usage"]) == (True, "cluster" not in message), first
    assert last == {"id": 6, "error": "no node 'n7': there are n1, n2, controller, clients", "usage": True}


def asked(up: Up, line: str) -> str:
    """What `floodmark cluster LINE` prints; or `N records`, to one topic."""
    if line.endswith("records"):
        host, port = up.bootstrap.split(",")[0].split(":")
        asyncio.run(create_topics(once((host, int(port))), {"log": [[1, 2]]}, timeout_s=WAIT_S))
        producer = Producer({"bootstrap.servers": up.bootstrap})
        for number in range(int(line.removesuffix(" records"))):
            producer.produce("log", str(number), partition=0)
        return f"= {producer.flush(WAIT_S)} are not acked"
    answer = floodmark("cluster", *line.split(), "--folder", up.folder)
    lines = [" ".join(one.split()) for one in (answer.out + answer.err).splitlines() if one]
    if line == "state":  # a busy broker may be fenced for a moment
        lines = [one.replace(" fenced", " up") for one in lines if one.startswith(("brokers", "cut"))]
    return "\n".join([f"{'!' if answer.code else '='} {answer.code}", *(f"= {one}" for one in lines)])


def test_what_another_terminal_asks_is_done_or_refused(up: Up, request: pytest.FixtureRequest) -> None:
    """golden/cluster_up.txt. SIGTERM ends the cluster with 0, and removes its control socket."""
    answered_as_written("cluster_up.txt", partial(asked, up), request)

    assert floodmark("cluster", "state").code == 0, "of the latest"
    up.process.send_signal(signal.SIGTERM)

    assert up.process.wait(WAIT_S) == 0
    assert floodmark("cluster", "state", "--folder", up.folder).code == 4
