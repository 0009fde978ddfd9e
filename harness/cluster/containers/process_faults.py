"""Faults of single processes in containers: their wall clocks are shifted, their memory is limited.

Rules
1. Where clocks can be bumped (not with Apache Kafka) every process preloads libfaketime, which reads the
   offset from the file NAME.clock, replaced atomically, whenever the process asks for the time: a bump takes
   effect at once and outlives the broker. Monotonic clocks (of sessions, time-outs, the trace) do not change.
2. The kernel kills a broker that needs more than its limit; while the limit is in force such an end is
   excused. A limit below the memory in use ends it too: with control groups v1 the kernel refuses such a
   limit, so the broker is killed first.
3. There is no swap. Engines cannot remove a limit: it is ended by setting the kernel's highest value.
"""

import asyncio
import contextlib
import os
import time
from pathlib import Path

from docker.errors import APIError

from floodmark.harness.cluster.containers.engine_resources import EngineResources, PastFault
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run_location import replacing

TOLERANCE_MS = 900  # on a busy machine two readings may lie this far apart
# The time in ns as processes with and without the library see it.
_READ_BOTH_CLOCKS = ("sh", "-c", "date +%s%N; LD_PRELOAD= date +%s%N")
WHY = "memory limit"
LEAST_MB = 6  # Docker's own
KILL_S = 10
EVENT_S = 20.0  # from the kernel's kill to the engine's event
HIGHEST = (1 << 63) - 4096  # bytes: the full pages that fit the kernel's counter


class Clocks:
    """The brokers' wall clocks, see harness.protocols: Clocks."""

    def __init__(self, lab: EngineResources) -> None:
        self._lab = lab
        self._bumped: set[str] = set()

    async def bump(self, node: str, offset_ms: int) -> None:
        if not self._lab.clocks:
            raise FloodmarkError(f"the clock of {node} cannot be shifted: the cluster has no libfaketime")
        self._bumped.add(node)
        with replacing(self._file(node)) as new:
            new.write(f"{offset_ms / 1000:+.3f}\n".encode())
            os.fchmod(new.fileno(), 0o644)  # the broker is another user

    async def mend(self) -> list[str]:
        """Sets every clock right; returns a sentence for each that is still wrong."""
        bumped = sorted(self._bumped)
        for node in bumped:
            await self.bump(node, 0)
        offsets = dict(zip(bumped, await asyncio.gather(*map(self._offset_ms, bumped)), strict=True))
        self._bumped = {node for node, offset_ms in offsets.items() if abs(offset_ms) >= TOLERANCE_MS}
        return [f"the clock of {node} is off by {offsets[node]} ms" for node in sorted(self._bumped)]

    async def _offset_ms(self, node: str) -> int:
        """As another process in the broker's container sees it; if it is down, that of its file."""
        if not (await self._lab.inspect(node))["State"]["Running"]:
            return round(float(self._file(node).read_text(encoding="ascii")) * 1000)
        both = await self._lab.exec(self._lab.broker(node), _READ_BOTH_CLOCKS)
        shifted_ns, true_ns = map(int, both.split())
        return (shifted_ns - true_ns) // 1_000_000

    def _file(self, node: str) -> Path:
        return self._lab.work / f"{node}.clock"


class MemoryLimits:
    """The brokers' memory limits, see harness.protocols: MemoryLimits."""

    def __init__(self, lab: EngineResources) -> None:
        self._lab = lab
        self._limited: set[str] = set()

    async def limit(self, node: str, limit_mb: int | None) -> None:
        if limit_mb is None:
            await self._free(node)
            return
        if limit_mb < LEAST_MB:
            raise FloodmarkError(f"{node} cannot be limited to {limit_mb} MB: {LEAST_MB} MB is the least")
        self._limited.add(node)
        self._lab.excused.add((node, WHY))
        await self._lab.call(f"limit the memory of {node}", self._set, node, limit_mb << 20)

    async def resident_bytes(self) -> int:
        """See harness.protocols: ReportsMemory. Without files that the kernel could drop."""
        return sum(await asyncio.gather(*(self._lab.call(f"measure the memory of {name}", self._usage, name)
                                          for name in self._lab.names)))

    def _usage(self, name: str) -> int:
        try:
            stats = self._lab.client.api.stats(self._lab.broker(name), stream=False, one_shot=True)
        except APIError:
            return 0  # it does not run
        memory = stats.get("memory_stats") or {}
        return int(memory.get("usage", 0)) - int((memory.get("stats") or {}).get("inactive_file", 0))

    async def mend(self) -> list[str]:
        """Removes all limits, which would also hold at the next start; returns what is left."""
        limited = sorted(self._limited)
        await asyncio.gather(*map(self._free, limited))
        seen = await asyncio.gather(*map(self._lab.inspect, limited))
        left = [int(one["HostConfig"]["Memory"] or 0) for one in seen]  # 0: none
        return [f"the memory of {node} is limited to {limit >> 20} MB"
                for node, limit in zip(limited, left, strict=True) if 0 < limit < HIGHEST]

    async def _free(self, node: str) -> None:
        if node not in self._limited:
            return
        await self._lab.call(f"free the memory of {node}", self._set, node, HIGHEST)
        self._limited.discard(node)
        self._lab.past_faults[node, WHY] = PastFault(sign=None, until_s=time.monotonic() + EVENT_S)
        self._lab.excused.discard((node, WHY))

    def _set(self, node: str, limit: int) -> None:
        api, container = self._lab.client.api, self._lab.broker(node)
        try:
            api.update_container(container, mem_limit=limit, memswap_limit=limit)
        except APIError as error:
            # The messages of older and newer runc, if more is in use.
            refused = ("unable to set memory limit", "device or resource busy")
            if limit == HIGHEST or not any(words in str(error.explanation) for words in refused):
                raise
            with contextlib.suppress(APIError):  # it may have ended meanwhile, which wait reports
                api.kill(container, "SIGKILL")
            api.wait(container, timeout=KILL_S)
            api.update_container(container, mem_limit=limit, memswap_limit=limit)
