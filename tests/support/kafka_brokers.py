"""Apache Kafka in KRaft mode, a controller and three brokers, with the methods of RealBrokers.

It has the settings of the reference broker that it is compared with (beside_kafka.py), and no ELR (KIP-966),
which that broker lacks.
"""

import re
import secrets
import shutil
import signal
import subprocess
import time
from base64 import urlsafe_b64encode
from pathlib import Path

from raw import Raw
from real_kafka import CLUSTER_ID, COMMON, READY_S, java, run_tool

from floodmark.broker.wire.api_keys import METADATA
from floodmark.broker.wire.codec import make, request_parts
from floodmark.harness.cluster.kafka.choice import found
from floodmark.harness.cluster.ports import HOST, Ports

CONTROLLER = 100


class KafkaBrokers:
    """Brokers 1..3 and the controller; as a context it kills what still runs at the end."""

    def __init__(self, folder: Path, version: str, **keys: str) -> None:
        self.folder, self.kafka = folder, found(version)
        self.brokers = (1, 2, 3)
        self._ports = Ports()
        self.port = {node: self._ports.choose() for node in (CONTROLLER, *self.brokers)}
        self._keys = {key.replace("__", "."): value for key, value in keys.items()}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "KafkaBrokers":
        try:
            self._write_folders()
            for node in self.port:
                self.start(node)
            until = time.monotonic() + READY_S
            while len(self.alive(1)) < len(self.brokers):
                assert time.monotonic() < until, f"waited {READY_S:g} s for three brokers"
                time.sleep(0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._ports.close()

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

    # -- processes -------------------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        with (self.folder / f"n{node}.out").open("ab") as output:
            self._processes[node] = subprocess.Popen(
                [*java(self.kafka), "-cp", self.kafka.classpath, "kafka.Kafka",
                 str(self.folder / f"n{node}.properties")],
                stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.folder)

    def end(self, node: int, number: int = signal.SIGKILL, timeout_s: float = 60.0) -> int:
        self._processes[node].send_signal(number)
        return self._processes[node].wait(timeout_s)

    def pause(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    # -- files -----------------------------------------------------------------------------------------------

    def _write_folders(self) -> None:
        """Formats the controller's folder, and copies it with each broker's own id."""
        for node in self.port:
            self._write_properties(node)
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

    def _write_properties(self, node: int) -> None:
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
            "log.dirs": str(self.folder / f"k{node}"), **self._keys,
        }  # fmt: skip
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        (self.folder / f"n{node}.properties").write_text(text)
