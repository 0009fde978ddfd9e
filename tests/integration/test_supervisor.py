"""The supervisor with real processes: nothing survives the harness, however it ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_processes import state_of, wait_until

from floodmark.harness.cluster.local.supervisor_client import SupervisedProcesses
from floodmark.harness.errors import FloodmarkError

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
        }))
    return 7

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
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


# A harness that starts three children, stops one of them, prints their pids and then waits.
HARNESS = """
import asyncio, sys
from pathlib import Path
from floodmark.harness.cluster.local.supervisor_client import SupervisedProcesses

async def main():
    folder = Path(sys.argv[1])
    processes = await SupervisedProcesses.begin(folder / "keeper.log", "program")
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    pids = [(await processes.spawn("n1", argv, folder / "n1.log")).pid]
    pids += [(await processes.fork(name, ["sleep"], folder / f"{name}.log")).pid for name in ("n2", "n3")]
    await processes.pause("n2")
    print(processes._supervisor.pid, *pids, flush=True)
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
def test_killed_is_gone_and_paused_is_stopped_at_once(tmp_path: Path, forked: bool) -> None:
    """When the call returns, a killed process is gone and a paused one is stopped; a kill reaches a stopped
    one."""

    async def story() -> None:
        processes = await SupervisedProcesses.begin(tmp_path / "keeper.log", "program")
        try:
            log = tmp_path / "n1.log"
            process = await (processes.fork("n1", ["sleep"], log) if forked
                             else processes.spawn("n1", SLEEPER, log))
            for _ in range(20):
                await processes.pause("n1")
                assert state_of(process.pid) == "T"
                assert processes.stopped_by_the_kernel("n1")
                await processes.resume("n1")
                assert state_of(process.pid) != "T"
            await processes.pause("n1")
            await processes.kill("n1")
            assert state_of(process.pid) is None
            assert not processes.lives("n1")
            assert [one.name for one in processes.deaths] == []
        finally:
            await processes.end()

    asyncio.run(story())


def test_a_fork_has_nothing_of_the_supervisor_but_the_module(tmp_path: Path) -> None:
    """It has its own arguments, log, name, signal handlers and random numbers, and no open files."""

    async def story() -> list[dict[str, Any]]:
        processes = await SupervisedProcesses.begin(tmp_path / "keeper.log", "program")
        try:
            for name in ("n1", "n2"):
                forked = await processes.fork(name, ["say", name], tmp_path / f"{name}.log")
                await asyncio.wait_for(forked.ended.wait(), WAIT_S)
            assert "exit code 7" in processes.deaths[0].words
            return [{**json.loads((tmp_path / f"{name}.log").read_text()),
                     "supervisor": processes._supervisor.pid} for name in ("n1", "n2")]
        finally:
            await processes.end()

    said = asyncio.run(story())
    for name, one in zip(("n1", "n2"), said, strict=True):
        assert one["arguments"] == ["say", name]
        assert one["comm"] == name
        assert one["line"] == f"{sys.executable} -P -m program say {name}"
        assert one["stdin"] == os.devnull
        assert one["files"] == [0, 1, 2]
        assert one["imported_by"] == one["parent"] == one["supervisor"] != one["pid"]
        assert one["term"]
    assert said[0]["random"] != said[1]["random"]
    assert (tmp_path / "keeper.log").read_text() == ""


def test_a_fork_ends_as_the_program_would(tmp_path: Path) -> None:
    async def story() -> dict[str, str]:
        processes = await SupervisedProcesses.begin(tmp_path / "keeper.log", "program")
        try:
            for name, arguments in ENDS.items():
                forked = await processes.fork(name, arguments, tmp_path / f"{name}.log")
                await asyncio.wait_for(forked.ended.wait(), WAIT_S)
            await processes.fork("n5", ["sleep"], tmp_path / "n5.log")
            await processes.terminate("n5", timeout_s=WAIT_S)
            assert [one.name for one in processes.deaths] == [*ENDS]
            return {name: words for name, words, _ in processes.deaths}
        finally:
            await processes.end()

    words = asyncio.run(story())
    assert "exit code 3" in words["n1"]
    assert "exit code 1" in words["n2"]
    assert "the disk is full" in words["n2"]
    assert "exit code 1" in words["n3"]
    assert "ZeroDivisionError" in words["n3"]
    assert "exit code 1" in words["n4"]
    assert "TypeError" in words["n4"]


ENDS: dict[str, list[Any]] = {
    "n1": ["exit", "3"], "n2": ["exit", "the disk is full"], "n3": ["raise"],
    "n4": [4],  # it fails before the program begins: this is no text
}


def test_a_module_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    """And other processes go on."""
    (tmp_path / "program" / "__main__.py").write_text("import nothing_of_that_name")

    async def story() -> None:
        processes = await SupervisedProcesses.begin(tmp_path / "keeper.log", "program")
        try:
            await processes.spawn("n1", SLEEPER, tmp_path / "n1.log")
            with pytest.raises(FloodmarkError, match="nothing_of_that_name"):
                await processes.fork("n2", [], tmp_path / "n2.log")
            assert (processes.lives("n1"), processes.lives("n2")) == (True, False)
        finally:
            await processes.end()

    asyncio.run(story())


def test_an_exit_nobody_asked_for_is_remembered_with_its_last_words(tmp_path: Path) -> None:
    """An exit after a kill of ours is none; and a name may be used again."""

    async def story() -> None:
        processes = await SupervisedProcesses.begin(tmp_path / "keeper.log")
        try:
            argv = [sys.executable, "-c", "raise SystemExit('the disk is full')"]
            process = await processes.spawn("n1", argv, tmp_path / "n1.log")
            await asyncio.wait_for(process.ended.wait(), WAIT_S)
            assert [one.name for one in processes.deaths] == ["n1"]
            assert "the disk is full" in processes.last_words("n1")

            await processes.spawn("n1", SLEEPER, tmp_path / "n1.log")
            await processes.terminate("n1", timeout_s=WAIT_S)
            assert [one.name for one in processes.deaths] == ["n1"]
        finally:
            await processes.end()

    asyncio.run(story())


def test_what_cannot_be_spawned_is_reported(tmp_path: Path) -> None:
    """And no process remains that would seem to run."""

    async def story() -> None:
        processes = await SupervisedProcesses.begin(tmp_path / "keeper.log")
        try:
            with pytest.raises(FloodmarkError, match="spawn"):
                await processes.spawn("n1", [str(tmp_path / "nothing")], tmp_path / "n1.log")
            assert not processes.lives("n1")
            with pytest.raises(FloodmarkError, match="not running"):
                await processes.pause("n1")
        finally:
            await processes.end()
            await processes.end()

    asyncio.run(story())


def test_when_the_supervisor_goes_all_is_lost_and_nobody_has_died_by_itself(tmp_path: Path) -> None:
    """Because no bug of a broker explains it."""

    async def story() -> None:
        processes = await SupervisedProcesses.begin(tmp_path / "keeper.log")
        try:
            process = await processes.spawn("n1", SLEEPER, tmp_path / "n1.log")
            processes._supervisor.kill()
            await asyncio.wait_for(process.ended.wait(), WAIT_S)
            assert ([one.name for one in processes.deaths], processes.lives("n1")) == ([], False)
            assert processes.lost == "the supervisor, parent of all brokers, ended, and all brokers with it"
        finally:
            await processes.end()

    asyncio.run(story())
