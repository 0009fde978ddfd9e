"""Limits the memory of one broker while it runs, by the kernel's control group of its container.

Rules
1. A broker that needs more than its limit is ended by the kernel; while the limit lasts such an end is
   excused. It may be started again under the limit.
2. A limit below what it holds already ends it, too. The kernel of control groups v2 does that by itself;
   that of v1 refuses such a limit, so there the broker is killed first.
3. There is no swap to go to. Engines lift no limit, once set: what ends it is the kernel's own highest, which
   is what containers without a limit have.
"""

import asyncio
import contextlib
from collections.abc import MutableMapping
from typing import Any

from docker.errors import APIError

from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.errors import FloodmarkError

WHY = "memory limit"
LEAST_MB = 6  # Docker's own
KILL_S = 10
HIGHEST = (1 << 63) - 4096  # bytes: the whole pages that fit the kernel's counter


class MemoryLimits:
    """See harness.protocols: MemoryLimits. excused: broker whose end is expected -> why; shared with whoever
    watches them."""

    def __init__(self, lab: EngineResources, excused: MutableMapping[str, str]) -> None:
        self._lab = lab
        self._excused = excused
        self._limited: set[str] = set()

    async def limit(self, node: str, limit_mb: int | None) -> None:
        if limit_mb is None:
            await self._free(node)
            return
        if limit_mb < LEAST_MB:
            raise FloodmarkError(f"{node} cannot be limited to {limit_mb} MB: {LEAST_MB} MB is the least")
        self._limited.add(node)
        self._excused[node] = WHY
        await self._lab.call(f"limit the memory of {node}", self._set, node, limit_mb << 20)

    async def mend(self) -> list[str]:
        """No limits any more; names those that there are, for all that."""
        limited = sorted(self._limited)
        await asyncio.gather(*map(self._free, limited))
        left = await asyncio.gather(*map(self._limit_of, limited))
        return [f"the memory of {node} is limited to {limit >> 20} MB"
                for node, limit in zip(limited, left, strict=True) if 0 < limit < HIGHEST]

    async def _free(self, node: str) -> None:
        if node not in self._limited:
            return
        await self._lab.call(f"free the memory of {node}", self._set, node, HIGHEST)
        self._limited.discard(node)
        if self._excused.get(node) == WHY:
            del self._excused[node]

    def _set(self, node: str, limit: int) -> None:
        api, container = self._lab.client.api, self._lab.broker(node)
        try:
            api.update_container(container, mem_limit=limit, memswap_limit=limit)
        except APIError as error:
            if limit == HIGHEST or not _holds_more(error):
                raise
            with contextlib.suppress(APIError):  # it may have ended meanwhile, as wait will tell
                api.kill(container, "SIGKILL")
            api.wait(container, timeout=KILL_S)
            api.update_container(container, mem_limit=limit, memswap_limit=limit)

    async def _limit_of(self, node: str) -> int:
        """In bytes, as the engine will have it at the next start, too; 0: none."""
        seen: dict[str, Any] = await self._lab.call(
            f"look at {node}", self._lab.client.api.inspect_container, self._lab.broker(node))
        return int(seen["HostConfig"]["Memory"] or 0)


def _holds_more(error: APIError) -> bool:
    """Whether the kernel refused the limit because more is in use: in the words of runc, older and newer."""
    said = str(error.explanation)
    return "unable to set memory limit" in said or "device or resource busy" in said
