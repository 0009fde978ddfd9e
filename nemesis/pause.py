"""Pauses and resumes processes: SIGSTOP and SIGCONT."""

from floodmark.harness.protocols import Pauses, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.on_each_node import on_each_node


class Pause:
    """A paused process reads the contents of its socket buffers when it is resumed."""

    answers = frozenset({"pause", "resume"})

    def __init__(self, cluster: Pauses) -> None:
        self._do = {"pause": cluster.pause, "resume": cluster.resume}

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        await on_each_node(self._do[entry.f], nodes)
        return Struck(nodes=nodes)
