"""When a cluster counts as whole, and when it counts as having moved: looks in, words out."""

from dataclasses import replace

import pytest

from harness.protocols import PartitionSpec, PartitionView, ReplicaView, View
from harness.settle import moved, uneven

NODES = ("n1", "n2", "n3")
SPEC = PartitionSpec(key=0, topic="log", partition=0, replicas=NODES)


def replica(node: str, **changes: object) -> ReplicaView:
    whole = ReplicaView(node=node, partition=0, leader="n1", epoch=2, log_start=0, leo=6, hw=6, isr=NODES,
                        checkpointed_hw=6, epochs=((0, 0), (2, 5)), clean=True)
    return replace(whole, **changes)  # type: ignore[arg-type]


def look(*replicas: ReplicaView, leader: str | None = "n1", epoch: int = 2,
         isr: tuple[str, ...] = NODES) -> View:
    there = replicas or tuple(map(replica, NODES))
    truth = PartitionView(partition=0, leader=leader, epoch=epoch, isr=isr, partition_epoch=3)
    return View(time_ns=0, replicas={(one.node, 0): one for one in there}, partitions={0: truth},
                running=frozenset(NODES), unfenced=frozenset(NODES))


def test_a_whole_cluster_lacks_nothing() -> None:
    assert uneven(look(), [SPEC]) == []
    assert uneven(look(isr=("n3", "n1", "n2")), [SPEC]) == []


@pytest.mark.parametrize(("seen", "told"), [
    (look(leader=None), "partition 0 has no leader"),
    (look(isr=("n1", "n3")), "n2 never came back to the ISR of partition 0"),
    (look(replica("n1"), replica("n2")), "n3 did not say how partition 0 stands"),
    (look(replica("n2"), replica("n3")), "n1 did not say how partition 0 stands"),
    (look(replica("n1"), replica("n2", leader="n3"), replica("n3")), "n2 has not learnt who leads"),
    (look(replica("n1"), replica("n2"), replica("n3", epoch=1)), "n3 has not learnt who leads"),
    (look(replica("n1"), replica("n2", hw=5), replica("n3")), "n2 has LEO 6 and HW 5 of partition 0"),
    (look(replica("n1"), replica("n2", leo=5, hw=5), replica("n3")), "n2 has LEO 5 and HW 5 of partition 0"),
    (look(replica("n1", hw=5), replica("n2", hw=5), replica("n3", hw=5)), "n1 has LEO 6 and HW 5"),
])
def test_what_a_cluster_lacks_is_told(seen: View, told: str) -> None:
    assert told in uneven(seen, [SPEC])[0]


def test_a_cluster_that_stood_still_did_not_move() -> None:
    assert moved(look(), look(isr=("n2", "n1", "n3")), [SPEC]) is None
    assert moved(look(), look(replica("n1", checkpointed_hw=1), replica("n2"), replica("n3")), [SPEC]) is None


@pytest.mark.parametrize("after", [
    look(leader="n2"),
    look(epoch=3),
    look(isr=("n1", "n2")),
    look(replica("n1", leo=7), replica("n2"), replica("n3")),
    look(replica("n1"), replica("n2", hw=7), replica("n3")),
    look(replica("n1"), replica("n2"), replica("n3", epoch=3)),
    look(replica("n1"), replica("n2"), replica("n3", isr=("n1",))),
    look(replica("n1"), replica("n2")),
])
def test_an_epoch_isr_leo_or_hw_that_moved_is_told(after: View) -> None:
    assert moved(look(), after, [SPEC]) is not None
    assert moved(after, look(), [SPEC]) is not None
