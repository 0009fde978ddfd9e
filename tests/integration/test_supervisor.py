"""The supervisor with real processes: nothing survives the harness, however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_processes import state_of, wait_until

from floodmark.harness.cluster.local.supervisor_client import SupervisedProcesses
from floodmark.harness.errors import FloodmarkError

SLEEPER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]
WAIT_S = 20.0

# A harness that starts three children, stops one of them, prints their pids and then waits.
HARNESS = """
import asyncio, sys
from pathlib import Path
from floodmark.harness.cluster.local.supervisor_client import SupervisedProcesses

async def main():
    folder = Path(sys.argv[1])
    processes = await SupervisedProcesses.begin(folder / "keeper.log")
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    pids = [(await processes.spawn(f"n{k}", argv, folder / f"n{k}.log")).pid for k in (1, 2, 3)]
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


def test_killed_is_gone_and_paused_is_stopped_at_once(tmp_path: Path) -> None:
    """When the call returns, a killed process is gone and a paused one is stopped; a kill reaches a stopped
    one."""

    async def story() -> None:
        processes = await SupervisedProcesses.begin(tmp_path / "keeper.log")
        try:
            process = await processes.spawn("n1", SLEEPER, tmp_path / "n1.log")
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
            assert processes.died == []
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
            assert processes.died == ["n1"]
            assert "the disk is full" in processes.last_words("n1")

            await processes.spawn("n1", SLEEPER, tmp_path / "n1.log")
            await processes.terminate("n1", timeout_s=WAIT_S)
            assert processes.died == ["n1"]
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
            assert (processes.died, processes.lives("n1")) == ([], False)
            assert processes.lost == "the supervisor, parent of all brokers, ended, and all brokers with it"
        finally:
            await processes.end()

    asyncio.run(story())
