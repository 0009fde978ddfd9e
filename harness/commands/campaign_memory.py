"""Measures the memory that a run of a campaign has: the sum over its processes, at its highest."""

import asyncio
import os
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import Cluster, ReportsMemory, ability

T = TypeVar("T")

SAMPLE_S = 1.0
PROC = Path("/proc")


@dataclass(slots=True)
class MemoryWatch:
    """most_bytes: the highest sum so far."""

    most_bytes: int = 0

    async def over(self, cluster: Cluster, work: Awaitable[T]) -> T:
        """The result of the work, while which the memory of this process, of its descendants, and of the
        cluster's other processes, such as containers, is measured."""
        watching = asyncio.create_task(self._watch(cluster))
        try:
            return await work
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _watch(self, cluster: Cluster) -> None:
        others = ability(cluster, ReportsMemory)
        while True:
            found = await asyncio.to_thread(resident_bytes, os.getpid())
            if others is not None:
                with suppress(FloodmarkError):  # it was not started yet, or is gone
                    found += await others.resident_bytes()
            self.most_bytes = max(self.most_bytes, found)
            await asyncio.sleep(SAMPLE_S)


def resident_bytes(root: int) -> int:
    """The memory of this process and all its descendants. What several share is counted once."""
    return sum(_share_of(PROC / str(process)) for process in family_of(root))


def family_of(root: int) -> set[int]:
    """This process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended
                # pid (name, which may contain anything) state ppid ...
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _share_of(process: Path) -> int:
    """The bytes of its own, and its share of those that it shares; 0 where it has ended."""
    with suppress(OSError):
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0
