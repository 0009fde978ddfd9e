"""Oracles of damage in a memory cluster: functions from a cluster to what is broken; empty means healthy."""

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import combinations, pairwise

from memory_cluster import MemoryCluster
from memory_node import DAMAGED


def acked_lost(cluster: MemoryCluster) -> list[str]:
    """Acked values (acks=all) that the leader's log lacks at their offset."""
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
    """(epoch, offset)s with two records."""
    known: dict[tuple[int, int], str] = {}
    found = []
    for node in cluster.nodes:
        for offset, (value, epoch) in cluster.log(node).items():
            other = known.setdefault((epoch, offset), value)
            if other != value:
                found.append(f"{offset} of epoch {epoch}: {other} and {value}")
    return found


def seen_then_lost(cluster: MemoryCluster) -> list[str]:
    """Values that a client has read and that the leader's log no longer has there."""
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


def malformed(cluster: MemoryCluster) -> list[str]:
    """Logs with a gap, an overlap or a damaged batch; a running node's HW above its LEO."""
    found = []
    for node in cluster.nodes.values():
        expected = node.disk.log_start
        for batch in node.disk.batches:
            if batch.base_offset != expected:
                found.append(f"n{node.id}: {batch.base_offset} after {expected - 1}")
            if batch.data == DAMAGED:
                found.append(f"n{node.id}: {batch.base_offset} is damaged")
            expected = batch.last_offset + 1
        if node.replica is not None and node.replica.hw > node.replica.leo:
            found.append(f"n{node.id}: HW {node.replica.hw} above LEO {node.replica.leo}")
    return found


def wrong_epochs(cluster: MemoryCluster) -> list[str]:
    """Running nodes whose epoch cache gives an offset another epoch than its record has."""
    found = []
    for node in cluster.running:
        entries, leo = cluster.replica(node).epochs, cluster.replica(node).leo
        if entries is None:
            continue
        found += [f"n{node}: {entry} above the LEO" for entry in entries if entry[1] > leo]
        for offset, (_, epoch) in cluster.log(node).items():
            cached = max((known for known, start in entries if start <= offset), default=None)
            if cached != epoch:
                found.append(f"n{node}: {offset} is of epoch {epoch}, not {cached}")
    return found


def duplicated(cluster: MemoryCluster) -> list[str]:
    """Values at two offsets of the leader's log."""
    leader = cluster.partition.leader
    if leader not in cluster.running:
        return []
    held = Counter(value for value, _ in cluster.log(leader).values())
    return [f"{value}: {count} times" for value, count in held.items() if count > 1]


def skipped(cluster: MemoryCluster) -> list[str]:
    """Offsets of the leader's log that the one reader of this cluster jumped over."""
    leader = cluster.partition.leader
    if leader not in cluster.running:
        return []
    jumps = pairwise(offset for offset, _ in cluster.reads)
    log = cluster.log(leader)
    return [f"{offset}" for was, now in jumps for offset in range(was + 1, now) if offset in log]


def end_fell(cluster: MemoryCluster) -> list[str]:
    """End offsets that a client got and that are below an earlier one."""
    return [f"{was} -> {now}" for was, now in pairwise(cluster.ends) if now < was]


def stuck(cluster: MemoryCluster) -> list[str]:
    """A partition without a leader after mending, or a probe that was not acked."""
    return [cluster.unacked] if cluster.unacked else []


def lineage(cluster: MemoryCluster) -> list[str]:
    """An (epoch, offset) with two records, or a cache that does not fit its log."""
    return two_records(cluster) + wrong_epochs(cluster)


# a finding of the judge -> the oracle that shows it here
FINDERS: Mapping[str, Callable[[MemoryCluster], list[str]]] = {
    "lost-write": acked_lost,
    "diverged": diverged,
    "epoch-lineage": lineage,
    "malformed-log": malformed,
    "saw-then-lost": seen_then_lost,
    "duplicate": duplicated,
    "end-offset-regressed": end_fell,
    "poll-skip": skipped,
    "stuck": stuck,
}


def damage(cluster: MemoryCluster) -> list[str]:
    """All damage that the oracles find."""
    checks = (acked_lost, diverged, two_records, seen_then_lost)
    return [f"{check.__name__}: {one}" for check in checks for one in check(cluster)]
