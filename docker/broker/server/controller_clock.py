"""Measures the controller's time without the time in which the controller itself did not run.

A controller that was stopped (SIGSTOP), starved or busy has received no heartbeats, and must not end every
session because of that: sessions measure the silence of brokers, not its own pauses.
"""

from collections.abc import Callable


class ControllerClock:
    """A clock in milliseconds that never jumps: of a gap between two readings it counts only `longest_ms`. A
    controller that runs must read it more often than that."""

    def __init__(self, monotonic_ms: Callable[[], int], longest_ms: int) -> None:
        self._monotonic_ms = monotonic_ms
        self._longest_ms = longest_ms
        self._seen_ms = monotonic_ms()
        self.away_ms = 0  # not counted so far

    def now_ms(self) -> int:
        seen_ms = self._monotonic_ms()
        gap_ms = seen_ms - self._seen_ms
        self._seen_ms = seen_ms
        if gap_ms > self._longest_ms:
            self.away_ms += gap_ms - self._longest_ms
        return seen_ms - self.away_ms
