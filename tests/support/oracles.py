"""What damage looks like in a memory cluster: functions from a cluster to what is broken; empty is well."""

from itertools import combinations

from memory_cluster import MemoryCluster


def acked_lost(cluster: MemoryCluster) -> list[str]:
    """Acked values (acks=all) that the leader's log does not hold at their offset."""
    leader = cluster.partition.leader
    if leader not in cluster.running:
        return []
    log = cluster.log(leader)
    lost = []
    for sent in cluster.sends:
        if sent.acked:
            for index, value in enumerate(sent.values):
                found = log.get(sent.offset + index, (None, -1))[0]
                if found != value:
                    lost.append(f"{value}@{sent.offset + index} (there: {found})")
    return lost


def diverged(cluster: MemoryCluster) -> list[str]:
    """Offsets below the HW of two running replicas where their logs differ in value or epoch."""
    found = []
    for one, other in combinations(cluster.running, 2):
        below = min(cluster.replica(one).hw, cluster.replica(other).hw)
        here, there = cluster.log(one), cluster.log(other)
        for offset in range(below):
            if offset in here and offset in there and here[offset] != there[offset]:
                found.append(f"{offset}: n{one} {here[offset]}, n{other} {there[offset]}")
    return found


def two_records(cluster: MemoryCluster) -> list[str]:
    """(epoch, offset) that names two records."""
    known: dict[tuple[int, int], str] = {}
    found = []
    for node in cluster.nodes:
        for offset, (value, epoch) in cluster.log(node).items():
            other = known.setdefault((epoch, offset), value)
            if other != value:
                found.append(f"{offset} of epoch {epoch}: {other} and {value}")
    return found


def seen_then_lost(cluster: MemoryCluster) -> list[str]:
    """What a client has read and the leader's log no longer holds there."""
    leader = cluster.partition.leader
    if leader not in cluster.running:
        return []
    log = cluster.log(leader)
    return [f"{value}@{offset}" for offset, value in cluster.reads if log.get(offset, ("", 0))[0] != value]


def incomplete_members(cluster: MemoryCluster) -> list[str]:
    """Running members of the ISR that lack an acked value at its offset (candidate completeness)."""
    found = []
    for node in cluster.partition.isr:
        if node not in cluster.running:
            continue
        log = cluster.log(node)
        for sent in cluster.sends:
            if sent.acked:
                for index, value in enumerate(sent.values):
                    if log.get(sent.offset + index, (None, -1))[0] != value:
                        found.append(f"n{node} lacks {value}@{sent.offset + index}")
    return found


def fenced_members(cluster: MemoryCluster) -> list[str]:
    """Fenced brokers in an ISR that has others (only its last member may be fenced)."""
    fenced = {broker.id for broker in cluster.controller.metadata().brokers if broker.fenced}
    isr = cluster.partition.isr
    return [f"n{node} of ISR {isr}" for node in isr if node in fenced and len(isr) > 1]


def out_of_isr(cluster: MemoryCluster) -> list[str]:
    """Nodes that are not in the ISR (after mending: stuck)."""
    return [f"n{node}" for node in cluster.nodes if node not in cluster.partition.isr]


def damage(cluster: MemoryCluster) -> list[str]:
    """All of it."""
    checks = (acked_lost, diverged, two_records, seen_then_lost)
    return [f"{check.__name__}: {one}" for check in checks for one in check(cluster)]
