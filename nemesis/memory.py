"""Limits brokers' memory to `limit_mb`, and frees it again."""

from floodmark.harness.protocols import MemoryLimits, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node


class Memory:
    """The kernel ends a broker that needs more memory; it stays down until it is started."""

    answers = frozenset({"memory", "free_memory"})

    def __init__(self, cluster: MemoryLimits) -> None:
        self._cluster = cluster

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        limit_mb: int | None = entry.args["limit_mb"] if entry.f == "memory" else None
        await on_each_node(lambda node: self._cluster.limit(node, limit_mb), nodes)
        return Struck(nodes=nodes)
