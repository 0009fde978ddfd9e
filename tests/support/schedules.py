"""The zoo's schedules over a memory cluster: each brings one known-bad rule to harm, a correct one to none.

A schedule begins with a settled cluster led by n1 and ends wherever it likes; `mended` brings everybody back.
"""

from memory_cluster import MemoryCluster

LAG_MS = 1_000


def mended(cluster: MemoryCluster) -> None:
    """Everybody runs, hears everything and had time to catch up."""
    cluster.release()
    for node in cluster.nodes:
        if node not in cluster.running:
            cluster.start(node)
    for _ in range(5):
        cluster.stabilize(must=False)
        cluster.pass_time(600)
    cluster.stabilize(must=False)


def proposed(cluster: MemoryCluster, member: int) -> None:
    """Run until an ISR with this member is on its way to the controller."""
    for _ in range(20):
        for node in cluster.running:
            cluster.heartbeat(node)
            cluster.ask(node)
        for message in cluster.deliverable():
            if message.kind == "alter" and member in dict(message.body[0].isr):
                return
            if message in cluster.messages:
                cluster.deliver(message)
    raise AssertionError(f"nobody proposes n{member}")


def follows(cluster: MemoryCluster, node: int) -> None:
    """This follower alone fetches until it has all there is."""
    for _ in range(3):
        cluster.ask(node)
        cluster.deliver_all("fetch", sender=node)
        cluster.deliver_all("fetch-answer", to=node)


def fail(cluster: MemoryCluster, node: int) -> None:
    """The node dies, and what it sent with it; its session ends."""
    cluster.crash(node)
    for message in cluster.waiting_messages(sender=node):
        cluster.drop(message)
    cluster.expire(node)


def caught_up_and_acked(cluster: MemoryCluster, value: str = "m") -> None:
    """A record on every replica, acked; the followers' HW is one fetch late."""
    sent = cluster.send(1, value)
    cluster.stabilize()
    assert sent.acked, sent


def shrunk(cluster: MemoryCluster, out: int) -> None:
    """`out` hears nothing for longer than the lag and leaves the ISR; a record is acked without it."""
    cluster.hold(to=out)
    cluster.send(1, "m0")
    for _ in range(6):
        cluster.stabilize()
        if out not in cluster.partition.isr:
            break
        cluster.pass_time(LAG_MS // 2)
    assert out not in cluster.partition.isr
    cluster.release()


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


def double_failover(cluster: MemoryCluster) -> None:
    """Z02, KAFKA-1211: two clean failovers, the second before the survivor has fetched again."""
    caught_up_and_acked(cluster)
    fail(cluster, 1)
    cluster.deliver_all("metadata", to=2)
    cluster.deliver_all("metadata", to=3)
    cluster.heartbeat(3)
    fail(cluster, 2)


def failover(cluster: MemoryCluster) -> None:
    """Z07: the leader of an acked record dies while the followers' HW is stale."""
    caught_up_and_acked(cluster)
    fail(cluster, 1)


def old_epoch_fetch(cluster: MemoryCluster) -> None:
    """Z13: a follower that has missed two elections fetches from a leader that has not."""
    cluster.hold("metadata")
    cluster.lead(2)
    cluster.lead(1)
    first, second = (
        cluster.waiting_messages("metadata", to=2)[0],
        cluster.waiting_messages("metadata", to=1)[1],
    )
    cluster.deliver(first)  # n2 leads epoch 1
    cluster.send(1, "m0")  # n1 still leads epoch 0
    cluster.deliver_all("fetch-answer", to=3)
    cluster.deliver(second)  # n1 leads epoch 2
    cluster.ask(3)  # n3 knows of neither
    cluster.deliver_all("fetch", sender=3)
    cluster.pass_time(LAG_MS + 100)
    cluster.deliver_all("alter")
    cluster.deliver_all("alter-answer")
    cluster.deliver(cluster.waiting_messages("metadata", to=3)[0])  # n3 follows n2 in epoch 1
    cluster.ask(3)
    cluster.deliver_all("fetch", sender=3)
    cluster.deliver_all("fetch-answer", to=3)
    cluster.release()
    if 3 in cluster.partition.isr:
        cluster.lead(3)


def bounce_within_session(cluster: MemoryCluster) -> None:
    """Z28a: the leader loses its log and is back before its session ends."""
    caught_up_and_acked(cluster)
    cluster.power_cut(1, keep=0)
    cluster.start(1)
    cluster.deliver_all("metadata", to=1)
    cluster.send(1, "x")


def restart_with_a_tail(cluster: MemoryCluster) -> None:
    """A leader dies with a record of its own, another takes its offset, and it comes back."""
    cluster.hold("fetch-answer")
    cluster.send(1, "x")
    fail(cluster, 1)
    cluster.release()
    cluster.stabilize()
    cluster.send(2, "y")
    cluster.stabilize()


def expand_before_epoch_start(cluster: MemoryCluster) -> None:
    """Z14, KAFKA-7128: a new leader with a stale HW takes back a replica that lacks what is committed."""
    shrunk(cluster, out=2)
    cluster.hold("fetch-answer", to=2)
    fail(cluster, 1)
    cluster.stabilize()
    fail(cluster, 3)


def expand_below_hw(cluster: MemoryCluster) -> None:
    """Z15: a replica that fetches, but lacks what is committed, is taken back."""
    shrunk(cluster, out=3)
    cluster.hold("fetch-answer", to=3)
    cluster.stabilize()
    for message in cluster.waiting_messages("fetch-answer", to=3):
        cluster.drop(message)
    cluster.stabilize()
    fail(cluster, 1)
    fail(cluster, 2)


def diverging_fetch(cluster: MemoryCluster) -> None:
    """Z17, KAFKA-13141: the old leader, in the ISR, fetches from above the new leader's records."""
    caught_up_and_acked(cluster, "m0")
    cluster.hold("fetch-answer")
    cluster.send(1, "x1")
    cluster.send(1, "x2")
    for message in cluster.waiting_messages("fetch-answer"):
        cluster.drop(message)
    cluster.lead(2)
    cluster.deliver_all("metadata")
    cluster.send(2, "m1")
    cluster.send(2, "m2")
    cluster.ask(1)
    cluster.deliver_all("fetch")
    fail(cluster, 2)


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
    for message in cluster.waiting_messages(sender=1):
        cluster.drop(message)
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
    for message in cluster.waiting_messages("fetch-answer"):
        cluster.drop(message)
    cluster.release()
    cluster.lead(2)
    cluster.stabilize()
    cluster.send(2, "n")
    cluster.stabilize()
    cluster.lead(1)
    cluster.stabilize()


def isr_of_one_then_disk(cluster: MemoryCluster) -> None:
    """Z25: the ISR falls below min.insync.replicas while a produce waits; then the last one loses its log."""
    cluster.hold("fetch-answer")
    cluster.send(1, "m")
    fail(cluster, 2)
    fail(cluster, 3)
    cluster.stabilize()
    cluster.power_cut(1, keep=0)


def idle_leader(cluster: MemoryCluster) -> None:
    """Z09, KAFKA-7415: a leader that writes nothing is asked for an epoch that it has never heard of."""
    caught_up_and_acked(cluster)
    cluster.hold("metadata")
    cluster.lead(2)
    cluster.lead(1)
    cluster.deliver(cluster.waiting_messages("metadata", to=2)[0])
    cluster.send(2, "m1", acks=1)


def two_sessions_end(cluster: MemoryCluster) -> None:
    """Z32, KAFKA-13173: two brokers fall silent together."""
    cluster.crash(1)
    cluster.crash(2)
    for _ in range(8):
        cluster.heartbeat(3)
        cluster.pass_time(1_000)
