"""Apache Kafka as processes, beside its faults (test_kafka_scenarios.py): looks, eligible leaders, deaths;
with ZooKeeper sessions that are ended by hand, and the two disasters of the demo."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_stage import NODES, SPECS, WAIT_S, Stage, isr
from command_line import Answer, floodmark, verdict
from confluent_kafka import Producer
from real_kafka import quiet, skip_without
from run_processes import once_it_goes_well, pid_of_broker, wait_until

from floodmark.harness import catalog
from floodmark.harness.cluster.broker_requests import Brokers
from floodmark.harness.protocols import Addressed, Expires, PartitionSpec, ability
from floodmark.harness.schedule.views import CONTROLLER, View

pytestmark = pytest.mark.kafka
OLD, NEW = "2.8.2", "4.3.1"
SHORT = ("--partitions", "2", "--concurrency", "6", "--rate", "300", "--strict")
PATIENT = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000",
           "min.insync.replicas": "2"}


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


def test_eligible_leader_replicas_are_seen(tmp_path: Path) -> None:
    """Who leaves an ISR that is then below min.insync.replicas is eligible until the ISR has grown again."""
    skip_without(NEW)

    async def story() -> None:
        for node, members, elr in (("n2", {"n1", "n3"}, ()), ("n3", {"n1"}, ("n3",))):
            await stage.cluster.stop_node(node)
            view = await stage.seen(lambda view, members=members: isr(view) == members,
                                    f"{node} to leave the ISR")
            assert view.partitions[0].elr == elr
        await stage.cluster.start_node("n2")
        view = await stage.seen(lambda view: "n2" in isr(view), "n2 to be back")
        assert view.partitions[0].elr == ()

    stage = Stage(tmp_path, place="local", kafka=NEW,
                  **{"min.insync.replicas": "2", "eligible.leader.replicas.version": "1"})
    try:
        stage.play(stage.begin())
        stage.play(story())
    finally:
        stage.close()


def test_a_broker_that_dies_by_itself_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """Its log folder is removed, and Kafka halts: the harness has not ended it. The verdict is broker-died,
    and no write is lost."""
    skip_without(NEW)
    folder = tmp_path / "run"

    def take_folder() -> None:
        (folder / "nodes" / "n2").rename(folder / "nodes" / "away")

    ran = struck_from_outside(folder, take_folder)

    assert ran.code == 1, ran.err + ran.out
    assert {one["name"] for one in verdict(folder)["findings"]} == {"broker-died"}
    about = json.loads((folder / "run.json").read_text())
    assert about["died"] == ["n2"]
    assert "it ended with exit code 1" in json.dumps(about)


def test_a_log_folder_of_another_cluster_is_reported_in_kafkas_words(tmp_path: Path) -> None:
    """Put in its place while the broker is down: it asks to register in vain, and the harness says why."""
    skip_without(NEW)
    folder = tmp_path / "run"
    schedule = tmp_path / "schedule.json"
    schedule.write_text(json.dumps([
        {"f": "kill", "nodes": ["n2"], "moment": {"at": "time", "time": 2_000_000_000}}]))

    def make_it_anothers() -> None:
        meta = folder / "nodes" / "n2" / "meta.properties"
        wait_until("n2 to be dead", lambda: pid_of_broker(folder, "n2") is None)
        meta.write_text(re.sub("(?m)^cluster.id=.*$", "cluster.id=BBBBBBBBQACAAAAAAAAAAA", meta.read_text()))

    ran = struck_from_outside(folder, make_it_anothers, "--schedule", schedule)

    assert ran.code == 4, ran.err + ran.out
    assert "n2 cannot join: the cluster.id in its log directory is that of another" in ran.err + ran.out
    assert "INCONSISTENT_CLUSTER_ID" in ran.err + ran.out
    assert "invalid" not in ran.out
    assert "lost-write" not in ran.out


def struck_from_outside(folder: Path, strike: Callable[[], None], *words: object) -> Answer:
    """A short run of 4.3.1, and what somebody else does when it is well under way."""
    with once_it_goes_well(folder, strike):
        return floodmark("run", "--kafka", NEW, *SHORT, "--duration", "8", *words, "--out", folder)


# -- with ZooKeeper ----------------------------------------------------------------------------------------


def test_a_session_is_ended_by_hand(tmp_path: Path) -> None:
    """A dead leader's, a living one's, and that of Kafka's controller; and of brokers that start again."""
    skip_without(OLD)
    stage = Stage(tmp_path / "run", place="local", kafka=OLD, **PATIENT)
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
    """The topic of the old format loses an acked write in one disaster, and its logs diverge in the other;
    beside it the new format does neither, but for the loss that the power cut permits."""
    skip_without(OLD)
    done = floodmark("demo", "--kafka", OLD, "--out", tmp_path / "demo")
    assert done.code == 0, done.out + done.err
    rows = [line.split() for line in done.out.splitlines() if line.startswith(("double-", "power-"))]
    assert [row[1] for row in rows] == ["0.10.2", "2.8"] * 2
    assert rows[0][2:] == ["1,", "from", "offset", "3", "-"]
    assert rows[1][2:] == ["-", "-"]
    assert rows[2][-4:] == ["2", "offsets,", "from", "8"]
    assert rows[3][-1] == "-"
