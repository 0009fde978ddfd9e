"""Schedules of clients and of disks (the zoo's group C and Z42): each brings a known-bad rule to harm, and a
correct broker to none.
"""

from memory_cluster import MemoryCluster
from schedules import caught_up_and_acked, fail, lose

from floodmark.broker.protocol import errors


def reader_before_commit(cluster: MemoryCluster) -> None:
    """Z34: a client reads a record that its leader's death undoes."""
    cluster.hold("fetch-answer")
    cluster.send(1, "m")
    cluster.read(1)
    fail(cluster, 1)


def deposed_and_elected_again(cluster: MemoryCluster) -> None:
    """Z37: a parked produce is truncated, its offset given to another record, its leader elected again."""
    cluster.hold("fetch-answer")
    cluster.send(1, "m")
    lose(cluster, "fetch-answer")
    cluster.release()
    cluster.lead(2)
    cluster.stabilize()
    cluster.send(2, "n")
    cluster.stabilize()
    cluster.lead(1)
    cluster.stabilize()


def end_offset_after_failover(cluster: MemoryCluster) -> None:
    """Z35, KIP-207: a client asks for the end offset, and asks the next leader, whose HW is one fetch old."""
    caught_up_and_acked(cluster)
    cluster.end_offset(1)
    fail(cluster, 1)
    cluster.deliver_all("metadata")
    cluster.end_offset(2)


def reader_ahead_of_the_hw(cluster: MemoryCluster) -> None:
    """Z35: a reader at the end asks the next leader; out of range, it goes to the latest."""
    caught_up_and_acked(cluster)
    cluster.read(1, 0, reader=1)
    fail(cluster, 1)
    cluster.deliver_all("metadata")
    error, _ = cluster.read(2, 1, reader=1)
    cluster.stabilize()
    cluster.send(2, "n")
    cluster.stabilize()
    position = 1
    if error == errors.OFFSET_OUT_OF_RANGE:
        _, position = cluster.end_offset(2)
    cluster.send(2, "o")
    cluster.stabilize()
    cluster.read(2, position, reader=1)


def retry_after_failover(cluster: MemoryCluster) -> None:
    """Z38: an idempotent produce has reached the next leader, its answer has not reached the client."""
    sent = cluster.send(1, "m", producer=(7, 0, 0))
    cluster.ask(2)
    cluster.ask(3)
    cluster.deliver_all("fetch")
    cluster.deliver_all("fetch-answer")
    fail(cluster, 1)
    cluster.stabilize()
    cluster.retry(sent, 2)
    cluster.stabilize()


def stray_duplicate(cluster: MemoryCluster) -> None:
    """Z39: the network delivers an idempotent produce again, six batches later."""
    first = cluster.send(1, "v0", producer=(7, 0, 0))
    for number in range(1, 6):
        cluster.send(1, f"v{number}", producer=(7, 0, number))
    cluster.stabilize()
    cluster.retry(first, 1)
    cluster.stabilize()


def torn_write(cluster: MemoryCluster) -> None:
    """Z42: the ISR's last member loses power in the middle of a write; everything acked is on its disk."""
    caught_up_and_acked(cluster)
    fail(cluster, 2)
    cluster.stabilize()
    cluster.tear(1)
    cluster.start(1)
    cluster.stabilize()


def log_shorter_than_its_epochs(cluster: MemoryCluster) -> None:
    """Z42: a follower loses the end of its log, in which an epoch began; the checkpoint is kept."""
    cluster.send(1, "a0")
    cluster.send(1, "a1")
    cluster.stabilize()
    cluster.lead(2)
    cluster.stabilize()
    cluster.send(2, "b")
    cluster.stabilize()
    cluster.power_cut(3, keep=1)
    cluster.start(3)
    cluster.stabilize()
