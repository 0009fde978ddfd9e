"""Sets wall clocks off by `offset_ms`, and right again."""

from floodmark.harness.protocols import Clocks, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node


class Clock:
    """The clock jumps once and then goes on at its pace; a second strike counts from the true time, too."""

    answers = frozenset({"clock", "reset_clock"})

    def __init__(self, cluster: Clocks) -> None:
        self._cluster = cluster

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        offset_ms: int = entry.args["offset_ms"] if entry.f == "clock" else 0
        await on_each_node(lambda node: self._cluster.bump(node, offset_ms), nodes)
        return Struck(nodes=nodes)
