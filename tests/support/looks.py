"""Views of a healthy cluster of three nodes and one partition, with a test's changes."""

from dataclasses import replace

from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import PartitionView, ReplicaView, View

NODES = ("n1", "n2", "n3")
SPEC = PartitionSpec(key=0, topic="log", partition=0, replicas=NODES)


def replica(node: str, **changes: object) -> ReplicaView:
    healthy = ReplicaView(node=node, partition=0, leader="n1", epoch=2, log_start=0, leo=6, hw=6, isr=NODES,
                          checkpointed_hw=6, epochs=((0, 0), (2, 5)), clean=True)
    return replace(healthy, **changes)  # type: ignore[arg-type]


def look(*replicas: ReplicaView, leader: str | None = "n1", epoch: int = 2,
         isr: tuple[str, ...] = NODES) -> View:
    there = replicas or tuple(map(replica, NODES))
    truth = PartitionView(partition=0, leader=leader, epoch=epoch, isr=isr, partition_epoch=3)
    return View(time_ns=0, replicas={(one.node, 0): one for one in there}, partitions={0: truth},
                running=frozenset(NODES), unfenced=frozenset(NODES))
