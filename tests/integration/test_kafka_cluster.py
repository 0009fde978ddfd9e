"""Apache Kafka in KRaft mode as the harness drives it: start, create, kill a leader, elect, cut, freeze.

Tests wait for conditions: a busy machine is slow, not a failure.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from real_kafka import skip_without

from floodmark.harness import catalog
from floodmark.harness.cluster.kafka.kafka_system import KafkaSystem
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import (
    CONTROLLER,
    Elects,
    ElectsReplica,
    Freezes,
    PartitionSpec,
    View,
    ability,
)

pytestmark = pytest.mark.kafka
NODES = ("n1", "n2", "n3")
SPECS = tuple(PartitionSpec(key=key, topic="log", partition=key, replicas=NODES[key:] + NODES[:key])
              for key in range(2))
LONG_S = 120.0


@pytest.fixture(params=["3.9.2", "4.3.1"])
def version(request: pytest.FixtureRequest) -> str:
    word: str = request.param
    skip_without(word)
    return word


async def until(look: Callable[[], Awaitable[View]], holds: Callable[[View], bool], what: str) -> View:
    seen: list[View] = []

    async def unmet() -> str | None:
        seen[:] = [await look()]
        return None if holds(seen[0]) else str(seen[0].partitions)

    await wait_until(unmet, what, LONG_S)
    return seen[0]


def test_a_cluster_lives_through_its_faults(tmp_path: Path, version: str) -> None:
    """Each view agrees with what was done; the frozen cluster's view is what the logs hold."""
    cluster = catalog.cluster("local", tmp_path, 3, rules="kip-320", bugs=(), links="proxied", kafka=version,
                              config={"min.insync.replicas": "2"})

    async def story() -> None:
        try:
            await cluster.start()
            await cluster.create(SPECS)
            elects, one, freezes = (ability(cluster, kind) for kind in (Elects, ElectsReplica, Freezes))
            assert isinstance(elects, KafkaSystem)
            assert elects is one is freezes

            async def refused() -> str | None:
                answer = await one.elect_replica([0], "n2")
                return str(answer) if answer["refused"] else None

            await wait_until(refused, "n2 to be elected", LONG_S)  # a busy broker may be fenced for a moment
            await until(cluster.observe, lambda view: view.partitions[0].leader == "n2", "n2 to lead")
            assert set(await elects.elect([0])) == {"elected", "refused"}
            await until(cluster.observe, lambda view: view.partitions[0].leader == "n1", "n1 to lead again")
            await cluster.kill("n1")
            killed = await until(cluster.observe, lambda view: view.partitions[0].leader not in ("n1", None),
                                 "another leader")
            assert "n1" not in killed.running | killed.unfenced
            await cluster.start_node("n1")
            await until(cluster.observe, lambda view: len(view.partitions[0].isr) == 3, "the full ISR")
            await cluster.cut({"n3": ["n1", "n2", CONTROLLER]})
            await until(cluster.observe, lambda view: "n3" not in view.partitions[0].isr,
                        "n3, which hears nobody, to be fenced and leave the ISR")
            await cluster.heal()
            await until(cluster.observe, lambda view: len(view.partitions[0].isr) == 3, "the full ISR")
            assert await cluster.mend() == []
            frozen = await elects.freeze()
            assert set(frozen.replicas) == {(node, key) for node in NODES for key in range(2)}
            assert {view.leo for view in frozen.replicas.values()} == {0}
            assert frozen.replicas["n1", 0].clean is False
            assert cluster.died() == []
        finally:
            await cluster.stop()

    asyncio.run(story())


def test_a_taken_port_is_the_harnesss_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported in Kafka's own words, at once, before anything was up."""
    skip_without("4.3.1")
    cluster = catalog.cluster("local", tmp_path, 1, rules="kip-320", bugs=(), links="direct", kafka="4.3.1",
                              config={})
    attach = KafkaSystem.attach

    async def story() -> None:
        servers: list[asyncio.Server] = []
        loop = asyncio.get_running_loop()

        def occupy(system: KafkaSystem, layout: object, hosts: object) -> None:
            attach(system, layout, hosts)  # type: ignore[arg-type]
            host, port = layout.places["n1"].listens  # type: ignore[attr-defined]
            task = loop.create_task(asyncio.start_server(lambda *_: None, host, port))
            task.add_done_callback(lambda done: servers.append(done.result()))

        monkeypatch.setattr(KafkaSystem, "attach", occupy)
        try:
            with pytest.raises(FloodmarkError, match=r"n1 ended at once: .*Address already in use"):
                await cluster.start()
            assert cluster.died() == []
        finally:
            await cluster.stop()
            for server in servers:
                server.close()

    asyncio.run(story())


def test_a_broker_that_dies_by_itself_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """Its log folder is gone, and Kafka halts: the harness has not ended it."""
    skip_without("4.3.1")
    cluster = catalog.cluster("local", tmp_path, 1, rules="kip-320", bugs=(), links="direct", kafka="4.3.1",
                              config={"min.insync.replicas": "1"})

    async def story() -> None:
        try:
            await cluster.start()
            (tmp_path / "nodes" / "n1").rename(tmp_path / "nodes" / "away")

            async def alive() -> str | None:
                return None if cluster.died() else "it lives"

            await wait_until(alive, "n1 to halt", 2 * LONG_S)  # it checks once a minute
            assert cluster.died() == ["n1"]
            assert "it ended with exit code 1" in cluster.died_words()["n1"]
            assert cluster.broken() == []
        finally:
            await cluster.stop()

    asyncio.run(story())
