"""`run --bootstrap` on a system of others that lacks something, goes away, or may not be struck: told in one
sentence, before the run where that can be, with what to do."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from command_line import Answer, floodmark
from foreign_broker import CONFIGS, CREATE, ELECT, ForeignCluster, Quirk, foreign_cluster
from run_processes import ctrl_c_once_it_goes_well, once_it_goes_well

from floodmark.harness import runner
from floodmark.harness.client.security import Security
from floodmark.harness.cluster import broker_requests
from floodmark.harness.cluster.own.cluster import OwnCluster, find
from floodmark.harness.cluster.own.fault_commands import read_fault_commands
from floodmark.harness.protocols import PartitionSpec

SHORT = ("--partitions", "2", "--concurrency", "2", "--rate", "100", "--duration", "1", "--seed", "1")
GIVEN_UP_S = 3.0  # for a cluster that has gone away
KILL = json.dumps([{"f": "kill", "nodes": ["n2"]}])
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


@pytest.mark.parametrize(("words", "why"), [
    (("--nemesis", "crash"), "--i-may-break-this"),
    (("--nemesis", "crash", "--i-may-break-this"), "no command kill for n1, n2, n3"),
    (("--nemesis", "power", "--i-may-break-this"), "have synced"),
    (("--nodes", "5"), "--nodes cannot be chosen"),
    (("--rules", "kip-101", "--links", "proxied"), "--rules, --links cannot be chosen"),
    (("--replication-factor", "4"), "there are 3"),
    (("-c", "retention.ms=1000"), "-c retention.ms: the topics of a run must keep all acked records"),
    (("--schedule", "kill.json", "--faults", "f.toml"), "need --i-may-break-this"),
])
def test_what_may_not_be_asked_is_usage(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kill.json").write_text(KILL)
    with foreign_cluster() as cluster:
        cluster.faults_file(Path("f.toml"))
        ran = floodmark("run", "--bootstrap", cluster.bootstrap, *words, "--out", "run")

    assert (ran.code, why in ran.err) == (2, True), ran.err
    assert not Path("run").exists()


def test_a_command_that_fails_is_the_harness_trouble_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(KILL)
    (tmp_path / "f.toml").write_text("""[commands]\nstart = ["true"]\nstop = ["true"]
kill = ["sh", "-c", "echo no key for {node} >&2; exit 7"]""")
    with foreign_cluster() as cluster:
        ran = run(cluster, tmp_path, "--i-may-break-this", "--faults", tmp_path / "f.toml",
                  "--schedule", tmp_path / "s.json")

    assert ran.code == 4, ran.err
    assert "entry 0 of the schedule (kill n2)" in ran.err
    assert "ended with 7; its output: no key for n2" in ran.err
    assert not cluster.topics


@pytest.mark.spark
def test_an_interrupted_run_removes_its_topics(tmp_path: Path) -> None:
    with foreign_cluster() as cluster, ctrl_c_once_it_goes_well(tmp_path / "run"):
        ran = run(cluster, tmp_path, "--duration", "60")

    assert ran.code == 4, ran.err + ran.out  # as for any run that ended early; what was recorded is judged
    assert not cluster.topics


@pytest.mark.spark
def test_a_cluster_that_goes_away_in_mid_run_is_reported_and_never_invalid(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = runner.settle
    monkeypatch.setattr(runner, "settle", lambda *given: settle(*given[:-1], GIVEN_UP_S))
    monkeypatch.setattr(runner, "read_all", partial(runner.read_all, stall_s=GIVEN_UP_S))
    with foreign_cluster() as cluster, once_it_goes_well(
            tmp_path / "run", lambda: [cluster.end(node) for node in cluster.ports]):
        ran = run(cluster, tmp_path, "--duration", "3")

    assert ran.code == 4, ran.err + ran.out
    assert "the cluster no longer answers at 127.0.0.1:" in ran.err
    assert "INVALID" not in ran.out
    assert "could not be removed" in json.loads((tmp_path / "run" / "run.json").read_text())["ended"]


def test_topics_are_removed_though_mending_goes_wrong(tmp_path: Path) -> None:
    async def story() -> None:
        found = await find([("127.0.0.1", port) for port in cluster.ports.values()], Security())
        commands = read_fault_commands(cluster.faults_file(tmp_path / "f.toml"))
        own = OwnCluster(found, tmp_path, prefix="p-", commands=commands, may_break=True)
        await own.create([PartitionSpec(key=0, topic="p-log", partition=0, replicas=("n2", "n3"))])
        await own.kill("n1")
        own.mend = AsyncMock(side_effect=KeyError("a bug"))  # type: ignore[method-assign]
        with pytest.raises(KeyError):
            await own.stop()

    with foreign_cluster() as cluster:
        asyncio.run(story())

        assert not cluster.topics


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


@pytest.mark.parametrize(("address", "why"), [
    ("no-such-host.invalid:9092", "the host's name is not known"),
    ("127.0.0.1:1", "no cluster was found: Metadata to 127.0.0.1:1: nothing answers there")])
def test_where_nothing_answers_is_told(tmp_path: Path, address: str, why: str) -> None:
    ran = floodmark("run", "--bootstrap", address, "--out", tmp_path / "run")

    assert (ran.code, why in ran.err) == (4, True), ran.err
    assert not (tmp_path / "run").exists()
