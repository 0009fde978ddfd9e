"""Builds grudges: for each node, the nodes that it does not hear. Pure; randomness is a passed Random.

Rules
1. No node is cut from itself; a node that hears all others is not in the grudge.
2. The same Random in the same state gives the same grudge.

The clients of the harness and the controller are pseudo-nodes that a grudge may name like any other.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from random import Random

from floodmark.harness.schedule.views import CLIENTS

Grudge = dict[str, list[str]]  # node -> the nodes that it does not hear; both sorted


def unless(hears: Callable[[str, str], object], nodes: Iterable[str]) -> Grudge:
    """The grudge of these nodes, by whether one hears another."""
    ordered = sorted(nodes)
    unheard = {node: [other for other in ordered if other != node and not hears(node, other)]
               for node in ordered}
    return {node: others for node, others in unheard.items() if others}


def apart(nodes: Sequence[str], others: Sequence[str]) -> Grudge:
    """Cut `nodes` from `others`: they do not hear each other; inside each group all do."""
    return unless(lambda one, other: (one in nodes) == (other in nodes), {*nodes, *others})


def one_node(random: Random, nodes: Sequence[str]) -> Grudge:
    """Isolate one node."""
    return apart([random.choice(sorted(nodes))], nodes)


def halves(random: Random, nodes: Sequence[str]) -> Grudge:
    """Two groups, one of them a majority wherever the number is odd."""
    mixed = _shuffle(random, nodes)
    return apart(mixed[:len(mixed) // 2], mixed)


def bridge(random: Random, nodes: Sequence[str]) -> Grudge:
    """Two groups that do not hear each other, and one node that hears all and that all hear."""
    mixed = _shuffle(random, nodes)
    middle, left = mixed[0], mixed[1:(len(mixed) + 1) // 2]
    return unless(lambda one, other: middle in (one, other) or (one in left) == (other in left), mixed)


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
    sides = {side % count for side in range(-(others // 2), others - others // 2 + 1)}
    return unless(lambda one, other: (ring.index(other) - ring.index(one)) % count in sides, ring)


def one_way(random: Random, nodes: Sequence[str]) -> Grudge:
    """No other node hears one node, or it hears no other; the opposite direction works."""
    lonely = random.choice(sorted(nodes))
    others = [node for node in nodes if node != lonely]
    if random.random() < 0.5:
        return {node: [lonely] for node in sorted(others)}
    return {lonely: sorted(others)} if others else {}


def clients_only(random: Random, nodes: Sequence[str]) -> Grudge:
    """The clients and one node do not hear each other; the nodes all do."""
    node = random.choice(sorted(nodes))
    return {CLIENTS: [node], node: [CLIENTS]}


def at_random(random: Random, nodes: Sequence[str]) -> Grudge:
    """Each node hears each other with a probability of one half, and at least one link is cut."""
    ordered = sorted(nodes)
    if len(ordered) < 2:
        return {}
    heard = {pair for pair in permutations(ordered, 2) if random.random() < 0.5}
    return unless(lambda *pair: pair in heard, ordered) or one_way(random, ordered)


# By the word for it in a schedule (`kind`).
KINDS: dict[str, Callable[[Random, Sequence[str]], Grudge]] = {
    "one-node": one_node, "halves": halves, "bridge": bridge, "majorities-ring": majorities_ring,
    "one-way": one_way, "clients": clients_only, "random": at_random,
}


def _shuffle(random: Random, nodes: Sequence[str]) -> list[str]:
    ordered = sorted(nodes)
    random.shuffle(ordered)
    return ordered
