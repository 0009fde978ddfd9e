"""The simulated cluster: one seed gives one history, to the byte; what reaches outside is refused; a process
is stopped where it is, and a killed one runs nothing more."""

import asyncio
import datetime
import gc
import json
import os
import random
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from floodmark.broker import process_log
from floodmark.broker import runtime as broker_runtime
from floodmark.broker.server.broker_server import BrokerServer
from floodmark.harness.client.connection import connect
from floodmark.harness.cluster.simulated import scheduler
from floodmark.harness.cluster.simulated.guard import StrayCall
from floodmark.harness.cluster.simulated.place import Simulation
from floodmark.harness.cluster.simulated.scheduler import KILLED, Process
from floodmark.harness.commands.run import planned
from floodmark.harness.protocols import Simulates, ability
from floodmark.harness.runner import _carry_out, carry_out
from floodmark.harness.schedule import json_form
from floodmark.harness.spec import RunSpec

PLAY = """
import asyncio, sys
from pathlib import Path
from floodmark.harness.commands.run import planned
from floodmark.harness.spec import RunSpec
from floodmark.harness.runner import carry_out
plan = planned(RunSpec(cluster="simulated", duration=2.0, nemesis="all", settings="drawn",
                          seed=int(sys.argv[1]), out=Path(sys.argv[2])))
assert asyncio.run(carry_out(plan, lambda _: None)).ended == "done"
"""


def played(seed: int, folder: Path, hash_seed: str) -> dict[str, bytes]:
    """All files of a run that was made in a process of its own; the brokers' settings name the folder."""
    subprocess.run([sys.executable, "-c", PLAY, str(seed), str(folder)], check=True,
                   env={**os.environ, "PYTHONHASHSEED": hash_seed})
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".properties"}


def test_one_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """Whatever the folder's path and the hash seed; another seed gives others."""
    first = played(5, tmp_path / "run", "1")

    assert played(5, tmp_path / "elsewhere and longer" / "run", "77") == first
    assert played(6, tmp_path / "other", "1")["history.jsonl"] != first["history.jsonl"]


@pytest.mark.parametrize("reset", [False, True])
def test_a_broker_that_clients_cannot_reach_starts_again(tmp_path: Path, reset: bool) -> None:
    """A cut from the clients is none from the harness, which asks over connections of its own."""
    strikes = json_form.read([
        {"f": "kill", "nodes": ["n2"]},
        {"f": "cut", "kind": "clients", "grudge": {"clients": ["n2"], "n2": ["clients"]}, "reset": reset},
        {"f": "start", "nodes": ["n2"]}, {"f": "heal"}])
    plan = planned(RunSpec(cluster="simulated", duration=2.0, seed=7, out=tmp_path / "run"), strikes)

    assert asyncio.run(carry_out(plan, lambda _: None)).ended == "done"


def test_what_a_silent_cut_holds_back_arrives_in_order_at_the_heal() -> None:
    got: list[bytes] = []

    class Notes(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            got.append(data)

    async def story() -> list[list[bytes]]:
        network, harness = simulation.network, simulation.scheduler.harness
        network.listen(Process(simulation.scheduler, "n1"), Notes, ("n1", 1))
        transport, _ = await network.connect(harness, asyncio.Protocol, ("n1", 1))
        network.cut([(harness.name, "n1")], reset=False)
        for number in range(20):
            transport.write(b"%d" % number)
        await asyncio.sleep(1)
        before = [*got]
        network.heal()
        await asyncio.sleep(1)
        return [before, got]

    simulation = Simulation()

    assert asyncio.run(simulation.simulate(1, story)) == [[], [b"%d" % number for number in range(20)]]


STRAY: dict[str, Callable[[], object]] = {
    "time.time": lambda: time.time(),  # noqa: PLW0108 - looked up when it is called
    "time.sleep": lambda: time.sleep(1),
    "datetime.now": lambda: datetime.datetime.now(),  # noqa: PLW0108
    "date.today": lambda: datetime.date.today(),  # noqa: PLW0108
    "os.urandom": lambda: os.urandom(4),
    "os.getpid": lambda: os.getpid(),  # noqa: PLW0108
    "uuid.uuid4": lambda: uuid.uuid4(),  # noqa: PLW0108
    "secrets.token_hex": lambda: secrets.token_hex(4),
    "random.sample": lambda: random.sample([1, 2], 1),
    "Random without a seed": lambda: random.Random(),  # noqa: PLW0108
    "SystemRandom": lambda: random.SystemRandom(),  # noqa: PLW0108
    "Thread.start": lambda: threading.Thread(target=int).start(),
    "Popen": lambda: os.popen("true"),
    "os.fork": lambda: os.fork(),  # noqa: PLW0108
    "socket": lambda: socket.create_connection(("127.0.0.1", 9)),
    "BaseSelectorEventLoop": lambda: asyncio.new_event_loop(),  # noqa: PLW0108
}


@pytest.mark.parametrize("name", STRAY)
def test_who_reaches_outside_is_refused_with_its_caller(name: str) -> None:
    async def stray() -> None:
        STRAY[name]()

    with pytest.raises(StrayCall, match=rf"test_simulated\.py:\d+ calls {name}"):
        asyncio.run(Simulation().simulate(1, stray))


def test_who_imported_the_clock_by_name_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_log, "monotonic_ns", time.monotonic_ns, raising=False)

    async def stray() -> None:
        process_log.monotonic_ns()  # type: ignore[attr-defined]

    with pytest.raises(StrayCall, match=r"test_simulated\.py:\d+ calls time\.monotonic_ns"):
        asyncio.run(Simulation().simulate(1, stray))


def test_folders_list_in_the_order_of_names(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()

    async def lists() -> list[list[str]]:
        with os.scandir(tmp_path) as entries:
            scanned = [entry.name for entry in entries]
        return [os.listdir(tmp_path), scanned, [path.name for path in tmp_path.iterdir()],
                [path.name for path in tmp_path.glob("*")], *(names for _, _, names in os.walk(tmp_path))]

    listed = asyncio.run(Simulation().simulate(1, lists))

    assert listed == 5 * [sorted(map(str, range(50)))]


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
    """Nor anything else, also where its last reference is dropped and garbage is collected: neither its
    tasks, nor its threads, nor the callback in the middle of which it was."""

    async def story() -> list[str]:
        seen: list[str] = []
        process = Process(simulation.scheduler, "n1")

        class Thing:
            def __del__(self) -> None:
                seen.append("__del__")

        async def sleeps(seconds: float | None) -> None:
            thing = Thing()
            try:
                await (asyncio.Event().wait() if seconds is None else asyncio.sleep(seconds))
            finally:
                seen.append(f"finally {thing}")

        def blocked(seconds: float | None) -> None:
            thing = Thing()
            try:
                broker_runtime.current.new_event().wait(seconds)
            finally:
                seen.append(f"finally {thing}")

        with process.active():
            for seconds in (100, None):
                process.loop.create_task(sleeps(seconds))
                process.start_thread(lambda seconds=seconds: blocked(seconds))  # type: ignore[misc]
        await asyncio.sleep(1)
        process.loop.call_soon(blocked, None)
        await asyncio.sleep(1)
        assert process.busy
        process.end(KILLED)
        del process
        for _ in range(20):
            await asyncio.sleep(10)
            gc.collect()
        return seen

    simulation = Simulation()

    assert asyncio.run(simulation.simulate(1, story)) == []


@pytest.mark.parametrize("act", ["kill", "pause"])
def test_a_stop_comes_between_any_two_effects_of_a_callback(act: str) -> None:
    """Which effects of one callback a process has done when it is stopped, over 24 seeds."""

    async def story() -> tuple[int, bool]:
        process, effects = Process(simulation.scheduler, "n1"), 0

        def callback() -> None:
            nonlocal effects
            effects = 0
            for kind in ("trace", "write", "write", "send"):
                broker_runtime.current.before_effect(kind)
                effects += 1
            process.loop.call_later(0.001, callback)

        process.loop.call_soon(callback)
        await asyncio.sleep(1)
        await process.strike(process.pause if act == "pause" else lambda: process.end(KILLED))
        at = effects, process.busy
        await asyncio.sleep(1)
        assert (effects, process.busy) == at, "it went on"
        process.resume()
        await asyncio.sleep(1)
        assert process.alive == (act == "pause")
        return at

    seen = Counter[tuple[int, bool]]()
    for seed in range(24):
        simulation = Simulation()
        seen[asyncio.run(simulation.simulate(seed, story))] += 1

    assert set(seen) == {(done, True) for done in range(4)} | {(4, False)}
    assert sum(count for (_, within), count in seen.items() if within) > 12


def loops_at_once(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loops_at_once, loop)


def loops(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_later(1e-5, loops, loop)


def never_returns(_loop: asyncio.AbstractEventLoop) -> None:
    while True:
        pass


@pytest.mark.parametrize(("goes_wrong", "why"), [
    (loops_at_once, r"after 1\d,000 steps .* of the last 5,000, in 0\.000 s, 5,000 were steps of n\d"),
    (loops, r"after 95,000 steps .* of the last 5,000, in 0\.00\d s, 1,\d{3} were steps of n\d"),
    (never_returns, r"one step of n\d had taken 0\.2 s of a processor")])
def test_a_broker_that_never_rests_ends_the_run_with_a_reason(
        goes_wrong: Callable[[asyncio.AbstractEventLoop], None], why: str, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """What was recorded is kept, and nothing says that brokers died by themselves, or were up and stuck."""
    monkeypatch.setattr(scheduler, "CHECK_EVERY", 5000)
    monkeypatch.setattr(scheduler, "STEPS_AT_LEAST", 0)
    monkeypatch.setattr(scheduler, "STEP_CPU_S", 0.2)

    def tick(_: BrokerServer) -> None:
        if broker_runtime.current.monotonic_ns() > 3e9:
            goes_wrong(asyncio.get_running_loop())

    monkeypatch.setattr(BrokerServer, "_run_tick", tick)
    plan = planned(RunSpec(cluster="simulated", duration=3.0, seed=1, nemesis="crash", out=tmp_path / "run"))

    result = asyncio.run(carry_out(plan, lambda _: None))

    assert re.fullmatch(rf"the simulation was stopped at 3\.\d{{3}} s: {why}", result.ended)
    assert (result.about["settled"], result.about["died"]) == (False, [])
    rows = [json.loads(line) for line in result.run.replicas_path.read_text().splitlines()]
    assert not any(row["running"] for row in rows)
    assert all(row["leo"] > 10 for row in rows)
    assert result.run.trace_path.read_bytes()


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


class NotingRandom(random.Random):
    """Notes what it drew."""

    def __init__(self, name: str) -> None:
        self.drawn: list[float] = []
        super().__init__(name)

    def random(self) -> float:
        self.drawn.append(super().random())
        return self.drawn[-1]

    def getrandbits(self, k: int) -> int:
        self.drawn.append(drawn := super().getrandbits(k))
        return drawn


def drawn_and_done(folder: Path, more: int) -> tuple[dict[str, list[float]], dict[int, list[str]]]:
    """What each stream of a whole run drew, and each client's ops, where one more client asks n1 for its
    versions so many times, a second after the begin."""
    plan = planned(RunSpec(cluster="simulated", duration=2.5, seed=7, out=folder))
    simulation = ability(plan.cluster, Simulates)
    assert isinstance(simulation, Simulation)

    async def asks() -> None:
        await asyncio.sleep(1)
        for _ in range(more):
            to = next(address for address, listener in simulation.network.listeners.items()
                      if listener.process.name == "n1" and not listener.control)
            (await connect(*to, 1.0)).abort()

    async def story() -> dict[str, list[float]]:
        asking = asyncio.create_task(asks(), name="asker")
        assert (await _carry_out(plan, lambda _: None)).ended == "done"
        await asking
        streams = simulation.scheduler.streams._streams.items()
        return {"/".join(name): stream.drawn for name, stream in streams}  # type: ignore[attr-defined]

    drawn = asyncio.run(simulation.simulate(plan.seed, story))
    done: dict[int, list[str]] = {}
    for line in (folder / "history.jsonl").read_text().splitlines():
        op = json.loads(line)
        if op["type"] == "invoke" and isinstance(op["process"], int):
            done.setdefault(op["process"] % plan.spec.concurrency, []).append(op["f"])
    return drawn, done


def test_one_more_request_changes_no_draw_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All streams draw the same, as far as both go; those that are new are of that request's own connections,
    and every other connection carries nearly as many messages as before. Clients do the same ops."""
    monkeypatch.setattr(scheduler, "Random", NotingRandom)
    without, ops = drawn_and_done(tmp_path / "0", 0)
    with_one, ops_with_one = drawn_and_done(tmp_path / "1", 1)

    new = set(with_one) - set(without)
    assert new == {"dial/clients/n1/asker/data", "latency/clients/n1/clients/n1/asker/data/1",
                   "latency/n1/clients/clients/n1/asker/data/1"}
    assert set(without) == set(with_one) - new
    for name, draws in without.items():
        both = min(len(draws), len(with_one[name]))
        assert draws[:both] == with_one[name][:both], name
        assert both > 0.9 * max(len(draws), len(with_one[name])) - 20, name
    for client, fs in ops.items():
        both = min(len(fs), len(ops_with_one[client]))
        assert fs[:both] == ops_with_one[client][:both]
