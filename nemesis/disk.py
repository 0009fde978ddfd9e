"""Wipes or damages disks (disk), fills or fails them (bad_disk), and mends them (mend_disk)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import BadDisks, Struck, Wipes
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node

WIPED = "wiped"


class Disk:
    """wiped: the node is killed and its log directory emptied, as if its disk had been replaced. All other
    kinds need `bad`: a damaged disk kills its node too, a bad one lasts until it is mended."""

    def __init__(self, cluster: Wipes, bad: BadDisks | None = None) -> None:
        self.answers = frozenset({"disk"} if bad is None else {"disk", "bad_disk", "mend_disk"})
        self._cluster = cluster
        self._bad = bad

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        if entry.f == "mend_disk":
            assert self._bad is not None, "answers says so"
            await on_each_node(self._bad.repair, nodes)
            return Struck(nodes=nodes)
        met = dict(zip(nodes, await on_each_node(self._act(entry.args["kind"]), nodes), strict=True))
        detail: dict[str, dict[str, Any]] = {"lost_records": {}}
        for node, one in met.items():
            for word, value in {"lost_records": 0, **one}.items():
                detail.setdefault(word, {})[node] = value
        return Struck(nodes=nodes, detail=detail)

    def _act(self, kind: str) -> Callable[[str], Awaitable[Mapping[str, Any]]]:
        if kind == WIPED:
            return self._cluster.wipe
        bad = self._bad
        if bad is None or kind not in bad.kinds:
            can = ", ".join(sorted({WIPED} if bad is None else {WIPED, *bad.kinds}))
            raise FloodmarkError(f"the disks of this cluster cannot be {kind}; they can be {can}")
        return lambda node: bad.harm(node, kind)
