"""An event loop whose clock jumps: a sleep ends at once, and sleeps end in the order of their times. For code
that waits by the loop's clock alone, without sockets and threads: a busy machine changes nothing.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class JumpingLoop(asyncio.SelectorEventLoop):
    """now_s: its clock; a test may move it forward."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now_s


class _Selector(selectors.SelectSelector):
    """Jumps to the next time that somebody waits for, and never waits."""

    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now_s += timeout or 0.0
        return super().select(0)


def run_with_jumps(work: Coroutine[Any, Any, Result], loop: JumpingLoop | None = None) -> Result:
    with asyncio.Runner(loop_factory=lambda: loop or JumpingLoop()) as runner:
        return runner.run(work)
