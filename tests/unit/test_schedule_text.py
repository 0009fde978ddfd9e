"""Schedules read from JSON and written back; mistakes are reported with their place and what is valid."""

import json
from pathlib import Path
from typing import Any

import pytest

from floodmark.harness.errors import UsageError
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.json_form import load, read, write
from floodmark.harness.schedule.moments import Time

NODES = ("n1", "n2", "n3")
STATE = {"at": "state", "partition": 0, "replica": "n3", "field": "hw", "is": "<", "value": 4}

VALID: list[dict[str, Any]] = [
    {"f": "kill", "nodes": ["leader"], "partition": 1, "moment": {"at": "ack", "partition": 0, "count": 1}},
    {"f": "stop", "nodes": ["n1", "n2"], "moment": {"at": "time", "time": 5}},
    {"f": "start", "nodes": ["down"], "moment": {"at": "time", "time": 5, "after_ns": 3}},
    {"f": "pause", "nodes": ["follower"], "moment": {"at": "after", "after_ns": 0}},
    {"f": "resume", "nodes": ["paused"]},
    {"f": "cut", "kind": "bridge", "grudge": {"leader": ["n1", "clients"], "controller": ["n2"]},
     "reset": True},
    {"f": "cut", "nodes": ["last-in-isr"]},
    {"f": "heal"},
    {"f": "power_cut", "nodes": ["n1"], "keep": {"0": 5}, "moment": {"at": "state", "healthy": True}},
    {"f": "power_cut", "nodes": ["n1"], "keep_share": 0.5},
    {"f": "expire", "nodes": ["n1"]},
    {"f": "elect"},
    {"f": "elect", "partitions": [0, 1], "unclean": True},
    {"f": "send", "sends": [{"partition": 0, "value": 17}, {"partition": 0, "value": 18}]},
    {"f": "send", "sends": [{"partition": 0, "value": 19}], "acks": "1", "to": "n2", "nowait": True},
    {"f": "poll", "partitions": [0], "from": "follower", "offset": 3},
    {"f": "list_offsets", "partitions": [0, 1], "from": "n1"},
    {"f": "elect", "partitions": [0], "leader": "follower"},
    {"f": "disk", "nodes": ["n1"], "kind": "wiped"},
    {"f": "arm", "nodes": ["n2", "leader"], "point": {
        "name": "F.truncated", "action": "hold", "partition": 0, "epoch": 2, "peer": "n1", "offset": 5,
        "times": 0, "skip": 1, "scope": "broker"}},
    {"f": "arm", "nodes": ["controller"], "point": {"name": "C.elected", "action": "drop", "peer": "n3"}},
    {"f": "arm", "nodes": ["n1"], "point": {"name": "L.alter_sent", "action": "delay", "for_ms": 100}},
    {"f": "release", "nodes": ["n1"]},
    {"f": "release", "nodes": ["controller"], "point": {
        "name": "C.elected", "partition": 0, "peer": "n3", "through_epoch": 2, "keep": True}},
    {"f": "kill", "nodes": ["leader"], "moment": {
        "at": "ack", "partition": 0, "count": 2, "leader": "n1", "then_ns": 5000}},
    {"f": "wait", "moment": {"at": "sequence", "then_ns": 0, "of": [
        {"at": "after", "after_ns": 1, "then_ns": 2}, STATE, {"at": "sequence", "of": [STATE]}]}},
    {"f": "wait", "moment": STATE, "timeout_s": 2.5},
    {"f": "wait", "moment": {"at": "state", "any": [
        {"partition": 0, "field": "leader", "is": "==", "value": None},
        {"all": [{"partition": 0, "field": "isr", "is": "lacks", "value": "n1"},
                 {"partition": 0, "field": "isr", "is": "==", "value": ["n2", "n3"]},
                 {"partition": 0, "field": "isr", "is": "contains", "value": {"field": "leader"}}]},
        {"replica": "n2", "field": "running", "is": "==", "value": False},
        {"partition": 0, "replica": "every", "field": "hw", "is": "==",
         "value": {"partition": 1, "replica": "leader", "field": "leo"}},
    ]}},
]


@pytest.mark.parametrize("line", VALID, ids=lambda line: json.dumps(line)[:60])
def test_a_valid_entry_is_read_and_written_back(line: dict[str, Any]) -> None:
    """Every form of an entry."""
    schedule = read([line], nodes=NODES, partitions=[0, 1])

    assert write(schedule) == [line]
    assert read(write(schedule)) == schedule


@pytest.mark.parametrize(("data", "message"), [
    ({}, "schedule: is {}, should be an array of entries"),
    (["kill"], 'entry 0: is "kill", should be an object'),
    ([{"nodes": ["n1"]}], "entry 0: has no `f`"),
    ([VALID[7], {"f": "kil", "nodes": ["n1"]}], 'entry 1: f: is "kil"; valid: arm, bad_disk, clock, cut'),
    ([{"f": "kill"}], "entry 0 (kill): has no `nodes`"),
    ([{"f": "kill", "nodes": "n1"}], 'nodes: is "n1", should be an array'),
    ([{"f": "kill", "nodes": ["n4"]}], 'names "n4"; valid: n1, n2, n3, controller, down'),
    ([{"f": "kill", "nodes": ["n1"], "clean": True}], 'does not know the key "clean"; valid: f, nodes'),
    ([{"f": "kill", "nodes": ["n1"], "partition": 7}], "partition: is 7; valid: 0, 1"),
    ([{"f": "heal", "nodes": ["n1"]}], "takes no `nodes`"),
    ([{"f": "cut"}], "needs either `grudge`"),
    ([{"f": "cut", "nodes": ["n1"], "grudge": {"n1": ["n2"]}}], "needs either `grudge`"),
    ([{"f": "cut", "grudge": {}}], "is empty"),
    ([{"f": "cut", "grudge": {"n9": ["n1"]}}], 'names "n9"; valid: n1, n2, n3, clients'),
    ([{"f": "power_cut", "nodes": ["n1"], "keep": {"x": 1}}], "should be a partition"),
    ([{"f": "power_cut", "nodes": ["n1"], "keep": {"0": -1}}], "should be a whole number"),
    ([{"f": "power_cut", "nodes": ["n1"], "keep_share": 1.5}], "a number from 0 to 1"),
    ([{"f": "power_cut", "nodes": ["n1"], "keep_share": 0.5, "keep": {"0": 1}}], "not both"),
    ([{"f": "elect", "unclean": 1}], "should be true or false"),
    ([{"f": "elect", "leader": "n7"}], 'leader: names "n7"; valid: n1, n2, n3, controller'),
    ([{"f": "disk", "nodes": ["n1"]}], "(disk): has no `kind`"),
    ([{"f": "disk", "nodes": ["n1"], "kind": "full"}], 'kind: is "full"; valid: wiped'),
    ([{"f": "send", "sends": [{"partition": 0, "value": 1}], "acks": 1}], "acks: is 1; valid: all, 1, 0"),
    ([{"f": "send", "sends": [{"partition": 0, "value": 1}], "to": "n8"}], 'to: names "n8"; valid: n1, n2'),
    ([{"f": "list_offsets", "partitions": [0], "offset": 1}], 'does not know the key "offset"'),
    ([{"f": "elect", "partitions": []}], "at least one"),
    ([{"f": "send"}], "has no `sends`"),
    ([{"f": "send", "sends": [{"partition": 0}]}], "sends[0]: has no `value`"),
    ([{"f": "send", "sends": [{"partition": 0, "value": True}]}], "should be a whole number"),
    ([{"f": "send", "sends": [{"partition": 0, "value": 1}, {"partition": 1, "value": 2}]}],
     "an op sends to one"),
    ([{"f": "wait"}], "has no `moment`"),
    ([{"f": "heal", "timeout_s": 0}], "timeout_s: is 0"),
    ([{"f": "heal", "timeout_s": float("nan")}], "timeout_s: is NaN"),
])
def test_a_mistake_in_an_entry_is_reported(data: Any, message: str) -> None:
    """Position, field, what is allowed."""
    with pytest.raises(UsageError) as refused:
        read(data, nodes=NODES, partitions=[0, 1])

    assert message in str(refused.value)


@pytest.mark.parametrize(("moment", "message"), [
    ("now", 'moment: is "now", should be an object'),
    ({"time": 5}, "moment.at: is null; valid: time, ack, after, failpoint, state"),
    ({"at": "time"}, "has no `time`"),
    ({"at": "time", "time": -1}, "should be a whole number"),
    ({"at": "time", "time": 1, "count": 1}, 'does not know the key "count"; valid: at, time, after_ns'),
    ({"at": "ack", "partition": 0, "count": 0}, "the first is number 1"),
    ({"at": "ack", "count": 1}, "has no `partition`"),
    ({"at": "after"}, "has no `after_ns`"),
    ({"at": "after", "after_ns": 1, "then_ns": -1}, "moment.then_ns: is -1, should be a whole number"),
    ({"at": "ack", "partition": 0, "count": 1, "leader": "n4"}, 'moment.leader: names "n4"; valid: n1'),
    ({"at": "sequence"}, "moment: has no `of`"),
    ({"at": "first", "of": []}, "of: is [], should be an array of moments, at least one"),
    ({"at": "sequence", "of": []}, "of: is [], should be an array of moments, at least one"),
    ({"at": "sequence", "of": [STATE, {"at": "soon"}]}, 'moment.of[1].at: is "soon"; valid: time, ack'),
    ({"at": "failpoint", "node": "n1"}, "has no `name`"),
    ({"at": "failpoint", "node": "n1", "name": "F.trunk"}, 'moment.name: is "F.trunk"; valid: F.appended'),
    ({"at": "state"}, "has no `field` (nor is it all, any or healthy)"),
    ({"at": "state", "healthy": False}, "should be true"),
    ({"at": "state", "healthy": True, "all": []}, "does not know the key"),
    ({"at": "state", "all": []}, "should be an array of states"),
    ({"at": "state", "all": [{"at": "state", "healthy": True}]}, 'all[0]: does not know the key "at"'),
    ({**STATE, "field": "lag"}, 'moment.field: is "lag"; valid: leo, hw, epoch'),
    ({**STATE, "is": "=<"}, 'moment.is: is "=<"; valid: ==, !=, <, <=, >, >='),
    ({**STATE, "is": "contains"}, "moment.is"),
    ({**STATE, "replica": "leder"}, 'names "leder"; valid'),
    ({**STATE, "value": "4"}, "should be a number or an observation"),
    ({**STATE, "value": {"replica": "every", "field": "leo"}}, "should be one replica"),
    ({**STATE, "value": {"replica": "n1", "field": "isr"}}, "hw cannot be compared; valid: leo, hw"),
    ({**STATE, "value": {"field": "hw"}}, "value: has no `replica`"),
    ({"at": "state", "partition": 0, "field": "hw", "is": "<", "value": 4}, "controller knows only leader"),
    ({"at": "state", "replica": "n1", "field": "hw", "is": "<", "value": 4}, "has no `partition`"),
    ({"at": "state", "partition": 0, "field": "isr", "is": "<", "value": "n1"},
     "valid: ==, !=, contains, lacks"),
    ({"at": "state", "partition": 0, "field": "isr", "is": "==", "value": "n1"}, "should be an array"),
    ({"at": "state", "partition": 0, "field": "isr", "is": "lacks", "value": None}, "names null"),
    ({"at": "state", "replica": "n1", "field": "running", "is": "==", "value": 1}, "should be true or false"),
])
def test_a_mistake_in_a_moment_is_reported(moment: Any, message: str) -> None:
    """Down to the part of it that is wrong."""
    with pytest.raises(UsageError) as refused:
        read([{"f": "heal", "moment": moment}], nodes=NODES)

    assert message in str(refused.value)
    assert str(refused.value).startswith("schedule: entry 0 (heal): moment")


def test_without_a_cluster_any_node_name_is_accepted() -> None:
    """A file can be read before it is known how many nodes there will be."""
    assert read([{"f": "kill", "nodes": ["n77"]}]) == (Entry(f="kill", nodes=("n77",)),)


def test_files_of_each_format_are_read(tmp_path: Path) -> None:
    """A JSON array, a whole run.json, TOML's tables: the same schedule."""
    (tmp_path / "s.json").write_text(json.dumps(VALID))
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "schedule": VALID}))
    (tmp_path / "s.toml").write_text(
        '[[schedule]]\nf = "kill"\nnodes = ["n1"]\nmoment = {at = "time", time = 5}\n')

    assert load(tmp_path / "s.json") == load(tmp_path / "run.json") == read(VALID)
    assert load(tmp_path / "s.toml") == (Entry(f="kill", nodes=("n1",), moment=Time(time=5)),)


@pytest.mark.parametrize(("name", "text"), [("a.json", "[{]"), ("a.toml", "= 1"), ("missing.json", None)])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str, text: str | None) -> None:
    """A usage error that names the file."""
    if text is not None:
        (tmp_path / name).write_text(text)

    with pytest.raises(UsageError, match=name):
        load(tmp_path / name)
    with pytest.raises(UsageError, match=r"absent\.json cannot be read: No such file or directory$"):
        load(tmp_path / "absent.json")


def arm(node: str = "n2", **point: Any) -> dict[str, Any]:
    return {"f": "arm", "nodes": [node], "point": {"name": "F.truncated", "action": "hold", **point}}


def until(node: str = "n2", **conditions: Any) -> dict[str, Any]:
    return {"f": "wait", "moment": {"at": "failpoint", "node": node, "name": "F.truncated", **conditions}}


@pytest.mark.parametrize(("entry", "message"), [
    (arm(name="F.trunk"), 'entry 0 (arm): point.name: is "F.trunk"; valid: F.appended, F.before_refetch'),
    (arm(action="stop"), 'point.action: is "stop"; valid: report, crash, hold, delay, drop, duplicate'),
    (arm(action="drop"), 'point.action: is "drop", which does not fit F.truncated (a follower has'),
    (arm(action="drop"), "valid: report, crash, hold, delay"),
    (arm(action="delay"), "has no `for_ms` (a step's `for TIME`)"),
    (arm(for_ms=5), "takes no `for_ms` (a step's `for TIME`): hold is not a delay"),
    (arm(action="delay", for_ms=0), "for_ms: is 0, should be a whole number, 1 or more"),
    (arm(when=5), 'point: does not know the key "when"; valid: name, action, partition, epoch'),
    (arm(peer="n9"), 'point.peer: names "n9"; valid: n1, n2, n3'),
    (arm(epoch=-1), "point.epoch: is -1"),
    (arm(partition=4), "point.partition: is 4; valid: 0, 1"),
    (arm(scope="node"), 'point.scope: is "node"; valid: partition, broker'),
    (arm(scope="broker", action="crash"), 'action (scope broker): is "crash"; valid: hold, delay'),
    (arm(name="F.epoch_req", action="duplicate"), "valid: report, crash, hold, delay, drop"),
    (arm("controller"), "names controller, which has no F.truncated to arm: it is a broker's; valid there"),
    (arm(name="C.elected"), "nodes: names n2, which has no C.elected to arm: it is the controller's"),
    ({"f": "arm", "nodes": ["n1"]}, "(arm): has no `point`"),
    ({"f": "release", "nodes": ["n1"], "point": {"name": "F.trunk"}}, 'point.name: is "F.trunk"; valid'),
    ({"f": "release", "nodes": ["n1"], "point": {"epoch": 1}}, 'know the key "epoch"; valid: name, part'),
    ({"f": "release", "nodes": ["n1"], "point": {"through_epoch": 1}}, "only a release of C.elected takes"),
])
def test_a_mistake_in_a_failpoint_is_reported(entry: dict[str, Any], message: str) -> None:
    """Its name, its action, what it needs, which process has it."""
    with pytest.raises(UsageError) as refused:
        read([entry], nodes=NODES, partitions=[0, 1])

    assert message in str(refused.value)


@pytest.mark.parametrize(("schedule", "position"), [
    ([until()], 0),
    ([until(), arm()], 0),
    ([arm("n1"), until("n2")], 1),
    ([arm(name="F.appended"), until()], 1),
    ([arm(partition=0), until(partition=1)], 1),
    ([arm(epoch=2), {"f": "wait", "moment": {"at": "sequence", "of": [STATE, until(epoch=3)["moment"]]}}], 1),
    ([arm("leader"), until("controller")], 1),
])
def test_a_moment_that_nothing_has_armed_is_refused(schedule: list[Any], position: int) -> None:
    """It could never come; the message lists what is armed by then."""
    with pytest.raises(UsageError, match=rf"entry {position} \(wait\): moment.*no earlier entry has armed "
                                         "so; armed before: "):
        read(schedule, nodes=NODES, partitions=[0, 1])


@pytest.mark.parametrize("schedule", [
    [arm(), until()],
    [arm(partition=0), until(), until(partition=0, epoch=2)],
    [arm("follower"), until("n2")],
    [arm("n2"), until("follower")],
    [arm("n1"), arm("n2"), {"f": "kill", "nodes": ["n1"], "moment": {
        "at": "sequence", "of": [until("n1")["moment"], until("n2", count=2)["moment"]]}}],
])
def test_a_moment_that_something_has_armed_is_accepted(schedule: list[Any]) -> None:
    """By name, by role, by conditions that do not contradict one another."""
    assert write(read(schedule, nodes=NODES, partitions=[0, 1])) == schedule
