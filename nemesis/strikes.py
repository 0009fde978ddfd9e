"""Carries out floodmark's faults on a cluster: by the methods that harness/faults.py names for them.

Most call their method once for each node. A strike of its own, here, has a fault that does more: how the
entry's arguments become calls, and what the history has of it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.event_loop import gather_all
from floodmark.harness.faults import FAULTS, QUALITIES
from floodmark.harness.protocols import (
    BadDisks,
    Cluster,
    ElectsReplica,
    Nemesis,
    Struck,
    Wipes,
    ability,
    method_for,
    needed_for,
    why_not,
)
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER, UNKNOWN
from floodmark.nemesis.grudges import apart

WIPED = "wiped"
Nodes = tuple[str, ...]
Method = Callable[..., Awaitable[Any]]  # of whatever has the fault's ability
Strike = Callable[[Method, Cluster, Entry, Nodes], Awaitable[Struck]]


class Strikes:
    """Carries out every fault for which this cluster has the ability."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._methods = {f: method for f in FAULTS if (method := method_for(cluster, f)) is not None}

    @property
    def answers(self) -> frozenset[str]:
        return frozenset(self._methods)

    async def strike(self, entry: Entry, nodes: Nodes) -> Struck:
        return await _STRIKES.get(entry.f, _on_each)(self._methods[entry.f], self._cluster, entry, nodes)


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
    return {f: why_not(cluster, needed_for(f)) for f in FAULTS if method_for(cluster, f) is None}


async def _on_each(method: Method, _: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    """All nodes at once. All calls end before the first error is raised."""
    passed = [entry.args.get(value) if isinstance(value, str) else value for value in FAULTS[entry.f].passes]
    await gather_all(method(node, *passed) for node in nodes)
    return Struck(nodes=nodes)


# -- links --------------------------------------------------------------------------------------------------


async def _cut(cut: Method, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    grudge = _grudge(cluster, entry, nodes)
    await cut(grudge, reset=entry.args.get("reset", False))
    return Struck(nodes=_named(grudge), detail={"grudge": grudge})


async def _heal(heal: Method, _: Cluster, _entry: Entry, _nodes: Nodes) -> Struck:
    await heal()
    return Struck(nodes=())


async def _degrade(degrade: Method, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    grudge = _grudge(cluster, entry, nodes)
    quality = {name: entry.args[name] for name in QUALITIES if name in entry.args}
    assert quality, entry.args
    await degrade(grudge, quality)
    return Struck(nodes=_named(grudge), detail={"grudge": grudge})


async def _reset(reset: Method, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    grudge = _grudge(cluster, entry, nodes)
    count = await reset(grudge)
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


async def _power_cut(power_cut: Method, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    """Each log keeps what was fsynced; or at most `keep` (partition -> LEO); or the share `keep_share` of the
    log as observed right before. Several nodes lose power together."""
    keeps = await _keeps(cluster, entry, nodes)
    met = await gather_all(power_cut(node, keep=keeps.get(node)) for node in nodes)
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


async def _harm_disk(_: Method, cluster: Cluster, entry: Entry, nodes: Nodes) -> Struck:
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


async def _elect(elect: Method, cluster: Cluster, entry: Entry, _: Nodes) -> Struck:
    """A refusal by the controller is recorded; it is no error."""
    partitions, unclean = entry.args.get("partitions", ()), entry.args.get("unclean", False)
    leader = entry.args.get("leader")
    if leader is None:
        return Struck(nodes=(), detail=await elect(partitions, unclean=unclean))
    of_replica = ability(cluster, ElectsReplica)
    assert of_replica is not None, "refused before the run"
    return Struck(nodes=(), detail=await of_replica.elect_replica(partitions, leader, unclean=unclean))


async def _release(release: Method, _: Cluster, entry: Entry, nodes: Nodes) -> Struck:
    released = await gather_all(release(node, entry.args.get("point")) for node in nodes)
    return Struck(nodes=nodes, detail={"released": dict(zip(nodes, released, strict=True))})


_STRIKES: Mapping[str, Strike] = {
    "cut": _cut, "heal": _heal, "packet": _degrade, "reset": _reset, "power_cut": _power_cut,
    "disk": _harm_disk, "bad_disk": _harm_disk, "elect": _elect, "release": _release,
}
