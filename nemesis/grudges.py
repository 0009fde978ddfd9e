"""Builds grudges: for each node, the nodes that it does not hear. Pure; randomness is a passed Random.

Rules
1. A grudge is the complement of the graph of who hears whom (edges from hearer to heard).
2. No node is cut from itself; a node that hears all others is not in the grudge.
3. The same Random in the same state gives the same grudge.

The clients of the harness and the controller are pseudo-nodes that a grudge may name like any other.
"""

from collections.abc import Callable, Sequence
from random import Random

import networkx as nx

from floodmark.harness.schedule.views import CLIENTS

Grudge = dict[str, list[str]]  # node -> the nodes that it does not hear; both sorted


def unheard(hears: "nx.DiGraph[str]") -> Grudge:
    snubs = nx.complement(hears)
    return {node: sorted(snubs.successors(node)) for node in sorted(snubs) if snubs.out_degree(node)}


def apart(nodes: Sequence[str], others: Sequence[str]) -> Grudge:
    """Cut `nodes` from `others`: they do not hear each other; inside each group all do."""
    return unheard(_groups(nodes, [other for other in others if other not in nodes]))


def one_node(random: Random, nodes: Sequence[str]) -> Grudge:
    return apart([random.choice(sorted(nodes))], nodes)


def halves(random: Random, nodes: Sequence[str]) -> Grudge:
    """Two groups, one of them a majority wherever the number is odd."""
    mixed = _shuffle(random, nodes)
    return apart(mixed[:len(mixed) // 2], mixed)


def bridge(random: Random, nodes: Sequence[str]) -> Grudge:
    """Two groups that do not hear each other, and one node that hears all and that all hear."""
    mixed = _shuffle(random, nodes)
    middle, rest = mixed[0], mixed[1:]
    left, right = rest[:len(rest) // 2], rest[len(rest) // 2:]
    return unheard(nx.compose(_groups([middle, *left], right), _groups([middle, *right], left)))


def majorities_ring(random: Random, nodes: Sequence[str]) -> Grudge:
    """Every node hears a majority (including itself), no two the same. It needs at least three nodes. On a
    ring each hears as many on both sides, so hearing is mutual; if a majority is even, one more ahead."""
    ring = _shuffle(random, nodes)
    count = len(ring)
    if count < 3:
        return {}
    others = count // 2  # the others that make a majority with the node itself
    hears = nx.DiGraph()
    hears.add_nodes_from(ring)
    for at, node in enumerate(ring):
        sides = [*range(-(others // 2), 0), *range(1, others - others // 2 + 1)]
        hears.add_edges_from((node, ring[(at + side) % count]) for side in sides)
    return unheard(hears)


def one_way(random: Random, nodes: Sequence[str]) -> Grudge:
    """No other node hears one node, or it hears no other; the opposite direction works."""
    lonely = random.choice(sorted(nodes))
    others = [node for node in nodes if node != lonely]
    if random.random() < 0.5:
        return {node: [lonely] for node in sorted(others)}
    return {lonely: sorted(others)} if others else {}


def at_random(random: Random, nodes: Sequence[str]) -> Grudge:
    """Each node hears each other with a probability of one half, and at least one link is cut."""
    ordered = sorted(nodes)
    if len(ordered) < 2:
        return {}
    hears = nx.relabel_nodes(nx.gnp_random_graph(len(ordered), 0.5, seed=random, directed=True),
                             dict(enumerate(ordered)))
    return unheard(hears) or one_way(random, ordered)


# By the word for it in a schedule (`kind`).
KINDS: dict[str, Callable[[Random, Sequence[str]], Grudge]] = {
    "one-node": one_node, "halves": halves, "bridge": bridge, "majorities-ring": majorities_ring,
    "one-way": one_way, "random": at_random,
    "clients": lambda random, nodes: apart([CLIENTS], [random.choice(sorted(nodes))]),
}


def _groups(*groups: Sequence[str]) -> "nx.DiGraph[str]":
    return nx.compose_all([nx.complete_graph(list(group), create_using=nx.DiGraph) for group in groups])


def _shuffle(random: Random, nodes: Sequence[str]) -> list[str]:
    ordered = sorted(nodes)
    random.shuffle(ordered)
    return ordered
