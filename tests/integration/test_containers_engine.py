"""Trouble with the engine, at a start and in mid-run, and killed harnesses: a clear message, no hang, and
nothing left; what a killed harness leaves on the engine is dead at once, and the next start sweeps it."""

import asyncio
import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from cluster_stage import NODES, WAIT_S, Stage, begun, left
from docker.types import Mount
from run_processes import wait_until

from floodmark.harness.cluster.broker_cluster import Place
from floodmark.harness.cluster.containers import engine_resources
from floodmark.harness.cluster.containers.disks import Volumes
from floodmark.harness.cluster.containers.engine_client import connect
from floodmark.harness.cluster.containers.engine_resources import (
    LABEL_RUN,
    MOUNTED,
    EngineResources,
    Remains,
    remains,
    remove_run,
    sweep,
)
from floodmark.harness.cluster.reference import power_loss
from floodmark.harness.errors import FloodmarkError

pytestmark = pytest.mark.docker
USUAL = "unix:///var/run/docker.sock"
ENDS_WITHIN_S = 15.0  # on a busy machine; usually it takes half a second
# A harness that a test kills: it prints its run's number, and waits.
HARNESS = """
import asyncio, sys
from pathlib import Path
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness import catalog

async def lab_only(folder):
    lab = EngineResources(folder, ("n1",))
    await lab.open()
    return lab.run

async def cluster(folder):
    one = catalog.cluster("containers", folder, 1, rules="kip-320", bugs=(), config={}, links="direct")
    await one.start()
    await one.place.pause("n1")  # a paused process does not notice that its harness ends
    return one.place._lab.run

async def main():
    print(await {"lab": lab_only, "cluster": cluster}[sys.argv[1]](Path(sys.argv[2])), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
# A socket in front of the engine's. When it is killed, it is as if the engine had died.
RELAY = """
import asyncio, sys

async def copy(source, target):
    while data := await source.read(65536):
        target.write(data)
    target.write_eof()

async def relay(reader, writer):
    from_engine, to_engine = await asyncio.open_unix_connection("/var/run/docker.sock")
    await asyncio.gather(copy(reader, to_engine), copy(from_engine, writer))

async def main():
    await (await asyncio.start_unix_server(relay, sys.argv[1])).serve_forever()

asyncio.run(main())
"""


def running(run: str) -> list[str]:
    """The containers of the run that have running processes."""
    with closing(connect()) as client:
        return [one["Names"][0] for one in client.api.containers(filters={"label": f"{LABEL_RUN}={run}"})]


def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    """A value that no broker understands."""
    stage = Stage(tmp_path, 1, **{"floodmark.switches": "no-such"})
    try:
        with pytest.raises(FloodmarkError, match=r"ended .*: .*no switch 'no-such'"):
            stage.play(stage.cluster.start())
        assert stage.cluster.died() == []  # it was never up
        assert left(stage.lab.run) == {}
    finally:
        stage.close()


def test_an_engine_that_sees_other_folders_is_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper's file is not found here."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o777)
    monkeypatch.setattr(engine_resources, "KEEPER_S", 1.0)
    monkeypatch.setattr(EngineResources, "mount", lambda _lab: Mount(MOUNTED, str(elsewhere), type="bind"))
    lab = EngineResources(tmp_path / "work", ("n1",))

    async def story() -> None:
        with pytest.raises(FloodmarkError, match="the engine must run on this machine"):
            await lab.open()
        await lab.close()

    asyncio.run(story())
    assert left(lab.run) == {}


def test_without_a_common_clock_there_is_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a desktop, where the engine has a kernel of its own: the run says so and goes on."""
    other = tmp_path / "boot_id"
    other.write_text("another kernel\n")
    monkeypatch.setattr(engine_resources, "BOOT_ID", other)
    stage = Stage(tmp_path / "run", 1)
    try:
        stage.play(stage.cluster.start())
        assert stage.cluster.runs.traces() is None
        assert "no trace is written" in capsys.readouterr().err
        assert not list((tmp_path / "run" / "work").glob("*.trace"))
    finally:
        stage.close()


# docker-py leaves a socket that could not connect to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(os.environ.get("DOCKER_HOST", USUAL) != USUAL, reason="the engine is somewhere else")
def test_an_engine_that_dies_in_mid_run_is_an_error_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All brokers count as dead, every act says why; the containers end, and the next start can sweep
    them."""
    path = tmp_path / "engine.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with subprocess.Popen([sys.executable, "-c", RELAY, path], stderr=subprocess.DEVNULL) as relay:
        wait_until("the relay to listen", path.exists)
        stage = Stage(tmp_path / "run", 1)
        try:
            stage.play(stage.begin(()))
            run = stage.lab.run

            async def story() -> None:
                relay.kill()
                await stage.seen(lambda look: not look.running, "the loss to be heard of")
                assert stage.cluster.died() == []  # none ended by itself
                [broken] = stage.cluster.broken()
                assert "ended its stream of events" in broken
                assert "ended its stream of events" in stage.place.last_words("n1")
                with pytest.raises(FloodmarkError, match="cannot start n1: the Docker engine ended"):
                    await stage.cluster.start_node("n1")
                with pytest.raises(FloodmarkError, match="does it still run"):
                    await stage.place.log_dir("n1")
                assert any("does it still run" in left for left in await stage.cluster.mend())
                await stage.cluster.stop()

            stage.play(story(), WAIT_S)
        finally:
            relay.kill()
            stage.close()
    monkeypatch.delenv("DOCKER_HOST")
    wait_until("the containers to end with the keeper", lambda: running(run) == [])
    with closing(connect()) as client:
        remove_run(client, run, stage.lab.hooks)
    assert left(run) == {}
    gc.collect()


# -- killed harnesses -------------------------------------------------------------------------------------


def killed(what: str, folder: Path) -> str:
    """Kills a harness when its containers run, one of them stopped; returns the run's number. No process of
    it runs any more. what: lab (keeper and network) or cluster (of one broker)."""
    argv = [sys.executable, "-P", "-c", HARNESS, what, folder]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as harness:
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
    ending: list[Remains] = []
    stage = Stage(tmp_path / "living", 1)
    stage.lab.hooks.append(lambda client, which: ending.append(remains(client)[which]))
    with begun(stage, ()):
        assert left(run) == {}

        gone = killed("lab", tmp_path / "another")
        with closing(connect()) as client:
            assert sweep(client, stage.lab.hooks).get(gone) is None
        wait_until("all to be removed, by whomever", lambda: left(gone) == {})

        assert stage.play(stage.cluster.observe()).running == {"n1"}
        assert stage.cluster.died() == []
    assert [there.alive for there in ending if there.keepers][-1:] == [True]


def test_two_sweeps_at_once_are_no_error(tmp_path: Path) -> None:
    """A part that is gone already, or about to go, is no error; a hook is called for the dead run."""
    run = killed("lab", tmp_path)
    lab = EngineResources(tmp_path, NODES)
    Volumes(lab, power_loss, cast(Place, None))  # so that any dead run found here is swept completely
    hooked: list[str] = []

    def one(_: int) -> str | None:
        with closing(connect()) as client:
            return sweep(client, [*lab.hooks, lambda _client, which: hooked.append(which)]).get(run)

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(one, range(2))) == {None}
    wait_until("all to be removed, by whomever", lambda: left(run) == {})
    assert run in hooked
