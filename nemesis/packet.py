"""Loses, delays or throttles packets until the next heal (packet); resets connections, once (reset)."""

from collections.abc import Mapping, Sequence

from floodmark.harness.protocols import CLIENTS, CONTROLLER, Packets, Resets, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.json_form import QUALITIES
from floodmark.nemesis.grudges import apart


class Packet:
    """The grudge comes with the entry, its roles resolved; without one the packets between the struck nodes
    and all others and the controller are affected (not those of clients). Cut carries out the heal."""

    answers = frozenset({"packet"})

    def __init__(self, cluster: Packets, nodes: Sequence[str]) -> None:
        self._cluster = cluster
        self._all = (*nodes, CONTROLLER)

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        grudge = _grudge(entry, nodes, self._all)
        quality = {name: entry.args[name] for name in QUALITIES if name in entry.args}
        assert quality, entry.args
        await self._cluster.degrade(grudge, quality)
        return Struck(nodes=_named(grudge), detail={"grudge": grudge})


class Reset:
    """Resets the connections between the nodes that Packet would choose, at both ends."""

    answers = frozenset({"reset"})

    def __init__(self, cluster: Resets, nodes: Sequence[str]) -> None:
        self._cluster = cluster
        self._all = (*nodes, CONTROLLER)

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        grudge = _grudge(entry, nodes, self._all)
        count = await self._cluster.reset(grudge)
        return Struck(nodes=_named(grudge), detail={"grudge": grudge, "connections": count})


def _grudge(entry: Entry, nodes: Sequence[str], everybody: Sequence[str]) -> Mapping[str, Sequence[str]]:
    grudge: Mapping[str, Sequence[str]] = entry.args.get("grudge") or apart(nodes, everybody)
    return grudge


def _named(grudge: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    named = {*grudge, *(name for unheard in grudge.values() for name in unheard)}
    return tuple(sorted(named - {CLIENTS, CONTROLLER}))
