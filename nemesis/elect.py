"""Asks for elections: preferred, unclean, or of one replica."""

from floodmark.harness.protocols import Elects, Struck
from floodmark.harness.schedule.entry import Entry


class Elect:
    """What the controller refused stands in the op's `fault`: no election is no error."""

    answers = frozenset({"elect"})

    def __init__(self, cluster: Elects) -> None:
        self._cluster = cluster

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        detail = await self._cluster.elect(
            entry.args.get("partitions", ()),
            unclean=entry.args.get("unclean", False),
            leader=entry.args.get("leader"),
        )
        return Struck(nodes=(), detail=detail)
