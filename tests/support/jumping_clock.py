"""Runs a coroutine on an event loop whose clock jumps: a sleep ends at once, sleeps end in the order of their
times. For code that waits by the loop's clock alone, without sockets and threads: a busy machine changes
nothing.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_with_jumps(work: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now_s


class _Selector(selectors.SelectSelector):
    """Jumps to the next time that somebody waits for, and never waits."""

    def __init__(self, loop: _Loop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now_s += timeout or 0.0
        return super().select(0 if timeout is not None else None)
