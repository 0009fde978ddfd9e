"""Schedules of truncation, epochs and fencing (the zoo's group A): each brings a known-bad rule to harm, a
correct broker to none.
"""

from memory_cluster import MemoryCluster
from schedules import LAG_MS, asks, caught_up_and_acked, fail, follows, lose, shrunk, told


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
    told(cluster, 3)  # n3 follows n2 in epoch 1
    follows(cluster, 3)
    cluster.release()
    if 3 in cluster.partition.isr:
        cluster.lead(3)


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


def expand_beside_a_slow_member(cluster: MemoryCluster) -> None:
    """Z14: the new leader's HW is stale because an ISR member has not fetched yet; nobody fails."""
    shrunk(cluster, out=2)
    cluster.hold("fetch", sender=1)
    cluster.hold("fetch-answer", to=2)
    cluster.lead(3)
    cluster.stabilize()
    if 2 in cluster.partition.isr:
        cluster.lead(2)
    lose(cluster, "fetch-answer", to=2)


def expand_below_hw(cluster: MemoryCluster) -> None:
    """Z15: a replica that fetches, but lacks what is committed, is taken back."""
    shrunk(cluster, out=3)
    cluster.hold("fetch-answer", to=3)
    cluster.stabilize()
    lose(cluster, "fetch-answer", to=3)
    cluster.stabilize()
    fail(cluster, 1)
    fail(cluster, 2)


def diverging_fetch(cluster: MemoryCluster) -> None:
    """Z17, KAFKA-13141: the old leader, in the ISR, fetches from above the new leader's records."""
    caught_up_and_acked(cluster, "m0")
    cluster.hold("fetch-answer")
    cluster.send(1, "x1")
    cluster.send(1, "x2")
    lose(cluster, "fetch-answer")
    cluster.lead(2)
    cluster.deliver_all("metadata")
    cluster.send(2, "m1")
    cluster.send(2, "m2")
    cluster.ask(1)
    cluster.deliver_all("fetch")
    fail(cluster, 2)


def idle_leader(cluster: MemoryCluster) -> None:
    """Z09, KAFKA-7415: a leader that writes nothing is asked for an epoch that it has never heard of."""
    caught_up_and_acked(cluster)
    cluster.hold("metadata")
    cluster.lead(2)
    cluster.lead(1)
    cluster.deliver(cluster.waiting_messages("metadata", to=2)[0])
    cluster.send(2, "m1", acks=1)


def restart_then_leader_dies(cluster: MemoryCluster) -> None:
    """Z01, KIP-101's first scenario, where a follower's restart does not cost it its place in the ISR."""
    caught_up_and_acked(cluster)
    cluster.crash(2)
    cluster.start(2)
    told(cluster, 2)
    fail(cluster, 1)
    cluster.stabilize()


def restart_then_unclean(cluster: MemoryCluster) -> None:
    """Z01, where the restart is noticed and the election of the follower is an unclean one."""
    caught_up_and_acked(cluster)
    cluster.crash(2)
    cluster.start(2)
    cluster.deliver_all("metadata", to=2)
    cluster.heartbeat(2)
    fail(cluster, 1)
    cluster.heartbeat(2)
    cluster.lead(2, unclean=True)


def leadership_flips(cluster: MemoryCluster) -> None:
    """Z03: no failure at all, leadership goes to n2, back, and to n2 again before it has fetched."""
    caught_up_and_acked(cluster)
    cluster.hold("metadata", to=1)
    for leader in (2, 1, 2):
        cluster.lead(leader)
        cluster.deliver_all("metadata", to=2)


def power_goes_after_the_follower(cluster: MemoryCluster) -> None:
    """Z04, KIP-101's second scenario: the leader loses a record that its dead follower holds."""
    cluster.send(1, "m0")
    cluster.flush(1)
    cluster.send(1, "m1", acks=1)
    cluster.stabilize()
    cluster.pass_time(500)
    cluster.stabilize()
    cluster.checkpoint(2)
    fail(cluster, 2)
    cluster.stabilize()
    cluster.power_cut(1, keep=1)
    cluster.start(1)
    cluster.stabilize()
    cluster.send(1, "x1")
    cluster.send(1, "x2")
    cluster.start(2)
    cluster.stabilize(must=False)


def offsets_go_backwards(cluster: MemoryCluster) -> None:
    """Z05: as Z04, but the leader writes batches of many records, and the follower's end lies inside one."""
    for number in range(4):
        cluster.send(1, f"m{number}", acks=1)
    cluster.flush(1)
    cluster.nodes[1].disk.flushed = 2
    cluster.stabilize()
    cluster.pass_time(500)
    cluster.stabilize()
    cluster.checkpoint(2)
    fail(cluster, 2)
    cluster.stabilize()
    cluster.power_cut(1)
    cluster.start(1)
    cluster.stabilize()
    cluster.send(1, "a", "b", "c", "d", "e")
    cluster.send(1, "f", "g", "h")
    cluster.start(2)
    cluster.stabilize(must=False)


def checkpoint_before_a_role(cluster: MemoryCluster) -> None:
    """Z06, KAFKA-1647: a restarted broker writes its HWs before it has heard who leads; it restarts again."""
    caught_up_and_acked(cluster)
    cluster.pass_time(500)
    cluster.stabilize()
    cluster.checkpoint(1)
    cluster.checkpoint(2)
    cluster.crash(2)
    cluster.start(2)
    cluster.checkpoint(2)
    cluster.crash(2)
    cluster.start(2)
    cluster.deliver_all("metadata", to=2)
    fail(cluster, 1)
    cluster.stabilize()


def two_elections_in_a_row(cluster: MemoryCluster) -> None:
    """Z08, KAFKA-6361: n2 leads an epoch that n1, which leads the next, has never heard of."""
    cluster.hold("metadata")
    cluster.lead(2)
    cluster.lead(1)
    cluster.send(1, "m0", acks=1)  # in epoch 0 still
    told(cluster, 2)
    cluster.send(2, "m2", acks=1)  # in epoch 1
    told(cluster, 1, number=1)
    cluster.send(1, "m1")  # in epoch 2
    told(cluster, 2)
    cluster.release()
    cluster.stabilize()


def idle_leader_deposed(cluster: MemoryCluster) -> None:
    """Z09, KAFKA-7415: as `idle_leader`; whoever asked in vain is elected before it has fetched again."""
    idle_leader(cluster)
    told(cluster, 1, number=1)
    told(cluster, 2)
    cluster.ask(2)
    cluster.deliver_all("epoch", sender=2)
    cluster.deliver_all("epoch-answer", to=2)
    cluster.lead(2)
    cluster.release()


def same_leader_again(cluster: MemoryCluster) -> None:
    """Z10, KAFKA-7164: n3 misses the epoch in which n2 led and n1 truncated, and hears of n1 once more."""
    cluster.hold("fetch-answer", to=2)
    cluster.send(1, "m0", acks=1)
    cluster.deliver_all("fetch-answer", to=3)
    cluster.hold("metadata", to=3)
    cluster.lead(2)
    cluster.deliver_all("metadata", to=2)
    cluster.deliver_all("metadata", to=1)
    asks(cluster, 1)
    cluster.lead(1)
    cluster.deliver_all("metadata", to=1)
    cluster.deliver_all("metadata", to=2)
    lose(cluster, "fetch-answer", to=2)
    cluster.release()
    told(cluster, 3, number=1)
    cluster.send(1, "m1")
    follows(cluster, 3)
    follows(cluster, 2)
    follows(cluster, 3)
    cluster.lead(3)


def follower_misses_an_epoch(cluster: MemoryCluster) -> None:
    """Z11, KAFKA-6880: n2 hears nothing from the controller and fetches on, past a truncation of n1."""
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


def truncation_against_a_stale_leader(cluster: MemoryCluster) -> None:
    """Z12: n3 is in epoch 2 already when it asks n1, which leads epoch 0 still and truncates afterwards."""
    cluster.hold("metadata")
    cluster.lead(2)
    cluster.lead(1)
    cluster.hold("fetch-answer", to=2)
    cluster.send(1, "m0", acks=1)
    cluster.deliver_all("fetch-answer", to=3)
    told(cluster, 3, number=1)
    asks(cluster, 3)
    told(cluster, 2)
    told(cluster, 1)
    asks(cluster, 1)
    told(cluster, 1)
    cluster.send(1, "m1")
    follows(cluster, 3)
    cluster.pass_time(LAG_MS + 100)
    cluster.deliver_all("alter")
    cluster.deliver_all("alter-answer")
    follows(cluster, 3)
    cluster.release()
    lose(cluster, "fetch-answer", to=2)
    if 3 in cluster.partition.isr:
        cluster.lead(3)


def answer_of_an_older_epoch(cluster: MemoryCluster) -> None:
    """Z16, KAFKA-18991: n2 leads twice, and what it told n3 the first time arrives the second time."""
    caught_up_and_acked(cluster, "m0")
    cluster.hold("fetch-answer", to=2)
    cluster.send(1, "m1")
    follows(cluster, 3)
    lose(cluster, "fetch-answer", to=2)
    cluster.hold("metadata", to=1)
    cluster.lead(2)
    cluster.deliver_all("metadata")
    cluster.ask(3)
    cluster.deliver_all("fetch", sender=3)
    late = cluster.waiting_messages("fetch-answer", to=3)
    cluster.release()
    cluster.hold("metadata", to=1)
    cluster.lead(1)
    cluster.deliver_all("metadata")
    told(cluster, 1, number=1)
    cluster.hold("fetch-answer", to=3)
    follows(cluster, 2)
    cluster.ask(3)
    cluster.deliver_all("fetch", sender=3)
    follows(cluster, 2)
    cluster.release()
    cluster.lead(2)
    cluster.deliver_all("metadata")
    for message in late:
        cluster.deliver(message)
    fail(cluster, 1)
    cluster.heartbeat(3)
    fail(cluster, 2)
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
    """Z19, KAFKA-10706: two leaders in a row write nothing, and the first cannot get rid of its epoch."""
    caught_up_and_acked(cluster)
    for leader in (2, 1, 2):
        cluster.hold("fetch")
        cluster.lead(leader)
        cluster.deliver_all("metadata")
    cluster.release()
    cluster.stabilize(must=False)
