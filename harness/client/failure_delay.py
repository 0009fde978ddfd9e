"""Delays a client's definite failures, with each failure in a row longer: so a partition without a leader
causes no busy loop.
"""

import asyncio
from random import Random

from floodmark.harness.op import Outcome, Type


class FailureDelay:
    """The delay of one client. pause_s: the first wait and the longest wait, in seconds."""

    def __init__(self, pause_s: tuple[float, float], random: Random) -> None:
        self._first_s, self._longest_s = pause_s
        self._random = random
        self._failures = 0  # in a row

    async def wait_after(self, outcome: Outcome) -> Outcome:
        """Return the outcome; wait before a fail."""
        if outcome.type is Type.FAIL:
            await self.wait()
        else:
            self._failures = 0
        return outcome

    async def wait(self) -> None:
        wait_s = min(self._longest_s, self._first_s * 2 ** min(self._failures, 16))
        self._failures += 1
        await asyncio.sleep(wait_s * self._random.uniform(0.5, 1.0))
