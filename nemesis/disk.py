"""Disks that lose what they held, fsynced or not: wiped."""

from harness.protocols import Struck, Wipes
from harness.schedule import Entry
from nemesis.each import each


class Disk:
    """The node is killed and its log directory emptied, as if its disk had been replaced."""

    answers = frozenset({"disk"})

    def __init__(self, cluster: Wipes) -> None:
        self._cluster = cluster

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        assert entry.args["kind"] == "wiped", entry.args
        lost = dict(zip(nodes, await each(self._cluster.wipe, nodes), strict=True))
        return Struck(nodes=nodes, detail={
            "lost_records": {node: one.get("lost_records", 0) for node, one in lost.items()}})
