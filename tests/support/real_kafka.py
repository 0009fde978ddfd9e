"""Starts one broker of Apache Kafka for tests that need files which it wrote, and ends it by pid.

This is not the harness's cluster: one node, no faults; with ZooKeeper, or in KRaft mode as its own
controller.
"""

import logging
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from floodmark.harness.cluster.kafka import class_archive
from floodmark.harness.cluster.kafka.distribution import Distribution
from floodmark.harness.cluster.kafka.jvm import JVM, logging_options, write_logging
from floodmark.harness.cluster.kafka.kafka_system import found
from floodmark.harness.cluster.ports import HOST, Ports
from floodmark.harness.cluster.system import JavaSoftware
from floodmark.harness.errors import FloodmarkError

READY_S = 90.0
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
ZOOKEEPER = ("dataDir={data}\nclientPort={port}\nclientPortAddress={host}\n"
             "admin.enableServer=false\ntickTime=250\n")


class RealKafka:
    """One broker of a version, as a context; it answers when the context begins."""

    def __init__(self, folder: Path, version: str, **keys: str) -> None:
        self.folder = folder
        self.log_dir = folder / "logs"
        self.kafka: Distribution = found(version)
        self._keys = {key.replace("__", "."): value for key, value in keys.items()}
        self._ports = Ports()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._outputs: list[IO[bytes]] = []

    def __enter__(self) -> "RealKafka":
        write_logging(self.folder)
        try:
            port, other = self._ports.choose(), self._ports.choose()
            self.bootstrap = f"{HOST}:{port}"
            if self.kafka.form == "zookeeper":
                self._start_zookeeper(other)
                keys = {"broker.id": "1", "zookeeper.connect": f"{HOST}:{other}",
                        "listeners": f"PLAINTEXT://{self.bootstrap}"}
            else:
                keys = {"node.id": "1", "process.roles": "broker,controller",
                        "controller.quorum.voters": f"1@{HOST}:{other}",
                        "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{HOST}:{other}",
                        "controller.listener.names": "CONTROLLER",
                        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
            config = self.folder / "server.properties"
            lines = {**COMMON, "log.dirs": str(self.log_dir), **keys, **self._keys}
            config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
            if self.kafka.form == "kraft":
                self.tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
            self._start("broker", "kafka.Kafka", str(config))
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for output in self._outputs:
            output.close()
        self._ports.close()

    def stop(self) -> None:
        """Stops it in an orderly way; its files stay."""
        self.__exit__()

    # -- processes -------------------------------------------------------------------------------------------

    def _start_zookeeper(self, port: int) -> None:
        config = self.folder / "zoo.cfg"
        config.write_text(ZOOKEEPER.format(data=self.folder / "zookeeper", port=port, host=HOST))
        self._start("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config))

    def _start(self, name: str, main_class: str, config: str) -> None:
        output = (self.folder / f"{name}.out").open("wb")
        self._outputs.append(output)
        logging_words = logging_options(str(self.folder))
        self._processes.append(subprocess.Popen(
            [*java(self.kafka), *logging_words, "-cp", self.kafka.classpath, main_class, config],
            stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.folder))

    def tool(self, main_class: str, *words: str) -> str:
        """The output of one of Kafka's command-line tools."""
        return run_tool(self.kafka, main_class, *words)

    def _wait_ready(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "logger": quiet()})
        until = time.monotonic() + READY_S
        while True:
            for process in self._processes:
                if process.poll() is not None:
                    said = "".join(path.read_text()[-2000:] for path in self.folder.glob("*.out"))
                    raise AssertionError(f"it ended at once: {said}")
            try:
                if admin.list_topics(timeout=2).brokers:
                    return
            except Exception as error:
                if time.monotonic() > until:
                    raise AssertionError(f"waited {READY_S:g} s for {self.bootstrap}: {error}") from error
                time.sleep(0.1)

    # -- topics ----------------------------------------------------------------------------------------------

    def create(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Topics of one partition, each with its configs."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "logger": quiet()})
        new = [NewTopic(name, num_partitions=1, replication_factor=1, config=dict(config))
               for name, config in topics.items()]
        for future in admin.create_topics(new, operation_timeout=30).values():
            future.result(30)


def java(kafka: Distribution) -> list[str]:
    """A broker's command up to its class path."""
    return [str(kafka.java), *JVM, *class_archive.options(kafka)]


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


def ops_recorded(folder: Path, lines: int, given_up: threading.Event) -> bool:
    """Waits until the history of a run has so many lines; False: the run is over."""
    history = folder / "history.jsonl"
    while not given_up.wait(0.05):
        with suppress(FileNotFoundError):
            if history.read_bytes().count(b"\n") >= lines:
                return True
    return False
