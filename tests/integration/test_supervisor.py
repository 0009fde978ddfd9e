"""The local place and its supervisor with real processes: how they start, stop and end, and with whom. (That
nothing survives a killed harness: test_killed_harness.py.)"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from run_processes import state_of, wait_until

from floodmark.harness.cluster.broker_cluster import PYTHON, System
from floodmark.harness.cluster.local.place import LocalPlace
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CONTROLLER

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
WAIT_S = 120.0

# A program that the supervisor imports once.
PROGRAM = """
import json, os, random, signal, sys, time

imported_by = os.getpid()

def main():
    if sys.argv[1] == "sleep":
        time.sleep(600)
    if sys.argv[1] == "raise":
        raise ZeroDivisionError
    if sys.argv[1] == "exit":
        sys.exit(int(sys.argv[2]) if sys.argv[2].isdecimal() else sys.argv[2])
    files = [number for number in range(64) if os.path.exists(f"/proc/self/fd/{number}")]
    with open("/proc/self/comm") as comm, open("/proc/self/cmdline") as line:
        print(json.dumps({
            "arguments": sys.argv[1:], "imported_by": imported_by, "pid": os.getpid(), "parent": os.getppid(),
            "files": files, "comm": comm.read().strip(), "line": line.read().strip(chr(0)),
            "stdin": os.readlink("/proc/self/fd/0"),
            "random": random.random(), "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
            "pipe": ignores(signal.SIGPIPE),
        }))
    return 7

def ignores(number):  # as the kernel has it, which Python does not ask
    with open("/proc/self/status") as status:
        (mask,) = [line.split()[1] for line in status if line.startswith("SigIgn")]
    return bool(int(mask, 16) >> number - 1 & 1)
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))


class Started(LocalPlace):
    """A place of processes that tests choose, without a cluster."""

    def __init__(self, folder: Path, module: str | None = "program") -> None:
        self.commands: dict[str, list[Any]] = {}
        system = SimpleNamespace(
            module=module, command=self.commands.__getitem__, expects_exit=lambda _name, _code: False,
            ids={"n1": 1, "n2": 2, CONTROLLER: 100}, software=None, dials_by_name=False)
        super().__init__(folder, cast(System, system), links="direct")

    async def __aenter__(self) -> "Started":
        await self.open()
        self.layout.make_folders()
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, name: str, *command: Any) -> None:
        self.commands[name] = [*command]
        await self.spawn(name)

    async def fork(self, name: str, *arguments: Any) -> None:
        await self.run(name, PYTHON, "-m", "program", *arguments)

    async def ended(self, name: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.lives(name):
                await asyncio.sleep(0.01)

    def pid(self, name: str) -> int:
        return self.processes.alive[name].pid


@pytest.mark.parametrize("forked", [False, True])
async def test_killed_is_gone_and_paused_is_stopped_at_once(tmp_path: Path, forked: bool) -> None:
    """When the call returns, a killed process is gone and a paused one is stopped; a kill reaches a stopped
    one."""
    async with Started(tmp_path) as place:
        await (place.fork("n1", "sleep") if forked else place.run("n1", *SLEEPER))
        pid = place.pid("n1")
        for _ in range(20):
            await place.pause("n1")
            assert state_of(pid) == "T"
            assert await place.is_stopped("n1")
            await place.resume("n1")
            assert state_of(pid) != "T"
        await place.pause("n1")
        await place.kill("n1")
        assert state_of(pid) is None
        assert not place.lives("n1")
        assert [one.name for one in place.deaths] == []


async def test_a_process_whose_start_was_cancelled_can_be_killed(tmp_path: Path) -> None:
    """Its pid is not known yet; 0 would be the harness's own process group."""
    async with Started(tmp_path, module=None) as place:
        starting = asyncio.create_task(place.run("n1", *SLEEPER))
        await asyncio.sleep(0)
        starting.cancel()
        assert place.pid("n1") == 0
        await place.kill("n1")
        assert not place.lives("n1")


async def test_a_fork_has_nothing_of_the_supervisor_but_the_module(tmp_path: Path) -> None:
    """It has its own arguments, log, name, signal handlers and random numbers, and no open files."""

    async with Started(tmp_path) as place:
        for name in ("n1", "n2"):
            await place.fork(name, "say", name)
            await place.ended(name)
        assert "exit code 7" in place.deaths[0].words
        assert place._supervisor is not None
        supervisor = place._supervisor.pid
        said = [json.loads(place.layout.log_of(name).read_text()) for name in ("n1", "n2")]
    for name, one in zip(("n1", "n2"), said, strict=True):
        assert one["arguments"] == ["say", name]
        assert one["comm"] == name
        assert one["line"] == f"{sys.executable} -P -m program say {name}"
        assert one["stdin"] == os.devnull
        assert one["files"] == [0, 1, 2]
        assert one["imported_by"] == one["parent"] == supervisor != one["pid"]
        assert one["term"]
        assert one["pipe"]  # a write to a closed socket is an error, not the end
    assert said[0]["random"] != said[1]["random"]
    assert (tmp_path / "work" / "keeper.log").read_text() == ""


async def test_a_fork_ends_as_the_program_would(tmp_path: Path) -> None:
    async with Started(tmp_path) as place:
        for name, arguments, words in (("n1", ["exit", "3"], "exit code 3"), ("n2", ["raise"], "exit code 1"),
                                       ("n3", ["exit", "the disk is full"], "exit code 1")):
            await place.fork(name, *arguments)
            await place.ended(name)
            assert (place.deaths[-1].name, words in place.deaths[-1].words) == (name, True)
        await place.fork("n4", "sleep")
        await place.kill("n4", signal.SIGTERM, timeout_s=WAIT_S)
        _, raised, said = (one.words for one in place.deaths)
    assert "ZeroDivisionError" in raised
    assert "the disk is full" in said


async def test_a_module_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    """And other processes go on."""
    (tmp_path / "program" / "__main__.py").write_text("import nothing_of_that_name")
    async with Started(tmp_path) as place:
        await place.run("n1", *SLEEPER)
        with pytest.raises(FloodmarkError, match="nothing_of_that_name"):
            await place.fork("n2")
        assert (place.lives("n1"), place.lives("n2")) == (True, False)


async def test_what_cannot_be_spawned_is_reported(tmp_path: Path) -> None:
    """And no process remains that would seem to run."""
    async with Started(tmp_path, module=None) as place:
        with pytest.raises(FloodmarkError, match="start"):
            await place.run("n1", str(tmp_path / "nothing"))
        assert not place.lives("n1")
        with pytest.raises(FloodmarkError, match="not running"):
            await place.pause("n1")
        await place.close()


async def test_when_the_supervisor_goes_all_is_lost_and_nobody_has_died_by_itself(tmp_path: Path) -> None:
    """Because no bug of a broker explains it. The kernel kills the children, also one that is stopped; and a
    terminal's Ctrl-C reaches none of them."""
    async with Started(tmp_path) as place:
        await place.run("n1", *SLEEPER)
        await place.fork("n2", "sleep")
        await place.pause("n2")
        supervisor, children = place._supervisor, [place.pid("n1"), place.pid("n2")]
        assert supervisor is not None
        assert {os.getsid(pid) for pid in (supervisor.pid, *children)} == {supervisor.pid}
        supervisor.kill()
        await place.ended("n1")
        assert ([one.name for one in place.deaths], place.lives("n1")) == ([], False)
        assert place.lost == "the supervisor, parent of all brokers, ended, and all brokers with it"
        wait_until("the children to be gone", lambda: not any(map(state_of, children)))
