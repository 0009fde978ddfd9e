"""Ends brokers' sessions at the controller, so that a failover comes at a chosen moment."""

from floodmark.harness.protocols import Expires, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node


class Expire:
    """The broker stays alive, fenced, until its next heartbeat makes it register again. There is nothing to
    mend."""

    answers = frozenset({"expire"})

    def __init__(self, cluster: Expires) -> None:
        self._cluster = cluster

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        await on_each_node(self._cluster.expire, nodes)
        return Struck(nodes=nodes)
