"""`run --bootstrap` on a system of others, of which only the wire is seen: its bugs, each beside what a
correct system may show too; and a system that lacks something, goes away, or may not be struck: told in
one sentence, before the run where that can be, with what to do.
"""

import asyncio
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from command_line import Answer, floodmark, verdict
from foreign_broker import CONFIGS, CREATE, ELECT, ForeignCluster, Quirk, foreign_cluster
from run_processes import ctrl_c_once_it_goes_well, once_it_goes_well

from floodmark.harness import runner
from floodmark.harness.client.security import Security
from floodmark.harness.cluster import broker_requests
from floodmark.harness.cluster.fault_commands import read_fault_commands
from floodmark.harness.cluster.own_cluster import OwnCluster, find
from floodmark.harness.commands.run import planned_on_own
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.spec import RunSpec

GIVEN_UP_S = 2.2  # more than twice the system's session and lag time
SHORT = ("--partitions", "2", "--concurrency", "4", "--rate", "200", "--duration", "1", "--seed", "1")
KILL = json.dumps([{"f": "kill", "nodes": ["n2"]}])
MIN_INSYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


@pytest.fixture
def given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not settle, or cannot be read, is given up soon."""
    settle = runner.settle
    monkeypatch.setattr(runner, "settle", lambda *given: settle(*given[:-1], GIVEN_UP_S))
    monkeypatch.setattr(runner, "read_all", partial(runner.read_all, stall_s=GIVEN_UP_S))


def run(cluster: ForeignCluster, folder: Path, *words: object) -> Answer:
    return floodmark("run", "--bootstrap", cluster.bootstrap, *SHORT, *words, "--out", folder / "run")


def about(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "run" / "run.json").read_text())
    return data


def restarted(cluster: ForeignCluster, folder: Path) -> Answer:
    """A run in which all brokers are killed once, and started when it mends."""
    schedule = folder / "s.json"
    schedule.write_text(json.dumps([{"f": "kill", "nodes": ["n1", "n2", "n3"],
                                     "moment": {"at": "time", "time": 700_000_000}}]))
    return run(cluster, folder, "--i-may-break-this", "--faults", cluster.faults_file(folder / "f.toml"),
               "--schedule", schedule, "--strict")


def found(folder: Path) -> dict[str, str]:
    """The findings: name -> the `how` of its first example. Which broker is asked decides whether a leader is
    missed, too."""
    return {one["name"]: one["examples"][0]["how"].removeprefix("no leader and ")
            for one in verdict(folder / "run")["findings"]}


def unknown(folder: Path) -> set[str]:
    return {name for one in verdict(folder / "run")["unknown"] for name in one["names"]}


LOST, STUCK = "lost-write", "stuck"
SEEN: list[tuple[tuple[Quirk, ...], bool, dict[str, str], str]] = [
    # what it does; whether all its brokers are killed and started again; the findings; what the report says
    ((), False, {}, ""),
    ((Quirk.LSO_BELOW_HW,), False, {}, ""),
    ((Quirk.DELETES_BY_AGE,), False, {LOST: "unknown"}, ""),
    ((), True, {}, ""),
    ((Quirk.NO_CONTROLLER_YET,), True, {}, ""),
    ((Quirk.FORGETS_TOPIC,), True, {LOST: "gone", STUCK: "no ack"},
     "none of 3 nodes knows its topic any more"),
    ((Quirk.FORGETS_TOPIC, Quirk.LISTS_FEWER), True, {LOST: "unknown", STUCK: "no ack"}, ""),
    ((Quirk.FORGETS_TOPIC, Quirk.ONE_REMEMBERS), True, {LOST: "unknown", STUCK: "no ack"}, ""),
    ((Quirk.BEGINNING_MOVES,), False, {LOST: "log-start"}, "now begins at offset"),
    ((Quirk.READS_NOTHING,), False, {LOST: "unread"}, ""),
    ((Quirk.SKIPS_PREFIX,), False, {LOST: "unread"}, ""),
]
HANG = {Quirk.FORGETS_TOPIC, Quirk.READS_NOTHING}  # without an end, where nobody gives up


@pytest.mark.spark
@pytest.mark.parametrize(("quirks", "again", "findings", "words"), SEEN, ids=str)
def test_what_is_found_of_a_system_by_the_wire_alone(
        tmp_path: Path, request: pytest.FixtureRequest, quirks: tuple[Quirk, ...], again: bool,
        findings: dict[str, str], words: str) -> None:
    """Lost is what all nodes deny; what a reader does not get; what lies below a beginning that moved."""
    if HANG & {*quirks}:
        request.getfixturevalue("given_up_soon")
    with foreign_cluster(*quirks) as cluster:
        ran = restarted(cluster, tmp_path) if again else run(cluster, tmp_path)

    seen = found(tmp_path) | ({LOST: "unknown"} if LOST in unknown(tmp_path) else {})
    assert (seen, words in " ".join(ran.out.split())) == (findings, True), ran.err + ran.out
    assert (ran.code == 1) == bool(found(tmp_path))
    if findings.get(LOST) == "gone":
        judged = verdict(tmp_path / "run")
        assert judged["findings"][0]["count"] == judged["counts"]["acked"]
    if not findings:
        assert (ran.code, about(tmp_path)["settled"], bool(cluster.topics)) == (0, True, False)


@pytest.mark.spark
@pytest.mark.usefixtures("given_up_soon")
def test_without_a_controller_nothing_is_claimed(tmp_path: Path) -> None:
    with foreign_cluster(Quirk.NO_CONTROLLER_YET) as cluster:
        cluster.unready_answers = 1 << 30
        ran = restarted(cluster, tmp_path)

    assert (ran.code, found(tmp_path)) == (3, {}), ran.err + ran.out
    assert unknown(tmp_path) >= {"lost-write", "stuck"}


@pytest.mark.spark
@pytest.mark.usefixtures("given_up_soon")
@pytest.mark.parametrize(("odd_from", "finds"), [(8, {"stuck": "no ack"}), (0, {})], ids=["later", "never"])
def test_a_system_that_acks_no_more_is_stuck(tmp_path: Path, odd_from: int, finds: dict[str, str]) -> None:
    """One that never acked may only be set up wrongly."""
    with foreign_cluster(Quirk.NO_ACKS) as cluster:
        cluster.odd_from = odd_from
        ran = run(cluster, tmp_path)

    assert (ran.code, found(tmp_path)) == (1 if finds else 3, finds), ran.err + ran.out
    assert ("stuck" in unknown(tmp_path)) is not bool(finds)


@pytest.mark.spark
def test_a_batch_that_nobody_can_read_is_named_with_its_offset(tmp_path: Path) -> None:
    """Its acked records are lost; the readers go on behind it, which is no skip."""
    with foreign_cluster(Quirk.BAD_CHECKSUM) as cluster:
        ran = run(cluster, tmp_path)

    assert ran.code == 1, ran.err + ran.out
    assert found(tmp_path).keys() == {"malformed-log", "lost-write"}
    _, malformed = verdict(tmp_path / "run")["findings"]
    assert malformed["count"] == 2  # one of each partition
    assert all(one["offset"] >= 8 and "its checksum is wrong" in one["text"] for one in malformed["examples"])
    assert not unknown(tmp_path)
    assert about(tmp_path)["final_reads"]["partitions"] == [0, 1]


@pytest.mark.parametrize(("settings", "timeout_s"), [
    ({}, 60),  # Kafka's default lag time counts where none is shown
    ({"replica.lag.time.max.ms": "1000", "broker.session.timeout.ms": "9000"}, 30),
    ({"replica.lag.time.max.ms": "1000", "zookeeper.session.timeout.ms": "18000"}, 36),
    ({"replica.lag.time.max.ms": "45000", "broker.session.timeout.ms": "9000"}, 90),
    ({"replica.lag.time.max.ms": "a while"}, 60),
])
def test_a_cluster_has_twice_its_longest_time_to_settle(
        tmp_path: Path, settings: dict[str, str], timeout_s: int) -> None:
    with foreign_cluster() as cluster:
        cluster.settings = settings
        plan = planned_on_own(RunSpec(bootstrap=cluster.bootstrap, out=tmp_path / "run"))

    assert plan.settle_timeout_s == timeout_s


# -- what is lacking, goes away or may not be asked --------------------------------------------------------


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
    guarantees = about(tmp_path / "2")["guarantees"]
    assert (guarantees["min_insync_replicas"], guarantees["unclean_leader_election"]) == (2, False)


def test_fewer_partitions_than_asked_are_told_at_once(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.harness.cluster.own_cluster.CREATE_S", 1.0)
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
    (("--nemesis", "crash", "--i-may-break-this"), "no --faults FILE was given, which has"),
    (("--nemesis", "power", "--i-may-break-this"), "have synced"),
    (("--nodes", "5"), "--nodes cannot be chosen"),
    (("--rules", "kip-101", "--links", "proxied"), "--rules, --links cannot be chosen"),
    (("--replication-factor", "4"), "there are 3"),
    (("-c", "retention.ms=1000"), "-c retention.ms: the topics of a run must keep all acked records"),
    (("--schedule", "kill.json", "--faults", "f.toml"), "need --i-may-break-this"),
    (("--schedule", "elect.json"), "need --i-may-break-this"),
])
def test_what_may_not_be_asked_is_usage(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kill.json").write_text(KILL)
    Path("elect.json").write_text('[{"f": "elect", "partitions": [0], "unclean": true}]')
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
@pytest.mark.usefixtures("given_up_soon")
def test_a_cluster_that_goes_away_in_mid_run_is_reported_and_never_invalid(tmp_path: Path) -> None:
    with foreign_cluster() as cluster, once_it_goes_well(
            tmp_path / "run", lambda: [cluster.end(node) for node in cluster.ports]):
        ran = run(cluster, tmp_path, "--duration", "3")

    assert ran.code == 4, ran.err + ran.out
    assert "the cluster no longer answers at 127.0.0.1:" in ran.err
    assert "INVALID" not in ran.out
    assert "could not be removed" in about(tmp_path)["ended"]


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
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if answer is None:
                over.wait()
            else:
                self.request.recv(100)
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        over.set()
        server.shutdown()


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
