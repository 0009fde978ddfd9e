"""Schedules of the ISR, the high watermark and acks (the zoo's group B): each brings a known-bad rule to
harm, a correct broker to none.
"""

from memory_cluster import MemoryCluster
from schedules import LAG_MS, caught_up_and_acked, fail, follows, lose, proposed, shrunk, told


def ack_then_leader_dies(cluster: MemoryCluster) -> None:
    """Z24: nobody has fetched the record when its leader dies."""
    cluster.hold("fetch-answer")
    cluster.send(1, "m")
    fail(cluster, 1)


def one_copy_then_leader_dies(cluster: MemoryCluster) -> None:
    """Z24: n3 has the record, n2 has not, and n2 is the next leader."""
    cluster.hold("fetch-answer", to=2)
    cluster.send(1, "m")
    cluster.deliver_all("fetch-answer", to=3)
    cluster.ask(3)
    cluster.deliver_all("fetch", sender=3)
    fail(cluster, 1)


def bounce_within_session(cluster: MemoryCluster) -> None:
    """Z28a: the leader loses its log and is back before its session ends."""
    caught_up_and_acked(cluster)
    cluster.power_cut(1, keep=0)
    cluster.start(1)
    cluster.deliver_all("metadata", to=1)
    cluster.send(1, "x")


def expand_in_flight(cluster: MemoryCluster) -> None:
    """Z21, KIP-497: an expansion is applied, its answer under way, a record committed without the new one."""
    shrunk(cluster, out=3)
    proposed(cluster, 3)
    cluster.hold("alter-answer")
    cluster.hold("metadata")
    cluster.deliver_all("alter")
    cluster.hold("fetch-answer", to=3)
    follows(cluster, 2)
    cluster.send(1, "m1")
    follows(cluster, 2)
    cluster.pass_time(LAG_MS + 100)  # until then the HW waits for n3 as for one about to join (KAFKA-4485)
    cluster.release()
    cluster.crash(1)
    lose(cluster, sender=1)
    cluster.lead(3)


def shrink_in_flight(cluster: MemoryCluster) -> None:
    """Z22: a leader that has lost its followers asks to be alone, and is not heard."""
    cluster.hold("fetch")
    cluster.hold("fetch-answer")
    cluster.hold("alter")
    cluster.send(1, "a", acks=1)
    cluster.pass_time(2 * LAG_MS)
    cluster.send(1, "m")
    fail(cluster, 1)


def zombie_writes_isr(cluster: MemoryCluster) -> None:
    """Z23: a deposed leader, cut from its followers, shrinks the ISR to itself."""
    cluster.hold("fetch-answer")
    cluster.hold("metadata", to=1)
    cluster.lead(2)
    cluster.deliver_all("metadata")
    cluster.send(1, "m")
    cluster.pass_time(2 * LAG_MS)
    cluster.deliver_all("alter", sender=1)
    cluster.deliver_all("alter-answer", to=1)


def isr_of_one_then_disk(cluster: MemoryCluster) -> None:
    """Z25: the ISR falls below min.insync.replicas while a produce waits; then the last one loses its log."""
    cluster.hold("fetch-answer")
    cluster.send(1, "m")
    fail(cluster, 2)
    fail(cluster, 3)
    cluster.stabilize()
    cluster.power_cut(1, keep=0)


def two_sessions_end(cluster: MemoryCluster) -> None:
    """Z32, KAFKA-13173: two brokers fall silent together."""
    cluster.crash(1)
    cluster.crash(2)
    for _ in range(8):
        cluster.heartbeat(3)
        cluster.pass_time(1_000)


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
    """Z20: the next leader holds a record that another ISR member lacks, is read from, and dies as well."""
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
    """Z44: an expansion is applied and its answer lost; sent again it is refused, for it is already there."""
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
    cluster.pass_time(LAG_MS + 100)  # see expand_in_flight
    cluster.release()
    cluster.crash(1)
    lose(cluster, sender=1)
    cluster.lead(3)


def empty_disk_joins(cluster: MemoryCluster) -> None:
    """Z28b, KAFKA-14139: who has caught up loses its disk while the leader asks to take it back."""
    shrunk(cluster, out=3)
    proposed(cluster, 3)
    cluster.hold("alter")
    cluster.power_cut(3, keep=0)
    cluster.start(3)
    cluster.deliver_all("metadata", to=3)
    cluster.heartbeat(3)
    cluster.release()
    cluster.deliver_all("alter")
    if 3 in cluster.partition.isr:
        fail(cluster, 1)
        cluster.heartbeat(3)
        cluster.heartbeat(2)
        fail(cluster, 2)


def fenced_joins(cluster: MemoryCluster) -> None:
    """Z29, KIP-841: a broker whose session has ended goes on fetching and is asked back into the ISR."""
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
    """Z31: what was acked without n2 is in no log of n2's when the leader dies."""
    shrunk(cluster, out=2)
    cluster.hold(to=2)
    fail(cluster, 1)
    cluster.release()


def stale_leader_and_isr(cluster: MemoryCluster) -> None:
    """Z33, KIP-380: n2 leads, restarts, and hears what was meant for its first incarnation: n1 leads."""
    cluster.hold(to=1)
    cluster.hold(sender=1)
    cluster.send_metadata([2])
    (late,) = cluster.waiting_messages("metadata", to=2)
    cluster.lead(2)
    told(cluster, 2, number=1)
    cluster.send(2, "m")
    for _ in range(4):
        cluster.pass_time(LAG_MS // 2)
        cluster.deliver_all("alter")
        cluster.deliver_all("alter-answer")
    cluster.crash(2)
    cluster.start(2)
    cluster.deliver(late)
    cluster.stabilize()


def two_leaders_in_one_epoch(cluster: MemoryCluster) -> None:
    """Z40: the deposed leader does not know it, and both give the same offset away."""
    caught_up_and_acked(cluster)
    cluster.hold(to=1)
    cluster.expire(1)
    cluster.deliver_all("metadata")
    cluster.send(1, "x", acks=1)
    cluster.send(2, "y")
    cluster.stabilize()
