"""Failpoints in real processes: what is held, doubled or armed from the start, while the rest goes on.

What each point and action does to the protocol, the scenarios show on the simulated cluster. One cluster for
all tests, a topic for each; a test leaves nothing armed.
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from raw import Raw, batch
from real_brokers import CONTROLLER, RealBrokers
from run_processes import wait_until

from floodmark.broker.protocol import errors
from floodmark.harness.cluster.processes import Refused

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBrokers]:
    with RealBrokers(tmp_path_factory.mktemp("failpoints")) as brokers:
        yield brokers


@pytest.fixture
def cluster(shared: RealBrokers) -> Iterator[RealBrokers]:
    yield shared
    for node in (CONTROLLER, *shared.brokers):
        if not shared.running(node):
            shared.start(node)
        wait_until(f"{node} to answer", lambda node=node: shared.seen(node))
        shared.ask(node, "release")
    shared.wait_unfenced(*shared.brokers)


def arm(cluster: RealBrokers, node: int, point: str, action: str = "hold", **besides: Any) -> int:
    return int(cluster.ask(node, "arm", point=point, action=action, **besides)["id"])


def met(cluster: RealBrokers, node: int, number: int, held: bool | None = None) -> list[Mapping[str, Any]]:
    every = cluster.ask(node, "points")["met"]
    return [each for each in every if each["id"] == number and held in (None, each["held"])]


def wait_met(cluster: RealBrokers, node: int, number: int, held: bool | None = None) -> Mapping[str, Any]:
    return wait_until(f"{number} to be met by {node}", lambda: met(cluster, node, number, held))[-1]


def elect(cluster: RealBrokers, name: str, leader: int) -> None:
    assert cluster.ask(CONTROLLER, "elect", topic=name, partition=0, leader=leader) == {"error": None}


def bounce(cluster: RealBrokers, node: int) -> None:
    """Kills and starts it, and waits until it is registered again and unfenced."""
    earlier = cluster.ask(node, "state")["broker_epoch"]
    cluster.end(node)
    cluster.start(node)
    wait_until("a new incarnation", lambda: cluster.seen(node).get("broker_epoch", -1) > earlier)
    cluster.wait_unfenced(node)


def test_a_follower_held_after_its_append_and_the_other_partition(cluster: RealBrokers) -> None:
    """It has the record and the old HW; another partition of the same fetches goes on."""
    name = cluster.create("appended", (1, 2, 3), (1, 2, 3))
    number = arm(cluster, 2, "F.appended", topic=name, partition=0)
    assert cluster.produce(name, b"v", acks=1) == (errors.NONE, 0)
    there = wait_met(cluster, 2, number)

    assert (there["epoch"], there["peer"], there["offset"], there["held"]) == (0, 1, 0, True)
    assert [cluster.produce(name, b"w", partition=1) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
    held = cluster.replica(2, name)
    assert (held["leo"], held["hw"], held["checkpointed_hw"]) == (1, 0, 0)
    assert cluster.ask(2, "release", point="F.appended", partition=0) == {"released": 1}
    with pytest.raises(Refused, match="held: nothing; armed: nothing"):
        cluster.ask(2, "release", point="F.appended", partition=0)
    wait_until("the HW", lambda: cluster.replica(2, name)["hw"] == 1)


def test_an_answer_that_comes_twice_has_no_second_effect(cluster: RealBrokers) -> None:
    name = cluster.create("twice")
    twice = arm(cluster, 3, "F.fetch_resp", "duplicate", topic=name, skip=1)
    assert cluster.produce(name, b"v") == (errors.NONE, 0)
    wait_met(cluster, 3, twice, held=True)
    assert cluster.produce(name, b"w") == (errors.NONE, 1)

    assert cluster.ask(3, "release", point="F.fetch_resp") == {"released": 1}
    assert cluster.produce(name, b"x") == (errors.NONE, 2)
    wait_until("LEO 3", lambda: cluster.replica(3, name).get("leo") == 3)


def test_every_point_is_met(cluster: RealBrokers) -> None:
    """A report is armed at each point, from the start; then the cluster does everything that reaches one."""
    points = ("F.before_refetch", "F.epoch_req", "F.followed", "L.elected", "L.hw", "P.parked", "D.ckpt",
              "D.ckpt_done", "D.fsync", "B.registered", "L.acked", "F.truncated", "F.appended")  # fmt: skip
    arms = [{"point": point, "action": "report", "times": 0} for point in points]
    properties = cluster.cluster.place.layout.properties_of("n2")
    before = properties.read_text()
    properties.write_text(f"{before}floodmark.failpoints={json.dumps(arms)}\n")
    bounce(cluster, 2)
    properties.write_text(before)
    name = cluster.create("every", (1, 2), flush_messages="1")
    assert cluster.produce(name, b"v") == (errors.NONE, 0)
    elect(cluster, name, 2)
    wait_until("a leader", lambda: cluster.produce(name, b"w", node=2)[0] == errors.NONE)
    deaf = arm(cluster, 1, "F.before_refetch", "drop", topic=name, times=0)
    wait_met(cluster, 1, deaf)
    assert cluster.produce(name, b"tail", node=2, acks=1)[0] == errors.NONE
    elect(cluster, name, 1)
    assert cluster.ask(1, "release") == {"released": 0}

    def seen() -> set[str]:
        return {each["point"] for each in cluster.ask(2, "points")["met"]}

    wait_until(f"all of {points}, not only {seen()}", lambda: seen() == set(points))
    assert all(each["action"] == "report" for each in cluster.ask(2, "points")["armed"])


def test_a_broker_held_as_a_whole_listens_to_its_control_socket(cluster: RealBrokers) -> None:
    """It answers with its state of then, arms, and releases."""
    name = cluster.create("still")
    number = arm(cluster, 2, "F.appended", topic=name, scope="broker")
    assert cluster.produce(name, b"v", acks=1) == (errors.NONE, 0)
    wait_met(cluster, 2, number, held=True)
    then = cluster.ask(2, "state")
    assert cluster.replica(2, name)["leo"] == 1
    with Raw(cluster.port[2], timeout_s=0.3) as raw, pytest.raises(TimeoutError):
        raw.end_offset(name)
    other = arm(cluster, 2, "F.appended", topic=name, offset=7, scope="broker")
    assert cluster.ask(2, "release", point="F.appended", keep=True) == {"released": 1}
    wait_until("it to move", lambda: cluster.ask(2, "state") != then)
    assert [each["id"] for each in cluster.ask(2, "points")["armed"]] == [other]


def test_a_sigterm_ends_whatever_is_held(shared: RealBrokers) -> None:
    """One replica held: an orderly stop. All of it held: at once, also frozen. A controller that holds
    messages: in order. (Nothing is left of the shared cluster.)"""
    name = shared.create("stops")
    number = arm(shared, 3, "F.appended", topic=name)
    assert shared.produce(name, b"v", acks=1) == (errors.NONE, 0)
    wait_met(shared, 3, number, held=True)
    assert "exit code 0" in ended_by_sigterm(shared, 3)
    still = arm(shared, 1, "P.parked", topic=name, scope="broker")
    with Raw(shared.port[1], timeout_s=0.3) as raw, pytest.raises(TimeoutError):
        raw.produce(name, batch(b"w"))
    wait_met(shared, 1, still, held=True)
    frozen = shared.ask(1, "freeze")
    assert frozen == shared.ask(1, "state") == shared.ask(1, "freeze")
    with pytest.raises(Refused, match="frozen"):
        shared.ask(1, "release")
    assert wait_met(shared, 1, still, held=True)
    news = arm(shared, CONTROLLER, "C.elected")
    assert "SIGTERM ended it" in ended_by_sigterm(shared, 1)
    wait_met(shared, CONTROLLER, news, held=True)
    assert "exit code 0" in ended_by_sigterm(shared, CONTROLLER)


def ended_by_sigterm(cluster: RealBrokers, node: int) -> str:
    """How it ended, as somebody says who did not send the signal."""
    os.kill(cluster.pid(node), signal.SIGTERM)
    return cluster.last_words(node).splitlines()[0]
