"""The disk nemesis: which ability each kind calls, and the detail it gives for the history."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.nemesis.disk import Disk


class Disks:
    """Wipes and BadDisks that only record their calls."""

    kinds = frozenset({"full", "truncated"})

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    async def wipe(self, node: str) -> Mapping[str, Any]:
        self.calls.append(("wipe", node))
        return {"lost_records": 7}

    async def harm(self, node: str, kind: str) -> Mapping[str, Any]:
        self.calls.append(("harm", node, kind))
        return {} if kind == "full" else {"lost_records": 2, "position": 90}

    async def repair(self, node: str) -> None:
        self.calls.append(("repair", node))


def strike(disk: Disk, f: str, kind: str | None = None, nodes: tuple[str, ...] = ("n1", "n2")) -> Struck:
    entry = Entry(f=f, nodes=nodes, args={} if kind is None else {"kind": kind})
    return asyncio.run(disk.strike(entry, nodes))


def test_a_wipe_needs_only_the_ability_to_wipe() -> None:
    disks = Disks()

    struck = strike(Disk(disks), "disk", "wiped")

    assert disks.calls == [("wipe", "n1"), ("wipe", "n2")]
    assert (struck.nodes, struck.detail) == (("n1", "n2"), {"lost_records": {"n1": 7, "n2": 7}})


def test_a_damaged_disk_reports_by_node_what_was_damaged() -> None:
    disks = Disks()

    struck = strike(Disk(disks, disks), "disk", "truncated", nodes=("n3",))

    assert disks.calls == [("harm", "n3", "truncated")]
    assert struck.detail == {"lost_records": {"n3": 2}, "position": {"n3": 90}}


def test_a_bad_disk_is_repaired_on_the_named_nodes() -> None:
    disks = Disks()
    disk = Disk(disks, disks)

    struck = strike(disk, "bad_disk", "full", nodes=("n2",))
    repaired = strike(disk, "mend_disk", nodes=("n2",))

    assert disks.calls == [("harm", "n2", "full"), ("repair", "n2")]
    assert (struck.detail, repaired.detail) == ({"lost_records": {"n2": 0}}, {})


@pytest.mark.parametrize(("able", "kinds"), [(False, "wiped"), (True, "full, truncated, wiped")])
def test_an_unsupported_kind_is_refused_before_anything_is_done(able: bool, kinds: str) -> None:
    disks = Disks()

    with pytest.raises(FloodmarkError, match=f"cannot be corrupt; they can be {kinds}$"):
        strike(Disk(disks, disks if able else None), "disk", "corrupt")

    assert disks.calls == []


def test_it_offers_only_the_faults_that_its_cluster_supports() -> None:
    disks = Disks()

    assert Disk(disks).answers == {"disk"}
    assert Disk(disks, disks).answers == {"disk", "bad_disk", "mend_disk"}
