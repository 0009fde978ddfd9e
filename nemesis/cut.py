"""Cuts the network by a grudge (which node does not hear which), and heals it."""

from collections.abc import Sequence

from floodmark.harness.protocols import CLIENTS, CONTROLLER, Cuts, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.grudges import apart


class Cut:
    """The grudge comes with the entry, its roles resolved; without one the struck nodes are cut from all the
    others and the controller (clients still reach them)."""

    answers = frozenset({"cut", "heal"})

    def __init__(self, cluster: Cuts, nodes: Sequence[str]) -> None:
        self._cluster = cluster
        self._all = (*nodes, CONTROLLER)

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        if entry.f == "heal":
            await self._cluster.heal()
            return Struck(nodes=())
        grudge = entry.args.get("grudge") or apart(nodes, self._all)
        await self._cluster.cut(grudge, reset=entry.args.get("reset", False))
        named = {*grudge, *(name for unheard in grudge.values() for name in unheard)}
        return Struck(nodes=tuple(sorted(named - {CLIENTS, CONTROLLER})), detail={"grudge": grudge})
