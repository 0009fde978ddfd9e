"""Bad lines and resets, against a cluster that only notes what it is asked."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from floodmark.harness.protocols import Packets, Resets, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.packet import Packet, Reset

NODES = ("n1", "n2", "n3")


class Noting:
    """See harness.protocols: Packets, Resets."""

    def __init__(self) -> None:
        self.did: list[tuple[Any, ...]] = []

    async def degrade(self, grudge: Mapping[str, Sequence[str]], quality: Mapping[str, float]) -> None:
        self.did.append((dict(grudge), dict(quality)))

    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int:
        self.did.append((dict(grudge),))
        return 4


def strike(nemesis: Packet | Reset, entry: Entry, nodes: tuple[str, ...] = ()) -> Struck:
    assert entry.f in nemesis.answers
    return asyncio.run(nemesis.strike(entry, nodes))


@pytest.fixture
def cluster() -> Noting:
    made = Noting()
    assert isinstance(made, Packets)
    assert isinstance(made, Resets)
    return made


def test_a_grudge_is_passed_on_with_its_qualities_alone(cluster: Noting) -> None:
    """Other words of the entry (kind, partition) are no qualities; pseudo-nodes are not among the struck."""
    grudge = {"n2": ["n1", "clients"], "controller": ["n3"]}
    struck = strike(Packet(cluster, NODES), Entry(f="packet", args={
        "grudge": grudge, "kind": "random", "partition": 0, "loss": 0.1, "delay_ms": 0}))

    assert cluster.did == [(grudge, {"loss": 0.1, "delay_ms": 0})]
    assert struck == Struck(nodes=("n1", "n2", "n3"), detail={"grudge": grudge})


def test_nodes_hear_all_others_badly_and_are_heard_so(cluster: Noting) -> None:
    """The controller is one of the others; clients are not."""
    struck = strike(Packet(cluster, NODES),
                    Entry(f="packet", nodes=("leader",), args={"rate_kbit": 256}), ("n2",))

    others = ["controller", "n1", "n3"]
    grudge = {"n2": others, **{other: ["n2"] for other in others}}
    assert cluster.did == [(grudge, {"rate_kbit": 256})]
    assert struck.nodes == NODES
    assert struck.detail["grudge"] == grudge


def test_a_reset_tells_how_many(cluster: Noting) -> None:
    """Once, between those of the grudge, or of the nodes and all the others."""
    given = strike(Reset(cluster, NODES),
                   Entry(f="reset", args={"grudge": {"n2": ["n1"]}, "kind": "one-way"}))
    set_apart = strike(Reset(cluster, NODES), Entry(f="reset"), NODES)

    assert cluster.did[0] == ({"n2": ["n1"]},)
    assert given == Struck(nodes=("n1", "n2"), detail={"grudge": {"n2": ["n1"]}, "connections": 4})
    assert cluster.did[1] == ({node: ["controller"] for node in NODES} | {"controller": list(NODES)},)
    assert set_apart.detail["connections"] == 4
