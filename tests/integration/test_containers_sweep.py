"""Killed harnesses: what they leave on the engine is dead at once, and the next start sweeps it."""

import subprocess
import threading
from pathlib import Path
from typing import cast

import pytest
from cluster_stage import NODES, Stage, argv_of_harness, left, running
from run_processes import wait_until

from floodmark.harness.cluster.broker_cluster import Place
from floodmark.harness.cluster.containers.disks import Volumes
from floodmark.harness.cluster.containers.engine_client import connect
from floodmark.harness.cluster.containers.engine_resources import EngineResources, Remains, remains, sweep
from floodmark.harness.cluster.reference import power_loss

pytestmark = pytest.mark.docker

ENDS_WITHIN_S = 15.0  # on a busy machine; usually it takes half a second


def killed(what: str, folder: Path) -> str:
    """Kills a harness when its containers run, one of them stopped; returns the run's number. No process of
    it runs any more."""
    with subprocess.Popen(argv_of_harness(what, folder), stdout=subprocess.PIPE, text=True) as harness:
        try:
            assert harness.stdout is not None
            run = harness.stdout.readline().strip()
            assert run
            assert running(run)
        finally:
            harness.kill()
    wait_until(f"the containers of {run} to end", lambda: running(run) == [], ENDS_WITHIN_S)
    return run


def test_a_killed_harness_takes_its_cluster_along_and_the_next_start_sweeps_it(tmp_path: Path) -> None:
    """All of a cluster: containers, network, volumes, loop devices. A living run is not touched, nor is one
    that is ending: its keeper lives until all else is gone."""
    run = killed("cluster", tmp_path / "killed")
    stage = Stage(tmp_path / "living", 1)
    ending: list[Remains] = []
    stage.lab.hooks.append(lambda client, which: ending.append(remains(client)[which]))
    try:
        stage.play(stage.begin(()))
        assert left(run) == {}

        gone = killed("lab", tmp_path / "another")
        client = connect()
        try:
            assert sweep(client, stage.lab.hooks).get(gone) is None
        finally:
            client.close()
        wait_until("all to be removed, by whomever", lambda: left(gone) == {})

        look = stage.play(stage.cluster.observe())
        assert look.running == {"n1"}
        assert stage.cluster.died() == []
    finally:
        stage.close()
    assert [there.alive for there in ending if there.keepers][-1:] == [True]


def test_two_sweeps_at_once_are_no_error(tmp_path: Path) -> None:
    """A part that is gone already, or about to go, is no error; a hook is called for the dead run."""
    run = killed("lab", tmp_path)
    lab = EngineResources(tmp_path, NODES)
    Volumes(lab, power_loss, cast(Place, None))  # so that any dead run found here is swept completely
    outcomes: list[dict[str, str | None]] = []
    hooked: list[str] = []
    start = threading.Barrier(2)

    def one() -> None:
        client = connect()
        try:
            start.wait()
            outcomes.append(sweep(client, [*lab.hooks, lambda _client, which: hooked.append(which)]))
        finally:
            client.close()

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {outcome.get(run) for outcome in outcomes} == {None}
    wait_until("all to be removed, by whomever", lambda: left(run) == {})
    assert run in hooked
