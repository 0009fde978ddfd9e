"""Polls a condition until it holds; says what it waited for if its time-out passes first."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from floodmark.harness.errors import FloodmarkError

POLL_S = 0.02


async def wait_until(unmet: Callable[[], Awaitable[str | None]], what: str, timeout_s: float) -> None:
    """Look again and again until nothing is unmet. FloodmarkError with what was last."""
    deadline = time.monotonic() + timeout_s
    while (why := await unmet()) is not None:
        if time.monotonic() > deadline:
            raise FloodmarkError(f"waited {timeout_s:g} s for {what}: {why}")
        await asyncio.sleep(POLL_S)
