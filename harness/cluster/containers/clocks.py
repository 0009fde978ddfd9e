"""Sets the wall clock of one broker off, by libfaketime, which every broker container preloads.

Rules
1. A process reads its offset from FOLDER/work/NAME.clock whenever it asks for the time, so a bump takes
   effect at once and outlives the broker. The file is replaced as a whole: nobody reads half an offset.
2. Monotonic clocks are left alone: sessions, time-outs and the trace go by those. The machine's own clock is
   never set.
"""

import asyncio
import os
from pathlib import Path

from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.errors import FloodmarkError

RIGHT_MS = 900  # off by less is right: on a busy machine so much may pass between two looks
# Nanoseconds as a process there sees them that preloads the library, and as one does that does not.
_LOOK = ("sh", "-c", "date +%s%N; LD_PRELOAD= date +%s%N")


class Clocks:
    """See harness.protocols: Clocks."""

    def __init__(self, lab: EngineResources) -> None:
        self._lab = lab
        self._bumped: set[str] = set()

    async def bump(self, node: str, offset_ms: int) -> None:
        if not self._lab.clocks:
            raise FloodmarkError(f"the clock of {node} cannot be set off: the cluster has no libfaketime")
        self._bumped.add(node)
        _replace(self._file(node), f"{offset_ms / 1000:+.3f}\n")

    async def mend(self) -> list[str]:
        """Every clock is right again; names those that are not, for all that."""
        bumped = sorted(self._bumped)
        for node in bumped:
            await self.bump(node, 0)
        off = dict(zip(bumped, await asyncio.gather(*map(self._off_ms, bumped)), strict=True))
        self._bumped = {node for node, off_ms in off.items() if abs(off_ms) >= RIGHT_MS}
        return [f"the clock of {node} is off by {off[node]} ms" for node in sorted(self._bumped)]

    async def _off_ms(self, node: str) -> int:
        """As a process beside the broker sees it; where none can be, as the next there will."""
        container = self._lab.broker(node)
        seen = await self._lab.call(f"look at {node}", self._lab.client.api.inspect_container, container)
        if not seen["State"]["Running"]:
            return round(float(self._file(node).read_text(encoding="ascii")) * 1000)
        bent_ns, true_ns = map(int, (await self._lab.exec(container, _LOOK)).split())
        return (bent_ns - true_ns) // 1_000_000

    def _file(self, node: str) -> Path:
        return self._lab.work / f"{node}.clock"


def _replace(file: Path, text: str) -> None:
    """The broker is another user, and must be able to read it."""
    new = file.with_suffix(".new")
    new.write_text(text, encoding="ascii")
    new.chmod(0o644)
    os.replace(new, file)
