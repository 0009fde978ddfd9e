"""LEO and HW of Apache Kafka's replicas by the wire, on live brokers."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from real_kafka import quiet, skip_without

from floodmark.harness import catalog
from floodmark.harness.cluster.broker_requests import Brokers
from floodmark.harness.protocols import Addressed, PartitionSpec, ability

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("version", ["2.8.2", "3.9.2", "4.3.1"])
async def test_leo_and_hw(version: str, tmp_path: Path) -> None:
    """For every requested partition; a partition or broker that is not there is left out."""
    skip_without(version)
    specs = [PartitionSpec(key=key, topic=topic, partition=0, replicas=("n1",))
             for key, topic in enumerate(("a", "b", "never-made"))]
    cluster = catalog.cluster("local", tmp_path, 1, rules="kip-320", bugs=(), config={}, links="direct",
                              kafka=version)
    try:
        await cluster.start()
        await cluster.create(specs[:2])
        addressed = ability(cluster, Addressed)
        assert addressed is not None
        host, port = addressed.addresses()["n1"]
        producer = Producer({"bootstrap.servers": f"{host}:{port}", "logger": quiet()})
        for number in range(7):
            producer.produce("a", value=str(number))
        assert producer.flush(60) == 0
        reached = {"n1": (host, port), "n2": (host, 1)}
        wire = Brokers()
        for _ in range(2):
            assert await wire.replica_ends(reached, specs, 30.0) == {("n1", 0): (7, 7), ("n1", 1): (0, 0)}
        wire.close()
        assert await wire.replica_ends(reached, specs[:1], 30.0) == {("n1", 0): (7, 7)}
        wire.close()
    finally:
        await cluster.stop()
