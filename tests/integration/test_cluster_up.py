"""`cluster up` in one process with requests from another: what is possible is offered and carried out, every
line is answered, and nothing survives its end."""

import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from cluster_up import Up, cluster_up
from command_line import floodmark
from confluent_kafka import Producer
from run_processes import wait_until_gone

from floodmark.harness import catalog
from floodmark.harness.cluster.broker_requests import create_topics, once
from floodmark.harness.commands import cluster as commands
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import Cluster

pytestmark = pytest.mark.cluster

WAIT_S = 120.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """For the tests in their order: each leaves both brokers running, and the last ends the cluster."""
    with cluster_up(tmp_path_factory.mktemp("cluster"), "--nodes", "2", "--links", "proxied") as one:
        yield one
    wait_until_gone(one.folder)


def state(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert commands.state(folder, as_json=True) == 0
    data: dict[str, object] = json.loads(capsys.readouterr().out)
    return data


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
    (b'"' + b"x" * 3000 + b'"', "Expected `object`"), (b"7", "Expected `object`"),
    (b"{}", "missing required field `id`"), (b'{"id": 1}', "missing required field `do`"),
    (b'{"id": 1, "do": 5}', "Expected `str`, got `int` - at `$.do`"),
    (b'{"id": 1, "do": "kill", "nodes": "n1"}', "Expected `array`, got `str` - at `$.nodes`"),
    (b'{"id": 1, "do": "kill", "nodes": [5]}', "at `$.nodes[0]`"),
    (b'{"id": 1, "do": "nemesis", "schedule": {}}', "Expected `array`, got `object` - at `$.schedule`"),
    (b'{"id": 1, "do": "struck"}', "no nemesis has begun"),
    (b'{"id": 1, "do": "cut", "nodes": []}', "a cut needs two sides"),
])
def test_a_malformed_line_is_answered_and_the_next_one_served(up: Up, line: bytes, message: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as lines:
        connection.connect(commands.find_cluster(up.folder)[1])
        connection.sendall(line + b'\n{"id": 6, "do": "cut", "nodes": ["n7"]}\n')
        first, last = (json.loads(lines.readline()) for _ in range(2))
    assert (message in first["error"], first["usage"]) == (True, True), first
    assert last == {"id": 6, "error": "no node 'n7': there are n1, n2, controller, clients", "usage": True}


def test_a_power_cut_reports_what_was_lost(
        up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, by the name with a hyphen; the old spelling still works."""
    host, port = str(state(up.folder, capsys)["bootstrap"]).split(",")[0].split(":")
    asyncio.run(create_topics(once((host, int(port))), {"log": [[1, 2]]}, timeout_s=WAIT_S))
    producer = Producer({"bootstrap.servers": f"{host}:{port}"})
    for number in range(5):
        producer.produce("log", str(number), partition=0)
    assert producer.flush(WAIT_S) == 0
    answer = floodmark("cluster", "power-cut", "n1", "--folder", up.folder)
    assert (answer.code, answer.out) == (0, "")
    lost = "it is down and lost 5 records that it had not fsynced; its logs now end: log-0 at 0"
    assert answer.err == f"power-cut n1: {lost}\n"
    answer = floodmark("cluster", "power_cut", "n1", "--folder", up.folder)
    nothing = "it is down and lost nothing: everything it had written was fsynced"
    assert answer.err.startswith(f"power-cut n1: {nothing}")
    answer = floodmark("cluster", "kill", "n1", "--folder", up.folder)
    assert (answer.code, answer.err) == (2, "floodmark: n1 is not running: there is nothing to kill\n")
    assert commands.strike(up.folder, "start", ["n1"]) == 0


def test_what_cannot_be_done_to_a_node_is_usage_and_nothing_is_done(
        up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    """With a sentence each: dead, paused and unknown nodes. A pause shows; near misses are done."""
    for f, nodes, message in (
        ("kill", ["n1", "n7"], "no node 'n7': there are n1, n2"),
        ("start", ["n1"], "n1 is running already"),
        ("resume", ["n1"], "n1 is not paused: there is nothing to resume"),
    ):
        with pytest.raises(UsageError, match=message):
            commands.strike(up.folder, f, nodes)
    with pytest.raises(UsageError, match="no node 'n7': there are n1, n2, controller, clients"):
        commands.strike(up.folder, "cut", ["n7"])
    assert state(up.folder, capsys)["running"] == ["n1", "n2"]
    assert commands.strike(up.folder, "pause", ["n1"]) == 0
    assert state(up.folder, capsys)["paused"] == ["n1"]
    assert commands.state(up.folder) == 0
    assert "brokers    n1 paused" in capsys.readouterr().out
    for f, message in (("pause", "n1 is paused already"), ("start", "n1 is paused: resume it"),
                       ("stop", "n1 is paused and cannot be stopped")):
        with pytest.raises(UsageError, match=message):
            commands.strike(up.folder, f, ["n1"])
    assert commands.strike(up.folder, "kill", ["n1"]) == 0
    assert state(up.folder, capsys)["paused"] == []
    for f in ("kill", "stop", "pause", "resume"):
        with pytest.raises(UsageError, match=f"n1 is not running: there is nothing to {f}"):
            commands.strike(up.folder, f, ["n1"])
    assert commands.strike(up.folder, "expire", ["n1"]) == 0  # a session may outlive its broker
    assert commands.strike(up.folder, "start", ["n1"]) == 0


def test_what_another_terminal_asks_is_done(
        up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    """Faults, state and refusals; SIGTERM ends the cluster with 0 and removes its control socket."""
    assert state(up.folder, capsys)["running"] == ["n1", "n2"]
    assert commands.strike(up.folder, "kill", ["n2"]) == 0
    assert state(up.folder, capsys)["running"] == ["n1"]
    assert commands.strike(up.folder, "start", ["n2"]) == 0
    assert commands.strike(up.folder, "cut", ["n1"], one_way=True) == 0
    assert state(up.folder, capsys)["cuts"] == ["n1 receives nothing from n2"]
    assert commands.strike(up.folder, "heal", ()) == 0
    assert state(up.folder, capsys)["cuts"] == []
    assert commands.state(None) == 0
    assert "brokers    n1" in capsys.readouterr().out
    assert commands.strike(up.folder, "cut", ["n2"], others=["n1", "controller"]) == 0
    assert state(up.folder, capsys)["cuts"] == ["n2 is cut from n1, controller"]
    assert commands.strike(up.folder, "cut", ["n1", "n2"], others=["clients"], one_way=True) == 0
    assert commands.strike(up.folder, "heal", ()) == 0
    assert "n1, n2 receive nothing from clients\n" in capsys.readouterr().err
    with pytest.raises(FloodmarkError, match="cannot 'tickle'"):
        commands.strike(up.folder, "tickle", ["n1"])

    up.process.send_signal(signal.SIGTERM)

    assert up.process.wait(WAIT_S) == 0
    with pytest.raises(FloodmarkError, match="no cluster is up"):
        commands.state(up.folder)
