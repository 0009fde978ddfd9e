"""Shifts the wall clock of one broker, by libfaketime, which every broker container preloads.

Rules
1. A process reads its offset from FOLDER/work/NAME.clock whenever it asks for the time, so a bump takes
   effect at once and outlives the broker. The file is replaced atomically: a process never reads half an
   offset.
2. Monotonic clocks do not change: sessions, time-outs and the trace use them. The machine's own clock is
   never set.
"""

import asyncio
import os
from pathlib import Path

from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.errors import FloodmarkError

RIGHT_MS = 900  # tolerance: on a busy machine two readings may lie this far apart
# The time in ns as processes with and without the library see it.
_LOOK = ("sh", "-c", "date +%s%N; LD_PRELOAD= date +%s%N")


class Clocks:
    """The brokers' wall clocks, see harness.protocols: Clocks."""

    def __init__(self, lab: EngineResources) -> None:
        self._lab = lab
        self._bumped: set[str] = set()

    async def bump(self, node: str, offset_ms: int) -> None:
        if not self._lab.clocks:
            raise FloodmarkError(f"the clock of {node} cannot be shifted: the cluster has no libfaketime")
        self._bumped.add(node)
        _replace(self._file(node), f"{offset_ms / 1000:+.3f}\n")

    async def mend(self) -> list[str]:
        """Sets every clock right; returns a sentence for each that is still wrong."""
        bumped = sorted(self._bumped)
        for node in bumped:
            await self.bump(node, 0)
        offsets = dict(zip(bumped, await asyncio.gather(*map(self._offset_ms, bumped)), strict=True))
        self._bumped = {node for node, offset_ms in offsets.items() if abs(offset_ms) >= RIGHT_MS}
        return [f"the clock of {node} is off by {offsets[node]} ms" for node in sorted(self._bumped)]

    async def _offset_ms(self, node: str) -> int:
        """The clock's offset as another process in the broker's container sees it; if it is down, that of its
        file."""
        container = self._lab.broker(node)
        seen = await self._lab.call(f"look at {node}", self._lab.client.api.inspect_container, container)
        if not seen["State"]["Running"]:
            return round(float(self._file(node).read_text(encoding="ascii")) * 1000)
        shifted_ns, true_ns = map(int, (await self._lab.exec(container, _LOOK)).split())
        return (shifted_ns - true_ns) // 1_000_000

    def _file(self, node: str) -> Path:
        return self._lab.work / f"{node}.clock"


def _replace(file: Path, text: str) -> None:
    """Replaces the file; the broker, which is another user, must be able to read it."""
    new = file.with_suffix(".new")
    new.write_text(text, encoding="ascii")
    new.chmod(0o644)
    os.replace(new, file)
