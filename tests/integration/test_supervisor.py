"""The local place and its supervisor with real processes: nothing survives the harness, however it ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from run_processes import state_of, wait_until

from floodmark.harness.cluster.broker_cluster import PYTHON, System
from floodmark.harness.cluster.local.place import LocalPlace
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CONTROLLER

SLEEPER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
WAIT_S = 120.0

# A program that the supervisor imports once.
PROGRAM = """
import json, os, random, signal, sys, time

imported_by = os.getpid()

def main():
    if sys.argv[1] == "sleep":
        print("here", flush=True)
        time.sleep(600)
    if sys.argv[1] == "raise":
        raise ZeroDivisionError
    if sys.argv[1] == "exit":
        sys.exit(int(sys.argv[2]) if sys.argv[2].isdecimal() else sys.argv[2])
    files = [number for number in range(64) if is_open(number)]
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

def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parent), *sys.path]))


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


# A harness that starts three children, stops one of them, prints their pids and then waits.
HARNESS = """
import asyncio, sys
from pathlib import Path
from test_supervisor import SLEEPER, Started

async def main():
    async with Started(Path(sys.argv[1])) as place:
        await place.run("n1", *SLEEPER)
        for name in ("n2", "controller"):
            await place.fork(name, "sleep")
        await place.pause("n2")
        print(place._supervisor.pid, *map(place.pid, ("n1", "n2", "controller")), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def gone(pids: list[int]) -> bool:
    return all(state_of(pid) is None for pid in pids)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, list[int]]]:
    """A harness, its supervisor's pid, its children's; the second of these is stopped."""
    argv = [sys.executable, "-c", HARNESS, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        supervisor, *children = map(int, process.stdout.readline().split())
        yield process, supervisor, children
        process.kill()
    wait_until("the supervisor and its children to be gone", lambda: gone([supervisor, *children]))


def test_nothing_survives_a_harness_killed_with_a_child_stopped(
        harness: tuple[subprocess.Popen[str], int, list[int]]) -> None:
    """SIGKILL leaves the harness no time to end anything; a stopped child would never read an EOF."""
    process, supervisor, children = harness
    assert state_of(children[1]) == "T"

    process.kill()
    process.wait()

    wait_until("the supervisor and its children to be gone", lambda: gone([supervisor, *children]))


def test_no_child_survives_the_supervisor_itself(harness: tuple[subprocess.Popen[str], int, list[int]]
                                                ) -> None:
    """The kernel kills them: each has requested that at its start."""
    _, supervisor, children = harness

    os.kill(supervisor, signal.SIGKILL)

    wait_until("the supervisor's children to be gone", lambda: gone(children))


def test_the_children_are_out_of_reach_of_a_terminals_ctrl_c(
        harness: tuple[subprocess.Popen[str], int, list[int]]) -> None:
    """They are in no process group of the harness's session."""
    process, supervisor, children = harness

    assert {os.getsid(pid) for pid in (supervisor, *children)} == {supervisor}
    assert os.getsid(process.pid) != supervisor


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


def test_a_fork_has_nothing_of_the_supervisor_but_the_module(tmp_path: Path) -> None:
    """It has its own arguments, log, name, signal handlers and random numbers, and no open files."""

    async def story() -> list[dict[str, Any]]:
        async with Started(tmp_path) as place:
            for name in ("n1", "n2"):
                await place.fork(name, "say", name)
                await place.ended(name)
            assert "exit code 7" in place.deaths[0].words
            assert place._supervisor is not None
            return [{**json.loads(place.layout.log_of(name).read_text()),
                     "supervisor": place._supervisor.pid} for name in ("n1", "n2")]

    said = asyncio.run(story())
    for name, one in zip(("n1", "n2"), said, strict=True):
        assert one["arguments"] == ["say", name]
        assert one["comm"] == name
        assert one["line"] == f"{sys.executable} -P -m program say {name}"
        assert one["stdin"] == os.devnull
        assert one["files"] == [0, 1, 2]
        assert one["imported_by"] == one["parent"] == one["supervisor"] != one["pid"]
        assert one["term"]
        assert one["pipe"]  # a write to a closed socket is an error, not the end
    assert said[0]["random"] != said[1]["random"]
    assert (tmp_path / "work" / "keeper.log").read_text() == ""


def test_a_fork_ends_as_the_program_would(tmp_path: Path) -> None:
    async def story() -> dict[str, str]:
        async with Started(tmp_path) as place:
            for name, arguments in ENDS.items():
                await place.fork(name, *arguments)
                await place.ended(name)
            await place.fork("n5", "sleep")
            await place.kill("n5", signal.SIGTERM, timeout_s=WAIT_S)
            assert [one.name for one in place.deaths] == [*ENDS]
            return {name: words for name, words, _ in place.deaths}

    words = asyncio.run(story())
    assert "exit code 3" in words["n1"]
    assert "exit code 1" in words["n2"]
    assert "the disk is full" in words["n2"]
    assert "exit code 1" in words["n3"]
    assert "ZeroDivisionError" in words["n3"]


ENDS = {"n1": ["exit", "3"], "n2": ["exit", "the disk is full"], "n3": ["raise"]}


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
    """Because no bug of a broker explains it."""
    async with Started(tmp_path, module=None) as place:
        await place.run("n1", *SLEEPER)
        assert place._supervisor is not None
        place._supervisor.kill()
        await place.ended("n1")
        assert ([one.name for one in place.deaths], place.lives("n1")) == ([], False)
        assert place.lost == "the supervisor, parent of all brokers, ended, and all brokers with it"
