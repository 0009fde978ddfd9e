"""`run --bootstrap` on a system of others that lacks something: told in one sentence, before the run where
that can be, with what to do."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import Answer, floodmark
from foreign_broker import CONFIGS, CREATE, ELECT, ForeignCluster, Quirk, foreign_cluster

from floodmark.harness.client.security import Security
from floodmark.harness.cluster import broker_requests
from floodmark.harness.cluster.own.cluster import OwnCluster, find
from floodmark.harness.protocols import PartitionSpec

SHORT = ("--partitions", "2", "--concurrency", "2", "--rate", "100", "--duration", "1", "--seed", "1")
MIN_INSYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


def run(cluster: ForeignCluster, folder: Path, *words: object) -> Answer:
    return floodmark("run", "--bootstrap", cluster.bootstrap, *SHORT, *words, "--out", folder / "run")


@pytest.mark.spark
@pytest.mark.parametrize("unserved", [False, True], ids=["not shown", "not served"])
def test_a_setting_that_is_not_shown_may_be_told(tmp_path: Path, unserved: bool) -> None:
    with foreign_cluster() as cluster:
        del cluster.settings[UNCLEAN]
        cluster.unserved |= {CONFIGS} if unserved else set()
        refused = run(cluster, tmp_path / "1")
        told = run(cluster, tmp_path / "2", "-c", f"{UNCLEAN}=false", "-c", f"{MIN_INSYNC}=2")

    assert refused.code == 4
    assert f"{UNCLEAN} of floodmark-" in refused.err
    assert f"or tell it by -c {UNCLEAN}=VALUE" in refused.err.replace(f"-c {MIN_INSYNC}=VALUE ", "")
    assert told.code == 0, told.err + told.out
    guarantees = json.loads((tmp_path / "2" / "run" / "run.json").read_text())["guarantees"]
    assert (guarantees["min_insync_replicas"], guarantees["unclean_leader_election"]) == (2, False)


def test_fewer_partitions_than_asked_are_told_at_once(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.harness.cluster.own.cluster.CREATE_S", 1.0)
    with foreign_cluster(Quirk.ONE_PARTITION) as cluster:
        ran = run(cluster, tmp_path)

    assert ran.code == 4
    assert "was made with 1 of the 2 partitions that were asked for: give --partitions 1" in ran.err
    assert not cluster.topics


def test_what_a_run_cannot_do_without_is_refused_before_it(tmp_path: Path) -> None:
    with foreign_cluster() as cluster:
        cluster.unserved.add(CREATE)
        ran = run(cluster, tmp_path)

    assert ran.code == 4
    assert "n1 does not serve CreateTopics" in ran.err
    assert not (tmp_path / "run").exists()


@pytest.mark.spark
def test_elections_need_no_commands(tmp_path: Path) -> None:
    with foreign_cluster() as cluster:
        ran = run(cluster, tmp_path, "--nemesis", "elect", "--duration", "4", "--interval", "1",
                  "--i-may-break-this")

    assert ran.code == 0, ran.err + ran.out
    assert '"f":"elect"' in (tmp_path / "run" / "history.jsonl").read_text()


@pytest.mark.spark
def test_elections_that_are_not_served_are_left_out(tmp_path: Path) -> None:
    with foreign_cluster() as cluster:
        cluster.unserved.add(ELECT)
        named = run(cluster, tmp_path / "1", "--nemesis", "elect", "--i-may-break-this")
        among_all = run(cluster, tmp_path / "2", "--nemesis", "all", "--duration", "4", "--interval", "1",
                        "--i-may-break-this", "--faults", cluster.faults_file(tmp_path / "f.toml"))

    why = "n1 does not serve ElectLeaders"
    assert (named.code, why in named.err) == (2, True), named.err
    assert among_all.code == 0, among_all.err + among_all.out
    assert f"elect is left out: {why}" in among_all.err


# -- whom elections are asked of --------------------------------------------------------------------------

def elected(cluster: ForeignCluster, folder: Path, lost: str) -> object:
    """The answer of an election while n1, which is still named as the controller, is dead or paused."""
    async def ask() -> object:
        found = await find([("127.0.0.1", port) for port in cluster.ports.values()], Security())
        own = OwnCluster(found, folder, prefix="p-", may_break=True)
        try:
            await own.create([PartitionSpec(key=0, topic="p-log", partition=0, replicas=("n2", "n3")),
                              PartitionSpec(key=1, topic="p-log", partition=1, replicas=("n1", "n2", "n3"))])
            cluster.controller = 1
            if lost == "dead":
                cluster.end(1)
            else:
                cluster.paused.update({1} if lost == "paused" else cluster.ports)
            return await own.elect([])
        finally:
            cluster.paused.clear()
            await own.stop()

    return asyncio.run(ask())


@pytest.mark.parametrize(("lost", "answer"), [
    ("dead", {"elected": [0], "refused": {"1": "PREFERRED_LEADER_NOT_AVAILABLE"}}),
    ("paused", {"elected": [0, 1], "refused": {}}),
    ("all paused", {"elected": [], "refused": {"0": "no broker answers", "1": "no broker answers"}}),
])
def test_elections_are_asked_of_a_broker_that_answers(tmp_path: Path, lost: str, answer: object) -> None:
    with foreign_cluster() as cluster:
        assert elected(cluster, tmp_path, lost) == answer


# -- ports where no broker answers ------------------------------------------------------------------------

@contextmanager
def port_with(answer: bytes | None) -> Iterator[int]:
    """A port that takes connections, and answers this; None: nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return
                if answer is not None:
                    kept[-1].recv(100)
                    kept[-1].sendall(answer)
                    kept.pop().close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in kept:
            connection.close()


@pytest.mark.parametrize(("answer", "why"), [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP answers there, not Kafka"),
    (b"<html>400", "HTTP answers there, not Kafka"),
    (b"", "the connection is closed, with no answer of Kafka's: does it want TLS (--client-config)?"),
    (None, "it takes the connection, and does not answer within 0.3 s"),
])
def test_what_answers_instead_of_a_broker_is_told(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, why: str) -> None:
    monkeypatch.setattr(broker_requests.Brokers.metadata, "__defaults__", (0.3,))
    with port_with(answer) as port:
        ran = floodmark("run", "--bootstrap", f"127.0.0.1:{port}", "--out", tmp_path / "run")

    assert ran.code == 4
    assert f"no cluster was found: Metadata to 127.0.0.1:{port}: {why}" in ran.err


def test_a_host_of_no_known_name_is_told(tmp_path: Path) -> None:
    ran = floodmark("run", "--bootstrap", "no-such-host.invalid:9092", "--out", tmp_path / "run")

    assert ran.code == 4
    assert "the host's name is not known" in ran.err
