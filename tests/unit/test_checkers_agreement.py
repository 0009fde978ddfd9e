"""Whether replicas agree and each log is well-formed: hits, and near misses without a finding."""

import pytest
from folders import Tale
from judging import Tales

from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()
NODES = ("n1", "n2", "n3")
UNSETTLED = ("diverged", "under-replicated", "unseen")


def unsettle(tale: Tale) -> Tale:
    tale.run["settled"] = False
    return tale


@TALES.tale("diverged bug 1", "epoch-lineage bug 1")
def another_record_on_a_follower_is_diverged(tale: Tale) -> None:
    tale.acked(1, 2, 3).send(5, 9, kind="info").entry("n3", 1).update(value=9, crc=5)


@TALES.tale("diverged bug 1", "epoch-lineage bug 1")
def another_checksum_is_another_record(tale: Tale) -> None:
    tale.acked(1, 2).entry("n2", 0)["crc"] = 5


@TALES.tale("diverged bug 1")
def after_settling_logs_must_agree_above_the_hw_too(tale: Tale) -> None:
    tale.acked(1).logged(2, epoch=1, nodes=["n1", "n2"]).logged(9, nodes=["n3"])
    tale.send(5, 2, kind="info").send(6, 9, kind="info")
    for node in NODES:
        tale.row(node)["hw"] = 1


@TALES.tale(unknown=UNSETTLED)
def before_settling_logs_may_differ_above_the_hw(tale: Tale) -> None:
    unsettle(tale).acked(1).logged(2, epoch=1, nodes=["n1", "n2"]).logged(9, nodes=["n3"])
    tale.send(5, 2, kind="info").send(6, 9, kind="info").row("n3")["hw"] = 1


@TALES.tale("diverged bug 1", unknown=UNSETTLED)
def below_both_hws_isr_members_must_agree_before_settling_too(tale: Tale) -> None:
    unsettle(tale).acked(1).logged(2, epoch=1, nodes=["n1", "n2"]).logged(9, nodes=["n3"])
    tale.send(5, 2, kind="info").send(6, 9, kind="info")


@TALES.tale("diverged bug 1", unknown=UNSETTLED)
def below_both_hws_a_replica_outside_the_isr_must_agree_too(tale: Tale) -> None:
    below_both_hws_isr_members_must_agree_before_settling_too(tale)
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale(unknown=UNSETTLED)
def a_replica_outside_the_isr_may_differ_after_it_lost_data(tale: Tale) -> None:
    below_both_hws_a_replica_outside_the_isr_must_agree_too(tale)
    tale.fault("power_cut", "n3", lost=True)


@TALES.tale("diverged bug 1", unknown=UNSETTLED)
def isr_members_must_agree_even_after_one_lost_data(tale: Tale) -> None:
    below_both_hws_isr_members_must_agree_before_settling_too(tale)
    tale.fault("power_cut", "n3", lost=True)


@TALES.tale("under-replicated bug 2")
def an_isr_member_without_committed_records_is_under_replicated(tale: Tale) -> None:
    tale.acked(1, 2, 3).drop("n3", 2).drop("n3", 1)


@TALES.tale()
def no_record_is_required_outside_the_isr_or_above_the_hw(tale: Tale) -> None:
    tale.acked(1, 2).logged(3, nodes=["n1", "n2"]).send(4, 3, kind="info").drop("n3", 1)
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale()
def no_record_is_required_below_a_members_log_start(tale: Tale) -> None:
    tale.acked(1, 2).drop("n2", 0)


@TALES.tale("epoch-lineage bug 1", "diverged bug 1")
def one_epoch_and_offset_name_one_record(tale: Tale) -> None:
    tale.acked(1, 2).send(5, 9, kind="info").entry("n2", 1)["value"] = 9


@TALES.tale("epoch-lineage bug 3")
def epochs_never_fall_inside_a_log(tale: Tale) -> None:
    tale.acked(1, epoch=2).acked(2, epoch=1)
    for node in NODES:
        tale.row(node)["epochs"] = "absent"


@TALES.tale("epoch-lineage bug 2")
def the_epoch_cache_must_match_the_log(tale: Tale) -> None:
    tale.acked(1, 2).acked(3, 4, epoch=1).row("n3")["epochs"] = [[0, 0]]


@TALES.tale("epoch-lineage bug 2", unknown=("epoch-lineage",))
def a_cache_that_cannot_be_read_says_nothing_and_hides_no_other(tale: Tale) -> None:
    tale.acked(1, 2).acked(3, 4, epoch=1).row("n3")["epochs"] = [[0, 0]]
    tale.row("n2").update(epochs="absent", epochs_unreadable=True)


@TALES.tale()
def nothing_is_claimed_of_the_caches_of_a_stopped_node_a_stray_copy_and_a_compacted_log(tale: Tale) -> None:
    tale.acked(1, 2).row("n2").update(running=False, epochs="absent", epochs_unreadable=True)
    tale.row("n3").update(epochs_unreadable=False)


@TALES.tale()
def an_epoch_without_records_starts_at_leo(tale: Tale) -> None:
    tale.acked(1, 2).row("n1")["epochs"] = [[0, 0], [3, 2]]


@TALES.tale("epoch-lineage bug 1")
def a_cache_entry_above_leo_is_wrong(tale: Tale) -> None:
    tale.acked(1, 2).row("n1")["epochs"] = [[0, 0], [3, 3]]


@TALES.tale()
def the_first_cache_entry_may_start_below_the_log(tale: Tale) -> None:
    tale.acked(1, 2, 3)
    for node in NODES:
        tale.drop(node, 0).row(node)["epochs"] = [[0, 0]]


@TALES.tale()
def records_without_epochs_and_caches_of_stopped_nodes_are_not_compared(tale: Tale) -> None:
    tale.acked(1, 2, epoch=-1)
    for node in NODES:
        tale.row(node).update(epochs="absent")
    tale.row("n2").update(epochs=[[7, 0]], running=False)


@TALES.tale("malformed-log bug 1")
def a_gap_is_malformed(tale: Tale) -> None:
    tale.acked(1, 2, 3).drop("n3", 1)
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale("malformed-log bug 1")
def a_repeated_offset_is_malformed(tale: Tale) -> None:
    tale.acked(1, 2).logs["n3"].insert(1, dict(tale.entry("n3", 1)))


@TALES.tale("malformed-log bug 2")
def an_unordered_log_has_a_step_forward_and_one_back(tale: Tale) -> None:
    log = tale.acked(1, 2, 3, 4).logs["n3"]
    log[1], log[2] = log[2], log[1]
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]
    for node in NODES:
        tale.row(node)["epochs"] = [[0, 0]]
    log.pop()  # the steps: 0 to 2, 2 to 1
    tale.row("n3")["leo"] = 3
    tale.row("n3")["hw"] = 3


@TALES.tale("malformed-log bug 1")
def a_wrong_checksum_is_malformed(tale: Tale) -> None:
    tale.acked(1, 2).entry("n1", 1)["crc_ok"] = False


@TALES.tale("malformed-log bug 1")
def a_running_node_with_its_hw_above_leo_is_malformed(tale: Tale) -> None:
    tale.acked(1).row("n2")["hw"] = 2


@TALES.tale()
def a_stopped_node_may_have_its_hw_above_leo(tale: Tale) -> None:
    tale.acked(1).row("n2").update(hw=2, running=False)


@TALES.tale("malformed-log bug 2")
def log_start_and_leo_must_match_the_records(tale: Tale) -> None:
    tale.acked(1, 2).row("n2")["leo"] = 3
    tale.drop("n3", 0).row("n3")["log_start"] = 0
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale("malformed-log bug 1")
def an_empty_log_ends_where_it_begins(tale: Tale) -> None:
    tale.acked(1).drop("n3", 0).row("n3")["leo"] = 1
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale(unknown=["epoch-lineage", "lost-write", "saw-then-lost", "under-replicated"])
def a_compacted_log_may_have_gaps_and_other_checksums(tale: Tale) -> None:
    tale.acked(1, 2, 3, 4).run["partitions"]["0"]["cleanup"] = "compact"
    for node in NODES:
        tale.drop(node, 1).row(node)["epochs"] = [[5, 0]]
    tale.entry("n2", 2)["crc"] = 5


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name states what is expected."""
    TALES.check(name, verdicts)


def test_diverged_names_the_nodes_that_differ_from_the_leader(verdicts: dict[str, Verdict]) -> None:
    """`nodes` are those whose record is not the leader's."""
    found = {one.name: one for one in verdicts["another_record_on_a_follower_is_diverged"].findings}

    assert found["diverged"].examples[0]["nodes"] == ["n3"]


def test_under_replicated_names_the_members_without_the_record(verdicts: dict[str, Verdict]) -> None:
    """One finding for each offset, with the members that do not have it."""
    found = verdicts["an_isr_member_without_committed_records_is_under_replicated"].findings[0]

    assert [(one["offset"], one["nodes"]) for one in found.examples] == [(1, ["n3"]), (2, ["n3"])]
