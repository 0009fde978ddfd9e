"""The simulated place: the shipped broker and controller, in this process, on virtual time.

Rules
1. Processes and links are those of scheduler.py and network.py; files are real ones in the run's folder.
2. A power cut drops what the broker's side file does not say is durable, as on loopback.
3. A run is a forked child, which ends by os._exit: so nothing that a killed broker had is ever finished.
"""

import asyncio
import itertools
import signal
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

# Every run writes dumps: imported once, not in each child.
import pyarrow.compute
import pyarrow.json
import pyarrow.parquet  # noqa: F401

from floodmark.broker import runtime as broker_runtime
from floodmark.broker.server.config import load_config
from floodmark.broker.server.process import run_process
from floodmark.broker.wire import api_keys, codec
from floodmark.harness import runtime
from floodmark.harness.cluster.broker_cluster import System, only_in_containers
from floodmark.harness.cluster.layout import LOWEST, NOT_STARTED, Address, lay_out
from floodmark.harness.cluster.log_extents import Lost, wipe
from floodmark.harness.cluster.processes import KILL_S, Death, Start, exit_report, last_words
from floodmark.harness.cluster.simulated import guard
from floodmark.harness.cluster.simulated.network import Network, Transport
from floodmark.harness.cluster.simulated.scheduler import (
    BEGINS_AT_NS,
    KILLED,
    Event,
    Process,
    ProcessLoop,
    Scheduler,
)
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import wait_until
from floodmark.harness.forked_child import result_of_child
from floodmark.harness.schedule.views import FailpointHit

EXIT_CANCELLED = 70
KILL_TAKES_S = 0.002  # that a kill takes: what the process had sent has mostly arrived then
Result = TypeVar("Result")


# What every run speaks: kio's classes are imported, and made readers and writers, once and not in each child.
for _key, _version in ((api_keys.PRODUCE, 9), (api_keys.FETCH, 12), (api_keys.FETCH, 15),
                       (api_keys.LIST_OFFSETS, 7), (api_keys.METADATA, 9), (api_keys.API_VERSIONS, 0),
                       (api_keys.CREATE_TOPICS, 4), (api_keys.CREATE_TOPICS, 7), (api_keys.ELECT_LEADERS, 2),
                       (api_keys.ALTER_PARTITION, 3), (api_keys.BROKER_REGISTRATION, 4),
                       (api_keys.BROKER_HEARTBEAT, 1)):
    codec.prepare(_key, _version)


class Ports:
    """Port numbers, which nobody binds; see harness.cluster.layout: ChoosesPorts."""

    def __init__(self) -> None:
        self._next = itertools.count(LOWEST)

    def choose(self) -> int:
        return next(self._next)

    def take(self, port: int) -> int:
        return port


class Simulation:
    """On virtual time; see harness.protocols: Simulates."""

    scheduler: Scheduler
    network: Network

    async def simulate(self, seed: int, make: Callable[[], Coroutine[Any, Any, Result]], *,
                       duration_s: float = 0.0, ops: float = 0.0) -> Result:
        return await result_of_child(lambda interruptible: self._run(
            Scheduler(seed, duration_s=duration_s, ops=ops), make, interruptible))

    def _run(self, scheduler: Scheduler, make: Callable[[], Coroutine[Any, Any, Result]],
             interruptible: Callable[[Callable[[], None]], None]) -> Result:
        self.scheduler = scheduler
        network = ProcessLoop.network = self.network = Network(scheduler)
        runtime.current = broker_runtime.current = SimulatedRuntime(scheduler, network)
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


class SimulatedRuntime:
    """What brokers and harness take from their surroundings; see floodmark.broker.runtime: Runtime, and
    harness.runtime: Runtime. One for all processes: it answers for the one that runs."""

    def __init__(self, scheduler: Scheduler, network: Network) -> None:
        self._scheduler, self._network = scheduler, network
        self._names = itertools.count(1)
        self.before_effect = scheduler.before_effect

    def monotonic_ns(self) -> int:
        return self._scheduler.now_ns

    def time_ns(self) -> int:
        return BEGINS_AT_NS + self._scheduler.now_ns

    def token_hex(self, size: int) -> str:
        return f"{next(self._names):0{2 * size}x}"

    def new_uuid(self) -> uuid.UUID:
        drawn = self._scheduler.streams.of("uuid", self._process.name).getrandbits(128)
        return uuid.UUID(int=drawn, version=4)

    def write_line(self, text: str) -> None:
        self._process.write_line(text)

    def call_before_halt(self, act: Callable[[str], None]) -> None:
        self._process.before_halt.append(act)

    def calls_before_halt(self) -> Sequence[Callable[[str], None]]:
        return self._process.before_halt

    def exit(self, code: int) -> NoReturn:
        self._process.end(code)
        self._scheduler.stop_running()
        raise AssertionError("a process that has ended goes on")

    def kill(self) -> NoReturn:
        self.exit(KILLED)

    def new_event(self) -> Event:
        return Event(self._scheduler)

    @contextmanager
    def end_at_signals(self) -> Iterator[None]:
        process = self._process
        process.ends_at_signals = True
        yield
        process.ends_at_signals = False

    def serve_lines(self, address: Address, _allows: Callable[[str], bool], answer: Callable[[bytes], bytes]
                    ) -> Callable[[], None]:
        process = self._process
        return self._network.listen(process, lambda: _Lines(process, answer), address, control=True).close

    @property
    def _process(self) -> Process:
        return self._scheduler.running


class _Lines(asyncio.Protocol):
    """A connection of lines; each is answered on a thread of its own, in order."""

    def __init__(self, process: Process, answer: Callable[[bytes], bytes]) -> None:
        self._process, self._answer = process, answer
        self._transport: Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._process.start_thread(lambda line=line: self._serve(line))  # type: ignore[misc]

    def _serve(self, line: bytes) -> None:
        answer = self._answer(line)
        if self._transport is not None:
            self._transport.write(answer)


class SimulatedPlace:
    """See harness.cluster.broker_cluster: Place, and harness.protocols: Resets."""

    name = "simulated"
    cannot = only_in_containers("simulated")
    read = None
    faulted_exits: Sequence[FailpointHit] = ()

    def __init__(self, folder: Path, system: System, *, links: str, first_port: int | None = None,
                 trace: bool = True) -> None:
        del links  # all can be cut
        self.layout = NOT_STARTED
        self.deaths: list[Death] = []
        self.lost: str | None = None
        self._simulation = Simulation()
        self.can = (self._simulation,)
        self._folder, self._system, self._first_port, self._trace = folder, system, first_port, trace
        self._processes: dict[str, Process] = {}
        self._wanted: dict[str, None] = {}  # processes whose end was requested

    async def open(self) -> None:
        self.layout = lay_out(self._folder, self._system.ids, proxied=False, ports=Ports(),
                              first_port=self._first_port, trace=self._trace)

    async def begin(self) -> None:
        def give_up(why: str) -> None:
            self.lost = why
            for process in self._processes.values():
                process.end(KILLED)

        self._simulation.scheduler.give_up = give_up

    async def mend(self) -> list[str]:
        await self.heal()
        return []

    async def close(self) -> None:
        for name in self._processes:
            await self.kill(name)

    async def spawn(self, name: str) -> None:
        if self.lives(name):
            raise FloodmarkError(f"cannot start {name}: it is running")
        if self.lost is not None:
            raise FloodmarkError(f"cannot start {name}: the simulation was stopped")
        config, _warnings = load_config(Path(self._system.command(name)[-1]), [])
        process = self._processes[name] = Process(self._simulation.scheduler, name)
        start = Start.now(self.layout.log_of(name))
        log = start.log.open("a", encoding="utf-8")
        self._wanted.pop(name, None)

        def write_line(text: str) -> None:
            log.write(text + "\n")
            log.flush()

        def on_end(code: int) -> None:
            expected = name in self._wanted or self._system.expects_exit(name, code)
            if self.lost is None and not expected:
                self.deaths.append(Death.now(name, exit_report(start, code)))

        def ended(task: asyncio.Task[int]) -> None:
            if process.alive:
                process.end(EXIT_CANCELLED if task.cancelled() or task.exception() else task.result())

        process.write_line, process.on_end = write_line, on_end
        with process.active():
            process.loop.create_task(run_process(config)).add_done_callback(ended)

    async def kill(self, name: str, by: signal.Signals = signal.SIGKILL, *, timeout_s: float = KILL_S
                   ) -> None:
        if not self.lives(name):
            return
        process = self._processes[name]

        def end() -> None:
            if process.alive:
                self._wanted[name] = None
                process.end(-by)

        async def runs() -> str | None:
            return "it runs" if self.lives(name) else None

        if by is signal.SIGKILL:
            await process.strike(end)
            await asyncio.sleep(KILL_TAKES_S)
            return
        handler = process.signals.get(by)
        if handler is None or process.ends_at_signals:
            end()
        else:
            self._wanted[name] = None
            process.loop.call_soon(handler)
        await wait_until(runs, f"{name} to stop after {by.name}", timeout_s)

    async def pause(self, node: str) -> None:
        if not self.lives(node):
            raise FloodmarkError(f"cannot pause {node}: it is not running")
        process = self._processes[node]
        await process.strike(process.pause)

    async def resume(self, node: str) -> None:
        if self.lives(node):
            self._processes[node].resume()

    def lives(self, name: str) -> bool:
        return name in self._processes and self._processes[name].alive

    def paused(self, name: str) -> bool:
        return self.lives(name) and self._processes[name].paused

    async def is_stopped(self, name: str) -> bool:
        return self.paused(name)

    def last_words(self, name: str) -> str:
        return last_words(self.layout.log_of(name))

    async def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool = False) -> None:
        pairs = self.layout.pairs_of(grudge)
        self._simulation.network.cut(pairs, reset=reset)

    async def heal(self) -> None:
        self._simulation.network.heal()

    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int:
        pairs = self.layout.pairs_of(grudge)
        return self._simulation.network.reset(pairs)

    async def power_cut(self, name: str, keep: Mapping[str, int] | None) -> Lost:
        await self.kill(name)
        return self._system.power.power_cut(*self.layout.disk_of(name), keep=keep)

    async def wipe(self, name: str) -> Lost:
        return wipe(self._system.power, *self.layout.disk_of(name))

    async def log_dir(self, node: str) -> Path:
        return self.layout.of(node).log_dir
