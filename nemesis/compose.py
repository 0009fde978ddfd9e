"""Joins several nemeses into one, and builds all those that a cluster is able to suffer."""

from collections.abc import Sequence

from floodmark.harness.protocols import (
    BadDisks,
    Clocks,
    Cluster,
    Cuts,
    Elects,
    Expires,
    Failpoints,
    Kills,
    MemoryLimits,
    Nemesis,
    Packets,
    Pauses,
    PowerCuts,
    Resets,
    Struck,
    Wipes,
)
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.clock import Clock
from floodmark.nemesis.crash import Crash
from floodmark.nemesis.cut import Cut
from floodmark.nemesis.disk import Disk
from floodmark.nemesis.elect import Elect
from floodmark.nemesis.expire import Expire
from floodmark.nemesis.failpoint import Failpoint
from floodmark.nemesis.memory import Memory
from floodmark.nemesis.packet import Packet, Reset
from floodmark.nemesis.pause import Pause
from floodmark.nemesis.power import Power


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
    """Every nemesis whose ability this cluster has, itself or besides."""
    bad_disks = next((part for part in cluster.abilities if isinstance(part, BadDisks)), None)
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
        found.append(Disk(cluster, bad_disks))
    if isinstance(cluster, Failpoints):
        found.append(Failpoint(cluster))
    for part in cluster.abilities:
        found += _besides(part, cluster.nodes)
    return tuple(found)


def _besides(part: object, nodes: Sequence[str]) -> list[Nemesis]:
    """What one of a cluster's abilities lets it suffer."""
    found: list[Nemesis] = []
    if isinstance(part, Packets):
        found.append(Packet(part, nodes))
    if isinstance(part, Resets):
        found.append(Reset(part, nodes))
    if isinstance(part, Clocks):
        found.append(Clock(part))
    if isinstance(part, MemoryLimits):
        found.append(Memory(part))
    return found
