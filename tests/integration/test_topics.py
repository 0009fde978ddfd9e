"""Topics that are altered, grow and are deleted, on real brokers: their replicas, logs and clients."""

from collections.abc import Iterator
from typing import Any

import pytest
from raw import Raw, batch, produce_body
from real_brokers import CONTROLLER, RealBrokers, wait_for

from floodmark.broker.protocol import errors
from floodmark.broker.wire.api_keys import (
    CREATE_PARTITIONS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
)
from floodmark.broker.wire.codec import make, milliseconds, request_parts

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    with RealBrokers(tmp_path_factory.mktemp("topics")) as brokers:
        yield brokers


@pytest.fixture
def topic(cluster: RealBrokers, request: pytest.FixtureRequest) -> str:
    """A new topic, led by broker 1, with three records."""
    name: str = request.node.name
    make_topic(cluster, name)
    with Raw(cluster.port[1]) as raw:
        assert raw.produce(name, batch(b"a", b"b", b"c")) == (errors.NONE, 0)
    return name


def make_topic(cluster: RealBrokers, name: str) -> None:
    with Raw(cluster.port[1]) as raw:
        assert raw.create(name, (1, 2, 3)) == errors.NONE
    cluster.wait_isr(name, 1, 2, 3)


def delete(raw: Raw, topic: str) -> int:
    cls, parts = request_parts(DELETE_TOPICS, 6)
    asked = make(parts.DeleteTopicState, name=topic, topic_id=None)
    answer = raw.ask(DELETE_TOPICS, 6, make(cls, topics=(asked,), timeout=milliseconds(9000)))
    return int(answer.responses[0].error_code)


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


def test_a_topic_goes_and_comes_again(cluster: RealBrokers, topic: str) -> None:
    """Its logs are deleted from every disk; the next topic of the name begins empty, and is replicated."""
    wait_for("a checkpoint of the old log", lambda: f"{topic} 0 3" in checkpoint(cluster, 1))
    with Raw(cluster.port[2]) as other, Raw(cluster.port[1]) as raw:
        assert delete(other, topic) == errors.NONE
        assert delete(other, topic) == errors.UNKNOWN_TOPIC_OR_PARTITION
        for node in cluster.brokers:
            wait_for(f"broker {node} to let go", lambda node=node: gone(cluster, node, topic))
        assert raw.produce(topic, batch(b"v")) == (errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert raw.end_offset(topic) == (errors.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert int(raw.fetch(topic, 0).error_code) == errors.UNKNOWN_TOPIC_OR_PARTITION

        make_topic(cluster, topic)
        assert raw.end_offset(topic) == (errors.NONE, 0)
        assert raw.produce(topic, batch(b"v")) == (errors.NONE, 0)
    assert not any(f"{topic} 0 3\n" in checkpoint(cluster, node) for node in cluster.brokers)
    assert all(cluster.running(node) for node in (CONTROLLER, *cluster.brokers))


def checkpoint(cluster: RealBrokers, node: int) -> str:
    path = cluster.log_dir(node) / "replication-offset-checkpoint"
    return path.read_text() if path.exists() else ""


def test_who_waits_hears_of_it(cluster: RealBrokers, topic: str) -> None:
    """A parked fetch and a parked produce are answered at once, though both had ten seconds."""
    cluster.ask(1, "arm", point="P.parked", action="report", topic=topic)
    for node in (2, 3):
        cluster.pause(node)
    try:
        with Raw(cluster.port[1]) as reader, Raw(cluster.port[1]) as writer, Raw(cluster.port[1]) as raw:
            waits = writer.send(PRODUCE, 9, produce_body(topic, batch(b"d"), -1, 0, 30_000, 9))
            wait_for("the produce to be parked", lambda: cluster.ask(1, "points")["met"])
            fetch = reader.send_fetch(topic, 4, wait_ms=30_000)
            assert delete(raw, topic) == errors.NONE
            assert writer.produced(waits) == (errors.NOT_LEADER_OR_FOLLOWER, 3)
            assert int(reader.fetched(fetch).error_code) == errors.NOT_LEADER_OR_FOLLOWER
    finally:
        for node in (2, 3):
            cluster.resume(node)
        cluster.ask(1, "release")
    for node in cluster.brokers:
        wait_for(f"broker {node} to let go", lambda node=node: gone(cluster, node, topic))
    cluster.wait_unfenced(1, 2, 3)


def hold(cluster: RealBrokers, raw: Raw, topic: str) -> None:
    """Holds broker 2's replica, with a record just appended."""
    cluster.ask(2, "arm", point="F.appended", action="hold", topic=topic)
    raw.produce(topic, batch(b"d"), acks=1)
    wait_for("a follower held", lambda: any(each["held"] for each in cluster.ask(2, "points")["met"]))


def test_the_next_of_its_name_waits_for_a_replica_that_is_held(cluster: RealBrokers, topic: str) -> None:
    with Raw(cluster.port[1]) as raw:
        hold(cluster, raw, topic)
        assert delete(raw, topic) == errors.NONE
        assert raw.create(topic, (1, 2, 3)) == errors.NONE
        assert (cluster.log_dir(2) / f"{topic}-0").exists()
        assert cluster.replica(2, topic)["leo"] == 4

        cluster.ask(2, "release")
        cluster.wait_isr(topic, 1, 2, 3)
        assert raw.produce(topic, batch(b"e")) == (errors.NONE, 0)
    wait_for("the new log", lambda: cluster.replica(2, topic)["leo"] == 1)


def test_a_topic_that_went_while_a_broker_was_down(cluster: RealBrokers, topic: str) -> None:
    """The broker comes back with the old log; a new topic of that name begins empty there too."""
    wait_for("a checkpoint of the old log", lambda: f"{topic} 0 3" in checkpoint(cluster, 3))
    cluster.end(3)
    with Raw(cluster.port[1]) as raw:
        assert delete(raw, topic) == errors.NONE
        assert raw.create(topic, (1, 2, 3)) == errors.NONE
        cluster.start(3)
        wait_for("broker 3 to take a role", lambda: cluster.replica(3, topic).get("epoch", -1) >= 0)
        assert (cluster.replica(3, topic)["leo"], cluster.replica(3, topic)["hw"]) == (0, 0)
        assert raw.produce(topic, batch(b"v")) == (errors.NONE, 0)
    assert f"{topic} 0 3\n" not in checkpoint(cluster, 3)


def test_configs_rule_at_once(cluster: RealBrokers, topic: str) -> None:
    """min.insync.replicas of a topic in use; a restart keeps it."""
    with Raw(cluster.port[1]) as raw:
        assert alter(raw, topic, "min.insync.replicas", "3") == errors.NONE
        cluster.end(3)
        cluster.expire(3)
        cluster.wait_isr(topic, 1, 2)
        wait_for("broker 1 to know", lambda: cluster.replica(1, topic)["isr"] == [1, 2])
        assert raw.produce(topic, batch(b"d")) == (errors.NOT_ENOUGH_REPLICAS, -1)
        assert alter(raw, topic, "min.insync.replicas", "2") == errors.NONE
        wait_for("the config to rule", lambda: raw.produce(topic, batch(b"d"))[0] == errors.NONE)
        assert alter(raw, topic, "no.such", "2") == errors.INVALID_CONFIG
    cluster.start(3)
    cluster.wait_isr(topic, 1, 2, 3)


def test_new_partitions_take_records(cluster: RealBrokers, topic: str) -> None:
    with Raw(cluster.port[1]) as raw:
        assert grow(raw, topic, 3) == errors.NONE
        assert grow(raw, topic, 3) == errors.INVALID_PARTITIONS
    for index in (1, 2):
        leader = wait_for("a leader", lambda index=index: cluster.partition(topic, index))["leader"]
        with Raw(cluster.port[leader]) as raw:

            def taken(index: int = index, raw: Any = raw) -> bool:
                return bool(raw.produce(topic, batch(b"v"), partition=index)[0] == errors.NONE)

            wait_for("a record to be taken", taken)
