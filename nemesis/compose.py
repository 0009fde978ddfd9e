"""Joins several nemeses into one, and builds all those that a cluster can suffer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from floodmark.harness.faults import FAULTS
from floodmark.harness.protocols import (
    BadDisks,
    Clocks,
    Cluster,
    Cuts,
    Elects,
    ElectsReplica,
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
    ability,
    why_not,
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
    """Passes each entry to the nemesis that carries out its f. No two nemeses may have the same f."""

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
    """Every nemesis for which this cluster has the ability."""
    return tuple(nemesis for kind, made in _MAKERS if (part := ability(cluster, kind)) is not None
                 for nemesis in [made(part, cluster)])


def unavailable(cluster: Cluster) -> Mapping[str, str]:
    """f -> the reason why this cluster cannot suffer it."""
    return {f: why_not(cluster, kind) for kind, fs in _FAULTS_OF.items()
            if ability(cluster, kind) is None for f in sorted(fs)}


# Builds each nemesis from the ability that it needs, and from the cluster if it needs more.
_MAKERS: tuple[tuple[type, Callable[[Any, Cluster], Nemesis]], ...] = (
    (Kills, lambda part, _: Crash(part)),
    (Pauses, lambda part, _: Pause(part)),
    (Cuts, lambda part, cluster: Cut(part, cluster.nodes)),
    (PowerCuts, lambda part, cluster: Power(part, cluster.observe)),
    (Expires, lambda part, _: Expire(part)),
    (Elects, lambda part, cluster: Elect(part, ability(cluster, ElectsReplica))),
    (Wipes, lambda part, cluster: Disk(part, ability(cluster, BadDisks))),
    (Failpoints, lambda part, _: Failpoint(part)),
    (Packets, lambda part, cluster: Packet(part, cluster.nodes)),
    (Resets, lambda part, cluster: Reset(part, cluster.nodes)),
    (Clocks, lambda part, _: Clock(part)),
    (MemoryLimits, lambda part, _: Memory(part)),
)
_FAULTS_OF: Mapping[type, frozenset[str]] = {
    Kills: Crash.answers, Pauses: Pause.answers, Cuts: Cut.answers, PowerCuts: Power.answers,
    Expires: Expire.answers, Elects: Elect.answers, Wipes: frozenset({"disk"}),
    BadDisks: frozenset({"bad_disk", "mend_disk"}), Failpoints: Failpoint.answers, Packets: Packet.answers,
    Resets: Reset.answers, Clocks: Clock.answers, MemoryLimits: Memory.answers,
}
assert frozenset().union(*_FAULTS_OF.values()) == frozenset(FAULTS), "a fault that nobody can strike"
