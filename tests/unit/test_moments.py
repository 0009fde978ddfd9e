"""States, roles and active faults at one look: pure functions on a View."""

from collections.abc import Mapping
from typing import Any

import pytest

from floodmark.harness.schedule.moments import HEALTHY, WhenState, read_moment
from floodmark.harness.schedule.stage import ActiveFaults, Stage, resolve
from floodmark.harness.schedule.views import PartitionView, ReplicaView, View

NODES = ("n1", "n2", "n3")
STAGE = Stage(replicas={0: NODES, 1: ("n2", "n1")})


def replica(node: str, partition: int, **own: Any) -> ReplicaView:
    fields: dict[str, Any] = {"leader": "n1", "epoch": 3, "log_start": 0, "leo": 5, "hw": 4, "isr": NODES,
                              "checkpointed_hw": 3, "epochs": ((0, 0),), "clean": True, **own}
    return ReplicaView(node=node, partition=partition, **fields)


def look(*, leader: str | None = "n1", isr: tuple[str, ...] = NODES, running: tuple[str, ...] = NODES,
         unfenced: tuple[str, ...] = NODES, silent: tuple[str, ...] = (),
         own: Mapping[str, Any] | None = None) -> View:
    """Partition 0 as given, partition 1 healthy on n2 and n1. own: fields of n3's replica."""
    replicas = [replica(node, 0, **(own or {}) if node == "n3" else {}) for node in NODES]
    replicas += [replica(node, 1, isr=("n2", "n1"), leader="n2", epoch=2) for node in ("n1", "n2")]
    return View(
        time_ns=0, running=frozenset(running), unfenced=frozenset(unfenced),
        replicas={(one.node, one.partition): one for one in replicas if one.node not in silent},
        partitions={
            0: PartitionView(partition=0, leader=leader, epoch=3, isr=isr, partition_epoch=7),
            1: PartitionView(partition=1, leader="n2", epoch=2, isr=("n2", "n1"), partition_epoch=0),
        })


def state(**fields: Any) -> dict[str, Any]:
    return {"partition": 0, **{"is" if name == "how" else name: value for name, value in fields.items()}}


def holds(condition: dict[str, Any], view: View, stage: Stage) -> bool:
    moment = read_moment({"at": "state", **condition})
    assert isinstance(moment, WhenState)
    return moment.state.holds(view, stage)


@pytest.mark.parametrize(("condition", "expected"), [
    (state(replica="n3", field="hw", how="<", value=5), True),
    (state(replica="n3", field="hw", how="<", value=4), False),
    (state(replica="n3", field="hw", how="<", value={"replica": "n3", "field": "leo"}), True),
    (state(replica="n3", field="leo", how="<=", value={"replica": "leader", "field": "leo"}), True),
    (state(replica="n3", field="epoch", how=">=", value={"field": "epoch"}), True),
    (state(replica="n3", field="epoch", how="<=", value={"partition": 1, "field": "epoch"}), False),
    (state(replica="n3", field="checkpointed_hw", how="==", value=3), True),
    (state(replica="n3", field="leader", how="==", value="n1"), True),
    (state(replica="n3", field="leader", how="!=", value=None), True),
    (state(replica="every", field="leo", how="==", value=5), True),
    (state(replica="every", field="hw", how="==", value={"replica": "leader", "field": "leo"}), False),
    (state(replica="follower", field="leo", how=">", value=4), True),
    (state(field="leader", how="==", value="n1"), True),
    (state(field="isr", how="==", value=["n3", "n2", "n1"]), True),
    (state(field="isr", how="==", value=["n1", "n2"]), False),
    (state(field="isr", how="!=", value=["n1", "n2"]), True),
    (state(field="isr", how="contains", value="n3"), True),
    (state(field="isr", how="lacks", value="n3"), False),
    (state(field="isr", how="contains", value={"field": "leader"}), True),
    ({"replica": "n3", "field": "running", "is": "==", "value": True}, True),
    ({"replica": "every", "partition": 1, "field": "running", "is": "==", "value": False}, False),
    ({"all": [state(field="epoch", how="==", value=3), state(field="leader", how="==", value="n1")]}, True),
    ({"all": [state(field="epoch", how="==", value=3), state(field="leader", how="==", value="n2")]}, False),
    ({"any": [state(field="epoch", how="==", value=4), state(field="leader", how="==", value="n1")]}, True),
    ({"any": [state(field="epoch", how="==", value=4), state(field="leader", how="==", value="n2")]}, False),
    ({"healthy": True}, True),
], ids=str)
def test_states(condition: dict[str, Any], expected: bool) -> None:
    """Each form of a state, hit and near miss."""
    assert holds(condition, look(), STAGE) is expected


@pytest.mark.parametrize("condition", [
    state(replica="n3", field="hw", how="<", value=100),
    state(replica="n3", field="hw", how="!=", value=100),
    state(replica="n3", field="isr", how="lacks", value="n9"),
    state(replica="every", field="hw", how="<", value=100),
    state(replica="n1", field="hw", how="<=", value={"replica": "n3", "field": "hw"}),
    {"partition": 9, "field": "leader", "is": "!=", "value": "n1"},
    {"partition": 9, "replica": "every", "field": "leo", "is": ">=", "value": 0},
], ids=str)
def test_what_cannot_be_seen_fulfils_no_condition(condition: dict[str, Any]) -> None:
    """n3 does not answer; there is no partition 9. `every` of no replica is not fulfilled either."""
    assert not holds(condition, look(silent=("n3",)), STAGE)


def test_a_role_without_a_node_fulfils_no_condition() -> None:
    """No leader: no condition on the leader's replica is fulfilled."""
    own_leo = state(replica="leader", field="leo", how=">=", value=0)
    assert not holds(own_leo, look(leader=None), STAGE)
    assert holds(state(field="leader", how="==", value=None), look(leader=None), STAGE)


@pytest.mark.parametrize(("view", "stage"), [
    (look(running=("n1", "n2")), STAGE),
    (look(unfenced=("n1", "n2")), STAGE),
    (look(isr=("n1", "n2")), STAGE),
    (look(leader=None), STAGE),
    (look(silent=("n3",)), STAGE),
    (look(own={"leader": None, "epoch": 3}), STAGE),
    (look(own={"epoch": 2}), STAGE),
    (look(own={"proposing": True}), STAGE),
    (look(), Stage(replicas=STAGE.replicas, faults=ActiveFaults(lasting=(("cut", "halves"),)))),
    (look(), Stage(replicas={**STAGE.replicas, 9: ("n1",)})),
])
def test_near_misses_of_healthy(view: View, stage: Stage) -> None:
    """One broker down, fenced, out of an ISR or silent; back without a leader yet, or with an older epoch; a
    shrink under way; no leader; a fault in force; a partition unseen."""
    assert not HEALTHY.state.holds(view, stage)


@pytest.mark.parametrize(("name", "expected"), [
    ("leader", ("n1",)), ("follower", ("n2",)), ("last-in-isr", ("n3",)), ("controller", ("controller",)),
    ("down", ("n3",)), ("paused", ("n2",)), ("n3", ("n3",)),
])
def test_roles(name: str, expected: tuple[str, ...]) -> None:
    """Each role of partition 0."""
    stage = Stage(replicas=STAGE.replicas, faults=ActiveFaults(lasting=(("power_cut", "n3"),
                                                                        ("pause", "n2"))))

    assert resolve([name], 0, look(), stage) == expected


def test_roles_depend_on_the_partition_and_the_look() -> None:
    """Another partition, another leader, a short ISR, no leader."""
    assert resolve(["leader", "follower"], 1, look(), STAGE) == ("n2", "n1")
    assert resolve(["last-in-isr"], 0, look(isr=("n3", "n1")), STAGE) == ("n3",)
    assert resolve(["last-in-isr"], 0, look(isr=("n2", "n1")), STAGE) == ("n2",)
    assert resolve(["follower"], 0, look(leader="n2"), STAGE) == ("n1",)
    assert resolve(["n2", "leader"], 0, look(leader=None), STAGE) is None
    assert resolve(["follower"], 0, look(leader=None), STAGE) is None
    assert resolve(["down"], 0, look(), STAGE) is None
    assert resolve(["n1", "leader"], 0, look(), STAGE) == ("n1",)  # each once


def test_which_step_ends_which_fault() -> None:
    """Starts, resumes and heals; a kill ends a pause too; an expiry does not last."""
    ledger = ActiveFaults().after("pause", ["n1", "n2"]).after("cut", ["halves"]).after("kill", ["n1"])
    assert ledger.describe() == ("pause n2", "cut halves", "kill n1")
    assert (ledger.down, ledger.paused, ledger.cut) == (("n1",), ("n2",), True)
    assert ledger.after("expire", ["n2"]) == ledger
    assert ledger.after("start", ["n2"]) == ledger
    assert ledger.after("kill", ["n1"]) == ledger
    assert ledger.after("power_cut", ["n1"]).describe() == ("pause n2", "cut halves", "power_cut n1")
    assert ledger.after("heal", []).describe() == ("pause n2", "kill n1")
    assert ledger.after("heal", []).after("resume", ["n2"]).after("start", ["n1"]) == ActiveFaults()


def test_an_armed_failpoint_is_no_fault_in_force_and_ends_with_its_process() -> None:
    """Or with a release that matches it; a release with `keep` or `through_epoch` does not end it."""
    crash = {"name": "F.truncated", "action": "crash"}
    hold = {"name": "C.elected", "action": "hold", "peer": "n1"}
    ledger = ActiveFaults().after("arm", ["n1", "n2"], point=crash, began_ns=5).after("arm", ["n3"],
                                                                                      point=hold)
    assert ledger.lasting == ()
    assert ledger.may_crash
    assert ledger.after("release", ["n1", "n2"]).may_crash is False
    assert ledger.after("release", ["n1"]).may_crash
    assert ledger.after("release", ["n1", "n2"], point={"name": "F.appended"}).may_crash
    assert ledger.after("release", ["n1", "n2"], point={"name": "F.truncated", "keep": True}).may_crash
    assert not ledger.after("kill", ["n1"]).after("power_cut", ["n2"]).may_crash
    assert ledger.after("kill", ["n1"]).after("kill", ["n2"]).after("arm", ["n2"], point=crash).may_crash
    passed = ledger.after("release", ["n3"], point={"name": "C.elected", "through_epoch": 1})
    assert [one.live for one in passed.armed] == [True, True, True]
