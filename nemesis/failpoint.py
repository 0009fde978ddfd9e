"""Arms and releases failpoints, and describes the death of a node that an armed crash ended."""

from collections.abc import Mapping
from typing import Any

from floodmark.harness.protocols import Failpoints, Met, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.moment_watch import describe_met
from floodmark.nemesis.on_each_node import on_each_node


class Failpoint:
    """Arms a point on each of the nodes; counts how many a release releases."""

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


def describe_death(crash: Met, noticed_ns: int, count: int) -> Mapping[str, Any]:
    """Build the `fault` of a kill that no entry struck: the node reached a point that was armed to crash it.
    The kill began when the point was reached, and was noticed later. count: which of its deaths at that point
    it is. Or (action None) the node ended because of a fault in force, which `why` names."""
    if crash.action is None:
        return {"nodes": [crash.node], "why": crash.name, "reached": {"time": noticed_ns},
                "began": crash.time_ns}
    asked = {key: getattr(crash, key) for key in ("partition",) if getattr(crash, key) is not None}
    return {
        "nodes": [crash.node],
        "moment": {"at": "failpoint", "node": crash.node, "name": crash.name, **asked},
        "reached": {"time": noticed_ns, **describe_met(crash, count)},
        "began": crash.time_ns,
    }
