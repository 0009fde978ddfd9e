"""The simulated cluster: one seed gives one history, to the byte; what reaches outside is refused; a process
is stopped where it is, and a killed one runs nothing more."""

import asyncio
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from floodmark.broker import runtime as broker_runtime
from floodmark.harness.cluster.simulated.cluster import Simulation
from floodmark.harness.cluster.simulated.guard import StrayCall
from floodmark.harness.cluster.simulated.scheduler import KILLED, Process

PLAY = """
import asyncio, sys
from pathlib import Path
from floodmark.harness.commands.run import RunOptions, planned
from floodmark.harness.runner import carry_out
plan = planned(RunOptions(cluster="simulated", duration=3.0, nemesis="all", settings="drawn",
                          seed=int(sys.argv[1]), out=Path(sys.argv[2])))
assert asyncio.run(carry_out(plan, lambda _: None)).ended == "done"
"""
RECORDED = ("history.jsonl", "trace.jsonl", "replicas.jsonl",
            "logs/n1.jsonl", "logs/n2.jsonl", "logs/n3.jsonl")


def played(seed: int, folder: Path, hash_seed: str) -> dict[str, bytes]:
    """What a run recorded, made in a process of its own."""
    subprocess.run([sys.executable, "-c", PLAY, str(seed), str(folder)], check=True,
                   env={**os.environ, "PYTHONHASHSEED": hash_seed})
    return {name: (folder / name).read_bytes() for name in RECORDED}


def test_one_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """Whatever the folder's path and the hash seed; another seed gives others."""
    first = played(5, tmp_path / "run", "1")

    assert played(5, tmp_path / "elsewhere and longer" / "run", "77") == first
    assert played(6, tmp_path / "other", "1")["history.jsonl"] != first["history.jsonl"]


STRAY: dict[str, Callable[[], object]] = {
    "time.time": lambda: time.time(),  # noqa: PLW0108 - looked up when it is called
    "os.urandom": lambda: os.urandom(4),
    "uuid.uuid4": lambda: uuid.uuid4(),  # noqa: PLW0108
    "Thread.start": lambda: threading.Thread(target=int).start(),
    "subprocess.Popen": lambda: subprocess.Popen(["true"]),
}


@pytest.mark.parametrize("name", STRAY)
def test_who_reaches_outside_is_refused_with_its_caller(name: str) -> None:
    async def stray() -> None:
        STRAY[name]()

    with pytest.raises(StrayCall, match=rf"test_simulated\.py:\d+ calls {name}"):
        asyncio.run(Simulation().simulate(1, stray))


def test_a_hold_stops_a_process_in_the_middle_of_a_callback() -> None:
    """What it would do next waits, and so do its other callbacks, until it is released."""
    seen: list[str] = []

    async def story() -> list[str]:
        scheduler = simulation.scheduler
        process, release = Process(scheduler, "n1"), broker_runtime.current.new_event()

        def held() -> None:
            seen.append("before")
            release.wait()
            seen.append("after")

        process.loop.call_soon(held)
        process.loop.call_soon(seen.append, "next")
        await asyncio.sleep(1)
        seen.append("released")
        release.set()
        await asyncio.sleep(1)
        return seen

    simulation = Simulation()

    assert asyncio.run(simulation.simulate(1, story)) == ["before", "released", "after", "next"]


def test_a_killed_process_runs_no_finally() -> None:
    """Nor anything else, also where its last reference is dropped."""

    async def story() -> list[str]:
        seen: list[str] = []
        process = Process(simulation.scheduler, "n1")

        async def lives() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                seen.append("finally")

        with process.active():
            process.loop.create_task(lives())
        await asyncio.sleep(1)
        process.end(KILLED)
        await asyncio.sleep(200)
        return seen

    simulation = Simulation()

    assert asyncio.run(simulation.simulate(1, story)) == []


def test_a_pause_stops_threads_too() -> None:
    async def story() -> list[float]:
        scheduler = simulation.scheduler
        process, times = Process(scheduler, "n1"), []

        def thread() -> None:
            broker_runtime.current.new_event().wait(1.0)
            times.append(scheduler.now_ns / 1e9)

        process.start_thread(thread)
        await asyncio.sleep(0.5)
        process.paused = True
        await asyncio.sleep(9.5)
        process.resume()
        await asyncio.sleep(1)
        return times

    simulation = Simulation()

    assert asyncio.run(simulation.simulate(1, story)) == [11.0]


def test_one_more_message_on_a_link_changes_no_time_on_another() -> None:
    """The times at which messages arrive, by link, without and with one more on the first link."""

    def times(more: int) -> dict[str, list[float]]:
        async def story() -> dict[str, list[float]]:
            arrived: dict[str, list[float]] = {"n1": [], "n2": []}

            class Receiver(asyncio.Protocol):
                def __init__(self, name: str) -> None:
                    self.name = name

                def data_received(self, data: bytes) -> None:
                    arrived[self.name].append(simulation.scheduler.now_ns / 1e9)

            for number, name in enumerate(arrived, start=1):
                simulation.network.listen(
                    Process(simulation.scheduler, name), lambda name=name: Receiver(name), (name, number))
            loop = asyncio.get_running_loop()
            (one, _), (two, _) = [await loop.create_connection(asyncio.Protocol, name, number)
                                  for number, name in enumerate(arrived, start=1)]
            for _ in range(1 + more):
                one.write(b"x")
            for _ in range(5):
                await asyncio.sleep(1)
                two.write(b"x")
            await asyncio.sleep(1)
            return arrived

        simulation = Simulation()
        return asyncio.run(simulation.simulate(3, story))

    without, with_one = times(0), times(1)

    assert without["n2"] == with_one["n2"]
    assert len(with_one["n1"]) == len(without["n1"]) + 1
    assert with_one["n1"][:1] == without["n1"]
