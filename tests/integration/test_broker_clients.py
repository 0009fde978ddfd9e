"""Runs applications' own clients, unchanged, on real broker processes: confluent-kafka, kafka-python,
kcat."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Partition
from raw import Raw
from real_brokers import RealBrokers, wait_for

pytestmark = pytest.mark.cluster

FAST = {
    "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.fast.interval.ms": 20, "log_level": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    with RealBrokers(tmp_path_factory.mktemp("clients")) as brokers:
        yield brokers


@pytest.fixture
def topic(cluster: RealBrokers, request: pytest.FixtureRequest) -> str:
    """A new topic, led by broker 1."""
    name = request.node.name.replace("[", "-").replace("]", "")
    with Raw(cluster.port[2]) as raw:
        assert raw.create(name, (1, 2, 3), (2, 3, 1)) == 0
    cluster.wait_isr(name, 1, 2, 3)
    return name


def produced(producer: Any, topic: str, values: list[str]) -> dict[str, int]:
    """value -> offset of the values that were acked."""
    acked: dict[str, int] = {}

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            acked[message.value().decode()] = message.offset()

    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(120) == 0
    return acked


def consumed(cluster: RealBrokers, topic: str, count: int) -> dict[str, int]:
    """The first `count` values of partition 0 by confluent-kafka, value -> offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "check.crcs": True,
            **FAST,
        }
    )
    found: dict[str, int] = {}
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        until = time.monotonic() + 120
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found[message.value().decode()] = message.offset()
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_confluent_kafka(cluster: RealBrokers, topic: str, idempotent: bool, compression: str) -> None:
    """Acked values are consumed, by a consumer with a group id that assigns itself."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": idempotent,
            "compression.type": compression,
            **FAST,
        }
    )
    acked = produced(producer, topic, [f"v{n}" for n in range(500)])

    assert acked == {f"v{n}": n for n in range(500)}
    assert consumed(cluster, topic, 500) == acked


def test_confluent_kafka_while_brokers_are_killed(cluster: RealBrokers, topic: str) -> None:
    """kill -9 of the leader under an idempotent producer: all is acked in the end, once, and in order."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **FAST})
    acked = produced(producer, topic, [f"a{n}" for n in range(50)])
    leader = cluster.partition(topic)["leader"]
    cluster.end(leader)
    cluster.expire(leader)
    try:
        acked |= produced(producer, topic, [f"b{n}" for n in range(50)])
    finally:
        cluster.start(leader)
        cluster.wait_isr(topic, 1, 2, 3)
    acked |= produced(producer, topic, [f"c{n}" for n in range(50)])

    assert acked == {f"{phase}{n}": 50 * "abc".index(phase) + n for phase in "abc" for n in range(50)}
    assert consumed(cluster, topic, 150) == acked


def test_confluent_kafka_admin(cluster: RealBrokers) -> None:
    """create_topics, and the topic in list_topics."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **FAST})
    made = admin.create_topics([NewTopic("by-admin", 2, 2, config={"min.insync.replicas": "1"})])

    assert made["by-admin"].result(20) is None
    listed = admin.list_topics("by-admin", timeout=60).topics["by-admin"]
    assert sorted(listed.partitions) == [0, 1]
    assert all(len(part.replicas) == 2 for part in listed.partitions.values())


@pytest.mark.parametrize("idempotent", [False, True])
def test_kafka_python(cluster: RealBrokers, topic: str, idempotent: bool) -> None:
    """Its producer and its consumer."""
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap.split(","),
        acks="all",
        metrics_enabled=False,
        enable_idempotence=idempotent,
    )
    try:
        sent = [producer.send(topic, f"v{n}".encode(), partition=0) for n in range(100)]
        offsets = [each.get(timeout=60).offset for each in sent]
    finally:
        producer.close(timeout=5)
    with contextlib.closing(
        KafkaConsumer(
            bootstrap_servers=cluster.bootstrap.split(","),
            metrics_enabled=False,
            auto_offset_reset="none",
            consumer_timeout_ms=60_000,
        )
    ) as consumer:
        consumer.assign([Partition(topic, 0)])
        consumer.seek(Partition(topic, 0), 0)
        found = [  # the range first, so that it does not wait for a 101st record
            (record.offset, record.value.decode()) for _, record in zip(range(100), consumer, strict=False)
        ]

    assert offsets == list(range(100))
    assert found == [(n, f"v{n}") for n in range(100)]


@pytest.mark.kcat
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt-get install kcat)")
def test_kcat(cluster: RealBrokers, topic: str) -> None:
    """In and out, compressed; and into a topic that it makes by asking for its metadata, while a broker is
    dead."""

    def kcat(*arguments: str, text: str = "") -> str:
        return subprocess.run(
            ["kcat", "-b", cluster.bootstrap, *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    lines = "".join(f"line-{n}\n" for n in range(200))
    kcat("-P", "-t", topic, "-p", "0", "-z", "lz4", "-X", "acks=all", text=lines)
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == lines

    kcat("-P", "-t", "kcats-own", "-p", "0", text="one\n")
    wait_for("its topic", lambda: cluster.partition("kcats-own"))
    leader = cluster.partition("kcats-own")["leader"]
    cluster.end(leader)
    cluster.expire(leader)
    try:
        wait_for("another leader", lambda: cluster.partition("kcats-own")["leader"] not in (leader, -1))
        kcat("-P", "-t", "kcats-own", "-p", "0", text="two\n")
        assert kcat("-C", "-t", "kcats-own", "-p", "0", "-o", "beginning", "-e", "-q") == "one\ntwo\n"
    finally:
        cluster.start(leader)
        cluster.wait_isr("kcats-own", 1, 2, 3)
