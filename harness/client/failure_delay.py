"""Delays what a client answers after a definite failure, longer from one to the next.

So a partition without a leader gives slow, definite failures and no busy loop.
"""

import asyncio
from random import Random

from floodmark.harness.op import Outcome, Type


class FailureDelay:
    """Of one client. pause_s: the first wait and the longest, in seconds."""

    def __init__(self, pause_s: tuple[float, float], random: Random) -> None:
        self._first_s, self._longest_s = pause_s
        self._random = random
        self._failures = 0  # since the last answer that was none

    async def wait_after(self, outcome: Outcome) -> Outcome:
        """The outcome; a fail after the wait that is due."""
        if outcome.type is not Type.FAIL:
            self._failures = 0
            return outcome
        wait_s = min(self._longest_s, self._first_s * 2 ** min(self._failures, 16))
        self._failures += 1
        await asyncio.sleep(wait_s * self._random.uniform(0.5, 1.0))
        return outcome
