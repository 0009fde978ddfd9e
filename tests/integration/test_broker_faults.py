"""Brokers as real processes that are killed, stopped, paused, frozen and held at failpoints; topics that
change under them. What a failpoint does to the protocol, golden/plays.txt and the scenarios show."""

import json
import os
import resource
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka_requests import delete, topic_metadata
from raw import Raw, batch
from real_brokers import CONTROLLER, RealBrokers
from run_processes import wait_until

from floodmark.broker.protocol import errors
from floodmark.broker.wire.api_keys import CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS
from floodmark.broker.wire.codec import milliseconds
from floodmark.harness.cluster.processes import Refused

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    """One cluster for all tests; each leaves every process as it found it, except the last, which ends
    them."""
    with RealBrokers(tmp_path_factory.mktemp("faults")) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    """One in which no clock ends fetches."""
    keys = {"replica.fetch.wait.max.ms": "30000", "replica.socket.timeout.ms": "60000"}
    with RealBrokers(tmp_path_factory.mktemp("patient"), **keys) as brokers:
        yield brokers


@pytest.fixture
def topic(cluster: RealBrokers, request: pytest.FixtureRequest) -> str:
    """A new topic, led by broker 1."""
    return cluster.create(request.node.name)


@pytest.fixture
def filled(cluster: RealBrokers, topic: str) -> str:
    """Such a topic, with three records."""
    with Raw(cluster.port[1]) as raw:
        assert raw.produce(topic, batch(b"a", b"b", b"c")) == (errors.NONE, 0)
    return topic


def arm(cluster: RealBrokers, node: int, point: str, action: str = "hold", **besides: Any) -> int:
    return int(cluster.ask(node, "arm", point=point, action=action, **besides)["id"])


def wait_met(cluster: RealBrokers, node: int, number: int, held: bool | None = None) -> Mapping[str, Any]:
    return wait_until(f"{number} to be met by {node}", lambda: [
        each for each in cluster.ask(node, "points")["met"]
        if each["id"] == number and held in (None, each["held"])])[-1]


def test_a_new_leader_is_asked_at_once(patient: RealBrokers) -> None:
    """A fetch that is parked at the old leader for half a minute does not delay fetches from the new one."""
    topic = patient.create("asked-at-once")
    assert patient.produce(topic, b"v") == (errors.NONE, 0)
    patient.expire(1)
    part = wait_until(
        "a new leader", lambda: patient.partition(topic)["leader"] in (2, 3) and patient.partition(topic)
    )
    wait_until("its role", lambda: patient.replica(part["leader"], topic)["epoch"] == part["epoch"])

    assert patient.produce(topic, b"w", node=part["leader"]) == (errors.NONE, 1)
    patient.wait_isr(topic, 1, 2, 3)


def test_a_fetch_of_several_partitions_misses_no_append(patient: RealBrokers) -> None:
    """A fetch of one partition acks a produce there, and the next one of that connection is appended at once:
    before the fetch waits, or it wakes it."""
    topic = patient.create("several", (1, 2, 3), (1, 2, 3))
    with Raw(patient.port[1]) as raw:
        numbers = [raw.send_produce(topic, batch(b"v"), timeout_ms=9_000) for _ in range(50)]
        for offset, number in enumerate(numbers):
            assert raw.produced(number) == (errors.NONE, offset)


# -- topics -------------------------------------------------------------------------------------------------


def test_no_topic_is_unknown_before_the_first_metadata(cluster: RealBrokers, topic: str) -> None:
    """A broker that has started while its controller is away knows no topic, and each may exist: both errors
    are retriable, and the client asks another broker."""
    for node in (CONTROLLER, 3):
        cluster.end(node)
    cluster.start(3)
    with Raw(cluster.port[3]) as raw:
        assert topic_metadata(raw, topic)[0][0] == errors.LEADER_NOT_AVAILABLE
        assert raw.produce(topic, batch(b"v")) == (errors.NOT_LEADER_OR_FOLLOWER, -1)
    cluster.start(CONTROLLER)
    cluster.wait_isr(topic, 1, 2, 3)


def alter(raw: Raw, topic: str, name: str, value: str) -> int:
    resource = {"resource_type": 2, "resource_name": topic, "configs": [
        {"name": name, "config_operation": 0, "value": value}]}
    answer = raw.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    return int(answer.responses[0].error_code)


def gone(cluster: RealBrokers, node: int, topic: str) -> bool:
    """Whether the topic is gone from a broker's state, and from its disk."""
    return not cluster.replica(node, topic) and not (cluster.log_dir(node) / f"{topic}-0").exists()


def test_a_topic_goes_and_comes_again(cluster: RealBrokers, filled: str) -> None:
    """Its logs are deleted from every disk; the next topic of the name begins empty, and is replicated."""
    wait_until("a checkpoint of the old log", lambda: f"{filled} 0 3" in checkpoint(cluster, 1))
    with Raw(cluster.port[2]) as other, Raw(cluster.port[1]) as raw:
        assert delete(other, filled) == errors.NONE
        assert delete(other, filled) == errors.UNKNOWN_TOPIC_OR_PARTITION
        for node in cluster.brokers:
            wait_until(f"broker {node} to let go", lambda node=node: gone(cluster, node, filled))
        assert raw.produce(filled, batch(b"v")) == (errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert raw.end_offset(filled) == (errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert int(raw.fetch(filled, 0).error_code) == errors.UNKNOWN_TOPIC_OR_PARTITION

        cluster.create(filled)
        assert raw.end_offset(filled) == (errors.NONE, 0)
        assert raw.produce(filled, batch(b"v")) == (errors.NONE, 0)
    assert not any(f"{filled} 0 3\n" in checkpoint(cluster, node) for node in cluster.brokers)
    assert all(cluster.running(node) for node in (CONTROLLER, *cluster.brokers))


def checkpoint(cluster: RealBrokers, node: int) -> str:
    path = cluster.log_dir(node) / "replication-offset-checkpoint"
    return path.read_text() if path.exists() else ""


def test_who_waits_hears_of_it(cluster: RealBrokers, filled: str) -> None:
    """A parked fetch and a parked produce are answered at once, though both had ten seconds."""
    cluster.ask(1, "arm", point="P.parked", action="report", topic=filled)
    for node in (2, 3):
        cluster.pause(node)
    try:
        with Raw(cluster.port[1]) as reader, Raw(cluster.port[1]) as writer, Raw(cluster.port[1]) as raw:
            waits = writer.send_produce(filled, batch(b"d"))
            wait_until("the produce to be parked", lambda: cluster.ask(1, "points")["met"])
            fetch = reader.send_fetch(filled, 4, wait_ms=30_000)
            assert delete(raw, filled) == errors.NONE
            assert writer.produced(waits) == (errors.NOT_LEADER_OR_FOLLOWER, 3)
            assert int(reader.fetched(fetch).error_code) == errors.NOT_LEADER_OR_FOLLOWER
    finally:
        for node in (2, 3):
            cluster.resume(node)
        cluster.ask(1, "release")
    for node in cluster.brokers:
        wait_until(f"broker {node} to let go", lambda node=node: gone(cluster, node, filled))


def test_the_next_of_its_name_waits_for_a_replica_that_is_held(cluster: RealBrokers, filled: str) -> None:
    with Raw(cluster.port[1]) as raw:
        number = arm(cluster, 2, "F.appended", topic=filled)
        raw.produce(filled, batch(b"d"), acks=1)
        wait_met(cluster, 2, number, held=True)
        assert delete(raw, filled) == errors.NONE
        assert raw.create(filled, (1, 2, 3)) == errors.NONE
        assert (cluster.log_dir(2) / f"{filled}-0").exists()
        assert cluster.replica(2, filled)["leo"] == 4

        cluster.ask(2, "release")
        cluster.wait_isr(filled, 1, 2, 3)
        assert raw.produce(filled, batch(b"e")) == (errors.NONE, 0)
    wait_until("the new log", lambda: cluster.replica(2, filled)["leo"] == 1)


def test_a_topic_that_went_while_a_broker_was_down(cluster: RealBrokers, filled: str) -> None:
    """The broker comes back with the old log; a new topic of that name begins empty there too."""
    wait_until("a checkpoint of the old log", lambda: f"{filled} 0 3" in checkpoint(cluster, 3))
    cluster.end(3)
    with Raw(cluster.port[1]) as raw:
        assert delete(raw, filled) == errors.NONE
        assert raw.create(filled, (1, 2, 3)) == errors.NONE
        cluster.start(3)
        wait_until("broker 3 to take a role", lambda: cluster.replica(3, filled).get("epoch", -1) >= 0)
        assert (cluster.replica(3, filled)["leo"], cluster.replica(3, filled)["hw"]) == (0, 0)
        assert raw.produce(filled, batch(b"v")) == (errors.NONE, 0)
    assert f"{filled} 0 3\n" not in checkpoint(cluster, 3)


def test_configs_rule_at_once(cluster: RealBrokers, filled: str) -> None:
    """min.insync.replicas of a topic in use; brokers begin with 2."""
    with Raw(cluster.port[1]) as raw:
        assert alter(raw, filled, "min.insync.replicas", "3") == errors.NONE
        cluster.end(3)
        cluster.expire(3)
        cluster.wait_isr(filled, 1, 2)
        assert raw.produce(filled, batch(b"d")) == (errors.NOT_ENOUGH_REPLICAS, -1)
        assert alter(raw, filled, "min.insync.replicas", "2") == errors.NONE
        wait_until("the config to rule", lambda: raw.produce(filled, batch(b"d"))[0] == errors.NONE)
        assert alter(raw, filled, "no.such", "2") == errors.INVALID_CONFIG
    cluster.start(3)
    cluster.wait_isr(filled, 1, 2, 3)


def test_new_partitions_take_records(cluster: RealBrokers, filled: str) -> None:
    with Raw(cluster.port[1]) as raw:
        more = {"name": filled, "count": 3, "assignments": None}
        grown = raw.ask(CREATE_PARTITIONS, 3, topics=[more], timeout=milliseconds(9000), validate_only=False)
    assert int(grown.results[0].error_code) == errors.NONE
    for at in (1, 2):
        leader = wait_until("a leader", lambda at=at: cluster.partition(filled, at))["leader"]
        wait_until("a record to be taken", lambda at=at, leader=leader: cluster.produce(
            filled, b"v", node=leader, partition=at)[0] == errors.NONE)


# -- failpoints ---------------------------------------------------------------------------------------------


def test_a_follower_held_after_its_append_and_the_other_partition(cluster: RealBrokers) -> None:
    """It has the record and the old HW; another partition of the same fetches goes on."""
    name = cluster.create("appended", (1, 2, 3), (1, 2, 3))
    number = arm(cluster, 2, "F.appended", topic=name, partition=0)
    assert cluster.produce(name, b"v", acks=1) == (errors.NONE, 0)
    there = wait_met(cluster, 2, number)

    assert (there["epoch"], there["peer"], there["offset"], there["held"]) == (0, 1, 0, True)
    assert [cluster.produce(name, b"w", partition=1) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
    held = cluster.replica(2, name)
    assert (held["leo"], held["hw"], held["checkpointed_hw"]) == (1, 0, 0)
    assert cluster.ask(2, "release", point="F.appended", partition=0) == {"released": 1}
    with pytest.raises(Refused, match="held: nothing; armed: nothing"):
        cluster.ask(2, "release", point="F.appended", partition=0)
    wait_until("the HW", lambda: cluster.replica(2, name)["hw"] == 1)


def test_every_point_is_met(cluster: RealBrokers) -> None:
    """A report is armed at each point, from the start; then the cluster does everything that reaches one."""
    points = ("F.before_refetch", "F.epoch_req", "F.followed", "L.elected", "L.hw", "P.parked", "D.ckpt",
              "D.ckpt_done", "D.fsync", "B.registered", "L.acked", "F.truncated", "F.appended")  # fmt: skip
    arms = [{"point": point, "action": "report", "times": 0} for point in points]
    properties = cluster.cluster.place.layout.properties_of("n2")
    before = properties.read_text()
    properties.write_text(f"{before}floodmark.failpoints={json.dumps(arms)}\n")
    cluster.end(2)
    cluster.start(2)
    properties.write_text(before)
    name = cluster.create("every", (1, 2), flush_messages="1")
    assert cluster.produce(name, b"v") == (errors.NONE, 0)
    cluster.ask(CONTROLLER, "elect", topic=name, partition=0, leader=2)
    wait_until("a leader", lambda: cluster.produce(name, b"w", node=2)[0] == errors.NONE)
    deaf = arm(cluster, 1, "F.before_refetch", "drop", topic=name, times=0)
    wait_met(cluster, 1, deaf)
    assert cluster.produce(name, b"tail", node=2, acks=1)[0] == errors.NONE
    cluster.ask(CONTROLLER, "elect", topic=name, partition=0, leader=1)
    assert cluster.ask(1, "release") == {"released": 0}

    def seen() -> set[str]:
        return {each["point"] for each in cluster.ask(2, "points")["met"]}

    wait_until(f"all of {points}, not only {seen()}", lambda: seen() == set(points))
    assert all(each["action"] == "report" for each in cluster.ask(2, "points")["armed"])
    cluster.ask(2, "release")


def test_a_broker_held_as_a_whole_listens_to_its_control_socket(cluster: RealBrokers) -> None:
    """It answers with its state of then, arms, and releases."""
    name = cluster.create("still")
    number = arm(cluster, 2, "F.appended", topic=name, scope="broker")
    assert cluster.produce(name, b"v", acks=1) == (errors.NONE, 0)
    wait_met(cluster, 2, number, held=True)
    then = cluster.ask(2, "state")
    assert cluster.replica(2, name)["leo"] == 1
    with Raw(cluster.port[2], timeout_s=0.3) as raw, pytest.raises(TimeoutError):
        raw.end_offset(name)
    other = arm(cluster, 2, "F.appended", topic=name, offset=7, scope="broker")
    assert cluster.ask(2, "release", point="F.appended", keep=True) == {"released": 1}
    wait_until("it to move", lambda: cluster.ask(2, "state") != then)
    assert [each["id"] for each in cluster.ask(2, "points")["armed"]] == [other]
    cluster.ask(2, "release")


# -- the end of a broker ------------------------------------------------------------------------------------


def test_frozen_is_frozen(cluster: RealBrokers) -> None:
    """A frozen process does nothing: no answer to clients, no heartbeat, no new state; only `state` is
    answered."""
    name = cluster.create("frozen", (2, 1, 3))
    assert cluster.produce(name, b"v", node=2) == (errors.NONE, 0)
    frozen = cluster.ask(2, "freeze")
    with Raw(cluster.port[2], timeout_s=1.0) as raw, pytest.raises(TimeoutError):
        raw.produce(name, batch(b"unheard"))

    assert cluster.ask(2, "state") == cluster.ask(2, "freeze") == frozen
    assert {each["leo"] for each in frozen["replicas"] if each["topic"] == name} == {1}
    with pytest.raises(Refused, match="frozen"):
        cluster.ask(2, "arm", point="L.acked", action="hold")
    with pytest.raises(Refused, match="there are: arm, freeze, points, release, state"):
        cluster.ask(2, "thaw")
    cluster.end(2)
    cluster.start(2)


def test_a_disk_that_refuses_ends_the_broker(tmp_path: Path) -> None:
    """No answer, a clear last line, and a special exit code."""
    with RealBrokers(tmp_path, 1, trace=False, **{"min.insync.replicas": "1"}) as cluster:
        with Raw(cluster.port[1]) as raw:
            cluster.create("t", (1,))
            _limit_file_size(cluster.pid(1), 4096)
            with pytest.raises((EOFError, ConnectionError)):
                _until_refused(raw)
        first, *_, last = cluster.last_words(1).splitlines()

        assert "exit code 70" in first
        assert "DiskError" in last


def _until_refused(raw: Raw) -> None:
    for _ in range(200):
        raw.produce("t", batch(b"v" * 49))


def _limit_file_size(pid: int, size: int) -> None:
    """RLIMIT_FSIZE from outside: a write beyond fails with EFBIG (Python ignores SIGXFSZ)."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))


def test_a_sigterm_ends_whatever_is_held(cluster: RealBrokers) -> None:
    """One replica held: an orderly stop. All of it held: at once, also frozen. A controller that holds
    messages: in order. (Nothing is left of the cluster.)"""
    name = cluster.create("stops")
    number = arm(cluster, 3, "F.appended", topic=name)
    assert cluster.produce(name, b"v", acks=1) == (errors.NONE, 0)
    wait_met(cluster, 3, number, held=True)
    assert "exit code 0" in ended_by_sigterm(cluster, 3)
    still = arm(cluster, 1, "P.parked", topic=name, scope="broker")
    with Raw(cluster.port[1], timeout_s=0.3) as raw, pytest.raises(TimeoutError):
        raw.produce(name, batch(b"w"))
    wait_met(cluster, 1, still, held=True)
    frozen = cluster.ask(1, "freeze")
    assert frozen == cluster.ask(1, "state") == cluster.ask(1, "freeze")
    with pytest.raises(Refused, match="frozen"):
        cluster.ask(1, "release")
    assert wait_met(cluster, 1, still, held=True)
    news = arm(cluster, CONTROLLER, "C.elected")
    assert "SIGTERM ended it" in ended_by_sigterm(cluster, 1)
    wait_met(cluster, CONTROLLER, news, held=True)
    assert "exit code 0" in ended_by_sigterm(cluster, CONTROLLER)


def ended_by_sigterm(cluster: RealBrokers, node: int) -> str:
    """How it ended, as somebody says who did not send the signal."""
    os.kill(cluster.pid(node), signal.SIGTERM)
    return cluster.last_words(node).splitlines()[0]
