"""The local cluster with real brokers: every ability once, seen in what the brokers and the kernel say.

Two clusters for all: before each story, what the last one did is mended, and n1 and n2 lead again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from floodmark.harness import catalog
from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import CONTROLLER, PartitionSpec, View

pytestmark = pytest.mark.cluster

WAIT_S = 30.0
NODES = ("n1", "n2", "n3")
SPECS = (
    PartitionSpec(key=0, topic="log", partition=0, replicas=("n1", "n2", "n3")),
    PartitionSpec(key=1, topic="log", partition=1, replicas=("n2", "n3", "n1")),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster that is up, and the event loop that it lives in."""

    one: BrokerCluster
    runner: asyncio.Runner

    def play(self, story: Callable[[BrokerCluster], Awaitable[None]]) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(as_in_the_beginning(self.one), 2 * WAIT_S)
            await asyncio.wait_for(story(self.one), 3 * WAIT_S)

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
            runner.run(one.stop())  # once more is harmless


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Sessions end only when they are told to."""
    with staged(tmp_path_factory.mktemp("patient"), **{"broker.session.timeout.ms": "60000"}) as stage:
        yield stage


@pytest.fixture(scope="module")
def brisk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Sessions end as they do in a run. (The last to use it freezes it.)"""
    with staged(tmp_path_factory.mktemp("brisk")) as stage:
        yield stage


async def as_in_the_beginning(one: BrokerCluster) -> None:
    assert await one.mend() == []
    await seen(one, lambda look: bool(look.partitions) and whole(look), "everything to be whole")
    await one.runs.elect([spec.key for spec in SPECS])
    await seen(one, lambda look: leaders(look) == ["n1", "n2"] and whole(look), "n1 and n2 to lead")


async def seen(one: BrokerCluster, condition: Callable[[View], bool], what: str) -> View:
    """The first look at which the condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition(look := await one.observe()):
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}; {look}"
        await asyncio.sleep(0.02)
    return look


async def write(one: BrokerCluster, count: int, partition: int = 0) -> None:
    """So many records in one batch, acked by the whole ISR."""

    def produce() -> int:
        bootstrap = ",".join(f"{host}:{port}" for host, port in one.addresses().values())
        # The linger makes one batch of them: batch boundaries are where a power cut may cut.
        keys = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 300, "log_level": 0}
        producer = Producer(keys)
        for number in range(count):
            producer.produce("log", str(number), partition=partition)
        return int(producer.flush(WAIT_S))

    assert await asyncio.to_thread(produce) == 0


def isr(look: View, key: int = 0) -> set[str]:
    return set(look.partitions[key].isr)


def whole(look: View) -> bool:
    """Every ISR is full, of the incarnations that run now."""
    return look.unfenced == set(NODES) and all(isr(look, spec.key) == set(NODES) for spec in SPECS)


def leaders(look: View) -> list[str | None]:
    return [look.partitions[spec.key].leader for spec in SPECS]


async def leo(one: BrokerCluster) -> int:
    """Of partition 0, on the node that leads it."""
    return (await one.observe()).replicas["n1", 0].leo


def test_a_started_cluster_is_led_and_every_replica_is_seen(brisk: Stage) -> None:
    """As `staged` has seen; data lies under nodes/NODE."""

    async def story(one: BrokerCluster) -> None:
        look = await one.observe()
        assert look.unfenced == look.running == set(NODES)
        assert set(look.replicas) == {(node, key) for node in NODES for key in (0, 1)}
        assert whole(look)
        assert all([((await one.log_dir(node)) / "log-0").is_dir() for node in one.nodes])
        assert one.died() == []

    brisk.play(story)


def test_an_expired_leader_is_succeeded_and_a_dead_one_comes_back(patient: Stage) -> None:
    """Expire is done when the controller has fenced the broker; a start brings it back into the ISR."""

    async def story(one: BrokerCluster) -> None:
        await one.kill("n1")
        look = await one.observe()
        assert look.running == {"n2", "n3"}
        assert look.partitions[0].leader == "n1", "its session goes on"
        await one.runs.expire("n1")
        look = await one.observe()
        assert look.partitions[0].leader in {"n2", "n3"}
        assert "n1" not in look.unfenced
        assert "n1" not in isr(look)
        await one.start_node("n1")
        look = await seen(one, whole, "n1 to be back in the ISR")
        assert ("n1", 0) in look.replicas
        assert one.died() == []

    patient.play(story)


def test_an_orderly_stop_hands_leadership_over(patient: Stage) -> None:
    """Before the process is gone; and its next start knows that it was orderly."""

    async def story(one: BrokerCluster) -> None:
        await one.stop_node("n1")
        look = await one.observe()
        assert look.running == {"n2", "n3"}
        assert look.partitions[0].leader in {"n2", "n3"}
        await one.start_node("n1")
        look = await seen(one, whole, "n1 to be back in the ISR")
        assert look.replicas["n1", 0].clean

    patient.play(story)


def test_a_paused_broker_is_silent_and_resumes(brisk: Stage) -> None:
    """It runs, shows no replicas, leaves the ISR when its session ends, and comes back."""

    async def story(one: BrokerCluster) -> None:
        await one.pause("n2")
        look = await seen(one, lambda look: isr(look) == {"n1", "n3"}, "n2 to leave the ISR")
        assert "n2" in look.running
        assert ("n2", 0) not in look.replicas
        await one.resume("n2")
        await seen(one, lambda look: whole(look) and ("n2", 0) in look.replicas, "n2 to be back")

    brisk.play(story)


def test_a_follower_that_does_not_hear_its_leader_leaves_the_isr_until_the_heal(patient: Stage) -> None:
    """Everybody stays alive for the controller: only bytes from n1 to n3 are stopped."""

    async def story(one: BrokerCluster) -> None:
        base = await leo(one)
        await one.cut({"n3": ["n1"]})
        await write(one, 5)  # acked when n3 has left: one that lacks nothing stays, as in Kafka
        look = await seen(one, lambda look: isr(look) == {"n1", "n2"}, "n3 to leave the ISR")
        assert isr(look, 1) == set(NODES), "n3 hears n2"
        assert look.unfenced == set(NODES)
        await one.heal()
        await seen(one, whole, "n3 to be back in the ISR")
        await seen(one, lambda look: look.replicas["n3", 0].leo == base + 5, "n3 to have the records")

    patient.play(story)


def test_a_broker_cut_from_the_controller_by_reset_is_fenced_until_the_heal(brisk: Stage) -> None:
    """Its session ends, and another leads."""

    async def story(one: BrokerCluster) -> None:
        await one.cut({CONTROLLER: ["n1"], "n1": [CONTROLLER]}, reset=True)
        look = await seen(one, lambda look: "n1" not in look.unfenced, "n1 to be fenced")
        await seen(one, lambda look: look.partitions[0].leader != "n1", "another leader")
        assert "n1" in look.running
        await one.heal()
        await seen(one, whole, "n1 to be back")

    brisk.play(story)


def test_direct_links_cannot_be_cut(tmp_path: Path) -> None:
    """And the message says what to ask for; healing is harmless."""

    async def story() -> None:
        one = catalog.cluster("local", tmp_path, 1, rules="kip-320", bugs=(), config={}, links="direct")
        await one.start()
        try:
            with pytest.raises(FloodmarkError, match="--links proxied"):
                await one.cut({"n1": [CONTROLLER]})
            await one.heal()
        finally:
            await one.stop()

    asyncio.run(asyncio.wait_for(story(), WAIT_S))


def test_a_power_cut_loses_what_was_not_fsynced_and_the_others_give_it_back(patient: Stage) -> None:
    """Or keeps it up to the batch asked for; what is returned says how much was lost."""

    async def story(one: BrokerCluster) -> None:
        base = await leo(one)
        await write(one, 3)
        await write(one, 4)
        await seen(one, lambda look: look.replicas["n3", 0].leo == base + 7, "n3 to have the records")
        told = await one.power_cut("n3", keep={0: base + 5})
        assert told == {"keep": {0: base + 3, 1: 0}, "lost_records": 4}
        assert (await one.observe()).running == {"n1", "n2"}
        await one.start_node("n3")
        look = await seen(one, whole, "n3 to be back in the ISR")
        assert look.replicas["n3", 0].leo == base + 7
        assert not look.replicas["n3", 0].clean

        assert (await one.power_cut("n3"))["keep"][0] == base + 3, "what a power cut leaves is durable"

    patient.play(story)


def test_a_preferred_election_brings_the_first_replica_back_to_lead(patient: Stage) -> None:
    """One that leads already is neither elected nor refused."""

    async def story(one: BrokerCluster) -> None:
        await one.runs.expire("n1")
        await seen(one, whole, "n1 to be back")
        assert (await one.observe()).partitions[0].leader != "n1"
        assert await one.runs.elect([0, 1]) == {"elected": [0], "refused": {}}
        assert (await one.observe()).partitions[0].leader == "n1"

    patient.play(story)


def test_an_election_of_a_dead_leader_is_refused(patient: Stage) -> None:
    """The preferred leader cannot lead: Kafka's name says why."""

    async def story(one: BrokerCluster) -> None:
        await one.kill("n1")
        await one.runs.expire("n1")
        told = await one.runs.elect([0])
        assert told["elected"] == []
        assert "PREFERRED_LEADER_NOT_AVAILABLE" in told["refused"]["0"]

    patient.play(story)


def test_a_freeze_holds_all_and_a_silent_broker_counts_as_not_running(brisk: Stage) -> None:
    """Frozen, nothing moves any more, not even a session ends; mending is over."""

    async def story(one: BrokerCluster) -> None:
        await one.pause("n3")
        look = await one.runs.freeze()
        assert look.running == {"n1", "n2"}
        assert set(look.replicas) == {(node, key) for node in ("n1", "n2") for key in (0, 1)}
        await asyncio.sleep(2.5)  # longer than a session
        again = await one.observe()
        assert again.partitions == look.partitions
        assert again.replicas == look.replicas
        assert await one.mend() == []
        assert (await one.observe()).running == {"n1", "n2"}

    brisk.play(story)


def test_mending_undoes_everything_and_leaves_nothing_behind(patient: Stage) -> None:
    """A cut, a pause, a kill, a dead controller: all at once, then mended twice."""

    async def story(one: BrokerCluster) -> None:
        await one.cut({"n1": ["n2"]})
        await one.pause("n2")
        await one.kill("n3")
        await one.kill(CONTROLLER)
        assert (await one.observe()).partitions == {}
        assert await one.mend() == []
        await seen(one, lambda look: bool(look.partitions) and whole(look), "everything to be whole")
        assert await one.mend() == []
        assert one.died() == []

    patient.play(story)


def test_a_broker_that_ends_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    """A value no broker understands: the start fails, says who and why, and leaves no process."""

    async def story() -> None:
        config = {"floodmark.switches": "no-such"}
        one = catalog.cluster("local", tmp_path, 1, rules="kip-320", bugs=(), config=config, links="direct")
        with pytest.raises(FloodmarkError, match=r"ended at once: .*no switch 'no-such'"):
            await one.start()
        assert one.died() == []  # it was never up: the harness's trouble

    asyncio.run(asyncio.wait_for(story(), WAIT_S))
