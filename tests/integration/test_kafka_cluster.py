"""Apache Kafka in KRaft mode as the harness drives it: start, create, kill a leader, elect, cut, freeze.

Tests wait for conditions: a busy machine is slow, not a failure.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from command_line import Answer, floodmark
from real_kafka import skip_without
from run_processes import once_it_goes_well

from floodmark.harness import catalog
from floodmark.harness.cluster.kafka.kafka_system import KafkaSystem
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.protocols import Elects, ElectsReplica, Freezes, PartitionSpec, ability
from floodmark.harness.schedule.views import CONTROLLER, View

pytestmark = pytest.mark.kafka
NODES = ("n1", "n2", "n3")
SPECS = tuple(PartitionSpec(key=key, topic="log", partition=key, replicas=NODES[key:] + NODES[:key])
              for key in range(2))
LONG_S = 120.0
SHORT = ("--partitions", "2", "--concurrency", "6", "--rate", "300", "--strict")


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
            await cluster.place.cut({"n3": ["n1", "n2", CONTROLLER]})
            await until(cluster.observe, lambda view: "n3" not in view.partitions[0].isr,
                        "n3, which hears nobody, to be fenced and leave the ISR")
            await cluster.place.heal()
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


async def test_eligible_leader_replicas_are_seen(tmp_path: Path) -> None:
    """Who leaves an ISR that is then below min.insync.replicas is eligible until the ISR has grown again."""
    skip_without("4.3.1")
    cluster = catalog.cluster(
        "local", tmp_path, 3, rules="kip-320", bugs=(), links="direct", kafka="4.3.1",
        config={"min.insync.replicas": "2", "eligible.leader.replicas.version": "1"})
    try:
        await cluster.start()
        await cluster.create(SPECS[:1])
        for node, isr, elr in (("n2", {"n1", "n3"}, ()), ("n3", {"n1"}, ("n3",))):
            await cluster.stop_node(node)
            view = await until(cluster.observe, lambda view, isr=isr: set(view.partitions[0].isr) == isr,
                               f"{node} to leave the ISR")
            assert view.partitions[0].elr == elr
        await cluster.start_node("n2")
        view = await until(cluster.observe, lambda view: "n2" in view.partitions[0].isr, "n2 to be back")
        assert view.partitions[0].elr == ()
    finally:
        await cluster.stop()


def test_a_broker_that_dies_by_itself_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """Its log folder is removed, and Kafka halts: the harness has not ended it. The verdict is broker-died,
    and no write is lost."""
    skip_without("4.3.1")
    folder = tmp_path / "run"

    def take_folder() -> None:
        (folder / "nodes" / "n2").rename(folder / "nodes" / "away")

    ran = struck_from_outside(folder, take_folder)

    assert ran.code == 1, ran.err + ran.out
    verdict = json.loads((folder / "verdict.json").read_text())
    assert {one["name"] for one in verdict["findings"]} == {"broker-died"}
    about = json.loads((folder / "run.json").read_text())
    assert about["died"] == ["n2"]
    assert "it ended with exit code 1" in json.dumps(about)


def test_a_log_folder_of_another_cluster_is_reported_in_kafkas_words(tmp_path: Path) -> None:
    """Put in its place while the broker is down: it asks to register in vain, and the harness says why."""
    skip_without("4.3.1")
    folder = tmp_path / "run"
    schedule = tmp_path / "schedule.json"
    schedule.write_text(json.dumps([
        {"f": "kill", "nodes": ["n2"], "moment": {"at": "time", "time": 2_000_000_000}}]))

    def make_it_anothers() -> None:
        meta = folder / "nodes" / "n2" / "meta.properties"
        until = time.monotonic() + LONG_S
        while any(str(folder / "work" / "n2.properties") in (one.info["cmdline"] or ())
                  for one in psutil.process_iter(["cmdline"])):
            assert time.monotonic() < until
            time.sleep(0.05)
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
        return floodmark("run", "--kafka", "4.3.1", *SHORT, "--duration", "8", *words, "--out", folder)
