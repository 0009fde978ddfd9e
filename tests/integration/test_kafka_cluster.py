"""Apache Kafka in KRaft mode as the harness drives it: start, create, kill a leader, elect, cut, freeze.

Tests wait for conditions: a busy machine is slow, not a failure.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from cluster_stage import NODES, Stage, isr
from command_line import Answer, floodmark
from real_kafka import skip_without
from run_processes import once_it_goes_well

from floodmark.harness.cluster.kafka.kafka_system import KafkaSystem
from floodmark.harness.event_loop import wait_until
from floodmark.harness.protocols import Elects, ElectsReplica, Freezes, ability
from floodmark.harness.schedule.views import CONTROLLER

pytestmark = pytest.mark.kafka
LONG_S = 120.0
SHORT = ("--partitions", "2", "--concurrency", "6", "--rate", "300", "--strict")


@pytest.fixture(params=["3.9.2", "4.3.1"])
def version(request: pytest.FixtureRequest) -> str:
    word: str = request.param
    skip_without(word)
    return word


@contextmanager
def staged(folder: Path, kafka: str, **config: str) -> Iterator[Stage]:
    stage = Stage(folder, place="local", kafka=kafka, **{"min.insync.replicas": "2", **config})
    try:
        stage.play(stage.begin())
        yield stage
    finally:
        stage.close()


def test_a_cluster_lives_through_its_faults(tmp_path: Path, version: str) -> None:
    """Each view agrees with what was done; the frozen cluster's view is what the logs hold."""
    async def story() -> None:
        one = stage.cluster
        elects, chooses, freezes = (ability(one, kind) for kind in (Elects, ElectsReplica, Freezes))
        assert isinstance(elects, KafkaSystem)
        assert elects is chooses is freezes

        async def refused() -> str | None:
            answer = await chooses.elect_replica([0], "n2")
            return str(answer) if answer["refused"] else None

        await wait_until(refused, "n2 to be elected", LONG_S)  # a busy broker may be fenced for a moment
        await stage.seen(lambda view: view.partitions[0].leader == "n2", "n2 to lead")
        assert set(await elects.elect([0])) == {"elected", "refused"}
        await stage.seen(lambda view: view.partitions[0].leader == "n1", "n1 to lead again")
        await one.kill("n1")
        killed = await stage.seen(lambda view: view.partitions[0].leader not in ("n1", None),
                                  "another leader")
        assert "n1" not in killed.running | killed.unfenced
        await one.start_node("n1")
        await stage.all_in_sync()
        await one.place.cut({"n3": ["n1", "n2", CONTROLLER]})
        await stage.seen(lambda view: "n3" not in isr(view),
                         "n3, which hears nobody, to be fenced and leave the ISR")
        await one.place.heal()
        await stage.all_in_sync()
        assert await one.mend() == []
        frozen = await elects.freeze()
        assert set(frozen.replicas) == {(node, key) for node in NODES for key in range(2)}
        assert {view.leo for view in frozen.replicas.values()} == {0}
        assert frozen.replicas["n1", 0].clean is False
        assert one.died() == []

    with staged(tmp_path, version) as stage:
        stage.play(story())


def test_eligible_leader_replicas_are_seen(tmp_path: Path) -> None:
    """Who leaves an ISR that is then below min.insync.replicas is eligible until the ISR has grown again."""
    skip_without("4.3.1")

    async def story() -> None:
        for node, members, elr in (("n2", {"n1", "n3"}, ()), ("n3", {"n1"}, ("n3",))):
            await stage.cluster.stop_node(node)
            view = await stage.seen(lambda view, members=members: isr(view) == members,
                                    f"{node} to leave the ISR")
            assert view.partitions[0].elr == elr
        await stage.cluster.start_node("n2")
        view = await stage.seen(lambda view: "n2" in isr(view), "n2 to be back")
        assert view.partitions[0].elr == ()

    with staged(tmp_path, "4.3.1", **{"eligible.leader.replicas.version": "1"}) as stage:
        stage.play(story())


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
