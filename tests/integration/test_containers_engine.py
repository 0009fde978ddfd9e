"""Trouble with the engine, at a start and in mid-run: a clear message, no hang, and nothing left."""

import asyncio
import gc
import os
import socket
import threading
from pathlib import Path

import pytest
from cluster_stage import WAIT_S, Stage, left, running
from docker.types import Mount
from run_processes import wait_until

from floodmark.harness.cluster.containers import engine_resources
from floodmark.harness.cluster.containers.engine_client import connect
from floodmark.harness.cluster.containers.engine_resources import MOUNTED, EngineResources, remove_run
from floodmark.harness.errors import FloodmarkError

pytestmark = pytest.mark.docker
USUAL = "unix:///var/run/docker.sock"


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


class Relay:
    """A socket in front of the engine's. `end` closes it and all its connections, as if the engine had
    died."""

    def __init__(self, path: Path) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(64)
        self._through: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def end(self) -> None:
        for one in (self._listening, *self._through):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            engine.connect("/var/run/docker.sock")
            self._through += [client, engine]
            for source, target in ((client, engine), (engine, client)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


# docker-py leaves a socket that could not connect to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(os.environ.get("DOCKER_HOST", USUAL) != USUAL, reason="the engine is somewhere else")
def test_an_engine_that_dies_in_mid_run_is_an_error_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All brokers count as dead, every act says why; the containers end, and the next start can sweep
    them."""
    relay = Relay(tmp_path / "engine.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    stage = Stage(tmp_path / "run", 1)
    try:
        stage.play(stage.begin(()))
        run = stage.lab.run

        async def story() -> None:
            relay.end()
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
        stage.close()
    monkeypatch.delenv("DOCKER_HOST")
    wait_until("the containers to end with the keeper", lambda: running(run) == [])
    client = connect()
    try:
        remove_run(client, run, stage.lab.hooks)
    finally:
        client.close()
    assert left(run) == {}
    gc.collect()
