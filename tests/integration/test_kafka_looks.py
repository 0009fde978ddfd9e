"""LEO and HW of Apache Kafka's replicas by the wire, on live brokers."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer
from real_kafka import RealKafka, quiet, skip_without

from floodmark.harness.cluster.broker_requests import Brokers
from floodmark.harness.protocols import PartitionSpec

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("version", ["2.8.2", "3.9.2", "4.3.1"])
def test_leo_and_hw(version: str, tmp_path: Path) -> None:
    """For every requested partition; a partition or broker that is not there is left out."""
    skip_without(version)
    specs = [PartitionSpec(key=key, topic=topic, partition=0, replicas=("n1", "n2"))
             for key, topic in enumerate(("a", "b", "never-made"))]
    with RealKafka(tmp_path, version) as kafka:
        kafka.create({"a": {}, "b": {}})
        host, port = kafka.bootstrap.split(":")
        reached = {"n1": (host, int(port)), "n2": (host, 1)}
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "logger": quiet()})
        for number in range(7):
            producer.produce("a", value=str(number))
        assert producer.flush(60) == 0

        async def looks() -> None:
            wire = Brokers()
            for _ in range(2):
                assert await wire.replica_ends(reached, specs, 30.0) == {("n1", 0): (7, 7), ("n1", 1): (0, 0)}
            wire.close()
            assert await wire.replica_ends(reached, specs[:1], 30.0) == {("n1", 0): (7, 7)}
            wire.close()

        asyncio.run(looks())
