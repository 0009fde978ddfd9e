"""Arms and releases failpoints, and records the death of those that an armed crash ended."""

from collections.abc import Mapping
from typing import Any

from floodmark.harness.protocols import Failpoints, Met, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.moment_watch import told_met
from floodmark.nemesis.on_each_node import on_each_node


class Failpoint:
    """A point is armed on each of the nodes; what is released is counted."""

    answers = frozenset({"arm", "release"})

    def __init__(self, cluster: Failpoints) -> None:
        self._cluster = cluster

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        point = entry.args.get("point")
        if entry.f == "arm":
            await on_each_node(lambda node: self._cluster.arm(node, point or {}), nodes)
            return Struck(nodes=nodes)
        released = await on_each_node(lambda node: self._cluster.release(node, point), nodes)
        return Struck(nodes=nodes, detail={"released": dict(zip(nodes, released, strict=True))})


def death(crash: Met, noticed_ns: int, count: int) -> Mapping[str, Any]:
    """The `fault` of a kill that nobody struck: the node came to a point that was armed to end it. It was
    asked for when that was armed, began when the point was met, and was noticed later. count: which of its
    deaths at that point it is. Or (action None) it ended of a fault in force, and `why` says of which."""
    if crash.action is None:
        return {"nodes": [crash.node], "why": crash.name, "reached": {"time": noticed_ns},
                "began": crash.time_ns}
    asked = {key: getattr(crash, key) for key in ("partition",) if getattr(crash, key) is not None}
    return {
        "nodes": [crash.node],
        "moment": {"at": "failpoint", "node": crash.node, "name": crash.name, **asked},
        "reached": {"time": noticed_ns, **told_met(crash, count)},
        "began": crash.time_ns,
    }
