"""Parts of schedules that are written by hand for a memory cluster.

A schedule begins with a settled cluster led by n1 and may end in any state; `mended` repairs the cluster.
"""

from memory_cluster import MemoryCluster

LAG_MS = 1_000


def mended(cluster: MemoryCluster) -> None:
    """Starts every node, lets every message through, and gives the followers time to catch up."""
    cluster.release()
    for node in cluster.nodes:
        if node not in cluster.running:
            cluster.start(node)
    for _ in range(5):
        cluster.stabilize(must=False)
        cluster.pass_time(600)
    cluster.stabilize(must=False)


def settled(cluster: MemoryCluster) -> None:
    """Mends the cluster and sends one more record to the leader, as a harness does at the end of a run."""
    mended(cluster)
    leader = cluster.partition.leader
    if leader not in cluster.running or not cluster.replica(leader).leading:
        cluster.unacked = f"n{leader} is to lead and does not: {cluster.numbers()}"
        return
    probe = cluster.send(leader, "probe")
    for _ in range(3):
        cluster.stabilize(must=False)
        cluster.pass_time(600)
    cluster.stabilize(must=False)
    if not probe.acked:
        cluster.unacked = f"n{leader} does not ack: {cluster.numbers()}"


def proposed(cluster: MemoryCluster, member: int) -> None:
    """Runs the cluster until an ISR with this member is on its way to the controller."""
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


def asks(cluster: MemoryCluster, node: int) -> None:
    """Only this follower sends its next request to its leader, and gets the answer."""
    cluster.ask(node)
    for kind in ("epoch", "ends", "fetch"):
        cluster.deliver_all(kind, sender=node)
        cluster.deliver_all(f"{kind}-answer", to=node)


def follows(cluster: MemoryCluster, node: int) -> None:
    """Only this follower fetches until it has everything."""
    for _ in range(3):
        asks(cluster, node)


def lose(
    cluster: MemoryCluster, kind: str | None = None, *, to: int | None = None, sender: int | None = None
) -> None:
    """Drops the messages of this kind that are under way."""
    for message in cluster.waiting_messages(kind, to, sender):
        cluster.drop(message)


def fail(cluster: MemoryCluster, node: int) -> None:
    """Kills the node, drops what it sent, and ends its session."""
    cluster.crash(node)
    lose(cluster, sender=node)
    cluster.expire(node)


def caught_up_and_acked(cluster: MemoryCluster, value: str = "m") -> None:
    """A record on every replica, acked; the followers' HW is one fetch late."""
    sent = cluster.send(1, value)
    cluster.stabilize()
    assert sent.acked, sent


def shrunk(cluster: MemoryCluster, out: int) -> None:
    """`out` gets nothing for longer than the lag and leaves the ISR; a record is acked without it."""
    cluster.hold(to=out)
    cluster.send(1, "m0")
    for _ in range(6):
        cluster.stabilize()
        if out not in cluster.partition.isr:
            break
        cluster.pass_time(LAG_MS // 2)
    assert out not in cluster.partition.isr
    cluster.release()
