"""kcat and confluent-kafka, unchanged, against `floodmark cluster up`, also while a broker is killed."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.cluster

TOPIC = "applications"
WAIT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    folder: Path
    bootstrap: str

    def cluster(self, *words: str) -> str:
        """`floodmark cluster ...` in another terminal."""
        command = [sys.executable, "-m", "floodmark.harness", "cluster", *words, "--folder", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S).stdout

    def leader(self) -> str:
        told = json.loads(self.cluster("state", "--json"))["partitions"]
        return next(str(one["truth"]["leader"]) for one in told if one["topic"] == TOPIC)

    def kcat(self, *words: str, text: str = "") -> str:
        command = ["kcat", "-b", self.bootstrap, "-t", TOPIC, "-p", "0", *words]
        ran = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=WAIT_S)
        return ran.stdout


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("up") / "cluster"
    command = [sys.executable, "-m", "floodmark.harness", "cluster", "up", "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield Up(folder=folder, bootstrap=process.stdout.readline().strip())
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0


def test_confluent_kafka_while_the_leader_is_killed(up: Up) -> None:
    """An idempotent producer gets every message in, once and in order; a consumer gets them out."""
    producer = Producer({"bootstrap.servers": up.bootstrap, "enable.idempotence": True, "log_level": 0,
                         "retry.backoff.ms": 20, "delivery.timeout.ms": WAIT_S * 1000})
    failed: list[object] = []

    def send(first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce(TOPIC, str(number), partition=0,
                             on_delivery=lambda error, _: failed.append(error) if error else None)

    send(0, 200)
    assert producer.flush(WAIT_S) == 0
    leader = up.leader()
    send(200, 400)
    up.cluster("kill", leader)
    send(400, 600)
    assert producer.flush(WAIT_S) == 0
    assert up.leader() != leader
    up.cluster("start", leader)

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


@pytest.mark.kcat
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt-get install kcat)")
def test_kcat_before_and_after_a_kill(up: Up) -> None:
    """Debian's kcat, as a user types it: lines in, the leader killed, more lines in, all lines out."""
    up.kcat("-P", "-X", "acks=all", text="".join(f"before-{n}\n" for n in range(50)))
    leader = up.leader()
    up.cluster("kill", leader)
    try:
        up.kcat("-P", "-X", "acks=all", text="".join(f"after-{n}\n" for n in range(50)))
        lines = up.kcat("-C", "-o", "beginning", "-e", "-q").split()
    finally:
        up.cluster("start", leader)

    ours = [line for line in lines if "-" in line]
    assert ours == [f"before-{n}" for n in range(50)] + [f"after-{n}" for n in range(50)]
