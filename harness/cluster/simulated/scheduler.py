"""Virtual time, and the simulated processes that share it.

Rules
1. What happens next is the entry with the lowest (time, number) of one queue. Time moves from entry to entry;
   between two it stands still.
2. A broker's process is an event loop of its own. It can be stopped in the middle of a callback: by a
   failpoint that holds it, or before an effect (a write, an fsync, a send), which takes a drawn time. Another
   greenlet then takes the entries of the queue, and the stopped one goes on with them when its callback has
   ended. The process's other callbacks wait meanwhile, as those of a blocked thread do. A kill or a pause
   comes before a drawn one of its next effects, or between two callbacks where it has none soon.
3. Threads of a process (those that serve control requests) are entries too. They run while its main thread
   is blocked, and not while the process is paused.
4. A killed process runs nothing any more, not even a `finally` or a `__del__`: everything that it had is kept
   until the run is over, and the run's process ends by os._exit. Garbage is collected at given steps only.
5. A run does a bounded amount of work: its brokers end after most_steps steps, after CHECK_EVERY steps in
   which no time passes, and where one step takes STEP_CPU_S. Only that last end may differ for the same seed.
"""

import asyncio
import gc
import heapq
import itertools
import os
import signal
from asyncio import events
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, copy_context
from math import exp
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, cast

from greenlet import getcurrent, greenlet

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.schedule.views import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from floodmark.harness.cluster.simulated.network import Listener, Network, Transport

Result = TypeVar("Result")
Given = TypeVarTuple("Given")
Returned = TypeVar("Returned")
ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]
HARNESS = CLIENTS  # the process of the harness and its clients
BEGINS_NS = 1_000_000_000  # so that no time is 0
BEGINS_AT_NS = 1_700_000_000_000_000_000  # the wall clock at time 0
KILLED = -9
close_really = os.close  # guard.py replaces it
# (how many of a thousand take a time at all, its median in seconds); a process is stopped meanwhile.
EFFECTS = {"write": (30, 2e-5), "trace": (10, 1e-5), "send": (20, 2e-5), "fsync": (1000, 2e-4),
           "truncate": (1000, 2e-4)}
COLLECT_EVERY = 200_000  # steps
CHECK_EVERY = 50_000  # steps; a divisor of COLLECT_EVERY
STEPS_AT_LEAST, STEPS_PER_S, STEPS_PER_OP = 300_000, 10_000, 200  # healthy brokers take a fifth, at most
STEP_CPU_S = 30.0  # that one step of a broker may take of a real processor
STRIKE_PASSES = 8  # effects at most that a process still has after it was to be killed or paused
STRIKE_WITHIN_S = 0.01


class Streams:
    """What one link or node draws changes no draw of another: the n-th follows from seed, name and n."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[tuple[str, ...], Random] = {}

    def of(self, *name: str) -> Random:
        if (stream := self._streams.get(name)) is None:
            stream = self._streams[name] = Random("/".join((str(self._seed), *name)))
        return stream


class Wake:
    """A queued entry that starts a thread, or goes on where one was stopped."""

    __slots__ = ("act", "cancelled")

    def __init__(self, act: Callable[[], object]) -> None:
        self.act, self.cancelled = act, False


Entry = asyncio.Handle | Wake


class Scheduler:
    """The simulation of one run. `running`: the process whose code runs now, or ran last."""

    def __init__(self, seed: int, *, duration_s: float = 0.0, ops: float = 0.0) -> None:
        """duration_s and ops: the planned load, which the bound of the work depends on."""
        self.streams = Streams(seed)
        self.now_ns = BEGINS_NS
        self.steps = 0
        self.most_steps = STEPS_AT_LEAST + STEPS_PER_S * duration_s + STEPS_PER_OP * ops
        self.give_up: Callable[[str], None] = _raise  # ends all brokers; it gets the reason
        self._stepped: list[str] = []  # the process of each step since the latest check
        self._checked_ns = self._checked_steps = 0
        self._hub = getcurrent()
        self._idle: list[greenlet] = []  # they took entries until a stopped one went on
        self._task: asyncio.Task[Any]
        self.interrupted: Callable[[], object] | None = None  # called once, between two entries
        self.graveyard: list[object] = []
        self._queue: list[tuple[int, int, Process, Entry]] = []  # of later times: a heap
        self._now: deque[tuple[int, int, Process, Entry]] = deque()
        self._numbers = itertools.count()
        self.harness = self.running = Process(self, HARNESS)

    def push(self, at_ns: int, process: "Process", entry: Entry) -> None:
        if at_ns <= self.now_ns:
            self._now.append((self.now_ns, next(self._numbers), process, entry))
        else:
            heapq.heappush(self._queue, (at_ns, next(self._numbers), process, entry))

    def run(self, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        gc.freeze()
        gc.disable()
        events._set_running_loop(self.harness.loop)
        self._task = task = self.harness.loop.create_task(make())
        signal.signal(signal.SIGVTALRM, self._check_step)  # noqa: TID251 - no loop of asyncio waits for it
        signal.setitimer(signal.ITIMER_VIRTUAL, STEP_CPU_S, STEP_CPU_S)
        self.stop_running()
        result: Result = task.result()
        return result

    def _take_entries(self) -> None:
        """Runs in each greenlet until the harness's coroutine has ended; `run` goes on then."""
        queue, now, task, append_stepped = self._queue, self._now, self._task, self._stepped.append
        while not task.done():
            if now and not (queue and queue[0] < now[0]):
                _, _, process, entry = now.popleft()
            elif queue:
                self.now_ns, _, process, entry = heapq.heappop(queue)
            else:
                raise FloodmarkError(f"nothing happens any more at {self.now_ns} ns: {task!r} waits for ever")
            self.steps += 1
            append_stepped(process.name)
            if self.steps % CHECK_EVERY == 0:
                self._check()
            process.take(entry)
            if self.interrupted is not None:
                interrupt, self.interrupted = self.interrupted, None
                self.harness.loop.call_soon(interrupt)

    def stop_running(self) -> None:
        """Stop the running thread, until its `wake` is taken: another greenlet takes the entries."""
        if not self._idle:
            self._idle.append(greenlet(self._take_entries, self._hub))
            self.graveyard += self._idle  # it may stop for ever, and then nobody else has it
        self._idle.pop().switch()

    def wake(self) -> Wake:
        """An entry that goes on with the running thread, after it has stopped."""
        thread = getcurrent()

        def go_on() -> None:
            self._idle.append(getcurrent())
            thread.switch()

        return Wake(go_on)

    def _check(self) -> None:
        if self.steps % COLLECT_EVERY == 0:
            gc.collect()
        (busiest, steps), = Counter(self._stepped).most_common(1)
        if self.now_ns == self._checked_ns or self.steps > self.most_steps:
            took_s = (self.now_ns - self._checked_ns) / 1e9
            self._stop(f"after {self.steps:,} steps it does not come to rest: of the last {CHECK_EVERY:,}, "
                       f"in {took_s:.3f} s, {steps:,} were steps of {busiest}")
        self._checked_ns = self.now_ns
        self._stepped.clear()

    def _check_step(self, *_signal: object) -> None:
        """Every STEP_CPU_S. The harness's steps may take long: it reads and writes whole files."""
        process = self.running
        if self.steps > self._checked_steps or process is self.harness:
            self._checked_steps = self.steps
            return
        self._stop(f"one step of {process.name} had taken {STEP_CPU_S:g} s of a processor")
        self.stop_running()

    def _stop(self, why: str) -> None:
        """End the brokers, once; the harness then goes on to its end. Raises where that does not come."""
        give_up, self.give_up = self.give_up, _raise
        self.most_steps *= 2
        give_up(f"the simulation was stopped at {self.now_ns / 1e9:.3f} s: {why}")

    def pause_running(self, delay_ns: int) -> None:
        self.push(self.now_ns + delay_ns, self.running, self.wake())
        self.stop_running()

    def before_effect(self, kind: str) -> None:
        """Let the running process take the time of an effect, before it has happened."""
        process = self.running
        if process is self.harness:
            return
        if process.strikes:
            process.pass_effect()
        stream = self.streams.of(kind, process.name)
        often, median_s = EFFECTS[kind]
        draw, how_long = stream.random(), stream.gauss(0, 0.7)
        if draw * 1000 < often:
            self.pause_running(int(median_s * exp(how_long) * 1e9))


def _raise(why: str) -> NoReturn:
    raise FloodmarkError(why)


class Process:
    """One simulated process. Times and files are the scheduler's and the machine's."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler, self.name = scheduler, name
        self.loop: ProcessLoop = ProcessLoop(self)  # type: ignore[abstract] # nobody asks for the rest
        self.alive, self.paused, self.busy = True, False, False
        self.signals: dict[int, Callable[[], object]] = {}
        self.ends_at_signals = False  # whatever handlers it has
        self.strikes: list[Callable[[], None]] = []  # kills and pauses to come; each is told of an effect
        self.before_halt: list[Callable[[str], None]] = []
        self.descriptors: set[int] = set()
        self.listening: list[Listener] = []
        self.transports: dict[Transport, None] = {}
        self.on_end: Callable[[int], None] = lambda _code: None
        self.write_line: Callable[[str], None] = lambda _text: None
        self._waiting: deque[Entry] = deque()

    @contextmanager
    def active(self) -> "Iterator[None]":
        scheduler, loop = self.scheduler, events._get_running_loop()
        before, scheduler.running = scheduler.running, self
        events._set_running_loop(self.loop)
        try:
            yield
        finally:
            scheduler.running = before
            events._set_running_loop(loop)

    def take(self, entry: Entry) -> None:
        """Do this now, or when the process can."""
        if not self.alive:
            self.scheduler.graveyard.append(entry)
        elif isinstance(entry, Wake):
            if self.paused:
                self._waiting.append(entry)
            elif not entry.cancelled:
                self._begin_to_run()
                entry.act()
        elif not entry._cancelled:
            self._waiting.append(entry)
            if not self.busy:
                self._run_waiting()

    async def strike(self, act: Callable[[], None]) -> None:
        """Kill or pause it by this act before a drawn one of its next effects, soon in any case."""
        loop = asyncio.get_running_loop()
        passes = self.scheduler.streams.of("strike", self.name).randrange(-1, STRIKE_PASSES)
        if passes < 0 or self.paused:
            act()
            return
        struck: asyncio.Future[None] = loop.create_future()

        def do() -> None:
            if not struck.done():
                act()
                struck.set_result(None)

        def pass_effect() -> None:
            nonlocal passes
            passes -= 1
            if passes < 0:
                do()

        self.strikes.append(pass_effect)
        timer = loop.call_later(STRIKE_WITHIN_S, do)
        try:
            await struck
        finally:
            timer.cancel()
            self.strikes.remove(pass_effect)

    def pass_effect(self) -> None:
        for strike in self.strikes:
            strike()
        if not self.alive or self.paused:
            self.scheduler.pause_running(0)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Go on after a pause: threads first, in the order in which they would have gone on."""
        self.paused = False
        waiting, self._waiting = self._waiting, deque()
        for entry in sorted(waiting, key=lambda entry: not isinstance(entry, Wake)):
            self.scheduler.push(0, self, entry)

    def end(self, code: int) -> None:
        """It runs nothing any more; what it has written stays."""
        if not self.alive:
            return
        self.alive = False
        self.scheduler.graveyard += self, asyncio.all_tasks(self.loop)
        for descriptor in sorted(self.descriptors):
            close_really(descriptor)
        for listener in self.listening:
            listener.close()
        for transport in list(self.transports):
            transport.die()
        self.on_end(code)

    def start_thread(self, run: Callable[[], None], at_ns: int = 0) -> None:
        self.scheduler.push(at_ns, self, Wake(run))

    def _run_waiting(self) -> None:
        while self._waiting and self.alive and not self.paused:
            handle = cast(asyncio.Handle, self._waiting.popleft())
            if not handle._cancelled:
                self._begin_to_run()
                self.busy = True
                handle._run()
                self.busy = False

    def _begin_to_run(self) -> None:
        if self.scheduler.running is not self:
            self.scheduler.running = self
            events._set_running_loop(self.loop)


class Callback(asyncio.TimerHandle):
    """A handle without what asyncio does for debugging."""

    __slots__ = ()

    def __init__(self, callback: Callable[[*Given], object], args: tuple[*Given],
                 loop: asyncio.AbstractEventLoop, context: Context | None = None) -> None:
        self._callback, self._args, self._loop, self._cancelled = callback, args, loop, False
        self._context = copy_context() if context is None else context
        self._source_traceback = self._repr = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment] # as asyncio does: it never runs


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one process: callbacks go into the scheduler's queue. What it lacks, nothing that
    runs here may use: it raises NotImplementedError."""

    network: "Network"

    def __init__(self, process: Process) -> None:
        self.process = process
        self._scheduler = process.scheduler
        self._handler: ExceptionHandler | None = None

    def time(self) -> float:
        return self._scheduler.now_ns / 1e9

    def call_soon(self, callback: Callable[[*Given], object], *args: *Given, context: Context | None = None
                  ) -> asyncio.Handle:
        handle = Callback(callback, args, self, context)
        self._scheduler.push(0, self.process, handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[[*Given], object], *args: *Given,
                   context: Context | None = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[[*Given], object], *args: *Given,
                context: Context | None = None) -> asyncio.TimerHandle:
        handle = Callback(callback, args, self, context)
        self._scheduler.push(round(when * 1e9), self.process, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None
                    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Given], Returned], *args: *Given
                        ) -> asyncio.Future[Returned]:
        """Run it at once: a thread would take real time."""
        future: asyncio.Future[Returned] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        self._handler = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._handler is not None:
            self._handler(self, context)
        elif self.process.alive:
            raise context.get("exception") or RuntimeError(f"{self.process.name}: {context['message']}")

    def add_signal_handler(self, sig: int, callback: Callable[[*Given], object], *args: *Given) -> None:
        self.process.signals[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self.process.signals.pop(sig, None) is not None

    async def create_server(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **_besides: Any) -> "Listener":
        return self.network.listen(self.process, factory, (host, port))

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **_besides: Any
    ) -> "tuple[Transport, asyncio.Protocol]":
        return await self.network.connect(self.process, factory, (host, port))


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._set = scheduler, False
        self._waiters: list[tuple[Process, Wake]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for process, wake in self._waiters:
            self._scheduler.push(self._scheduler.now_ns, process, Wake(wake.act))
            wake.cancelled = True
        self._waiters.clear()

    def wait(self, timeout: float | None = None, /) -> bool:
        if not self._set:
            scheduler = self._scheduler
            wake = scheduler.wake()
            self._waiters.append((scheduler.running, wake))
            if timeout is not None:
                scheduler.push(scheduler.now_ns + round(timeout * 1e9), scheduler.running, wake)
            scheduler.stop_running()
            self._waiters = [(process, one) for process, one in self._waiters if one is not wake]
        return self._set
