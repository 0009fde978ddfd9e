"""Failpoints by a schedule: held, crashed, armed while down; and sends to given nodes."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from floodmark.harness.commands.run import planned
from floodmark.harness.history import read
from floodmark.harness.op import NEMESIS, Op, Type
from floodmark.harness.pipeline import record
from floodmark.harness.runner import RunResult
from floodmark.harness.schedule.json_form import read as schedule_of
from floodmark.harness.spec import RunSpec

HEALTHY = {"at": "state", "healthy": True}


def send(value: int, **how: Any) -> dict[str, Any]:
    return {"f": "send", "sends": [{"partition": 0, "value": value}], **how}


def arm(node: str, name: str, action: str, **more: Any) -> dict[str, Any]:
    return {"f": "arm", "nodes": [node], "point": {"name": name, "action": action, **more}}


def until(moment: Mapping[str, Any]) -> dict[str, Any]:
    return {"f": "wait", "moment": dict(moment)}


def at(node: str, name: str, **more: Any) -> dict[str, Any]:
    return {"at": "failpoint", "node": node, "name": name, **more}


SCHEDULE: list[dict[str, Any]] = [
    send(1),
    # n3's append stays unknown before it is released, so the second record waits for its ack.
    arm("n3", "F.appended", "hold", partition=0),
    send(2, nowait=True),
    until(at("n3", "F.appended", partition=0)),
    {"f": "list_offsets", "partitions": [0], "from": "n1"},
    {"f": "release", "nodes": ["n3"], "point": {"name": "F.appended"}},
    until({"at": "ack", "partition": 0, "count": 2, "leader": "n1"}),
    # n2 ends at its armed failpoint, and is back.
    arm("n2", "F.appended", "crash"),
    send(3, nowait=True),
    until(at("n2", "F.appended", then_ns=5_000_000)),
    {"f": "start", "nodes": ["down"]},
    until(HEALTHY),
    # n1 gets a send as if it still led.
    {"f": "elect", "partitions": [0], "leader": "n2"},
    until({"at": "state", "partition": 0, "replica": "n1", "field": "leader", "is": "==", "value": "n2"}),
    send(4, to="n1"),
    send(5, acks="1"),
    # Its ack waits for no follower, and a poll returns what all of the ISR have.
    until({"at": "state", "partition": 0, "replica": "n2", "field": "hw", "is": "==", "value": 4}),
    {"f": "poll", "partitions": [0], "from": "n2", "offset": 1},
    # Armed while it is down: it ends at its start, and starts after that.
    {"f": "kill", "nodes": ["n3"], "moment": HEALTHY},
    arm("n3", "B.registered", "crash"),
    {"f": "start", "nodes": ["n3"]},
    until(at("n3", "B.registered")),
    {"f": "start", "nodes": ["n3"]},
    {"f": "disk", "nodes": ["n3"], "kind": "wiped", "moment": HEALTHY},
    {"f": "start", "nodes": ["n3"]},
    # Left to the mending: a controller's message that is held, a broker that is held and paused as well.
    {**arm("controller", "C.elected", "hold", peer="n1"), "moment": HEALTHY},
    {"f": "elect", "partitions": [0], "leader": "n3"},
    until({"at": "sequence", "of": [at("controller", "C.elected", peer="n1"), {
        "at": "state", "partition": 0, "replica": "n2", "field": "leader", "is": "==", "value": "n3"}]}),
    arm("n2", "F.appended", "hold", scope="broker"),
    send(6, nowait=True, to="n3"),
    until(at("n2", "F.appended")),
    {"f": "pause", "nodes": ["n2"]},
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("failpoints") / "run"
    options = RunSpec(cluster="simulated", nodes=3, concurrency=0, partitions=1, duration=0.1, seed=1,
                         out=folder)
    schedule = schedule_of(SCHEDULE, nodes=("n1", "n2", "n3"), partitions=[0])
    return record(planned(options, schedule))


def ops(ran: RunResult) -> list[Op]:
    return list(read(ran.run.history_path))


def outcome(ran: RunResult, value: int) -> tuple[Type, str | None]:
    """The outcome of the send of this value."""
    [(kind, error)] = [(op.type, op.error) for op in ops(ran) if op.type is not Type.INVOKE
                       and any(one.value == value for one in op.sends or ())]
    return kind, error


def faults(ran: RunResult, f: str) -> list[Mapping[str, Any]]:
    return [op.fault or {} for op in ops(ran) if op.process == NEMESIS and op.f == f]


def test_every_moment_came_and_nothing_is_left_behind(ran: RunResult) -> None:
    """Held processes were released, dead ones started, and no broker died by itself."""
    about = ran.about
    assert (about["ended"], about["missed"], about["died"], about["residue"]) == ("done", [], [], None)
    assert about["settled"], about["settle"]
    assert "floodmark.failpoints" not in (ran.run.folder / "work" / "n3.properties").read_text()


def test_what_was_held_was_not_acked_before_it_was_let_go(ran: RunResult) -> None:
    """The end offset that a client got meanwhile is the HW before it."""
    lines = ops(ran)
    [released] = [op.index for op in lines if op.f == "release"]
    [acked] = [op.index for op in lines if op.type is Type.OK and any(
        one.value == 2 for one in op.sends or ())]
    seen = next(op for op in lines if op.f == "list_offsets" and op.type is Type.OK)
    assert [end.offset for end in seen.offsets] == [1]
    assert seen.index < released
    assert seen.index < acked


def test_deaths_by_armed_crashes_are_kills_with_their_failpoint(ran: RunResult) -> None:
    """By the broker's own clock they were reached before they were noticed; and the trace has them there."""
    by_crash = [fault for fault in faults(ran, "kill") if fault["moment"]["at"] == "failpoint"]
    assert [(fault["nodes"], fault["moment"]["name"]) for fault in by_crash] == [
        (["n2"], "F.appended"), (["n3"], "B.registered")]
    assert all(fault["began"] == fault["reached"]["met"] <= fault["reached"]["time"] for fault in by_crash)
    trace = [orjson.loads(line) for line in ran.run.trace_path.read_bytes().splitlines()]
    crashed = [(line["node"], line["name"], line["time"]) for line in trace
               if line["event"] == "failpoint" and line["action"] == "crash"]
    assert crashed == [(fault["nodes"][0], fault["moment"]["name"], fault["reached"]["met"])
                       for fault in by_crash]


def test_sends_to_a_given_node_are_answered_by_it(ran: RunResult) -> None:
    """A stale client is refused; an ack that promises less than the run does is no ok."""
    assert outcome(ran, 4) == (Type.FAIL, "NOT_LEADER_OR_FOLLOWER")
    assert outcome(ran, 5) == (Type.INFO, None)
    assert [outcome(ran, value)[0] for value in (1, 2, 3)] == [Type.OK] * 3


def test_a_poll_begins_at_the_requested_offset(ran: RunResult) -> None:
    """At offset 1 of n2, which leads by then; up to its HW."""
    polls = [op for op in ops(ran) if op.f == "poll" and op.type is Type.OK]
    assert [(read.offset, read.value) for read in polls[0].reads or ()] == [(1, 2), (2, 3), (3, 5)]


def test_a_wiped_disk_lost_all_it_held(ran: RunResult) -> None:
    """Four records; and the replica was filled again."""
    [wiped] = faults(ran, "disk")
    assert (wiped["lost"], wiped["lost_records"]) == (True, {"n3": 4})
    rows = [orjson.loads(line) for line in (ran.run.folder / "replicas.jsonl").read_bytes().splitlines()]
    assert len({row["leo"] for row in rows}) == 1
