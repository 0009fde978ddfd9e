"""Applications' own clients on `cluster up`: each of their ordinary calls works, or gets the right refusal at
once.

What they send survives the death of a leader.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import client_calls
import pytest
from clients_confluent import Confluent, is_refused
from clients_kafka_python import KafkaPython
from cluster_up import Up, cluster_up
from command_line import floodmark
from confluent_kafka import Consumer, Producer, TopicPartition
from real_kafka import skip_without

from floodmark.harness.commands import cluster

pytestmark = pytest.mark.cluster

TOPIC = "applications"
WAIT_S = 120


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with cluster_up(tmp_path_factory.mktemp("calls")) as running:
        yield running


@pytest.mark.parametrize("client", [Confluent, KafkaPython])
def test_each_call_has_its_answer_at_once(up: Up, client: Any) -> None:
    assert client_calls.wrong(client, up.bootstrap) == []


@pytest.mark.java
@pytest.mark.long
@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac is installed")
def test_the_java_client(up: Up) -> None:
    """A client without librdkafka and without Python."""
    skip_without(client_calls.JAVA_CLIENT)
    assert client_calls.wrong_in_java(up.bootstrap) == []


def test_a_deleted_topic_is_not_shown(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    """`cluster state` has seen it before; another topic is still there."""
    def shown() -> set[str]:
        assert cluster.state(up.folder, as_json=True) == 0
        return {one["topic"] for one in json.loads(capsys.readouterr().out)["partitions"]}

    with closing(Confluent(up.bootstrap, "kept")) as kept, closing(Confluent(up.bootstrap, "gone")) as gone:
        kept.calls["create a topic"](kept)
        gone.calls["create a topic"](gone)
        assert shown() >= {"kept", "gone"}
        gone.calls["delete the topic"](gone)
    assert "kept" in shown()
    assert "gone" not in shown()


def test_what_is_refused_is_logged(up: Up) -> None:
    """Once for each client, in the log of the broker that refused it; and before that on the first screen."""
    with closing(Confluent(up.bootstrap, "refused")) as client:
        client.calls["create a topic"](client)
        for _ in range(4):  # each broker would coordinate: of three, one is asked twice
            assert is_refused(client, **{"client.id": "asked-once", "group.id": "one"})
    logs = [up.log(node) for node in ("n1", "n2", "n3")]
    screen = up.screen.read_text(encoding="utf-8")

    line = 'not-served asked="consumer groups" client=asked-once group=one'
    assert sum(log.count("client=asked-once") for log in logs) in (1, 2, 3)
    assert max(log.count(line) for log in logs) == 1
    assert "no consumer groups" in screen
    assert "no transactions" in screen


# -- while a leader is killed -------------------------------------------------------------------------------


def leader(up: Up) -> str:
    answer = floodmark("cluster", "state", "--json", "--folder", up.folder)
    partitions = json.loads(answer.out)["partitions"]
    return next(str(one["truth"]["leader"]) for one in partitions if one["topic"] == TOPIC)


def strike(up: Up, f: str, node: str) -> None:
    answer = floodmark("cluster", f, node, "--folder", up.folder)
    assert answer.code == 0, answer


def test_confluent_kafka_while_the_leader_is_killed(up: Up) -> None:
    """An idempotent producer sends every message, once and in order; a consumer reads them all."""
    producer = Producer({"bootstrap.servers": up.bootstrap, "enable.idempotence": True, "log_level": 0,
                         "retry.backoff.ms": 20, "delivery.timeout.ms": WAIT_S * 1000})
    failed: list[object] = []

    def send(first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce(TOPIC, str(number), partition=0,
                             on_delivery=lambda error, _: failed.append(error) if error else None)

    send(0, 200)
    assert producer.flush(WAIT_S) == 0
    victim = leader(up)
    send(200, 400)
    strike(up, "kill", victim)
    send(400, 600)
    assert producer.flush(WAIT_S) == 0
    assert leader(up) != victim
    strike(up, "start", victim)

    assert failed == []
    assert consumed(up, 600) == [str(number) for number in range(600)]


def consumed(up: Up, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": up.bootstrap, "group.id": "applications", "log_level": 0,
                         "enable.auto.commit": False, "auto.offset.reset": "error"})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        messages = [consumer.poll(WAIT_S) for _ in range(count)]
        return [message.value().decode() if message and not message.error() else "?" for message in messages]
    finally:
        consumer.close()
