"""Degraded links and resets, against a cluster that only records its calls."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from floodmark.harness.protocols import Packets, Resets, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.packet import Packet, Reset

NODES = ("n1", "n2", "n3")


class RecordingCluster:
    """See harness.protocols: Packets, Resets."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def degrade(self, grudge: Mapping[str, Sequence[str]], quality: Mapping[str, float]) -> None:
        self.calls.append((dict(grudge), dict(quality)))

    async def reset(self, grudge: Mapping[str, Sequence[str]]) -> int:
        self.calls.append((dict(grudge),))
        return 4


def strike(nemesis: Packet | Reset, entry: Entry, nodes: tuple[str, ...] = ()) -> Struck:
    assert entry.f in nemesis.answers
    return asyncio.run(nemesis.strike(entry, nodes))


@pytest.fixture
def cluster() -> RecordingCluster:
    made = RecordingCluster()
    assert isinstance(made, Packets)
    assert isinstance(made, Resets)
    return made


def test_a_grudge_is_passed_on_with_its_qualities_alone(cluster: RecordingCluster) -> None:
    """Other keys of the entry (kind, partition) are not passed on; pseudo-nodes are not among the struck."""
    grudge = {"n2": ["n1", "clients"], "controller": ["n3"]}
    struck = strike(Packet(cluster, NODES), Entry(f="packet", args={
        "grudge": grudge, "kind": "random", "partition": 0, "loss": 0.1, "delay_ms": 0}))

    assert cluster.calls == [(grudge, {"loss": 0.1, "delay_ms": 0})]
    assert struck == Struck(nodes=("n1", "n2", "n3"), detail={"grudge": grudge})


def test_all_links_of_a_node_are_degraded_in_both_directions(cluster: RecordingCluster) -> None:
    """Those to the controller too, but not those to clients."""
    struck = strike(Packet(cluster, NODES),
                    Entry(f="packet", nodes=("leader",), args={"rate_kbit": 256}), ("n2",))

    others = ["controller", "n1", "n3"]
    grudge = {"n2": others, **{other: ["n2"] for other in others}}
    assert cluster.calls == [(grudge, {"rate_kbit": 256})]
    assert struck.nodes == NODES
    assert struck.detail["grudge"] == grudge


def test_a_reset_reports_how_many_connections_it_closed(cluster: RecordingCluster) -> None:
    """Between the nodes of the grudge, or between the given nodes and all others."""
    given = strike(Reset(cluster, NODES),
                   Entry(f="reset", args={"grudge": {"n2": ["n1"]}, "kind": "one-way"}))
    of_nodes = strike(Reset(cluster, NODES), Entry(f="reset"), NODES)

    assert cluster.calls[0] == ({"n2": ["n1"]},)
    assert given == Struck(nodes=("n1", "n2"), detail={"grudge": {"n2": ["n1"]}, "connections": 4})
    assert cluster.calls[1] == ({node: ["controller"] for node in NODES} | {"controller": list(NODES)},)
    assert of_nodes.detail["connections"] == 4
