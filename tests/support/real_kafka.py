"""Apache Kafka's own tools, for tests that need what its jars do."""

import logging
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from floodmark.harness.cluster.broker_cluster import JavaSoftware
from floodmark.harness.cluster.kafka.distribution import Distribution
from floodmark.harness.cluster.kafka.kafka_system import ready_kafka
from floodmark.harness.errors import FloodmarkError


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
    kafka = ready_kafka(version)
    return JavaSoftware(version=version, java=kafka.java, jars=kafka.jars, needs_java=kafka.needs_java)


def skip_without(version: str) -> None:
    """Skips a test if that Kafka is not available; the reason says why. Makes its class-data archive."""
    try:
        ready_kafka(version)
    except FloodmarkError as error:
        pytest.skip(str(error))
