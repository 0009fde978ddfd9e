"""Ends and starts processes: kill (SIGKILL), stop (SIGTERM), start."""

from floodmark.harness.protocols import Kills, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node


class Crash:
    """A kill loses nothing that was written: the kernel keeps it."""

    answers = frozenset({"kill", "stop", "start"})

    def __init__(self, cluster: Kills) -> None:
        self._do = {"kill": cluster.kill, "stop": cluster.stop_node, "start": cluster.start_node}

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        await on_each_node(self._do[entry.f], nodes)
        return Struck(nodes=nodes)
