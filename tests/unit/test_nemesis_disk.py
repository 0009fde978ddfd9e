"""The disk nemesis: which ability each kind asks, and what the history is told."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.disk import Disk


class Disks:
    """Wipes and BadDisks that only note what they are asked."""

    kinds = frozenset({"full", "truncated"})

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def wipe(self, node: str) -> Mapping[str, Any]:
        self.asked.append(("wipe", node))
        return {"lost_records": 7}

    async def harm(self, node: str, kind: str) -> Mapping[str, Any]:
        self.asked.append(("harm", node, kind))
        return {} if kind == "full" else {"lost_records": 2, "position": 90}

    async def repair(self, node: str) -> None:
        self.asked.append(("repair", node))


def strike(disk: Disk, f: str, kind: str | None = None, nodes: tuple[str, ...] = ("n1", "n2")) -> Struck:
    entry = Entry(f=f, nodes=nodes, args={} if kind is None else {"kind": kind})
    return asyncio.run(disk.strike(entry, nodes))


def test_a_wiped_disk_is_the_clusters_own_affair() -> None:
    disks = Disks()

    struck = strike(Disk(disks), "disk", "wiped")

    assert disks.asked == [("wipe", "n1"), ("wipe", "n2")]
    assert (struck.nodes, struck.detail) == (("n1", "n2"), {"lost_records": {"n1": 7, "n2": 7}})


def test_a_damaged_disk_tells_by_node_what_was_damaged() -> None:
    disks = Disks()

    struck = strike(Disk(disks, disks), "disk", "truncated", nodes=("n3",))

    assert disks.asked == [("harm", "n3", "truncated")]
    assert struck.detail == {"lost_records": {"n3": 2}, "position": {"n3": 90}}


def test_a_bad_disk_is_mended_on_the_nodes_that_are_named() -> None:
    disks = Disks()
    disk = Disk(disks, disks)

    struck = strike(disk, "bad_disk", "full", nodes=("n2",))
    mended = strike(disk, "mend_disk", nodes=("n2",))

    assert disks.asked == [("harm", "n2", "full"), ("repair", "n2")]
    assert (struck.detail, mended.detail) == ({"lost_records": {"n2": 0}}, {})


@pytest.mark.parametrize(("able", "can"), [(False, "wiped"), (True, "full, truncated, wiped")])
def test_a_kind_that_cannot_be_is_refused_before_anything_is_done(able: bool, can: str) -> None:
    disks = Disks()

    with pytest.raises(FloodmarkError, match=f"cannot be corrupt; they can be {can}$"):
        strike(Disk(disks, disks if able else None), "disk", "corrupt")

    assert disks.asked == []


def test_what_it_answers_is_what_its_cluster_can() -> None:
    disks = Disks()

    assert Disk(disks).answers == {"disk"}
    assert Disk(disks, disks).answers == {"disk", "bad_disk", "mend_disk"}
