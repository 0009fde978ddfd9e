"""Stray copies: what a node has of a partition that run.json does not assign to it is no evidence.

A reassignment leaves them behind. Each hit on a stray copy has its near miss: the same on a replica.
"""

from pathlib import Path

import pytest
from folders import Tale
from judging import Tales
from traced_story import Story, traced_in

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.read.folder import open_folder
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
traced = traced_in(TALES)


def assigned(tale: Tale, *nodes: str) -> Tale:
    """Partition 0 has these replicas, all of them in the ISR."""
    tale.run["partitions"]["0"]["replicas"] = list(nodes)
    tale.run["leaders"]["0"]["isr"] = list(nodes)
    return tale


def other_records(tale: Tale) -> None:
    """n3 has another value in the epoch of an acked one, one that was never sent, an epoch that falls."""
    tale.acked(1, 2, 3).entry("n3", 1).update(value=9, crc=5)
    tale.logged(77, epoch=3, nodes=["n3"]).logged(78, epoch=2, nodes=["n3"])


@TALES.tale()
def other_records_on_a_stray_copy_are_no_finding(tale: Tale) -> None:
    other_records(assigned(tale, "n1", "n2"))


@TALES.tale("diverged bug 1", "epoch-lineage bug 2", "phantom bug 3")
def other_records_on_a_replica_are_found(tale: Tale) -> None:
    other_records(tale)


def malformed_log(tale: Tale) -> None:
    """n3 has a gap, a wrong checksum, HW and epoch cache above LEO, and a LEO without records."""
    tale.acked(1, 2, 3, 4).drop("n3", 1).entry("n3", 2)["crc_ok"] = False
    tale.row("n3").update(hw=40, leo=9, log_start=0, epochs=[[0, 0], [7, 30]])


@TALES.tale()
def a_malformed_stray_copy_is_no_finding(tale: Tale) -> None:
    malformed_log(assigned(tale, "n1", "n2"))


@TALES.tale("malformed-log bug 4", "epoch-lineage bug 1", "under-replicated bug 1")
def a_malformed_log_of_a_replica_is_found(tale: Tale) -> None:
    malformed_log(tale)


@TALES.tale()
def a_high_log_start_of_an_old_stray_copy_changes_nothing(tale: Tale) -> None:
    assigned(tale, "n1", "n2").acked(1, 2).row("n3").update(log_start=50, leo=50, hw=50, epochs=[])


@TALES.tale("lost-write bug 1")
def a_record_only_on_a_stray_copy_is_lost(tale: Tale) -> None:
    assigned(tale, "n1", "n2").acked(1, 2).send(7, 9, at=[2]).logged(9, nodes=["n3"])


@TALES.tale()
def an_isr_that_names_a_stray_node_does_not_make_it_a_replica(tale: Tale) -> None:
    assigned(tale, "n1", "n2").acked(1, 2).drop("n3", 1)
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2", "n3"]


@TALES.tale(unknown=names.unknown_if(names.If.LEADERLESS))
def a_leader_that_is_no_replica_counts_as_unknown(tale: Tale) -> None:
    """Its log is a stray copy: a record missing there is not lost. (The final reads show losses.)"""
    assigned(tale, "n2", "n3").acked(1, 2).drop("n1", 1)


@TALES.tale()
def a_partition_that_run_json_does_not_name_has_no_replicas(tale: Tale) -> None:
    tale.acked(1).logged(5, partition=4, nodes=["n2"]).logged(6, partition=4, nodes=["n3"])


@TALES.tale()
def a_damaged_dump_of_a_stray_copy_hides_nothing(tale: Tale) -> None:
    assigned(tale, "n1", "n2").acked(1).files["logs/n3.jsonl"] = "nonsense\n"


# -- lines of the trace by a node that is no replica in the end


def without_replica(tale: Tale, node: str) -> None:
    assigned(tale, *({"n1", "n2", "n3"} - {node}))


@traced()
def a_node_may_truncate_its_stray_copy(story: Story, tale: Tale) -> None:
    without_replica(tale, "n3")
    story.produce(3).ruling("isr", ["n1", "n2"], cause="reassigned").truncate("n3", 0, cause="other")


@traced("unsafe-truncation bug 1", "candidate-incomplete bug 1")
def a_replica_may_not_truncate_the_same(story: Story, tale: Tale) -> None:
    story.produce(3).truncate("n3", 0, cause="other")


@traced()
def a_node_that_is_no_replica_in_the_end_was_no_candidate(story: Story, tale: Tale) -> None:
    without_replica(tale, "n3")
    story.produce(3).append("n3", epoch=0).elect("n2", "n2", "n1").produce(2)
    story.ruling("isr", ["n1", "n2", "n3"], cause="alter").ruling("isr", ["n1", "n2"], cause="reassigned")


@traced("candidate-incomplete bug 1")
def a_replica_with_the_same_log_was_a_candidate(story: Story, tale: Tale) -> None:
    story.produce(3).append("n3", epoch=0).elect("n2", "n2", "n1").produce(1)
    story.ruling("isr", ["n1", "n2", "n3"], cause="alter").ruling("isr", ["n1", "n2"], cause="reassigned")


@traced("two-leaders bug 1")
def a_node_that_is_no_replica_in_the_end_can_be_a_second_leader(story: Story, tale: Tale) -> None:
    """Its later removal does not change what it did."""
    without_replica(tale, "n3")
    story.produce()
    story.say("n3", "append", role="leader", offset=1, count=1)


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    TALES.check(name, verdicts)


@pytest.mark.parametrize("name", TALES.cases())
def test_the_twin_gives_the_same_verdict(name: str, verdicts: dict[str, Verdict], tmp_path: Path) -> None:
    TALES.check_twin(name, verdicts, tmp_path / "run")


@pytest.mark.parametrize("replicas", ["absent", None, "n1", {"n1": 1}, [1, 2], ["n1", None]])
def test_without_a_list_of_replicas_nothing_is_judged(replicas: object, tmp_path: Path) -> None:
    """It would be unknown which copies count."""
    tale = Tale().acked(1)
    tale.run["partitions"]["0"]["replicas"] = replicas
    if replicas == "absent":
        del tale.run["partitions"]["0"]["replicas"]
    folder = open_folder(tale.write(tmp_path / "run"))

    assert not folder.judged
    assert [reason for _, reason in folder.reasons] == [
        "run.json: `partitions` is no map of numbers to partitions with `replicas`"
    ]
