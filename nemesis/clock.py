"""Sets wall clocks wrong by `offset_ms` (clock), and right again (reset_clock)."""

from floodmark.harness.protocols import Clocks, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node


class Clock:
    """The clock jumps once and then runs at its pace; the offset always counts from the true time."""

    answers = frozenset({"clock", "reset_clock"})

    def __init__(self, cluster: Clocks) -> None:
        self._cluster = cluster

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        offset_ms: int = entry.args["offset_ms"] if entry.f == "clock" else 0
        await on_each_node(lambda node: self._cluster.bump(node, offset_ms), nodes)
        return Struck(nodes=nodes)
