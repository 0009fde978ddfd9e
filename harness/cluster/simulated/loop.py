"""The event loop of one simulated process: what asyncio asks of a loop, on the scheduler's time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from floodmark.harness.cluster.simulated.network import Listener, Network, Transport
    from floodmark.harness.cluster.simulated.scheduler import Process

Given = TypeVarTuple("Given")
Returned = TypeVar("Returned")
ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class ProcessLoop(asyncio.AbstractEventLoop):
    """Callbacks go into the scheduler's queue. What this lacks, nothing that runs here may use: it raises
    NotImplementedError."""

    network: "Network"

    def __init__(self, process: "Process") -> None:
        self.process = process
        self._scheduler = process.scheduler
        self._handler: ExceptionHandler | None = None

    def time(self) -> float:
        return self._scheduler.now_ns / 1e9

    def call_soon(self, callback: Callable[[*Given], object], *args: *Given, context: Context | None = None
                  ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._scheduler.push(0, self.process, handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[[*Given], object], *args: *Given,
                   context: Context | None = None) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[[*Given], object], *args: *Given,
                context: Context | None = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._scheduler.push(round(when * 1e9), self.process, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # the scheduler skips it

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
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **_besides: Any
    ) -> "Listener":
        return self.network.listen(self.process, factory, (host, port))

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **_besides: Any
    ) -> "tuple[Transport, asyncio.Protocol]":
        return await self.network.connect(self.process, factory, (host, port))
