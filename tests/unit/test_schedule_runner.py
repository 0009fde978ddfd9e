"""The schedule runner carrying out schedules against a cluster in memory, through the real recorder."""

from pathlib import Path
from typing import Any

import pytest
from schedule_runner_stand import NODES, SPECS, Small, Stand, sent

from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.op import NEMESIS, Type
from floodmark.harness.protocols import Cuts
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.moments import HEALTHY, Ack, After, FirstOf, Time, read_moment
from floodmark.nemesis import schedule_runner
from floodmark.nemesis.schedule_runner import ScheduleRunner
from floodmark.nemesis.strikes import Strikes


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def test_entries_are_carried_out_in_order_and_each_strike_is_a_line(stand: Stand) -> None:
    """A send, a kill of the leader at its ack, a start of the node that is down."""
    missed = stand.run(
        sent(17), Entry(f="kill", nodes=("leader",), moment=Ack(partition=0, count=1)),
        Entry(f="start", nodes=("down",), moment=After(after_ns=1000)))

    assert missed == ()
    assert stand.small.did == ["kill n1", "start n1"]
    assert [(op.process == NEMESIS, op.type.value, op.f) for op in stand.ops()] == [
        (False, "invoke", "send"), (False, "ok", "send"), (True, "info", "kill"), (True, "info", "start")]
    kill, start = (fault for _, fault in stand.faults())
    assert kill["nodes"] == ["n1"]
    assert kill["asked"] == ["leader"]
    assert kill["moment"] == {"at": "ack", "partition": 0, "count": 1}
    assert kill["reached"]["count"] == 1
    assert kill["reached"]["time"] <= kill["began"]
    assert "lost" not in kill
    assert "where" not in kill
    assert start["nodes"] == ["n1"]
    assert stand.schedule_runner.in_force() == ()


def test_a_fault_at_a_time_records_where_it_struck(stand: Stand) -> None:
    """Acks so far, leader and ISR of each partition, for a reproduction; one that ends a fault has none."""
    stand.run(sent(1), sent(2), Entry(f="pause", nodes=("n3",), moment=Time(time=1_000_000)),
              Entry(f="resume", nodes=("n3",), moment=Time(time=2_000_000, after_ns=1)))

    (_, pause), (_, resume) = stand.faults()
    assert pause["where"] == {"acks": {"0": 2}, "leader": {"0": "n1"}, "isr": {"0": list(NODES)}}
    assert pause["reached"]["time"] >= 1_000_000
    assert "where" not in resume


def test_no_look_between_an_ack_and_a_named_node(stand: Stand) -> None:
    """A look costs time, and names need none."""
    stand.run(sent(1), Entry(f="kill", nodes=("n1",), moment=Ack(partition=0, count=1)))

    assert stand.small.looks == 0


def test_roles_are_resolved_by_the_look_that_reached_the_state(stand: Stand) -> None:
    """One look for both: the leader of that look is struck, and the op records what was seen."""
    stand.small.leads_at_look = {3: "n2", 4: "n3"}
    stand.run(Entry(f="kill", nodes=("leader",), moment=read_moment({
        "at": "state", "partition": 0, "field": "leader", "is": "!=", "value": "n1"})))

    assert stand.small.did == ["kill n2"]
    assert stand.faults()[0][1]["reached"]["seen"] == [{"field": "leader", "value": "n2"}]


def test_of_several_moments_the_first_that_comes_counts(stand: Stand) -> None:
    """The op records which; roles are resolved by the look that reached it. If none comes it is a miss."""
    never = read_moment({"at": "state", "partition": 0, "field": "leader", "is": "==", "value": "n9"})
    led = read_moment({"at": "state", "partition": 0, "field": "leader", "is": "==", "value": "n2"})
    stand.small.leads_at_look = {5: "n2"}
    missed = stand.run(
        Entry(f="kill", nodes=("leader",), moment=FirstOf(of=(never, led))),
        Entry(f="pause", nodes=("n3",), moment=FirstOf(of=(never, never)), timeout_s=0.02))

    assert missed == (1,)
    assert stand.small.did == ["kill n2"]
    assert stand.faults()[0][1]["reached"]["first"] == 1


def test_a_missed_moment_is_reported_and_the_rest_goes_on(stand: Stand) -> None:
    """The kill is left out, the start is made all the same, the last send is sent."""
    never = read_moment({"at": "state", "partition": 0, "field": "leader", "is": "==", "value": "n9"})
    missed = stand.run(
        Entry(f="kill", nodes=("n1",), moment=Ack(partition=0, count=1), timeout_s=0.02),
        Entry(f="pause", nodes=("n2",)),
        Entry(f="wait", moment=never, timeout_s=0.02),
        Entry(f="resume", nodes=("n2",), moment=never, timeout_s=0.02),
        sent(1))

    assert missed == (0, 2, 3)
    assert stand.small.did == ["pause n2", "resume n2"]
    assert stand.faults()[1][1]["reached"] is None
    assert stand.ops()[-1].type is Type.OK


def test_a_role_without_a_node_is_waited_for(stand: Stand) -> None:
    """There is no leader at first."""
    stand.small.leader = None
    stand.small.leads_at_look = {4: "n3"}
    assert stand.run(Entry(f="kill", nodes=("leader",))) == ()
    assert stand.small.did == ["kill n3"]


def test_a_role_that_never_has_a_node_is_a_miss(stand: Stand) -> None:
    """Nothing is struck and nothing recorded."""
    stand.small.leader = None
    assert stand.run(Entry(f="kill", nodes=("leader",), timeout_s=0.03), Entry(f="kill", nodes=("down",)),
                     Entry(f="start", nodes=("down",))) == (0, 1)
    assert stand.faults() == []


def test_healthy_waits_for_the_faults_of_the_schedule_runner_itself(stand: Stand) -> None:
    """A paused node looks healthy from outside for a while; the schedule runner knows that it is paused."""
    assert stand.run(Entry(f="pause", nodes=("n2",)), Entry(f="wait", moment=HEALTHY, timeout_s=0.03),
                     Entry(f="resume", nodes=("paused",)), Entry(f="wait", moment=HEALTHY)) == (1,)


@pytest.mark.parametrize(("paused", "leader", "waited"), [
    (True, "n1", ["0.04 s)", "0.05 s)", "0.01 s)"]),
    (False, None, ["0.04 s)", "0.02 s)", "0.01 s)"]),
    (False, "n1", []),
])
def test_a_cluster_that_stays_unhealthy_does_not_prolong_its_run(
        stand: Stand, monkeypatch: pytest.MonkeyPatch, paused: bool, leader: str | None, waited: list[str]
) -> None:
    """Only the first wait has its whole time, except while a fault is in force."""
    monkeypatch.setattr(schedule_runner, "UNHEALTHY_S", 0.02)
    stand.small.leader = leader
    pauses = [Entry(f="pause", nodes=("n2",))] if paused else []
    waits = [Entry(f="wait", moment=HEALTHY, timeout_s=time_s) for time_s in (0.04, 0.05, 0.01)]
    missed = stand.run(*pauses, *waits)
    words = stand.schedule_runner.missed_words()
    assert [words[position]["waited_for"].rsplit("(")[-1] for position in missed] == waited


@pytest.mark.parametrize(("args", "keep"), [
    ({}, "None"), ({"keep": {"0": 5}}, "{0: 5}"), ({"keep_share": 0.5}, "{0: 7}"),
])
def test_a_power_cut_is_recorded_as_a_loss(stand: Stand, args: dict[str, Any], keep: str) -> None:
    """What was requested to be kept, what was kept, and `lost`; a share is of the log's records (2 to 12)."""
    stand.run(Entry(f="power_cut", nodes=("n1",), args=args, moment=HEALTHY))

    assert stand.small.did == [f"power_cut keep={keep} n1"]
    f, fault = stand.faults()[0]
    assert (f, fault["lost"], fault["kept"], fault["lost_records"]) == (
        "power_cut", True, {"n1": {"0": 5}}, {"n1": 5})
    assert {key: fault[key] for key in args} == args
    assert stand.schedule_runner.in_force() == ("power_cut n1",)


def test_cuts_by_grudge_and_by_node(stand: Stand) -> None:
    """Roles in a grudge are resolved; nodes without a grudge are cut off from all and the controller."""
    grudge = {"follower": ["leader", "clients"]}
    stand.run(Entry(f="cut", args={"kind": "one-way", "grudge": grudge, "reset": True}), Entry(f="heal"),
              Entry(f="cut", nodes=("leader",)))

    assert stand.small.did == [
        "cut {'n2': ['n1', 'clients']} True", "heal",
        "cut {'controller': ['n1'], 'n1': ['controller', 'n2', 'n3'], 'n2': ['n1'], 'n3': ['n1']} False"]
    assert [fault["nodes"] for _, fault in stand.faults()] == [["n1", "n2"], [], ["n1", "n2", "n3"]]
    assert stand.faults()[0][1]["grudge"] == {"n2": ["n1", "clients"]}
    assert stand.schedule_runner.in_force() == ("cut n1 n2 n3",)


def test_an_unclean_election_is_recorded_as_unclean(stand: Stand) -> None:
    """The judge reads `unclean` from the op."""
    stand.run(Entry(f="elect", args={"partitions": [0], "unclean": True}))

    assert stand.faults()[0][1]["unclean"] is True
    assert stand.small.did == ["elect [0] True"]


def test_a_strike_that_fails_is_raised_and_recorded(stand: Stand) -> None:
    """Its entry is named; what may have lost data is in the history though it failed half-way."""
    stand.small.refuses = "n2"
    with pytest.raises(FloodmarkError, match=r"entry 1 of the schedule \(power_cut n1 n2\): n2 does not"):
        stand.run(sent(1), Entry(f="power_cut", nodes=("n1", "n2")))

    f, fault = stand.faults()[0]
    assert (f, fault["lost"], fault["error"], fault["nodes"]) == (
        "power_cut", True, "n2 does not obey", ["n1", "n2"])
    assert "power_cut n1" in stand.schedule_runner.in_force()


def test_a_strike_on_a_node_that_exited_by_itself_is_missed(stand: Stand) -> None:
    """The run goes on; the strike that failed has its line. (Without such an exit it ends the run: above.)"""
    stand.small.refuses = "n1"
    stand.small.dead = ["n1"]
    missed = stand.run(sent(1), Entry(f="pause", nodes=("n1",)), sent(2), Entry(f="kill", nodes=("n2",)))

    assert missed == (1,)
    assert stand.small.did == ["kill n2"]
    [(_, pause), (_, kill)] = stand.faults()
    assert pause["error"] == "n1 does not obey"
    assert "error" not in kill


def test_an_entry_that_no_nemesis_answers_is_refused_before_anything_strikes(tmp_path: Path) -> None:
    """A cluster that cannot be cut, and a schedule that cuts at its end."""
    stand = Stand(tmp_path)
    stand.small.lacks = {Cuts: "its links are direct"}
    stand.schedule_runner = ScheduleRunner([Strikes(stand.small)], SPECS, stand.small)
    with pytest.raises(UsageError, match=r"entry 1 of .* \(heal\) .*: this cluster cannot suffer heal"):
        stand.run(Entry(f="kill", nodes=("n1",)), Entry(f="heal"))

    assert stand.small.did == []


def test_two_nemeses_that_answer_one_f_are_a_mistake() -> None:
    """Composition asserts that the sets are disjoint."""
    with pytest.raises(AssertionError, match="answer"):
        ScheduleRunner([Strikes(Small()), Strikes(Small())], SPECS)


def test_the_arsenal_has_every_fault_that_the_cluster_supports(tmp_path: Path) -> None:
    """The local cluster: everything."""
    from floodmark.harness import catalog

    cluster = catalog.cluster("local", tmp_path, 3, rules="kip-320", bugs=(), config={}, links="proxied")

    assert Strikes(cluster).answers == frozenset({
        "kill", "stop", "start", "pause", "resume", "cut", "heal", "power_cut", "expire", "elect", "disk",
        "arm", "release"})
