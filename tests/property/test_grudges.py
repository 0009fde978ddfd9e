"""Laws of the grudges, for one to seven nodes and any seed."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.harness.schedule.views import CLIENTS
from floodmark.nemesis.grudges import KINDS, Grudge, apart, bridge, halves, majorities_ring, one_node, one_way

Draw = Callable[[Random, tuple[str, ...]], Grudge]
NODES = tuple(f"n{number}" for number in range(1, 8))
counts = st.integers(1, 7)
seeds = st.integers(0, 2**32)


def heard(grudge: Grudge, nodes: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """The nodes that each node hears, with itself."""
    return {node: frozenset(nodes) - frozenset(grudge.get(node, ())) for node in nodes}


@pytest.mark.parametrize("kind", KINDS)
@given(count=counts, seed=seeds)
def test_laws_of_all_grudges(kind: str, count: int, seed: int) -> None:
    """No node cuts itself off, a node is listed only if it is cut from another, names are known, and a seed
    determines the grudge."""
    nodes = NODES[:count]
    grudge = KINDS[kind](Random(seed), nodes)

    assert grudge == KINDS[kind](Random(seed), tuple(reversed(nodes)))
    for node, unheard in grudge.items():
        assert unheard
        assert node not in unheard
        assert {node, *unheard} <= {*nodes, CLIENTS}
        assert unheard == sorted(set(unheard))


@given(count=st.integers(3, 7), seed=seeds)
def test_majorities_ring(count: int, seed: int) -> None:
    """Every node hears a majority of the smallest size, and no two hear the same; each is heard by as many.
    Hearing is mutual where an odd majority leaves as many on either side. The majority of two is both: no
    node can be cut off."""
    nodes = NODES[:count]
    seen = heard(majorities_ring(Random(seed), nodes), nodes)
    mutual = all((one in seen[other]) == (other in seen[one]) for one in nodes for other in nodes)

    assert count % 2 == 0 or mutual == (count // 2 % 2 == 0)
    assert majorities_ring(Random(seed), NODES[:count % 2 + 1]) == {}
    assert {len(group) for group in seen.values()} == {count // 2 + 1}
    assert len(set(seen.values())) == count
    assert {sum(node in group for group in seen.values()) for node in nodes} == {count // 2 + 1}


@pytest.mark.parametrize(("draw", "smaller"), [(halves, lambda count: count // 2), (one_node, lambda _: 1)])
@given(count=st.integers(2, 7), seed=seeds)
def test_two_groups_that_hear_only_themselves(
        draw: Draw, smaller: Callable[[int], int], count: int, seed: int) -> None:
    """As equal as possible, or one node alone."""
    nodes = NODES[:count]
    groups = {*heard(draw(Random(seed), nodes), nodes).values()}

    assert sorted(map(len, groups)) == [smaller(count), count - smaller(count)]
    assert frozenset().union(*groups) == {*nodes}


@given(count=st.integers(3, 7), seed=seeds)
def test_bridge(count: int, seed: int) -> None:
    """One node hears all and is heard by all; the others are two groups that do not hear each other."""
    nodes = NODES[:count]
    seen = heard(bridge(Random(seed), nodes), nodes)
    middles = [node for node in nodes if seen[node] == frozenset(nodes)]

    assert len(middles) == 1
    assert all(middles[0] in group for group in seen.values())
    assert len({group - {middles[0]} for node, group in seen.items() if node != middles[0]}) == 2


@given(count=st.integers(2, 7), seed=seeds)
def test_one_way(count: int, seed: int) -> None:
    """All cuts are between one node and the others, and in one direction only."""
    nodes = NODES[:count]
    snubs = {(hearer, said) for hearer, unheard in one_way(Random(seed), nodes).items() for said in unheard}

    assert len(snubs) == count - 1
    assert not any((said, hearer) in snubs for hearer, said in snubs)


def test_apart_is_both_ways_and_total() -> None:
    """The exact grudge."""
    assert apart(["n1"], ["n1", "n2", "controller"]) == {
        "controller": ["n1"], "n1": ["controller", "n2"], "n2": ["n1"]}
