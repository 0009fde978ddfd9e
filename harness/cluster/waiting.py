"""Polls a condition until it is true; its time-out error says what it waited for."""

import asyncio
from collections.abc import Awaitable, Callable

from floodmark.harness import runtime
from floodmark.harness.errors import FloodmarkError

POLL_S = 0.02


async def wait_until(unmet: Callable[[], Awaitable[str | None]], awaited: str, timeout_s: float) -> None:
    """Polls until `unmet` returns None; FloodmarkError with its last reason at the time-out."""
    deadline = runtime.monotonic_s() + timeout_s
    while (why := await unmet()) is not None:
        if runtime.monotonic_s() > deadline:
            raise FloodmarkError(f"waited {timeout_s:g} s for {awaited}: {why}")
        await asyncio.sleep(POLL_S)
