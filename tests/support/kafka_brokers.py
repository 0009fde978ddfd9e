"""Apache Kafka in KRaft mode, a controller and three brokers, with the methods of RealBrokers.

It has the settings of the reference broker that it is compared with (beside_kafka.py), and no ELR (KIP-966),
which that broker lacks.
"""

import re
import secrets
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from raw import Raw
from real_brokers import CONTROLLER, RealBrokers, wait_for
from real_kafka import CLUSTER_ID, COMMON, java, run_tool

from floodmark.broker.wire.api_keys import METADATA
from floodmark.broker.wire.codec import make, request_parts
from floodmark.harness.cluster.kafka.kafka_system import found
from floodmark.harness.cluster.ports import HOST


class KafkaBrokers(RealBrokers):
    """Brokers 1..3 and the controller."""

    preferred: Mapping[str, str] = {}

    def __init__(self, folder: Path, version: str, **keys: str) -> None:
        self.kafka = found(version)
        super().__init__(folder, **keys)
        self._format()

    def wait_ready(self) -> None:
        wait_for("three brokers", lambda: len(self.alive(1)) == len(self.brokers))

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
        return [*java(self.kafka), "-cp", self.kafka.classpath, "kafka.Kafka"]

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
