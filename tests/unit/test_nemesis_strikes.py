"""What each strike asks of a cluster that only records its calls, and what it gives the history."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.faults import FAULTS
from floodmark.harness.protocols import BadDisks, Clocks, MemoryLimits, Packets, Resets, Struck
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.failpoints import POINTS
from floodmark.nemesis.schedule_runner import ScheduleRunner
from floodmark.nemesis.strikes import Strikes, unavailable

NODES = ("n1", "n2", "n3")


def noted(answer: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """A method of a fault: it is refused for one node, noted for the others, and answered so."""
    async def act(self: "Recording", *what: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        if what and what[0] == self.refuses:
            raise FloodmarkError(f"{what[0]} does not obey")
        self.calls.append(what)
        return answer(*what)

    return act


class Recording:
    """A cluster that can suffer everything."""

    name, nodes = "recording", NODES
    abilities: Sequence[object] = ()
    kinds, points = frozenset({"full", "truncated"}), frozenset(POINTS)
    kill = stop_node = start_node = pause = resume = expire = cut = heal = power_cut = noted()
    elect = elect_replica = arm = release = met = crashes = bump = limit = degrade = noted()
    repair, reset, wipe = noted(), noted(lambda _: 4), noted(lambda _: {"lost_records": 7})
    harm = noted(lambda _, kind: {} if kind == "full" else {"lost_records": 2, "position": 90})

    def __init__(self) -> None:
        self.lacks: Mapping[type, str] = {}
        self.refuses: str | None = None
        self.calls: list[tuple[Any, ...]] = []


@pytest.fixture
def cluster() -> Recording:
    return Recording()


def strike(cluster: Recording, f: str, *nodes: str, **args: Any) -> Struck:
    return asyncio.run(Strikes(cluster).strike(Entry(f=f, nodes=nodes, args=args), nodes))


# -- links ------------------------------------------------------------------------------------------------


def test_a_grudge_is_passed_on_with_its_qualities_alone(cluster: Recording) -> None:
    """Other keys of the entry (kind, partition) are not passed on; pseudo-nodes are not among the struck."""
    grudge = {"n2": ["n1", "clients"], "controller": ["n3"]}
    struck = strike(cluster, "packet", grudge=grudge, kind="random", partition=0, loss=0.1, delay_ms=0)

    assert cluster.calls == [(grudge, {"loss": 0.1, "delay_ms": 0})]
    assert struck == Struck(nodes=NODES, detail={"grudge": grudge})


def test_all_links_of_a_node_are_degraded_in_both_directions(cluster: Recording) -> None:
    """Those to the controller too, but not those to clients."""
    struck = strike(cluster, "packet", "n2", rate_kbit=256)

    others = ["controller", "n1", "n3"]
    grudge = {"n2": others, **{other: ["n2"] for other in others}}
    assert cluster.calls == [(grudge, {"rate_kbit": 256})]
    assert (struck.nodes, struck.detail["grudge"]) == (NODES, grudge)


def test_a_reset_reports_how_many_connections_it_closed(cluster: Recording) -> None:
    """Between the nodes of the grudge, or between the given nodes and all others."""
    given = strike(cluster, "reset", grudge={"n2": ["n1"]}, kind="one-way")
    of_nodes = strike(cluster, "reset", *NODES)

    assert cluster.calls[0] == ({"n2": ["n1"]},)
    assert given == Struck(nodes=("n1", "n2"), detail={"grudge": {"n2": ["n1"]}, "connections": 4})
    assert cluster.calls[1] == ({node: ["controller"] for node in NODES} | {"controller": list(NODES)},)
    assert of_nodes.detail["connections"] == 4


# -- clocks and memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("f", "args", "undoes", "value"), [
    ("clock", {"offset_ms": -2500}, "reset_clock", 0), ("memory", {"limit_mb": 32}, "free_memory", None)])
def test_a_value_is_set_on_each_node_and_taken_back(
        cluster: Recording, f: str, args: dict[str, int], undoes: str, value: int | None) -> None:
    assert strike(cluster, f, "n1", "n2", **args) == Struck(nodes=("n1", "n2"))
    assert strike(cluster, undoes, "n1") == Struck(nodes=("n1",))

    assert cluster.calls == [("n1", *args.values()), ("n2", *args.values()), ("n1", value)]


def test_all_nodes_are_struck_even_if_one_fails(cluster: Recording) -> None:
    """The error is raised only after all were struck."""
    cluster.refuses = "n1"

    with pytest.raises(FloodmarkError, match="n1 does not obey"):
        strike(cluster, "clock", "n1", "n2", offset_ms=5)
    assert cluster.calls == [("n2", 5)]


# -- disks ------------------------------------------------------------------------------------------------


def test_a_wipe_needs_only_the_ability_to_wipe(cluster: Recording) -> None:
    cluster.lacks = {BadDisks: "no disks of its own"}

    struck = strike(cluster, "disk", "n1", "n2", kind="wiped")

    assert cluster.calls == [("n1",), ("n2",)]
    assert struck == Struck(nodes=("n1", "n2"), detail={"lost_records": {"n1": 7, "n2": 7}})


def test_a_damaged_disk_reports_by_node_what_was_damaged(cluster: Recording) -> None:
    struck = strike(cluster, "disk", "n3", kind="truncated")

    assert cluster.calls == [("n3", "truncated")]
    assert struck.detail == {"lost_records": {"n3": 2}, "position": {"n3": 90}}


def test_a_bad_disk_is_repaired_on_the_named_nodes(cluster: Recording) -> None:
    struck = strike(cluster, "bad_disk", "n2", kind="full")
    repaired = strike(cluster, "mend_disk", "n2")

    assert cluster.calls == [("n2", "full"), ("n2",)]
    assert (struck.detail, repaired.detail) == ({"lost_records": {"n2": 0}}, {})


@pytest.mark.parametrize(("lacks", "kinds"), [({BadDisks: "none"}, "wiped"), ({}, "full, truncated, wiped")])
def test_an_unsupported_kind_is_refused_before_anything_is_done(
        cluster: Recording, lacks: dict[type, str], kinds: str) -> None:
    cluster.lacks = lacks

    with pytest.raises(FloodmarkError, match=f"cannot be corrupt; they can be {kinds}$"):
        strike(cluster, "disk", "n1", "n2", kind="corrupt")

    assert cluster.calls == []


# -- what a cluster can suffer ----------------------------------------------------------------------------


def test_a_cluster_suffers_what_it_is_able_to_and_the_rest_has_its_reason(cluster: Recording) -> None:
    """Each fault comes with the fault that undoes it."""
    assert Strikes(cluster).answers == FAULTS.keys()
    assert unavailable(cluster) == {}

    cluster.lacks = dict.fromkeys((BadDisks, Clocks, MemoryLimits, Packets, Resets), "a reason")
    missing = {"bad_disk", "mend_disk", "clock", "reset_clock", "memory", "free_memory", "packet", "reset"}
    assert FAULTS.keys() - Strikes(cluster).answers == missing
    assert unavailable(cluster) == dict.fromkeys(missing, "a reason")


def test_two_nemeses_that_answer_one_f_are_a_mistake(cluster: Recording) -> None:
    with pytest.raises(AssertionError, match="answer"):
        ScheduleRunner([Strikes(cluster), Strikes(cluster)], ())
