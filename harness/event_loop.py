"""Runs a coroutine in a loop of its own that signals cancel."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

Answer = TypeVar("Answer")


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
    """A context that restores SIGTERM's handler at its end. Use it around every event loop that handles the
    signal: after such a loop is closed, the signal would end the process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
