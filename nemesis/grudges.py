"""Builds grudges: for each node, the nodes that it does not hear. Pure; randomness is a passed Random.

Rules
1. A grudge is the complement of who hears whom.
2. No node is cut from itself; a node that hears all others is not in the grudge.
3. The same Random in the same state gives the same grudge.

The clients of the harness and the controller are pseudo-nodes that a grudge may name like any other.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import permutations
from random import Random

from floodmark.harness.schedule.views import CLIENTS

Grudge = dict[str, list[str]]  # node -> the nodes that it does not hear; both sorted


def unheard(hears: Mapping[str, Collection[str]]) -> Grudge:
    """The grudge of these nodes, of each of which it is known whom it hears."""
    snubs = {node: sorted({*hears} - {node, *heard}) for node, heard in sorted(hears.items())}
    return {node: names for node, names in snubs.items() if names}


def apart(nodes: Sequence[str], others: Sequence[str]) -> Grudge:
    """Cut `nodes` from `others`: they do not hear each other; inside each group all do."""
    rest = [other for other in others if other not in nodes]
    return unheard({**dict.fromkeys(nodes, nodes), **dict.fromkeys(rest, rest)})


def one_node(random: Random, nodes: Sequence[str]) -> Grudge:
    """Isolate one node."""
    return apart([random.choice(sorted(nodes))], nodes)


def halves(random: Random, nodes: Sequence[str]) -> Grudge:
    """Two groups, one of them a majority wherever the number is odd."""
    mixed = _shuffle(random, nodes)
    return apart(mixed[:len(mixed) // 2], mixed)


def bridge(random: Random, nodes: Sequence[str]) -> Grudge:
    """Two groups that do not hear each other, and one node that hears all and that all hear."""
    middle, *rest = _shuffle(random, nodes)
    left, right = rest[:len(rest) // 2], rest[len(rest) // 2:]
    return unheard({middle: rest, **{node: [middle, *left] for node in left},
                    **{node: [middle, *right] for node in right}})


def majorities_ring(random: Random, nodes: Sequence[str]) -> Grudge:
    """Every node hears a majority (including itself), no two the same. It needs at least three nodes.

    On a ring each node hears the same number on both sides, so that hearing is mutual; if a majority is even,
    each hears one more ahead, and that link is one way.
    """
    ring = _shuffle(random, nodes)
    count = len(ring)
    if count < 3:
        return {}
    others = count // 2  # the others that make a majority with the node itself
    sides = [*range(-(others // 2), 0), *range(1, others - others // 2 + 1)]
    return unheard({node: [ring[(at + side) % count] for side in sides] for at, node in enumerate(ring)})


def one_way(random: Random, nodes: Sequence[str]) -> Grudge:
    """No other node hears one node, or it hears no other; the opposite direction works."""
    lonely = random.choice(sorted(nodes))
    others = sorted(node for node in nodes if node != lonely)
    if random.random() < 0.5:
        return {node: [lonely] for node in others}
    return {lonely: others} if others else {}


def clients_only(random: Random, nodes: Sequence[str]) -> Grudge:
    """The clients and one node do not hear each other; the nodes all do."""
    node = random.choice(sorted(nodes))
    return {CLIENTS: [node], node: [CLIENTS]}


def at_random(random: Random, nodes: Sequence[str]) -> Grudge:
    """Each node hears each other with a probability of one half, and at least one link is cut."""
    hears: dict[str, list[str]] = {node: [] for node in sorted(nodes)}
    for one, other in permutations(hears, 2):
        if random.random() < 0.5:
            hears[one].append(other)
    return unheard(hears) or (one_way(random, nodes) if len(nodes) > 1 else {})


# By the word for it in a schedule (`kind`).
KINDS: dict[str, Callable[[Random, Sequence[str]], Grudge]] = {
    "one-node": one_node, "halves": halves, "bridge": bridge, "majorities-ring": majorities_ring,
    "one-way": one_way, "clients": clients_only, "random": at_random,
}


def _shuffle(random: Random, nodes: Sequence[str]) -> list[str]:
    ordered = sorted(nodes)
    random.shuffle(ordered)
    return ordered
