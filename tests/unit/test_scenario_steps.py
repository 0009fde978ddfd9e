"""A scenario's steps: the schedule entries of each line, and the error messages of invalid lines."""

import asyncio
from typing import Any, cast

import pytest

from floodmark.harness.errors import Refused
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.failpoints import ACTIONS
from floodmark.harness.schedule.stage import Stage
from floodmark.harness.schedule.views import PartitionView, Sight, View
from floodmark.nemesis.schedule_runner import resolve_targets
from floodmark.nemesis.steps import GRAMMAR, VERBS, read_step

NODES, PARTITIONS = ("n1", "n2", "n3"), (0, 1)
ON_NODES = ("kill", "stop", "start", "pause", "resume", "expire")


def state(field: str, how: str, value: Any, *, replica: str | None = None, partition: int = 0) -> Any:
    where = {} if replica is None else {"replica": replica}
    return {"field": field, "is": how, "value": value, "partition": partition, **where}


MEANINGS: list[tuple[str, list[dict[str, Any]]]] = [
    ("", []),
    ("   # nothing but words, 5 of them", []),
    ("send 3", [{"f": "send", "sends": [{"partition": 0, "value": 3}]}]),
    ("send 0..1, 7", [{"f": "send", "sends": [{"partition": 0, "value": value}]} for value in (0, 1, 7)]),
    ("send 1..2 together partition 1",
     [{"f": "send", "sends": [{"partition": 1, "value": 1}, {"partition": 1, "value": 2}]}]),
    ("send 7 to n1 acks 1 nowait",
     [{"f": "send", "sends": [{"partition": 0, "value": 7}], "to": "n1", "acks": "1", "nowait": True}]),
    ("poll from n2 offset 5", [{"f": "poll", "partitions": [0], "from": "n2", "offset": 5}]),
    ("poll client 1", [{"f": "poll", "partitions": [0], "client": 1}]),
    ("send 7 nowait client 2",
     [{"f": "send", "sends": [{"partition": 0, "value": 7}], "nowait": True, "client": 2}]),
    ("list_offsets from n2 client 3", [{"f": "list_offsets", "partitions": [0], "from": "n2", "client": 3}]),
    ("list_offsets from n2", [{"f": "list_offsets", "partitions": [0], "from": "n2"}]),
    ("kill n1, n2   # both", [{"f": "kill", "nodes": ["n1", "n2"]}]),
    ("pause leader partition 1", [{"f": "pause", "nodes": ["leader"], "partition": 1}]),
    ("cut n1", [{"f": "cut", "nodes": ["n1"]}]),
    ("cut n1 from n2, n3", [{"f": "cut", "kind": "n1 from n2 n3",
                             "grudge": {"n1": ["n2", "n3"], "n2": ["n1"], "n3": ["n1"]}}]),
    ("cut n2 hears-not controller reset",
     [{"f": "cut", "kind": "n2 hears not controller", "grudge": {"n2": ["controller"]}, "reset": True}]),
    ("heal", [{"f": "heal"}]),
    ("power_cut n1 keep 5", [{"f": "power_cut", "nodes": ["n1"], "keep": {"0": 5}}]),
    ("power_cut n1", [{"f": "power_cut", "nodes": ["n1"]}]),
    ("disk n2", [{"f": "disk", "nodes": ["n2"], "kind": "wiped"}]),
    ("elect", [{"f": "elect", "partitions": [0]}]),
    ("elect n3", [{"f": "elect", "partitions": [0], "leader": "n3"}]),
    ("elect n3 unclean", [{"f": "elect", "partitions": [0], "leader": "n3", "unclean": True}]),
    ("elect unclean", [{"f": "elect", "partitions": [0], "unclean": True}]),
    ("hold n1 at L.acked offset 3",
     [{"f": "arm", "nodes": ["n1"], "point": {"name": "L.acked", "action": "hold", "offset": 3}}]),
    ("drop controller at C.elected peer n2 epoch 1 times 0 skip 2 partition 0",
     [{"f": "arm", "nodes": ["controller"], "partition": 0, "point": {
         "name": "C.elected", "action": "drop", "peer": "n2", "epoch": 1, "times": 0, "skip": 2,
         "partition": 0}}]),
    ("delay n2 at F.fetch_resp for 0.2s",
     [{"f": "arm", "nodes": ["n2"], "point": {"name": "F.fetch_resp", "action": "delay", "for_ms": 200}}]),
    ("hold n3 at F.truncated broker",
     [{"f": "arm", "nodes": ["n3"], "point": {"name": "F.truncated", "action": "hold", "scope": "broker"}}]),
    ("release n1", [{"f": "release", "nodes": ["n1"]}]),
    ("release controller at C.elected peer n2 through epoch 1 keep",
     [{"f": "release", "nodes": ["controller"],
       "point": {"name": "C.elected", "peer": "n2", "through_epoch": 1, "keep": True}}]),
    ("wait 200ms", [{"f": "wait", "moment": {"at": "after", "after_ns": 200_000_000}}]),
    ("kill n1 when time 1.5s", [{"f": "kill", "nodes": ["n1"],
                                 "moment": {"at": "time", "time": 1_500_000_000}}]),
    ("kill n1 when ack 4 by n1 within 10s", [{
        "f": "kill", "nodes": ["n1"], "timeout_s": 10.0,
        "moment": {"at": "ack", "partition": 0, "count": 4, "leader": "n1"}}]),
    ("wait healthy", [{"f": "wait", "moment": {"at": "state", "healthy": True}}]),
    ("wait every.leo == 3 and leader == n1", [{"f": "wait", "moment": {"at": "state", "all": [
        state("leo", "==", 3, replica="every"), state("leader", "==", "n1")]}}]),
    ("wait n3.epoch >= epoch", [{"f": "wait", "moment": {"at": "state", **state(
        "epoch", ">=", {"field": "epoch"}, replica="n3")}}]),
    ("wait last-in-isr.hw < n1.hw partition 1", [{"f": "wait", "moment": {"at": "state", **state(
        "hw", "<", {"replica": "n1", "field": "hw"}, replica="last-in-isr", partition=1)}}]),
    ("wait isr == n1, n2 or isr lacks n3 and n3.leo == 1 or leader == nobody",
     [{"f": "wait", "moment": {"at": "state", "any": [
         state("isr", "==", ["n1", "n2"]),
         {"all": [state("isr", "lacks", "n3"), state("leo", "==", 1, replica="n3")]},
         state("leader", "==", None)]}}]),
    ("wait n1.running == false", [{"f": "wait", "moment": {
        "at": "state", "replica": "n1", "field": "running", "is": "==", "value": False}}]),
    ("kill n2 when n1 reaches L.acked offset 3 2 times then 5ms then ack 5", [{
        "f": "kill", "nodes": ["n2"], "moment": {"at": "sequence", "of": [
            {"at": "failpoint", "node": "n1", "name": "L.acked", "offset": 3, "count": 2,
             "then_ns": 5_000_000},
            {"at": "ack", "partition": 0, "count": 5}]}}]),
    ("wait isr contains n2 or n1.leo == 3 or n1 reaches L.acked 3 times or ack 5 then 5ms", [{
        "f": "wait", "moment": {"at": "first", "then_ns": 5_000_000, "of": [
            {"at": "state", **state("isr", "contains", "n2")},
            {"at": "state", **state("leo", "==", 3, replica="n1")},
            {"at": "failpoint", "node": "n1", "name": "L.acked", "count": 3},
            {"at": "ack", "partition": 0, "count": 5}]}}]),
    ("wait n1.unfenced == true", [{"f": "wait", "moment": {
        "at": "state", "replica": "n1", "field": "unfenced", "is": "==", "value": True}}]),
    ("wait leader.running == true partition 1", [{"f": "wait", "moment": {
        "at": "state", "replica": "leader", "field": "running", "is": "==", "value": True, "partition": 1}}]),
    ("wait n1 reaches L.acked partition 1",
     [{"f": "wait", "moment": {"at": "failpoint", "node": "n1", "name": "L.acked", "partition": 1}}]),
]


@pytest.mark.parametrize(("line", "expected"), MEANINGS, ids=[line or "(empty)" for line, _ in MEANINGS])
def test_a_step_is_parsed_as_its_entries(line: str, expected: list[dict[str, Any]]) -> None:
    assert read_step(line) == expected


def test_the_entries_of_all_steps_are_a_schedule() -> None:
    """Every line above, after what arms its failpoints, is accepted by the reader of schedules. Values are
    unique there."""
    found = read_step("report n1 at L.acked times 0") + [
        entry for line, _ in MEANINGS for entry in read_step(line)]
    micros = [one for entry in found for one in entry.get("sends", ())]
    for value, one in enumerate(micros):
        one["value"] = value
    read = json_form.read(found, nodes=NODES, partitions=PARTITIONS)
    assert json_form.write(read) == found


OF_THE_LEADER = {
    **{verb: f"{verb} leader" for verb in (*ON_NODES, "power_cut", "disk", "release", "elect")},
    **{verb: f"{verb} leader at F.fetch_resp" for verb in ACTIONS},
    "crash": "crash leader at L.acked", "delay": "delay leader at F.fetch_resp for 5ms",
    "cut": "cut leader hears-not n3", "send": "send 1..2 to leader", "poll": "poll from leader",
    "list_offsets": "list_offsets from leader",
}


class LedByN2:
    """n2 leads partition 1, n1 the others."""

    def now_ns(self) -> int:
        return 0

    async def view(self) -> View:
        leaders = {0: "n1", 1: "n2", 2: "n1"}
        seen = {key: PartitionView(partition=key, leader=leader, epoch=0, isr=NODES, partition_epoch=0)
                for key, leader in leaders.items()}
        return View(time_ns=0, replicas={}, partitions=seen, running=frozenset(), unfenced=frozenset())


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"heal", "wait"}))
def test_the_partition_of_a_line_is_that_of_its_roles(verb: str) -> None:
    for entry in json_form.read(read_step(f"{OF_THE_LEADER[verb]} partition 1"), nodes=NODES):
        found = resolve_targets(entry, None, cast(Sight, LedByN2()), lambda: Stage(replicas={}))
        resolved = asyncio.run(found)
        assert resolved is not None
        assert "n2" in (*resolved.nodes, *resolved.entry.args.get("grudge", {}),
                        *(resolved.entry.args.get(key) for key in ("to", "from", "leader")))


REFUSALS = [
    ("kil n1", ("the verb is 'kil'", *VERBS)),
    ("kill", ("has no node to kill", "last-in-isr")),
    ("kill when ack 1", ("has no node to kill",)),
    ("kill n1 n2", ("has 'n1' and 'n2' without a comma between them: n1, n2",)),
    ("kill n1 please", ("has 'please' at a wrong place", "when MOMENT")),
    ("cut n1 from n2 controller", ("without a comma between them: n2, controller",)),
    ("wait leader = n2", ("has = where a comparison should be, which is ==: wait leader = n2",)),
    ("wait n1.leo=3", ("has = where",)),
    ("kill n1 at L.acked", ("has 'at' at a wrong place",)),
    ("kill n1, 2", ("a node is '2', should be a name",)),
    ("send", ("ends where the value to send should be",)),
    ("send 5..3", ("sends 5..3, which is empty",)),
    ("send 3 acks most", ("acks is 'most'; valid: all, 1, 0",)),
    ("send 3 please", ("has 'please' at a wrong place", "nowait", "to NODE")),
    ("wait", ("has no moment", "healthy")),
    ("wait noon", ("does not know the moment 'noon'", "NODE reaches POINT", "leader, epoch, isr")),
    ("wait n1.size == 3", ("the field 'size' of n1", "checkpointed_hw")),
    ("wait n1.leo is 3", ("what follows leo is 'is'; valid: ==, !=",)),
    ("wait leader > n1", ("what follows leader is '>'; valid: ==, !=",)),
    ("wait n1.leo == n2", ("compares leo with 'n2'",)),
    ("wait ack 1 or", ("has no moment", "healthy")),
    ("wait n1.running == maybe", ("what running is is 'maybe'; valid: true, false",)),
    ("wait 200", ("the moment is '200', should be a time: 200ms or 2.5s",)),
    ("send 3 acks=1", ("has = where a space should be: send 3 acks=1",)),
    ("hold n1", ("has nothing where 'at' should be",)),
    ("hold n1 at L.acked offset x", ("offset is 'x', should be a whole number",)),
    ("kill n1 when ack 3 within 10", ("the time-out is '10', should be a time",)),
    ("kill n1 partition", ("has partition without a number",)),
    ("list_offsets offset 3", ("takes no offset",)),
    ("cut n1 & n2", ("unknown character '&'",)),
    ("release n1 through 3", ("has '3' where 'epoch' should be",)),
]


@pytest.mark.parametrize(("line", "words"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_an_invalid_step_is_refused_with_the_valid_words(line: str, words: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as caught:
        read_step(line)
    assert [word for word in words if word not in str(caught.value)] == []


def test_the_grammar_is_printed_where_the_language_is_described() -> None:
    readme = GRAMMAR.with_name("README.md").read_text(encoding="utf-8")
    assert f"```\n{GRAMMAR.read_text(encoding='utf-8')}```" in readme
