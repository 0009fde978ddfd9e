"""Sessions ended at will: what makes a failover a moment instead of a race."""

from harness.protocols import Expires, Struck
from harness.schedule.entry import Entry
from nemesis.on_each_node import each


class Expire:
    """The broker lives on, fenced, until it hears of it and registers anew. Nothing lasts."""

    answers = frozenset({"expire"})

    def __init__(self, cluster: Expires) -> None:
        self._cluster = cluster

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        await each(self._cluster.expire, nodes)
        return Struck(nodes=nodes)
