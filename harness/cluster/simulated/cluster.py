"""The simulated place: the shipped broker and controller, in this process, on virtual time.

Rules
1. Processes and links are those of scheduler.py and network.py; files are real ones in the run's folder.
2. A power cut drops what the broker's side file does not say is durable, as on loopback.
3. A run is a forked child, which ends by os._exit: so nothing that a killed broker had is ever finished.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

# Every run writes dumps: imported once, not in each child.
import pyarrow.compute
import pyarrow.json
import pyarrow.parquet  # noqa: F401

from floodmark.broker import runtime as broker_runtime
from floodmark.broker.server.config import load_config
from floodmark.broker.server.process import run_process
from floodmark.harness import runtime
from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.cluster.exit_reports import Start, exit_report, last_words
from floodmark.harness.cluster.hosts import (
    Command,
    Death,
    ExpectsExit,
    FaultedExit,
    House,
    expects_no_exit,
    no_command,
)
from floodmark.harness.cluster.layout import Layout, lay_out
from floodmark.harness.cluster.log_extents import Lost
from floodmark.harness.cluster.ports import LOWEST
from floodmark.harness.cluster.simulated import guard
from floodmark.harness.cluster.simulated.broker_runtime import BrokerRuntime, terminate
from floodmark.harness.cluster.simulated.loop import ProcessLoop
from floodmark.harness.cluster.simulated.network import Network, pairs_of
from floodmark.harness.cluster.simulated.scheduler import KILLED, Process, Scheduler
from floodmark.harness.cluster.system import PowerLoss, System
from floodmark.harness.cluster.waiting import wait_until
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.forked_child import result_of_child
from floodmark.harness.protocols import BadDisks, Clocks, MemoryLimits, Packets

NAME = "simulated"
EXIT_CANCELLED = 70
KILL_S = 0.002  # that a kill takes: what the process had sent has mostly arrived then
_NOT_HERE = "the simulated cluster has no {}: use --cluster containers"
LACKS: Mapping[type, str] = {
    BadDisks: _NOT_HERE.format("disks that could fail or be damaged"),
    Clocks: _NOT_HERE.format("wall clocks that could be set"),
    MemoryLimits: _NOT_HERE.format("processes whose memory could be limited"),
    Packets: _NOT_HERE.format("packets that could be lost or late"),
}
Result = TypeVar("Result")


def simulated_cluster(folder: Path, system: System, *, links: str, first_port: int | None = None,
                      trace: bool = True) -> BrokerCluster:
    """Makes a simulated cluster; it is not started."""
    del links  # all can be cut
    if system.software is not None:
        raise UsageError("Apache Kafka cannot be simulated: --cluster local")
    simulation = Simulation()

    async def build() -> House:
        layout = lay_out(
            folder, system.ids, proxied=False, ports=Ports(), first_port=first_port, trace=trace)
        place = SimulatedPlace(layout, simulation, system.power)
        return House(layout=layout, hosts=place, network=place, disks=place, close=lambda: None)

    return BrokerCluster(NAME, system, build, house_abilities=(simulation,), lacks=LACKS)


class Ports:
    """Port numbers, which nobody binds; see harness.cluster.ports."""

    def __init__(self) -> None:
        self._next = itertools.count(LOWEST)

    def choose(self) -> int:
        return next(self._next)

    def take(self, port: int) -> int:
        return port


class Simulation:
    """Carries out a run on virtual time; see harness.protocols: Simulates and Resets."""

    scheduler: Scheduler
    network: Network

    async def simulate(self, seed: int, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        return await result_of_child(lambda interruptible: self._run(seed, make, interruptible))

    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int:
        return self.network.reset(pairs_of(grudge))

    def _run(self, seed: int, make: Callable[[], Coroutine[Any, Any, Result]],
             interruptible: Callable[[Callable[[], None]], None]) -> Result:
        scheduler = self.scheduler = Scheduler(seed)
        network = ProcessLoop.network = self.network = Network(scheduler)
        broker_runtime.current = BrokerRuntime(scheduler, network)
        runtime.current = HarnessRuntime(scheduler)
        guard.install(scheduler)
        tasks: list[asyncio.Task[Result]] = []

        async def main() -> Result:
            task = asyncio.current_task()
            assert task is not None
            tasks.append(task)
            return await make()

        def interrupt() -> None:
            scheduler.interrupted = tasks[0].cancel

        interruptible(interrupt)
        return scheduler.run(main)


class HarnessRuntime:
    """See harness.runtime: Runtime."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._names = itertools.count(1)

    def monotonic_ns(self) -> int:
        return self._scheduler.now_ns

    def time_ns(self) -> int:
        return broker_runtime.current.time_ns()

    def token_hex(self, size: int) -> str:
        return f"{next(self._names):0{2 * size}x}"


class SimulatedPlace:
    """See harness.cluster.hosts: Hosts, Network and Disks."""

    why_not = None  # links can be cut
    lost = None
    faulted_exits: Sequence[FaultedExit] = ()

    def __init__(self, layout: Layout, simulation: Simulation, power: PowerLoss) -> None:
        self.expects_exit: ExpectsExit = expects_no_exit
        self.command: Command = no_command
        self.deaths: list[Death] = []
        self._layout, self._power = layout, power
        self._scheduler, self._network = simulation.scheduler, simulation.network
        self._processes: dict[str, Process] = {}
        self._wanted: dict[str, None] = {}  # processes whose end was requested

    # -- processes ----------------------------------------------------------------------------------------

    async def begin(self) -> None:
        pass

    async def spawn(self, name: str) -> None:
        if self.lives(name):
            raise FloodmarkError(f"cannot start {name}: it is running")
        config, _warnings = load_config(Path(self.command(name)[-1]), [])
        process = self._processes[name] = Process(self._scheduler, name)
        start = Start.now(self._layout.log_of(name))
        log = start.log.open("a", encoding="utf-8")
        self._wanted.pop(name, None)

        def write_line(text: str) -> None:
            log.write(text + "\n")
            log.flush()

        def on_end(code: int) -> None:
            if name not in self._wanted and not self.expects_exit(name, code):
                self.deaths.append(Death.now(name, exit_report(start, code)))

        def ended(task: asyncio.Task[int]) -> None:
            if process.alive:
                process.end(EXIT_CANCELLED if task.cancelled() or task.exception() else task.result())

        process.write_line, process.on_end = write_line, on_end
        with process.active():
            process.loop.create_task(run_process(config)).add_done_callback(ended)

    async def kill(self, name: str) -> None:
        if self.lives(name):
            process = self._processes[name]

            def end() -> None:
                if process.alive:
                    self._wanted[name] = None
                    process.end(KILLED)

            await process.strike(end)
            await asyncio.sleep(KILL_S)

    async def terminate(self, name: str, *, timeout_s: float) -> None:
        if not self.lives(name):
            return
        self._wanted[name] = None
        terminate(self._processes[name])

        async def runs() -> str | None:
            return "it runs" if self.lives(name) else None

        await wait_until(runs, f"{name} to stop after SIGTERM", timeout_s)

    async def pause(self, name: str) -> None:
        await (process := self._living(name, "pause")).strike(process.pause)

    async def resume(self, name: str) -> None:
        self._living(name, "resume").resume()

    def lives(self, name: str) -> bool:
        return name in self._processes and self._processes[name].alive

    def paused(self, name: str) -> bool:
        return self.lives(name) and self._processes[name].paused

    async def is_stopped(self, name: str) -> bool:
        return self.paused(name)

    def last_words(self, name: str) -> str:
        return last_words(self._layout.log_of(name))

    async def end(self) -> None:
        for name in self._processes:
            await self.kill(name)

    def _living(self, name: str, do: str) -> Process:
        if not self.lives(name):
            raise FloodmarkError(f"cannot {do} {name}: it is not running")
        return self._processes[name]

    # -- links --------------------------------------------------------------------------------------------

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool) -> None:
        self._network.cut(grudge, reset=reset)

    async def heal(self) -> None:
        self._network.heal()

    async def mend(self) -> list[str]:
        await self.heal()
        return []

    async def close(self) -> None:
        pass

    # -- disks --------------------------------------------------------------------------------------------

    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost:
        await self.kill(name)
        return self._power.power_cut(*self._files(name), keep=keep)

    async def wipe(self, name: str) -> Lost:
        return self._power.wipe(*self._files(name))

    async def log_dir(self, name: str) -> Path:
        return self._files(name)[1]

    async def read(self, name: str, file: str) -> str | None:
        try:
            return (self._files(name)[1] / file).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _files(self, name: str) -> tuple[Path, Path]:
        """A broker's side file of what is durable, and its log directory."""
        place = self._layout.places[name]
        assert place.durable is not None, "only brokers have one"
        return place.durable, place.log_dir
