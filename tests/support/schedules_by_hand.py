"""Schedules that no scenario file plays: each makes a known-bad rule do harm, and a correct broker none.

They need what a scenario's words do not offer: a torn record on the disk, a producer's late duplicate, a lost
message, a look at a cluster that is not settled yet. All others are scenarios (nemesis/scenarios).
"""

from memory_cluster import MemoryCluster
from schedules import LAG_MS, asks, caught_up_and_acked, fail, follows, lose, proposed, shrunk

from floodmark.broker.protocol import errors


def follower_misses_an_epoch(cluster: MemoryCluster) -> None:
    """Z11, KAFKA-6880: n2 gets nothing from the controller and goes on fetching beyond a truncation of n1."""
    caught_up_and_acked(cluster, "m0")
    cluster.hold("fetch-answer", to=3)
    cluster.send(1, "x", acks=1)
    follows(cluster, 2)
    lose(cluster, "fetch-answer", to=3)
    cluster.hold("metadata", to=2)
    cluster.lead(3)
    cluster.deliver_all("metadata")
    cluster.send(3, "y", acks=1)
    cluster.release()
    cluster.hold("metadata", to=2)
    follows(cluster, 1)
    cluster.lead(1)
    cluster.deliver_all("metadata")
    cluster.send(1, "z")
    follows(cluster, 2)
    cluster.release()
    cluster.stabilize()


def reader_at_a_parting_follower(cluster: MemoryCluster) -> None:
    """Z18, KAFKA-14704: the old leader believes the new one's HW before it truncates, and is read from."""
    caught_up_and_acked(cluster, "m0")
    cluster.hold("fetch-answer", to=2)
    cluster.send(1, "x1", acks=1)
    lose(cluster, "fetch-answer", to=2)
    cluster.lead(2)
    cluster.deliver_all("metadata")
    cluster.hold("fetch", sender=1)
    cluster.send(2, "m1")
    for _ in range(3):
        cluster.pass_time(LAG_MS)
        cluster.deliver_all("alter")
        cluster.deliver_all("alter-answer")
    cluster.release()
    asks(cluster, 1)
    cluster.read(1, 1)


def conflicting_epoch_tail(cluster: MemoryCluster) -> None:
    """Z19, KAFKA-10706: two leaders in a row write nothing, and the first cannot remove its epoch."""
    caught_up_and_acked(cluster)
    for leader in (2, 1, 2):
        cluster.hold("fetch")
        cluster.lead(leader)
        cluster.deliver_all("metadata")
    cluster.release()
    cluster.stabilize(must=False)


def behind_by_several_fetches(cluster: MemoryCluster) -> None:
    """Z20: a replica outside the ISR fetches one record of three, with the HW of them all."""
    cluster.hold(to=3)
    for number in range(3):
        cluster.send(1, f"m{number}", acks=1)
    for _ in range(6):
        cluster.stabilize()
        cluster.pass_time(LAG_MS // 2)
    cluster.release()
    follows(cluster, 2)
    lose(cluster, "fetch-answer", to=3)
    cluster.ask(3)
    cluster.deliver_all("fetch", sender=3)
    cluster.deliver_all("fetch-answer", to=3)


def reader_after_failover(cluster: MemoryCluster) -> None:
    """Z20: the next leader has a record that another ISR member lacks, a client reads it, and the leader dies
    too."""
    caught_up_and_acked(cluster, "m0")
    cluster.hold("fetch-answer", to=3)
    cluster.send(1, "x")
    follows(cluster, 2)
    lose(cluster, "fetch-answer", to=3)
    fail(cluster, 1)
    cluster.deliver_all("metadata")
    cluster.read(2)
    cluster.heartbeat(3)
    fail(cluster, 2)


def refused_and_reverted(cluster: MemoryCluster) -> None:
    """Z44: an expansion is applied and its answer lost; sent again it is refused, because it is already
    there."""
    shrunk(cluster, out=3)
    proposed(cluster, 3)
    cluster.hold("metadata")
    cluster.deliver_all("alter")
    lose(cluster, "alter-answer")
    cluster.hold("fetch-answer", to=3)
    cluster.pass_time(100)
    cluster.deliver_all("alter")
    cluster.deliver_all("alter-answer")
    follows(cluster, 2)
    cluster.send(1, "m1")
    follows(cluster, 2)
    cluster.pass_time(LAG_MS + 100)  # until then the HW waits for n3 as for one about to join (KAFKA-4485)
    cluster.release()
    cluster.crash(1)
    lose(cluster, sender=1)
    cluster.lead(3)


def fenced_joins(cluster: MemoryCluster) -> None:
    """Z29, KIP-841: a broker whose session has ended still fetches, and is proposed for the ISR again."""
    cluster.expire(3)
    cluster.deliver_all("metadata")
    cluster.send(1, "m")
    follows(cluster, 3)
    cluster.deliver_all("alter")


def last_member_bounces(cluster: MemoryCluster) -> None:
    """Z30: the last member of the ISR dies, is fenced, and comes back."""
    caught_up_and_acked(cluster)
    fail(cluster, 2)
    fail(cluster, 3)
    cluster.stabilize()
    fail(cluster, 1)
    cluster.start(1)
    cluster.stabilize()


def leader_dies_after_a_shrink(cluster: MemoryCluster) -> None:
    """Z31: records that were acked without n2 are not in n2's log when the leader dies."""
    shrunk(cluster, out=2)
    cluster.hold(to=2)
    fail(cluster, 1)
    cluster.release()


def two_sessions_end(cluster: MemoryCluster) -> None:
    """Z32, KAFKA-13173: two brokers stop their heartbeats at the same time."""
    cluster.crash(1)
    cluster.crash(2)
    for _ in range(8):
        cluster.heartbeat(3)
        cluster.pass_time(1_000)


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
