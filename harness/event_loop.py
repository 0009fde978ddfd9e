"""Runs coroutines: one in a loop of its own, which signals cancel; several at once, until all have ended; one
question again and again, until it has its answer."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from floodmark.harness import runtime
from floodmark.harness.errors import FloodmarkError

Answer = TypeVar("Answer")
Item = TypeVar("Item")
POLL_S = 0.02


def run_loop(work: Coroutine[Any, Any, Answer], signals: Sequence[int] = (signal.SIGTERM,)) -> Answer:
    """Runs this in a loop of its own; these signals cancel it, as Ctrl-C does."""

    async def out() -> Answer:
        task = asyncio.current_task()
        assert task is not None
        for number in signals:
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    with sigterm_handler_restored():
        return asyncio.run(out())


@contextmanager
def sigterm_handler_restored() -> Iterator[None]:
    """Restores SIGTERM's handler at its end: after a loop that had one the signal would end the process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def gather_all(awaitables: Iterable[Awaitable[Answer]]) -> list[Answer]:
    """Await all; their results in order. The first error is raised when all have ended: none runs on."""
    outcomes = await asyncio.gather(*awaitables, return_exceptions=True)
    results: list[Answer] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results


async def work_through(items: Iterable[Item], work: Callable[[Item], Awaitable[None]], *, at_once: int
                       ) -> None:
    """Do this work for the items in order, at most `at_once` at the same time. After an error, or where this
    is cancelled, the present ones are cancelled and awaited, and no other begins."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    workers = [asyncio.create_task(worker()) for _ in range(at_once)]
    try:
        await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await end_all(workers)
    raise_first(workers)


async def end_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def raise_first(tasks: Collection[asyncio.Task[Any]]) -> None:
    errors = [task.exception() for task in tasks if not task.cancelled()]
    for error in filter(None, errors):
        raise error


async def wait_until(unmet: Callable[[], Awaitable[str | None]], awaited: str, timeout_s: float) -> None:
    """Polls until `unmet` returns None; FloodmarkError with its last reason at the time-out."""
    deadline = runtime.monotonic_s() + timeout_s
    while (why := await unmet()) is not None:
        if runtime.monotonic_s() > deadline:
            raise FloodmarkError(f"waited {timeout_s:g} s for {awaited}: {why}")
        await asyncio.sleep(POLL_S)
