"""Stock Apache Kafka 2.8.2 with ZooKeeper: sessions ended by hand, and the demo's two disasters."""

from pathlib import Path

import pytest
from cluster_stage import NODES, SPECS, WAIT_S, Stage, isr
from command_line import floodmark
from real_kafka import skip_without

from floodmark.harness.protocols import Expires, ability
from floodmark.harness.schedule.views import CONTROLLER, View

pytestmark = pytest.mark.kafka
VERSION = "2.8.2"
PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000",
           "min.insync.replicas": "2"}


@pytest.fixture(autouse=True)
def only_with_kafka() -> None:
    skip_without(VERSION)


def test_a_session_is_ended_by_hand(tmp_path: Path) -> None:
    """A dead leader's, a living one's, and that of Kafka's controller; and of brokers that start again."""
    stage = Stage(tmp_path / "run", place="local", kafka=VERSION, **PATIENT)
    one = stage.cluster
    expires = ability(one, Expires)
    assert expires is not None

    async def story() -> list[View]:
        await stage.begin(SPECS[:1])
        views = [await one.observe()]
        await one.kill("n1")
        for _ in range(2):  # the second time there is none
            await expires.expire("n1")
        views.append(await one.observe())
        await one.start_node("n1")  # its old registration is no longer in ZooKeeper
        await stage.all_in_sync()
        for node in ("n2", "n3"):  # the living leader; Kafka's controller
            await expires.expire(node)
            views.append(await one.observe())
        for name in (CONTROLLER, "n1"):
            await one.kill(name)
        await one.start_node("n1")  # it starts with ZooKeeper
        await one.start_node(CONTROLLER)
        await stage.all_in_sync()
        for name in (*NODES, CONTROLLER):
            await one.kill(name)
        assert await one.mend() == []
        await stage.all_in_sync()
        return views

    try:
        before, dead, living, controller = stage.play(story(), 5 * WAIT_S)
    finally:
        stage.close()
    assert (before.partitions[0].leader, before.partitions[0].isr) == ("n1", NODES)
    assert (dead.partitions[0].leader, isr(dead)) == ("n2", {"n2", "n3"})
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
