"""The schedule runner at failpoints: armed, met, released; armed crashes; sequences; open sends."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from schedule_runner_stand import Stand, sent

from floodmark.harness.op import NEMESIS, Intent, Type
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.moments import (
    HEALTHY,
    Ack,
    After,
    Failpoint,
    InTurn,
    Moment,
    Time,
    read_moment,
)
from floodmark.harness.schedule.views import Met

POINT = {"name": "F.truncated", "action": "hold", "partition": 0}
CRASH = {"name": "F.truncated", "action": "crash"}
MET = Failpoint(node="n2", name="F.truncated")
AT_ONCE = After(after_ns=0)


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def arm(*nodes: str, point: dict[str, Any] = POINT) -> Entry:
    return Entry(f="arm", nodes=nodes, args={"point": point})


def wait(moment: Moment, timeout_s: float = 0.05) -> Entry:
    return Entry(f="wait", moment=moment, timeout_s=timeout_s)


def reach(stand: Stand, node: str = "n2", **more: Any) -> None:
    """The node reaches the failpoint now."""
    stand.small.mets.append(Met(**{
        "node": node, "name": "F.truncated", "action": "hold", "time_ns": stand.recorder.now_ns(),
        "partition": 0, "epoch": 2, "held": True, **more}))


def test_arms_and_releases_are_lines_like_any_other(stand: Stand) -> None:
    """With the point and the roles of the entry, and how many were released."""
    stand.run(arm("follower", "n3"), Entry(f="release", nodes=("n2",), args={"point": {"keep": True}}),
              Entry(f="release", nodes=("n2", "n3")))

    assert stand.small.did == ["arm F.truncated hold n2", "arm F.truncated hold n3",
                               "release {'keep': True} n2", "release {} n2", "release {} n3"]
    (_, armed), (_, kept), (_, released) = stand.faults()
    assert (armed["nodes"], armed["asked"], armed["point"]) == (["n2", "n3"], ["follower", "n3"], POINT)
    assert kept["released"] == {"n2": 1}
    assert released["released"] == {"n2": 1, "n3": 1}


def test_a_failpoint_reached_is_recorded_with_when_it_was_met_and_when_that_was_known(stand: Stand) -> None:
    """So the time from met to struck can be read; the role in the moment is resolved."""
    stand.small.on["arm F.truncated hold n2"] = lambda: reach(stand, offset=5, peer="n1")
    kill = Entry(f="kill", nodes=("leader",), moment=replace(MET, node="follower"))
    assert stand.run(arm("n2"), kill) == ()

    f, fault = stand.faults()[1]
    reached = fault["reached"]
    assert (f, fault["nodes"]) == ("kill", ["n1"])
    assert {key: reached[key] for key in ("node", "name", "partition", "epoch", "offset", "peer", "count")
            } == {"node": "n2", "name": "F.truncated", "partition": 0, "epoch": 2, "offset": 5, "peer": "n1",
                  "count": 1}
    assert reached["met"] <= reached["time"] <= fault["began"]


@pytest.mark.parametrize("condition", [
    {"node": "n3"}, {"name": "F.appended"}, {"partition": 1}, {"epoch": 3}, {"offset": 6}, {"peer": "n3"},
    {"count": 2},
], ids=str)
def test_near_misses_of_a_failpoint(stand: Stand, condition: dict[str, Any]) -> None:
    """Another node, point, partition, epoch, offset or peer; or not often enough."""
    stand.small.on["arm F.truncated hold n2"] = lambda: reach(stand, offset=5, peer="n1")
    others = [{**POINT, "name": "F.appended"}, {**POINT, "partition": 1}]

    assert stand.run(*(arm("n2", "n3", point=point) for point in others), arm("n2", "n3"),
                     wait(replace(MET, **condition))) == (3,)


def test_a_failpoint_met_before_it_was_last_armed_does_not_count(stand: Stand) -> None:
    """What is armed again must be reached again."""
    stand.small.on["arm F.truncated hold n2"] = lambda: reach(stand)
    assert stand.run(arm("n2"), wait(MET), arm("n2"), wait(MET)) == (3,)


def test_an_armed_crash_is_a_kill_in_the_history(stand: Stand) -> None:
    """With the failpoint as its moment; the node is down from then on, for roles and for healthy."""
    stand.small.on["arm F.truncated crash n2"] = lambda: stand.small.crash("n2", stand.recorder.now_ns())
    assert stand.run(arm("n2", point=CRASH), wait(MET), wait(HEALTHY),
                     Entry(f="start", nodes=("down",)), wait(HEALTHY)) == (2,)

    assert stand.small.did == ["arm F.truncated crash n2", "start n2"]
    (_, armed), (f, kill), (_, start) = stand.faults()
    assert f == "kill"
    assert kill["nodes"] == ["n2"]
    assert kill["moment"] == {"at": "failpoint", "node": "n2", "name": "F.truncated", "partition": 0}
    assert armed["began"] <= kill["began"] == kill["reached"]["met"] <= kill["reached"]["time"]
    assert start["asked"] == ["down"]
    assert stand.schedule_runner.in_force() == ()


def test_a_crash_is_recorded_while_something_else_is_waited_for(stand: Stand) -> None:
    """The kill is between the sends, not at the end."""
    async def crashes(intent: Intent) -> None:
        if intent.sends[0].value == 1:
            stand.small.crash("n2", stand.recorder.now_ns())

    stand.answers = crashes
    stand.run(arm("n2", point=CRASH), sent(1), wait(After(after_ns=50_000_000)), sent(2))

    assert [op.f for op in stand.ops() if op.process == NEMESIS or op.type is Type.INVOKE] == [
        "arm", "send", "kill", "send"]
    assert stand.schedule_runner.in_force() == ("kill n2",)


def test_a_crash_at_the_very_end_is_recorded(stand: Stand) -> None:
    """Nothing is waited for any more."""
    stand.small.on["arm F.truncated crash n2"] = lambda: stand.small.crash("n2", stand.recorder.now_ns())
    stand.run(arm("n2", point=CRASH))

    assert [f for f, _ in stand.faults()] == ["arm", "kill"]


def test_a_node_that_is_down_may_be_waited_for_while_a_crash_is_armed(stand: Stand) -> None:
    """A start of the node that is down, before any is."""
    def later() -> None:
        asyncio.get_running_loop().call_later(
            0.05, lambda: stand.small.crash("n2", stand.recorder.now_ns()))

    stand.small.on["arm F.truncated crash n2"] = later
    assert stand.run(arm("n2", point=CRASH), Entry(f="start", nodes=("down",), timeout_s=10)) == ()
    assert stand.small.did[-1] == "start n2"


def test_a_node_that_crashed_before_it_was_started_is_not_down(stand: Stand) -> None:
    """Its exit becomes known while the start is under way."""
    crashed_ns = []
    stand.small.on["arm F.truncated crash n2"] = lambda: crashed_ns.append(stand.recorder.now_ns())
    stand.small.on["start n2"] = lambda: stand.small.crash("n2", crashed_ns[0])
    stand.run(arm("n2", point=CRASH), Entry(f="start", nodes=("n2",)))

    assert [f for f, _ in stand.faults()] == ["arm", "start", "kill"]
    assert stand.schedule_runner.in_force() == ()


def test_a_release_whose_moment_does_not_come_is_made_all_the_same(stand: Stand) -> None:
    """Otherwise the node would stay held."""
    assert stand.run(arm("n2"), Entry(f="release", nodes=("n2",), moment=MET, timeout_s=0.02)) == (1,)
    assert stand.small.did[-1] == "release {} n2"


# -- moments ------------------------------------------------------------------------------------------------

def test_a_time_records_how_late_it_was(stand: Stand) -> None:
    """The requested against the actual time."""
    stand.run(Entry(f="pause", nodes=("n2",), moment=Time(time=1_000_000)))

    reached = stand.faults()[0][1]["reached"]
    assert reached["asked"] == 1_000_000
    assert reached["late_ns"] == reached["time"] - reached["asked"] >= 0


def test_then_counts_from_when_the_moment_came(stand: Stand) -> None:
    """At a failpoint from when it was met, which may be long ago; and the strike comes after it."""
    stand.small.on["arm F.truncated hold n2"] = lambda: reach(stand)
    stand.run(sent(1), arm("n2"), wait(After(after_ns=30_000_000)),
              Entry(f="kill", nodes=("n1",), moment=replace(MET, then_ns=20_000_000)),
              Entry(f="kill", nodes=("n3",), moment=Ack(partition=0, count=1, then_ns=20_000_000)))

    (_, _), (_, at_once), (_, later) = stand.faults()
    assert at_once["reached"]["then_ns"] >= 30_000_000
    assert later["reached"]["then_ns"] >= 20_000_000
    assert later["began"] - later["reached"]["time"] >= 20_000_000


def test_a_sequence_goes_one_after_the_other(stand: Stand) -> None:
    """An ack, what follows it, a state; the last one's look resolves the roles. Each is recorded."""
    stand.run(sent(1), Entry(f="kill", nodes=("leader",), moment=read_moment({"at": "sequence", "of": [
        {"at": "ack", "partition": 0, "count": 1}, {"at": "after", "after_ns": 1000, "then_ns": 1000},
        {"at": "state", "partition": 0, "field": "leader", "is": "==", "value": "n1"}]})))

    kill = stand.faults()[0][1]
    acked, waited, seen = kill["reached"]["of"]
    assert kill["nodes"] == ["n1"]
    assert acked["count"] == 1
    assert waited["time"] - acked["time"] >= 1000
    assert waited["then_ns"] >= 1000
    assert seen["seen"] == [{"field": "leader", "value": "n1"}]
    assert stand.small.looks == 1


def test_a_sequence_of_which_one_does_not_come_is_missed(stand: Stand) -> None:
    """Within one time-out for all; the sequence's own waits do not count."""
    never = Ack(partition=0, count=9)
    assert stand.run(sent(1), wait(InTurn(of=(AT_ONCE, never))),
                     wait(InTurn(of=(After(after_ns=60_000_000), Ack(partition=0, count=1))))) == (1,)


@pytest.mark.parametrize(("leader", "missed"), [("n1", ()), ("leader", ()), ("n2", (2,))])
def test_acks_of_one_leader(stand: Stand, leader: str, missed: tuple[int, ...]) -> None:
    """By name or by role; another's do not count."""
    moment = Ack(partition=0, count=2, leader=leader)
    assert stand.run(sent(1), sent(2), wait(moment)) == missed


# -- acts ---------------------------------------------------------------------------------------------------

def test_a_wiped_disk_is_a_loss_and_the_node_is_down(stand: Stand) -> None:
    """A start ends the fault; the lost records stay lost."""
    stand.run(Entry(f="disk", nodes=("n3",), args={"kind": "wiped"}, moment=HEALTHY))

    f, fault = stand.faults()[0]
    assert (f, fault["lost"], fault["kind"], fault["lost_records"]) == ("disk", True, "wiped", {"n3": 12})
    assert stand.schedule_runner.in_force() == ("disk n3",)


def test_an_election_of_one_replica(stand: Stand) -> None:
    """Named by its role; the op records the node."""
    stand.run(Entry(f="elect", args={"partitions": [0], "leader": "follower", "unclean": True}))

    assert stand.small.did == ["elect [0] True n2"]
    assert stand.faults()[0][1]["leader"] == "n2"


def test_scripted_ops_name_their_node_and_options(stand: Stand) -> None:
    """Roles get names; what is left out is left to the workload."""
    stand.run(sent(1),
              Entry(f="send", args={"sends": [{"partition": 0, "value": 2}], "to": "follower", "acks": "1"}),
              Entry(f="poll", args={"partitions": [0], "from": "n3", "offset": 4}),
              Entry(f="list_offsets", args={"partitions": [0], "from": "leader"}))

    assert [(one.f, one.node, one.acks, one.offset, one.patience_s) for one in stand.intents] == [
        ("send", None, None, None, None), ("send", "n2", "1", None, None), ("poll", "n3", None, 4, None),
        ("list_offsets", "n1", None, None, None)]


def test_a_send_that_is_not_waited_for_stays_open_while_the_schedule_goes_on(stand: Stand) -> None:
    """Sent before the next entry, answered only after the release; its completion is recorded."""
    released = asyncio.Event()

    async def answer(intent: Intent) -> None:
        if intent.patience_s is not None:
            await released.wait()

    stand.answers = answer
    stand.small.on["release {} n2"] = released.set
    entry = Entry(f="send", args={"sends": [{"partition": 0, "value": 7}], "nowait": True})
    assert stand.run(entry, Entry(f="kill", nodes=("n1",)), sent(8), Entry(f="release", nodes=("n2",))) == ()

    lines = [(op.f, op.type.value, [send.value for send in op.sends or ()]) for op in stand.ops()]
    assert lines[:4] == [("send", "invoke", [7]), ("kill", "info", []), ("send", "invoke", [8]),
                         ("send", "ok", [8])]
    assert sorted(lines[4:]) == [("release", "info", []), ("send", "ok", [7])]
