"""The local cluster with real brokers: every ability once, seen in the brokers' and the kernel's answers.

Two clusters for all tests: before each story, the faults of the last one are mended, and n1 and n2 lead
again.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cluster_stories
import pytest
from cluster_stories import NODES, SPECS, all_in_sync, as_in_the_beginning, isr, leaders, seen
from confluent_kafka import Producer

from floodmark.harness import catalog
from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.schedule.views import CONTROLLER

pytestmark = pytest.mark.cluster

WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster that is up, and its event loop."""

    one: BrokerCluster
    runner: asyncio.Runner

    def play(self, story: Awaitable[object]) -> None:
        """Plays it on the cluster as in its beginning."""
        async def bounded() -> None:
            await asyncio.wait_for(as_in_the_beginning(self.one), 2 * WAIT_S)
            await asyncio.wait_for(story, 3 * WAIT_S)

        self.runner.run(bounded())


@contextmanager
def staged(folder: Path, **config: str) -> Iterator[Stage]:
    one = catalog.cluster("local", folder, 3, rules="kip-320", bugs=(), config=config, links="proxied")
    with asyncio.Runner() as runner:
        try:
            runner.run(one.start())
            runner.run(one.create(SPECS))
            assert leaders(runner.run(one.observe())) == ["n1", "n2"], "as assigned: the preferred ones"
            yield Stage(one, runner)
        finally:
            runner.run(one.stop())
            runner.run(one.stop())  # a second stop is harmless


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Sessions end only on request."""
    with staged(tmp_path_factory.mktemp("patient"), **{"broker.session.timeout.ms": "60000"}) as stage:
        yield stage


@pytest.fixture(scope="module")
def brisk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Sessions end as they do in a run. (Its last test freezes it.)"""
    with staged(tmp_path_factory.mktemp("brisk")) as stage:
        yield stage


async def write(one: BrokerCluster, count: int, partition: int = 0) -> None:
    """Writes so many records in one batch, acked by all of the ISR."""

    def produce() -> int:
        bootstrap = ",".join(f"{host}:{port}" for host, port in one.addresses().values())
        # The linger makes one batch of them: a power cut cuts at batch boundaries.
        keys = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 300, "log_level": 0}
        producer = Producer(keys)
        for number in range(count):
            producer.produce("log", str(number), partition=partition)
        return int(producer.flush(WAIT_S))

    assert await asyncio.to_thread(produce) == 0


async def leo(one: BrokerCluster) -> int:
    """The LEO of partition 0 on its leader."""
    return (await one.observe()).replicas["n1", 0].leo


async def test_a_started_cluster_is_led_and_every_replica_is_seen(brisk: Stage) -> None:
    """As `staged` has checked; data is in nodes/NODE."""
    one = brisk.one
    await cluster_stories.a_started_cluster_is_led_and_every_replica_is_seen(one)
    assert all([((await one.place.log_dir(node)) / "log-0").is_dir() for node in one.nodes])


async def test_an_expired_leader_is_succeeded_and_a_dead_one_comes_back(patient: Stage) -> None:
    await cluster_stories.an_expired_leader_is_succeeded_and_a_dead_one_comes_back(patient.one)


async def test_an_orderly_stop_hands_leadership_over(patient: Stage) -> None:
    await cluster_stories.an_orderly_stop_hands_leadership_over(patient.one)


async def test_a_paused_broker_is_silent_and_resumes(brisk: Stage) -> None:
    """It runs, shows no replicas, leaves the ISR when its session ends, and comes back."""
    one = brisk.one
    await one.place.pause("n2")
    look = await seen(one, lambda look: isr(look) == {"n1", "n3"}, "n2 to leave the ISR")
    assert "n2" in look.running
    assert ("n2", 0) not in look.replicas
    await one.place.resume("n2")
    assert ("n2", 0) in (await all_in_sync(one)).replicas


async def test_a_follower_that_does_not_hear_its_leader_leaves_the_isr_until_the_heal(patient: Stage) -> None:
    """All brokers stay alive for the controller: only bytes from n1 to n3 are stopped."""
    one = patient.one
    base = await leo(one)
    await one.place.cut({"n3": ["n1"]})
    await write(one, 5)  # acked when n3 has left: a replica that lacks nothing stays, as in Kafka
    look = await seen(one, lambda look: isr(look) == {"n1", "n2"}, "n3 to leave the ISR")
    assert isr(look, 1) == set(NODES), "n3 hears n2"
    assert look.unfenced == set(NODES)
    await one.place.heal()
    await all_in_sync(one)
    await seen(one, lambda look: look.replicas["n3", 0].leo == base + 5, "n3 to have the records")


async def test_a_broker_cut_from_the_controller_by_reset_is_fenced_until_the_heal(brisk: Stage) -> None:
    """Its session ends, and another leads."""
    one = brisk.one
    await one.place.cut({CONTROLLER: ["n1"], "n1": [CONTROLLER]}, reset=True)
    look = await seen(one, lambda look: "n1" not in look.unfenced, "n1 to be fenced")
    await seen(one, lambda look: look.partitions[0].leader != "n1", "another leader")
    assert "n1" in look.running
    await one.place.heal()
    await all_in_sync(one)


async def test_a_power_cut_loses_what_was_not_fsynced_and_the_others_give_it_back(patient: Stage) -> None:
    """Or it keeps records up to the requested batch; the result says how much was lost."""
    one = patient.one
    base = await leo(one)
    await write(one, 3)
    await write(one, 4)
    await seen(one, lambda look: look.replicas["n3", 0].leo == base + 7, "n3 to have the records")
    report = await one.power_cut("n3", keep={0: base + 5})
    assert report == {"keep": {0: base + 3, 1: 0}, "lost_records": 4}
    assert (await one.observe()).running == {"n1", "n2"}
    await one.start_node("n3")
    look = await all_in_sync(one)
    assert look.replicas["n3", 0].leo == base + 7
    assert not look.replicas["n3", 0].clean

    assert (await one.power_cut("n3"))["keep"][0] == base + 3, "what a power cut leaves is durable"


async def test_a_preferred_election_brings_the_first_replica_back_to_lead(patient: Stage) -> None:
    await cluster_stories.a_preferred_election_brings_the_first_replica_back_to_lead(patient.one)


async def test_a_freeze_stops_all_and_a_silent_broker_counts_as_not_running(brisk: Stage) -> None:
    """A frozen cluster does nothing, and no session ends; it cannot be mended."""
    one = brisk.one
    look = await cluster_stories.a_freeze_stops_all_and_a_silent_broker_counts_as_not_running(one)
    await asyncio.sleep(2.5)  # longer than a session
    again = await one.observe()
    assert again.partitions == look.partitions
    assert again.replicas == look.replicas
    assert again.running == {"n1", "n2"}


async def test_mending_undoes_everything_and_leaves_nothing_behind(patient: Stage) -> None:
    await cluster_stories.mending_undoes_everything_and_leaves_nothing_behind(patient.one)
