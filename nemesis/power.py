"""Cuts the power of brokers: kills each at once, and drops the data that it had not fsynced."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from floodmark.harness.protocols import UNKNOWN, PowerCuts, Struck, View
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node


class Power:
    """Each log keeps what was fsynced; or at most `keep` (partition -> LEO); or the share `keep_share` of the
    log as observed right before. Several nodes lose power together."""

    answers = frozenset({"power_cut"})

    def __init__(self, cluster: PowerCuts, look: Callable[[], Awaitable[View]]) -> None:
        self._cluster = cluster
        self._look = look

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        keeps = await self._keeps(entry, nodes)

        async def cut(node: str) -> Mapping[str, Any]:
            return await self._cluster.power_cut(node, keep=keeps.get(node))

        lost = dict(zip(nodes, await on_each_node(cut, nodes), strict=True))
        ways = {node: one["how"] for node, one in lost.items() if "how" in one}
        return Struck(nodes=nodes, detail={
            **({"how": ways} if ways else {}),
            "kept": {node: {str(key): leo for key, leo in one.get("keep", {}).items()}
                     for node, one in lost.items()},
            "lost_records": {node: one.get("lost_records", 0) for node, one in lost.items()},
        })

    async def _keeps(self, entry: Entry, nodes: tuple[str, ...]) -> dict[str, dict[int, int]]:
        """node -> partition -> LEO to keep at most. A node that is missing keeps exactly what was fsynced."""
        if "keep" in entry.args:
            return {node: {int(key): leo for key, leo in entry.args["keep"].items()} for node in nodes}
        share = entry.args.get("keep_share")
        if share is None:
            return {}
        view = await self._look()
        keeps: dict[str, dict[int, int]] = {}
        for (node, partition), replica in view.replicas.items():
            if node in nodes and replica.leo is not UNKNOWN and replica.log_start is not UNKNOWN:
                records = replica.leo - replica.log_start
                keeps.setdefault(node, {})[partition] = replica.log_start + int(share * records)
        return keeps
