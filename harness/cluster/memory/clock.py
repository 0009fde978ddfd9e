"""Reads the time and sets timers for the cluster in memory: nothing else in this package does."""

import asyncio
import time
from collections.abc import Callable

Act = Callable[[], None]


class Clock:
    """Real time, and the running event loop's timers."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def soon(self, act: Act) -> None:
        """Runs `act` after everything that is already scheduled, in order."""
        asyncio.get_running_loop().call_soon(act)

    def later(self, delay_s: float, act: Act) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, act)
