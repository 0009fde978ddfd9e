"""SIGSTOP and SIGCONT: pause, resume."""

from floodmark.harness.protocols import Pauses, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node


class Pause:
    """What reached a paused process lies in its socket buffers, and is taken up when it goes on."""

    answers = frozenset({"pause", "resume"})

    def __init__(self, cluster: Pauses) -> None:
        self._do = {"pause": cluster.pause, "resume": cluster.resume}

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        await on_each_node(self._do[entry.f], nodes)
        return Struck(nodes=nodes)
