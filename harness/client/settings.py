"""Defines a client's settings, for any kind of connection to the brokers; delays its definite failures, each
in a row longer: so a partition without a leader causes no busy loop."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from floodmark.harness.op import Outcome, Type


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    run_id: str
    keys: Mapping[int, tuple[str, int]]  # the history's partition -> (topic, partition)
    without_headers: frozenset[int] = frozenset()  # partitions whose message format is v0 or v1
    acks: str = "all"
    request_timeout_s: float = 1.5
    produce_timeout_ms: int = 1000  # how long the leader waits for the ISR
    connect_timeout_s: float = 0.5
    metadata_timeout_s: float = 0.5
    fetch_wait_ms: int = 200
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 32 << 10  # of one partition
    lists_starts: bool = False  # list_offsets asks for the beginnings too
    compression: str = "none"  # of batches sent: none or gzip
    shares_requests: bool = False  # its sends go into Produce requests together with other processes' sends
    in_flight: int = 0  # most Produce requests in flight of an idempotent producer; 0: it is none
    pause_s: tuple[float, float] = (0.02, 0.4)  # after a definite failure: the first wait, the longest


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
