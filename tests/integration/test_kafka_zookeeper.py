"""Stock Apache Kafka 2.8.2 with ZooKeeper: sessions ended by hand, and the demo's two disasters."""

import asyncio
from pathlib import Path

import pytest
from command_line import floodmark
from real_kafka import skip_without

from floodmark.harness import catalog
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.protocols import Expires, Kills, PartitionSpec, ability
from floodmark.harness.schedule.views import CONTROLLER, View

pytestmark = pytest.mark.kafka
VERSION = "2.8.2"
NODES = ("n1", "n2", "n3")
PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000",
           "min.insync.replicas": "2"}


@pytest.fixture(autouse=True)
def only_with_kafka() -> None:
    skip_without(VERSION)


def test_a_session_is_ended_by_hand(tmp_path: Path) -> None:
    """A dead leader's, a living one's, and that of Kafka's controller; and of brokers that start again."""
    cluster = catalog.cluster("local", tmp_path / "run", 3, rules="kip-320", bugs=(), config=PATIENT,
                              links="direct", kafka=VERSION)
    kills, expires = ability(cluster, Kills), ability(cluster, Expires)
    assert kills is not None
    assert expires is not None

    async def seen() -> list[View]:
        views = []
        try:
            await cluster.start()
            await cluster.create([PartitionSpec(key=0, topic="log", partition=0, replicas=NODES)])
            views.append(await cluster.observe())
            await kills.kill("n1")
            await expires.expire("n1")
            views.append(await cluster.observe())
            await kills.start_node("n1")  # its old registration is no longer in ZooKeeper

            async def not_in_sync() -> str | None:
                view = await cluster.observe()
                isr = view.partitions[0].isr
                return None if len(isr) == len(view.unfenced) == len(NODES) else f"the ISR is {isr}"

            await wait_until(not_in_sync, "n1 to be in sync again", 60.0)
            await expires.expire("n2")  # the living leader
            views.append(await cluster.observe())
            await expires.expire("n3")  # Kafka's controller
            views.append(await cluster.observe())
            for name in (CONTROLLER, "n1"):
                await kills.kill(name)
            await kills.start_node("n1")  # it starts with ZooKeeper
            await kills.start_node(CONTROLLER)
            await wait_until(not_in_sync, "all to be in sync after ZooKeeper is back", 60.0)
            for name in (*NODES, CONTROLLER):
                await kills.kill(name)
            assert await cluster.mend() == []
            await wait_until(not_in_sync, "all to be in sync after all were down", 60.0)
        finally:
            await cluster.stop()
        return views

    before, dead, living, controller = asyncio.run(seen())
    assert (before.partitions[0].leader, before.partitions[0].isr) == ("n1", NODES)
    assert (dead.partitions[0].leader, set(dead.partitions[0].isr)) == ("n2", {"n2", "n3"})
    assert dead.partitions[0].epoch > before.partitions[0].epoch
    assert living.partitions[0].epoch > dead.partitions[0].epoch
    assert living.partitions[0].leader != "n2"
    assert controller.partitions[0].epoch >= living.partitions[0].epoch
    assert CONTROLLER not in before.running


@pytest.mark.spark
def test_the_demo_on_stock_kafka(tmp_path: Path) -> None:
    """The topic of the old format loses an acked write, and its logs diverge; the other topic does
    neither."""
    done = floodmark("demo", "--kafka", VERSION, "--out", tmp_path / "demo")
    assert done.code == 0, done.out + done.err
    rows = [line.split() for line in done.out.splitlines() if line.startswith(("double-", "power-"))]
    assert [row[1] for row in rows] == ["0.10.2", "2.8"] * 2
    assert rows[0][2:] == ["1,", "from", "offset", "3", "-"]
    assert rows[1][2:] == ["-", "-"]
    assert rows[2][-4:] == ["2", "offsets,", "from", "8"]
    assert rows[3][-1] == "-"
