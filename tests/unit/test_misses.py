"""The report of a moment that did not come: the step's words, what was seen, and likely reasons."""

from dataclasses import replace
from typing import Any

import pytest

from floodmark.harness.commands.broker_questions import scenario_words
from floodmark.harness.faults import FAULTS
from floodmark.harness.schedule.moments import Moment, read_moment
from floodmark.harness.schedule.stage import ActiveFaults, Stage
from floodmark.harness.schedule.views import Met, PartitionView, ReplicaView, View
from floodmark.nemesis.moment_watch import describe_partition, guess_reasons
from floodmark.nemesis.scenario import shipped
from floodmark.nemesis.steps import read_step

NODES = ("n1", "n2", "n3")


def moment(text: str) -> Moment:
    return read_moment(read_step(f"wait {text}")[0]["moment"])


def look(*, leader: str | None = "n1", isr: tuple[str, ...] = NODES, running: tuple[str, ...] = NODES,
         unfenced: tuple[str, ...] = NODES) -> View:
    own = ReplicaView(node="n1", partition=0, leader=leader, epoch=2, log_start=0, leo=6, hw=5, isr=isr,
                      checkpointed_hw=5, epochs=((0, 0), (2, 4)), clean=True)
    return View(time_ns=0, running=frozenset(running), unfenced=frozenset(unfenced),
                replicas={(node, 0): replace(own, node=node) for node in running},
                partitions={0: PartitionView(partition=0, leader=leader, epoch=2, isr=isr,
                                             partition_epoch=3)})


def after(*acts: tuple[str, str], point: dict[str, Any] | None = None) -> Stage:
    ledger = ActiveFaults()
    for f, node in acts:
        assert f in FAULTS
        ledger = ledger.after(f, [node], point=point)
    return Stage(replicas={0: NODES}, faults=ledger)


def reasons(text: str, view: View, stage: Stage, *held: Met) -> list[str]:
    return list(guess_reasons(moment(text), [0], view, stage, held))


def test_every_moment_of_the_shipped_scenarios_is_parsed_back_from_its_text() -> None:
    """A moment written as text and parsed again is the same moment."""
    moments = [entry.moment for one in shipped(scenario_words()) for entry in one.schedule
               if entry.moment is not None]
    assert len(moments) > 100
    for given in moments:
        assert moment(given.text().replace(" partition 1", "")) == read_moment(
            without_partitions(given.to_json())), given


def test_of_several_moments_each_that_did_not_come_is_explained() -> None:
    found = reasons("isr contains n2 or n1 reaches L.acked", look(), after(("kill", "n2")))
    assert any("nothing is armed at L.acked in n1" in one for one in found)


def without_partitions(given: Any) -> Any:
    """The same moment of partition 0, as in a step that names no partition."""
    if isinstance(given, dict):
        return {key: 0 if key == "partition" else without_partitions(value) for key, value in given.items()}
    return list(map(without_partitions, given)) if isinstance(given, list | tuple) else given


@pytest.mark.parametrize("text", [
    "ack 4 by n1 then 5ms", "200ms", "time 2s", "healthy", "n1 reaches L.acked epoch 2 peer n2 3 times",
    "n1.leo == 3 and leader == nobody or n2.running == false", "isr lacks n1 then n2.epoch >= epoch",
    "isr == n1, n2"])
def test_a_moment_is_written_in_the_words_of_steps(text: str) -> None:
    assert moment(text).text() == text


def test_a_partition_is_described_as_the_controller_and_each_replica_report_it() -> None:
    """A paused, fenced or stopped node is shown as such; one record is counted in the singular."""
    view = look(running=("n1", "n2"), unfenced=("n1", "n3"))
    assert list(describe_partition(0, view, after(("pause", "n1")), acks=1)) == [
        "partition 0: leader n1, epoch 2, ISR n1, n2, n3; 1 record acked",
        "  n1: paused, its session not ended; leads in epoch 2, LEO 6, HW 5, epochs 0 from 0, 2 from 4",
        "  n2: fenced; follows n1 in epoch 2, LEO 6, HW 5, epochs 0 from 0, 2 from 4",
        "  n3: down, its session not ended"]


@pytest.mark.parametrize(("text", "view", "stage", "expected"), [
    ("leader == n2", look(running=("n2", "n3")), after(("kill", "n1")),
     ["n1 is down and still leads partition 0: a leader is replaced when its session ends, and this one's "
      "has not: `expire n1`"]),
    ("leader == n2", look(), after(("pause", "n1")),
     ["n1 is paused and still leads partition 0: a leader is replaced when its session ends, and this one's "
      "has not: `expire n1`"]),
    ("leader == n2", look(), after(), []),  # it runs and leads: no guess
    ("leader == n2", look(leader=None, isr=("n1",), running=("n2",)), after(("kill", "n1")),
     ["nobody leads partition 0, because no member of its ISR (n1) is alive and unfenced: `start n1`, or "
      "`elect NODE unclean`"]),
    ("n1.hw == 6", look(running=("n1", "n2")), after(("kill", "n3")),
     ["n3 is down and still in the ISR, so the high watermark waits for it: `expire n3` removes it"]),
    ("n1.hw == 6", look(), after(("pause", "n3")),
     ["n3 is paused and still in the ISR, so the high watermark waits for it: `expire n3` removes it"]),
    ("n1.leo == 7", look(running=("n1", "n2")), after(("kill", "n3")), []),  # the LEO waits for no follower
    ("ack 4", look(isr=("n1",)), after(),
     ["the ISR of partition 0 is n1 alone: if min.insync.replicas is above 1 nothing is committed or "
      "acked"]),
    ("n3.leo == 7", look(running=("n1", "n2"), unfenced=("n1", "n2")), after(("kill", "n3")),
     ["n3 is down and does not answer: `start n3`"]),
    ("n3.running == false", look(running=("n1", "n2")), after(("kill", "n3")), []),
    ("n2 reaches F.truncated", look(), after(),
     ["nothing is armed at F.truncated in n2: a step such as `hold n2 at F.truncated` must come before"]),
    ("healthy", look(), after(("pause", "n2")), ["pause n2 is in force: `resume n2`"]),
    ("n2.leo == 7", look(), after(("cut", "n2")), ["links are cut: messages over them wait for `heal`"]),
])
def test_a_likely_reason_is_given_with_the_step_that_helps(
        text: str, view: View, stage: Stage, expected: list[str]) -> None:
    assert reasons(text, view, stage) == expected


def test_a_node_held_at_a_failpoint_is_reported() -> None:
    held = Met(node="n2", name="F.appended", action="hold", time_ns=1, held=True)
    stage = after(("arm", "n2"), point={"name": "F.appended", "action": "hold"})
    assert reasons("n2.leo == 7", look(), stage, held) == [
        "n2 is held at F.appended: `release n2` releases it"]
    assert reasons("n2 reaches F.appended", look(), stage) == []  # armed but not reached: no guess
