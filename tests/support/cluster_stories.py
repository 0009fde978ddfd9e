"""Stories that a cluster of three brokers plays as processes and in containers: each of its abilities once.

Each story takes a cluster whose replicas are all in the ISR (as_in_the_beginning) and whose sessions end only
on request. It leaves the cluster so, except the last story, which freezes it.
"""

import asyncio
import time
from collections.abc import Callable

from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CONTROLLER, View

WAIT_S = 120.0
NODES = ("n1", "n2", "n3")
SPECS = (
    PartitionSpec(key=0, topic="log", partition=0, replicas=("n1", "n2", "n3")),
    PartitionSpec(key=1, topic="log", partition=1, replicas=("n2", "n3", "n1")),
)


async def seen(one: BrokerCluster, condition: Callable[[View], bool], what: str) -> View:
    """The first view for which the condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition(look := await one.observe()):
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}; {look}"
        await asyncio.sleep(0.02)
    return look


async def all_in_sync(one: BrokerCluster) -> View:
    """Waits until every ISR is full, with the incarnations that run now."""

    def is_so(look: View) -> bool:
        return bool(look.partitions) and look.unfenced == set(one.nodes) and all(
            isr(look, spec.key) == set(spec.replicas) for spec in one.partitions)

    return await seen(one, is_so, "every ISR to be full")


async def as_in_the_beginning(one: BrokerCluster) -> View:
    """Mends everything and waits until every ISR is full and the preferred leaders lead."""
    assert await one.mend() == []
    await all_in_sync(one)
    await one.runs.elect([])
    preferred = {spec.key: spec.replicas[0] for spec in one.partitions}
    await seen(one, lambda look: {key: look.partitions[key].leader for key in preferred} == preferred,
               "the preferred leaders to lead")
    return await all_in_sync(one)


def isr(look: View, key: int = 0) -> set[str]:
    return set(look.partitions[key].isr)


def leaders(look: View) -> list[str | None]:
    return [look.partitions[spec.key].leader for spec in SPECS]


async def a_started_cluster_is_led_and_every_replica_is_seen(one: BrokerCluster) -> None:
    """The preferred leaders lead, as assigned."""
    look = await all_in_sync(one)
    assert look.unfenced == look.running == set(NODES)
    assert leaders(look) == ["n1", "n2"]
    assert set(look.replicas) == {(node, key) for node in NODES for key in (0, 1)}
    assert one.died() == []


async def an_expired_leader_is_succeeded_and_a_dead_one_comes_back(one: BrokerCluster) -> None:
    """Expire returns when the controller has fenced the broker; a start brings it back into the ISR. A second
    kill and a second start do nothing."""
    await one.kill("n1")
    await one.kill("n1")
    look = await one.observe()
    assert look.running == {"n2", "n3"}
    assert look.partitions[0].leader == "n1", "its session goes on"
    await one.runs.expire("n1")
    look = await one.observe()
    if "n1" in look.unfenced:  # a heartbeat that it had sent before it was killed arrived after the expiry
        await one.runs.expire("n1")
        look = await one.observe()
    assert look.partitions[0].leader in {"n2", "n3"}
    assert "n1" not in look.unfenced
    assert "n1" not in isr(look)
    await one.start_node("n1")
    await one.start_node("n1")
    assert ("n1", 0) in (await all_in_sync(one)).replicas
    assert one.died() == []


async def an_orderly_stop_hands_leadership_over(one: BrokerCluster) -> None:
    """Leadership moves before the process ends; and its next start knows that the stop was orderly."""
    await one.stop_node("n1")
    look = await one.observe()
    assert look.running == {"n2", "n3"}
    assert look.partitions[0].leader in {"n2", "n3"}
    await one.start_node("n1")
    assert (await all_in_sync(one)).replicas["n1", 0].clean
    assert one.died() == []


async def a_preferred_election_brings_the_first_replica_back_to_lead(one: BrokerCluster) -> None:
    """Whoever led before; electing a replica that leads already changes nothing and is not refused."""
    await one.runs.expire("n1")
    await all_in_sync(one)
    assert (await one.observe()).partitions[0].leader != "n1"
    assert await one.runs.elect([0, 1]) == {"elected": [0], "refused": {}}
    assert (await one.observe()).partitions[0].leader == "n1"


async def mending_undoes_everything_and_leaves_nothing_behind(one: BrokerCluster) -> None:
    """A cut, a pause, a kill and a dead controller at once, then mended twice."""
    await one.place.cut({"n1": ["n2"]})
    await one.place.pause("n2")
    await one.kill("n3")
    await one.kill(CONTROLLER)
    assert (await one.observe()).partitions == {}
    assert await one.mend() == []
    await all_in_sync(one)
    assert await one.mend() == []
    assert one.died() == []


async def a_freeze_stops_all_and_a_silent_broker_counts_as_not_running(one: BrokerCluster) -> View:
    """Returns the view of the frozen cluster; mending does not end a freeze."""
    await one.place.pause("n3")
    look = await one.runs.freeze()
    assert look.running == {"n1", "n2"}
    assert set(look.replicas) == {(node, key) for node in ("n1", "n2") for key in (0, 1)}
    assert (await one.observe()).replicas == look.replicas
    assert await one.mend() == []
    assert (await one.observe()).running == {"n1", "n2"}
    return look
