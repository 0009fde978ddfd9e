"""Several nemeses as one, and all those that a cluster is able to suffer."""

from collections.abc import Sequence

from harness.protocols import (
    Cluster,
    Cuts,
    Elects,
    Expires,
    Failpoints,
    Kills,
    Nemesis,
    Pauses,
    PowerCuts,
    Struck,
    Wipes,
)
from harness.schedule import Entry
from nemesis.crash import Crash
from nemesis.cut import Cut
from nemesis.disk import Disk
from nemesis.elect import Elect
from nemesis.expire import Expire
from nemesis.failpoint import Failpoint
from nemesis.pause import Pause
from nemesis.power import Power


class Composed:
    """Hands each entry to the one nemesis that answers its f. Two that answer the same f are a mistake."""

    def __init__(self, nemeses: Sequence[Nemesis]) -> None:
        self._by_f: dict[str, Nemesis] = {}
        for nemesis in nemeses:
            for f in sorted(nemesis.answers):
                assert f not in self._by_f, f"both {self._by_f[f]} and {nemesis} answer {f}"
                self._by_f[f] = nemesis

    @property
    def answers(self) -> frozenset[str]:
        return frozenset(self._by_f)

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        return await self._by_f[entry.f].strike(entry, nodes)


def arsenal(cluster: Cluster) -> tuple[Nemesis, ...]:
    """Every nemesis whose ability this cluster has."""
    found: list[Nemesis] = []
    if isinstance(cluster, Kills):
        found.append(Crash(cluster))
    if isinstance(cluster, Pauses):
        found.append(Pause(cluster))
    if isinstance(cluster, Cuts):
        found.append(Cut(cluster, cluster.nodes))
    if isinstance(cluster, PowerCuts):
        found.append(Power(cluster, cluster.observe))
    if isinstance(cluster, Expires):
        found.append(Expire(cluster))
    if isinstance(cluster, Elects):
        found.append(Elect(cluster))
    if isinstance(cluster, Wipes):
        found.append(Disk(cluster))
    if isinstance(cluster, Failpoints):
        found.append(Failpoint(cluster))
    return tuple(found)
