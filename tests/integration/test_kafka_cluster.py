"""Apache Kafka in KRaft mode, beside its faults (test_kafka_scenarios.py): eligible leaders, two deaths."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from cluster_stage import Stage, isr
from command_line import Answer, floodmark
from real_kafka import skip_without
from run_processes import once_it_goes_well

pytestmark = pytest.mark.kafka
LONG_S = 120.0
SHORT = ("--partitions", "2", "--concurrency", "6", "--rate", "300", "--strict")


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

    stage = Stage(tmp_path, place="local", kafka="4.3.1",
                  **{"min.insync.replicas": "2", "eligible.leader.replicas.version": "1"})
    try:
        stage.play(stage.begin())
        stage.play(story())
    finally:
        stage.close()


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
