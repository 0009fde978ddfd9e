"""Asks the controller for elections: preferred, unclean, or of a named replica."""

from floodmark.harness.protocols import Elects, ElectsReplica, Struck
from floodmark.harness.schedule.entry import Entry


class Elect:
    """A refusal by the controller is recorded in the op's `fault`; it is no error."""

    answers = frozenset({"elect"})

    def __init__(self, cluster: Elects, of_replica: ElectsReplica | None) -> None:
        self._cluster = cluster
        self._of_replica = of_replica  # None: a schedule that names a leader was refused before the run

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        partitions, unclean = entry.args.get("partitions", ()), entry.args.get("unclean", False)
        leader = entry.args.get("leader")
        if leader is None:
            return Struck(nodes=(), detail=await self._cluster.elect(partitions, unclean=unclean))
        assert self._of_replica is not None, "refused before the run"
        return Struck(nodes=(), detail=await self._of_replica.elect_replica(
            partitions, leader, unclean=unclean))
