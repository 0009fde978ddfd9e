"""Ends brokers' sessions: a failover comes at a moment instead of in a race."""

from floodmark.harness.protocols import Expires, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node


class Expire:
    """The broker lives on, fenced, until it hears of it and registers anew. Nothing lasts."""

    answers = frozenset({"expire"})

    def __init__(self, cluster: Expires) -> None:
        self._cluster = cluster

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        await on_each_node(self._cluster.expire, nodes)
        return Struck(nodes=nodes)
