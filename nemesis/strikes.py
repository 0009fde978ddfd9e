"""Carries out floodmark's faults: for each, the ability that a cluster needs for it, and its strike.

Each strike says how the entry's arguments become calls of the ability, and what the history has of it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS
from floodmark.harness.gathering import gather_all
from floodmark.harness.protocols import (
    CLIENTS,
    CONTROLLER,
    UNKNOWN,
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
from floodmark.harness.schedule.json_form import QUALITIES
from floodmark.nemesis.grudges import apart

WIPED = "wiped"
Nodes = tuple[str, ...]
Strike = Callable[[Any, Cluster, Entry, Nodes], Awaitable[Struck]]  # what has the ability comes first


class Strikes:
    """Carries out every fault for which this cluster has the ability."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._able = {f: able for f, (kind, _) in STRIKES.items()
                      if (able := ability(cluster, kind)) is not None}

    @property
    def answers(self) -> frozenset[str]:
        return frozenset(self._able)

    async def strike(self, entry: Entry, nodes: Nodes) -> Struck:
        return await STRIKES[entry.f][1](self._able[entry.f], self._cluster, entry, nodes)


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

    async def strike(self, entry: Entry, nodes: Nodes) -> Struck:
        return await self._by_f[entry.f].strike(entry, nodes)


def unavailable(cluster: Cluster) -> Mapping[str, str]:
    """f -> the reason why this cluster cannot suffer it."""
    return {f: why_not(cluster, kind) for f, (kind, _) in STRIKES.items() if ability(cluster, kind) is None}


def _on_each(act: Callable[[Any, Entry], Callable[[str], Awaitable[object]]]) -> Strike:
    """All nodes at once. All calls end before the first error is raised."""

    async def strike(able: Any, _: Cluster, entry: Entry, nodes: Nodes) -> Struck:
        await gather_all(map(act(able, entry), nodes))
        return Struck(nodes=nodes)

    return strike


# -- links --------------------------------------------------------------------------------------------------


async def _cut(able: Cuts, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    grudge = _grudge(cluster, entry, nodes)
    await able.cut(grudge, reset=entry.args.get("reset", False))
    return Struck(nodes=_named(grudge), detail={"grudge": grudge})


async def _heal(able: Cuts, _: Cluster, _entry: Entry, _nodes: Nodes) -> Struck:
    await able.heal()
    return Struck(nodes=())


async def _degrade(able: Packets, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    grudge = _grudge(cluster, entry, nodes)
    quality = {name: entry.args[name] for name in QUALITIES if name in entry.args}
    assert quality, entry.args
    await able.degrade(grudge, quality)
    return Struck(nodes=_named(grudge), detail={"grudge": grudge})


async def _reset(able: Resets, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    grudge = _grudge(cluster, entry, nodes)
    count = await able.reset(grudge)
    return Struck(nodes=_named(grudge), detail={"grudge": grudge, "connections": count})


def _grudge(cluster: Cluster, entry: Entry, nodes: Nodes) -> Mapping[str, Sequence[str]]:
    """That of the entry, its roles resolved; without one the struck nodes are apart from all the others and
    the controller (clients still reach them)."""
    grudge: Mapping[str, Sequence[str]] = entry.args.get("grudge") or apart(
        nodes, (*cluster.nodes, CONTROLLER))
    return grudge


def _named(grudge: Mapping[str, Sequence[str]]) -> Nodes:
    named = {*grudge, *(name for unheard in grudge.values() for name in unheard)}
    return tuple(sorted(named - {CLIENTS, CONTROLLER}))


# -- disks and power ----------------------------------------------------------------------------------------


async def _power_cut(able: PowerCuts, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    """Each log keeps what was fsynced; or at most `keep` (partition -> LEO); or the share `keep_share` of the
    log as observed right before. Several nodes lose power together."""
    keeps = await _keeps(cluster, entry, nodes)
    met = await gather_all(able.power_cut(node, keep=keeps.get(node)) for node in nodes)
    lost = dict(zip(nodes, met, strict=True))
    ways = {node: one["how"] for node, one in lost.items() if "how" in one}
    return Struck(nodes=nodes, detail={
        **({"how": ways} if ways else {}),
        "kept": {node: {str(key): leo for key, leo in one.get("keep", {}).items()}
                 for node, one in lost.items()},
        "lost_records": {node: one.get("lost_records", 0) for node, one in lost.items()},
    })


async def _keeps(cluster: Cluster, entry: Entry, nodes: Nodes) -> dict[str, dict[int, int]]:
    """node -> partition -> LEO to keep at most. A node that is missing keeps exactly what was fsynced."""
    if "keep" in entry.args:
        return {node: {int(key): leo for key, leo in entry.args["keep"].items()} for node in nodes}
    if "keep_share" not in entry.args:
        return {}
    share: float = entry.args["keep_share"]
    keeps: dict[str, dict[int, int]] = {}
    for (node, partition), replica in (await cluster.observe()).replicas.items():
        if node in nodes and replica.leo is not UNKNOWN and replica.log_start is not UNKNOWN:
            records = replica.leo - replica.log_start
            keeps.setdefault(node, {})[partition] = replica.log_start + int(share * records)
    return keeps


async def _harm_disk(_: Wipes | BadDisks, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    """wiped: the node is killed and its log directory emptied, as if its disk had been replaced. All other
    kinds need BadDisks: a damaged disk kills its node too, a bad one lasts until it is mended."""
    wipes, bad, kind = ability(cluster, Wipes), ability(cluster, BadDisks), entry.args["kind"]
    can = {*([WIPED] if wipes is not None else []), *(bad.kinds if bad is not None else [])}
    if kind not in can:
        raise FloodmarkError(f"the disks of this cluster cannot be {kind}; they can be "
                             f"{', '.join(sorted(can))}")
    met = await gather_all(
        wipes.wipe(node) if kind == WIPED else bad.harm(node, kind)  # type: ignore[union-attr]
        for node in nodes)
    detail: dict[str, dict[str, Any]] = {"lost_records": {}}
    for node, one in zip(nodes, met, strict=True):
        for word, value in {"lost_records": 0, **one}.items():
            detail.setdefault(word, {})[node] = value
    return Struck(nodes=nodes, detail=detail)


# -- the controller, and failpoints -------------------------------------------------------------------------


async def _elect(able: Elects, cluster: Cluster, entry: Entry, _: Nodes) -> Struck:
    """A refusal by the controller is recorded; it is no error."""
    partitions, unclean = entry.args.get("partitions", ()), entry.args.get("unclean", False)
    leader = entry.args.get("leader")
    if leader is None:
        return Struck(nodes=(), detail=await able.elect(partitions, unclean=unclean))
    of_replica = ability(cluster, ElectsReplica)
    assert of_replica is not None, "refused before the run"
    return Struck(nodes=(), detail=await of_replica.elect_replica(partitions, leader, unclean=unclean))


async def _release(able: Failpoints, _: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    released = await gather_all(able.release(node, entry.args.get("point")) for node in nodes)
    return Struck(nodes=nodes, detail={"released": dict(zip(nodes, released, strict=True))})


STRIKES: Mapping[str, tuple[type, Strike]] = {
    "kill": (Kills, _on_each(lambda able, _: able.kill)),
    "stop": (Kills, _on_each(lambda able, _: able.stop_node)),
    "start": (Kills, _on_each(lambda able, _: able.start_node)),
    "pause": (Pauses, _on_each(lambda able, _: able.pause)),
    "resume": (Pauses, _on_each(lambda able, _: able.resume)),
    "cut": (Cuts, _cut),
    "heal": (Cuts, _heal),
    "power_cut": (PowerCuts, _power_cut),
    "expire": (Expires, _on_each(lambda able, _: able.expire)),
    "elect": (Elects, _elect),
    "packet": (Packets, _degrade),
    "reset": (Resets, _reset),
    "disk": (Wipes, _harm_disk),
    "bad_disk": (BadDisks, _harm_disk),
    "mend_disk": (BadDisks, _on_each(lambda able, _: able.repair)),
    "clock": (Clocks, _on_each(lambda able, entry: lambda node: able.bump(node, entry.args["offset_ms"]))),
    "reset_clock": (Clocks, _on_each(lambda able, _: lambda node: able.bump(node, 0))),
    "memory": (MemoryLimits,
               _on_each(lambda able, entry: lambda node: able.limit(node, entry.args["limit_mb"]))),
    "free_memory": (MemoryLimits, _on_each(lambda able, _: lambda node: able.limit(node, None))),
    "arm": (Failpoints, _on_each(lambda able, entry: lambda node: able.arm(node, entry.args["point"]))),
    "release": (Failpoints, _release),
}
assert set(STRIKES) == set(FAULTS), "a fault that nobody can strike, or a strike that is no fault"
