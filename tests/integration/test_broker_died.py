"""A broker that ends by itself: after the cluster was up (the cluster's bug), or before."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import here
import pytest
from command_line import floodmark, verdict
from run_processes import pid_of_broker, wait_until_gone

from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.cluster.local.place import LocalPlace
from floodmark.harness.cluster.simulated.place import SimulatedPlace
from floodmark.harness.commands.run import planned
from floodmark.harness.pipeline import record
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.runner import RunResult
from floodmark.harness.schedule.json_form import read as schedule_of
from floodmark.harness.spec import RunSpec
from floodmark.nemesis.steps import read_step

# n3 is back, about to join the ISR, and lacks two records: with hw_falls it lowers the leader's high
# watermark. Its first fetches are delayed, so that the leader knows by then that n3 is back.
HW_FALLS = """send 1
kill n3
expire n3
send 2..3
delay n3 at F.fetch_resp for 3000ms
start n3
wait leader != n1"""


def ran(folder: Path, steps: str, *, bugs: tuple[str, ...] = (), config: str) -> RunResult:
    """On the simulated cluster, without a load."""
    schedule = [entry for line in steps.splitlines() for entry in read_step(line)]
    return record(planned(RunSpec(cluster="simulated", nodes=3, bugs=bugs, concurrency=0, partitions=1,
                                  duration=0.1, seed=1, out=folder, config=(config,)),
                          schedule_of(schedule, nodes=("n1", "n2", "n3"), partitions=[0])))


@pytest.mark.spark
def test_the_run_goes_on_and_says_who_died_and_of_what(tmp_path: Path) -> None:
    """Mended, settled and read with all brokers. The last words are those of when it ended: it was started
    again, and its log grew. It is the cluster's bug, and there is no other finding."""
    folder = tmp_path / "run"
    about = ran(folder, HW_FALLS, bugs=("hw_falls",), config="replica.lag.time.max.ms=60000").about
    assert (about["ended"], about["died"], about["missed"], about["residue"]) == ("done", ["n1"], [], None)
    assert about["settled"], about["settle"]
    assert about["final_reads"]["partitions"] == [0]
    first, *lines = about["died_words"].pop("n1").splitlines()
    assert re.fullmatch(r"it ended with exit code 70, \d+\.\d s after its start", first)
    assert 1 < len(lines) <= 20
    assert "AssertionError: a leader's HW fell in epoch 0: 3 -> 1" in lines[-1]
    assert about["died_words"] == {}

    answer = floodmark("check", folder)
    assert answer.code == 1, answer.out + answer.err
    assert "a leader's HW fell in epoch 0: 3 -> 1" in " ".join(answer.out.split())
    names = {found["name"] for found in verdict(folder)["findings"] if found["class"] == "bug"}
    assert names == {"broker-died"}


@pytest.mark.cluster
def test_who_never_became_ready_is_the_harnesss_trouble(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends in the same way before the cluster is up: exit 4 with its own words, and `died` is empty."""
    ending = "print('error AssertionError: HW fell', flush=True); raise SystemExit(70)"

    async def spawn(self: LocalPlace, name: str) -> None:
        await self._start(name, [sys.executable, "-c", ending])

    monkeypatch.setattr(LocalPlace, "spawn", spawn)
    folder = tmp_path / "run"
    answer = floodmark("run", "--nodes", 1, "--duration", 1, "--out", folder)
    assert answer.code == 4, answer.out + answer.err
    assert re.search(r"ended .*: error AssertionError: HW fell", answer.err)
    assert answer.last == str(folder)
    about = json.loads((folder / "run.json").read_text())
    assert (about["died"], about["died_words"]) == ([], {})
    wait_until_gone(folder)


@pytest.mark.cluster
@pytest.mark.spark
def test_who_dies_before_the_first_op_is_judged_all_the_same(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster was up, and no topic could be made: the history is nearly empty, and check ends with exit
    1."""
    create = BrokerCluster.create
    folder = tmp_path / "run"

    async def aborted_first(self: BrokerCluster, partitions: Sequence[PartitionSpec]) -> None:
        victim = pid_of_broker(folder, "n1")
        assert victim is not None
        os.kill(victim, signal.SIGABRT)
        async with asyncio.timeout(30):
            while "n1" not in self.died():
                await asyncio.sleep(0.01)
        await create(self, partitions)

    monkeypatch.setattr(BrokerCluster, "create", aborted_first)
    answer = floodmark("run", "--nodes", 1, "--duration", 1, "--out", folder)
    assert answer.code == 1, answer.out + answer.err
    assert [found["name"] for found in verdict(folder)["findings"]] == ["broker-died"]
    about = json.loads((folder / "run.json").read_text())
    assert about["died_words"]["n1"].startswith("SIGABRT ended it, which floodmark did not send, ")
    assert "no broker runs that could create a topic" in about["ended"]
    wait_until_gone(folder)


@pytest.mark.spark
@pytest.mark.parametrize(("struck", "is_a_bug"), [("controller", False), ("n3", True)])
def test_who_dies_without_a_controller_for_a_whole_session_has_a_reason(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, struck: str, is_a_bug: bool) -> None:
    """The simulated pause is made an abort. The controller killed for over a session explains the death;
    another broker killed does not."""
    async def abort(self: SimulatedPlace, node: str) -> None:
        self._processes[node].end(-signal.SIGABRT)

    monkeypatch.setattr(SimulatedPlace, "pause", abort)
    folder = tmp_path / "run"
    result = ran(folder, f"send 1\nkill {struck}\npause n1 when 1.5s", config="broker.session.timeout.ms=500")

    assert (result.about["ended"], result.about["died"], result.about["residue"]) == ("done", ["n1"], None)
    (died_at,), (began, done) = result.about["died_at"]["n1"], result.about["mended"]
    assert 1_500_000_000 < died_at < done
    assert began < done
    found = [one.name for one in here.judge([folder])[0].findings]
    assert ("broker-died" in found) == is_a_bug
