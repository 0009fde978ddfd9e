"""Apache Kafka's own processes and tools, for tests that compare with it or need what its jars do.

KafkaBrokers is Kafka in KRaft mode, a controller and brokers, with the methods of RealBrokers and the
settings of the reference broker that it is compared with (test_beside_kafka.py); no ELR (KIP-966), which that
broker lacks.
"""

import logging
import re
import secrets
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from raw import Raw
from real_brokers import CONTROLLER, RealBrokers
from run_processes import wait_until

from floodmark.broker.wire.api_keys import METADATA
from floodmark.broker.wire.codec import make, request_parts
from floodmark.harness.cluster.kafka.distribution import Distribution, archive_options
from floodmark.harness.cluster.kafka.kafka_system import found
from floodmark.harness.cluster.kafka.settings import JVM
from floodmark.harness.cluster.layout import HOST
from floodmark.harness.cluster.place import JavaSoftware
from floodmark.harness.errors import FloodmarkError

CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAA"
COMMON = {
    "num.network.threads": "1", "num.io.threads": "2", "background.threads": "1",
    "auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1", "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.cleaner.backoff.ms": "200", "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "100",
}  # fmt: skip


class KafkaBrokers(RealBrokers):
    """Brokers 1..n and the controller."""

    preferred: Mapping[str, str] = {}

    def __init__(self, folder: Path, version: str, brokers: int = 3, **keys: str) -> None:
        self.kafka = found(version)
        super().__init__(folder, brokers, **keys)
        self._format()

    def wait_ready(self) -> None:
        wait_until("all brokers", lambda: len(self.alive(1)) == len(self.brokers))

    def alive(self, node: int) -> list[int]:
        """The brokers that this one names; none if it does not answer."""
        try:
            with Raw(self.port[node], 2.0) as raw:
                cls, _ = request_parts(METADATA, 9)
                body = make(cls, topics=(), allow_auto_topic_creation=False,
                            include_cluster_authorized_operations=False,
                            include_topic_authorized_operations=False)
                return sorted(broker.node_id for broker in raw.ask(METADATA, 9, body).brokers)
        except (OSError, EOFError):
            return []

    def command(self) -> list[str]:
        return [str(self.kafka.java), *JVM, *archive_options(self.kafka), "-cp", self.kafka.classpath,
                "kafka.Kafka"]

    def _format(self) -> None:
        """Formats the controller's folder, and copies it with each broker's own id."""
        home = self.folder / f"k{CONTROLLER}"
        run_tool(self.kafka, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID,
                 "-c", str(self.folder / f"n{CONTROLLER}.properties"),
                 "--feature", "eligible.leader.replicas.version=0")
        for node in self.brokers:
            copy = shutil.copytree(home, self.folder / f"k{node}")
            directory = urlsafe_b64encode(b"F" + secrets.token_bytes(15)).decode().rstrip("=")
            text = (copy / "meta.properties").read_text()
            text = re.sub(r"(?m)^node\.id=.*$", f"node.id={node}", text)
            text = re.sub(r"(?m)^directory\.id=.*$", f"directory.id={directory}", text)
            (copy / "meta.properties").write_text(text)

    def _write(self, node: int, keys: Mapping[str, str]) -> None:
        controller = node == CONTROLLER
        listener = "CONTROLLER" if controller else "PLAINTEXT"
        lines = {
            **COMMON, "process.roles": "controller" if controller else "broker", "node.id": str(node),
            "listeners": f"{listener}://{HOST}:{self.port[node]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": f"{CONTROLLER}@{HOST}:{self.port[CONTROLLER]}",
            "auto.leader.rebalance.enable": "false",
            "log.retention.ms": "-1",  # raw.batch is of 1970: all of it would be deleted at a restart
            "log.dirs": str(self.folder / f"k{node}"), **keys,
        }  # fmt: skip
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        (self.folder / f"n{node}.properties").write_text(text)


def run_tool(kafka: Distribution, main_class: str, *words: str) -> str:
    done = subprocess.run([kafka.java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                           "-cp", kafka.classpath, main_class, *words],
                          capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL)
    said = done.stdout[-500:] + done.stderr[-1500:]
    assert done.returncode == 0, f"{main_class} {' '.join(words)[:300]}: {said}"
    return done.stdout


def dump_log_segments(kafka: Distribution, files: Sequence[Path]) -> str:
    """DumpLogSegments of these files, with every record."""
    tools = "kafka.tools" if int(kafka.version.partition(".")[0]) < 4 else "org.apache.kafka.tools"
    return run_tool(kafka, f"{tools}.DumpLogSegments", "--deep-iteration", "--print-data-log",
                    "--files", ",".join(map(str, files)))


def quiet() -> logging.Logger:
    """A logger that drops librdkafka's lines about a broker that is still starting or has ended."""
    logger = logging.getLogger("floodmark.tests.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def software_of(version: str) -> JavaSoftware:
    """What the image of a version is built from."""
    kafka = found(version)
    return JavaSoftware(version=version, java=kafka.java, jars=kafka.jars, needs_java=kafka.needs_java)


def skip_without(version: str) -> None:
    """Skips a test if that Kafka is not available; the reason says why. Makes its class-data archive."""
    try:
        found(version)
    except FloodmarkError as error:
        pytest.skip(str(error))
