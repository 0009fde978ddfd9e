"""Brokers as real processes that are killed, stopped, paused and frozen; topics that change under them."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_requests import delete
from raw import Raw, batch, produce_body
from real_brokers import CONTROLLER, RealBrokers
from run_processes import wait_until

from floodmark.broker.protocol import errors
from floodmark.broker.wire.api_keys import (
    CREATE_PARTITIONS,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
)
from floodmark.broker.wire.codec import make, milliseconds, request_parts
from floodmark.harness.cluster.processes import Refused

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    """One cluster for all tests; each leaves every process as it found it, except the last, which freezes
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


# -- topics -------------------------------------------------------------------------------------------------


def alter(raw: Raw, topic: str, name: str, value: str) -> int:
    cls, parts = request_parts(INCREMENTAL_ALTER_CONFIGS, 1)
    change = make(parts.AlterableConfig, name=name, config_operation=0, value=value)
    resource = make(parts.AlterConfigsResource, resource_type=2, resource_name=topic, configs=(change,))
    answer = raw.ask(INCREMENTAL_ALTER_CONFIGS, 1, make(cls, resources=(resource,), validate_only=False))
    return int(answer.responses[0].error_code)


def grow(raw: Raw, topic: str, count: int) -> int:
    cls, parts = request_parts(CREATE_PARTITIONS, 3)
    asked = make(parts.CreatePartitionsTopic, name=topic, count=count, assignments=None)
    body = make(cls, topics=(asked,), timeout=milliseconds(9000), validate_only=False)
    return int(raw.ask(CREATE_PARTITIONS, 3, body).results[0].error_code)


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
            waits = writer.send(PRODUCE, 9, produce_body(filled, batch(b"d"), -1, 0, 30_000, 9))
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
    cluster.wait_unfenced(1, 2, 3)


def hold(cluster: RealBrokers, raw: Raw, topic: str) -> None:
    """Holds broker 2's replica, with a record just appended."""
    cluster.ask(2, "arm", point="F.appended", action="hold", topic=topic)
    raw.produce(topic, batch(b"d"), acks=1)
    wait_until("a follower held", lambda: any(each["held"] for each in cluster.ask(2, "points")["met"]))


def test_the_next_of_its_name_waits_for_a_replica_that_is_held(cluster: RealBrokers, filled: str) -> None:
    with Raw(cluster.port[1]) as raw:
        hold(cluster, raw, filled)
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
        assert grow(raw, filled, 3) == errors.NONE
        assert grow(raw, filled, 3) == errors.INVALID_PARTITIONS
    for index in (1, 2):
        leader = wait_until("a leader", lambda index=index: cluster.partition(filled, index))["leader"]
        with Raw(cluster.port[leader]) as raw:

            def taken(index: int = index, raw: Any = raw) -> bool:
                return bool(raw.produce(filled, batch(b"v"), partition=index)[0] == errors.NONE)

            wait_until("a record to be taken", taken)


# -- the end of a broker ------------------------------------------------------------------------------------


def test_frozen_is_frozen(cluster: RealBrokers, topic: str) -> None:
    """A frozen process does nothing: no answer to clients, no heartbeat, no new state; only `state` is
    answered. (The shared cluster stays frozen from here on.)"""
    assert cluster.produce(topic, b"v") == (errors.NONE, 0)
    frozen = {node: cluster.ask(node, "freeze") for node in (CONTROLLER, *cluster.brokers)}
    with Raw(cluster.port[1], timeout_s=1.0) as raw, pytest.raises(TimeoutError):
        raw.produce(topic, batch(b"unheard"))

    assert {node: cluster.ask(node, "state") for node in frozen} == frozen
    assert {node: cluster.ask(node, "freeze") for node in frozen} == frozen
    assert {each["leo"] for each in frozen[1]["replicas"] if each["topic"] == topic} == {1}
    with pytest.raises(Refused, match="frozen"):
        cluster.expire(1)
    with pytest.raises(Refused, match="frozen"):
        cluster.ask(1, "arm", point="L.acked", action="hold")
    with pytest.raises(Refused, match="there are: arm, freeze, points, release, state"):
        cluster.ask(1, "thaw")


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
