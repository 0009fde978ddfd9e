"""Whether replicas agree and whether each log is one: hits, and near misses that must stay silent."""

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
def another_record_on_a_follower_has_diverged(tale: Tale) -> None:
    tale.acked(1, 2, 3).send(5, 9, kind="info").entry("n3", 1).update(value=9, crc=5)


@TALES.tale("diverged bug 1", "epoch-lineage bug 1")
def another_checksum_is_another_record(tale: Tale) -> None:
    tale.acked(1, 2).entry("n2", 0)["crc"] = 5


@TALES.tale("diverged bug 1")
def once_settled_nothing_may_differ_above_the_hw_either(tale: Tale) -> None:
    tale.acked(1).logged(2, epoch=1, nodes=["n1", "n2"]).logged(9, nodes=["n3"])
    tale.send(5, 2, kind="info").send(6, 9, kind="info")
    for node in NODES:
        tale.row(node)["hw"] = 1


@TALES.tale(unknown=UNSETTLED)
def before_settling_tails_above_a_hw_may_differ(tale: Tale) -> None:
    unsettle(tale).acked(1).logged(2, epoch=1, nodes=["n1", "n2"]).logged(9, nodes=["n3"])
    tale.send(5, 2, kind="info").send(6, 9, kind="info").row("n3")["hw"] = 1


@TALES.tale("diverged bug 1", unknown=UNSETTLED)
def below_both_hws_two_members_must_agree_at_once(tale: Tale) -> None:
    unsettle(tale).acked(1).logged(2, epoch=1, nodes=["n1", "n2"]).logged(9, nodes=["n3"])
    tale.send(5, 2, kind="info").send(6, 9, kind="info")


@TALES.tale("diverged bug 1", unknown=UNSETTLED)
def so_must_a_replica_outside_the_isr(tale: Tale) -> None:
    below_both_hws_two_members_must_agree_at_once(tale)
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale(unknown=UNSETTLED)
def but_not_where_data_was_lost(tale: Tale) -> None:
    so_must_a_replica_outside_the_isr(tale)
    tale.fault("power_cut", "n3", lost=True)


@TALES.tale("diverged bug 1", unknown=UNSETTLED)
def members_must_even_where_data_was_lost(tale: Tale) -> None:
    below_both_hws_two_members_must_agree_at_once(tale)
    tale.fault("power_cut", "n3", lost=True)


@TALES.tale("under-replicated bug 2")
def a_member_that_lacks_committed_records_is_behind(tale: Tale) -> None:
    tale.acked(1, 2, 3).drop("n3", 2).drop("n3", 1)


@TALES.tale()
def outside_the_isr_or_above_the_hw_nothing_need_be_held(tale: Tale) -> None:
    tale.acked(1, 2).logged(3, nodes=["n1", "n2"]).send(4, 3, kind="info").drop("n3", 1)
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale()
def below_a_members_own_log_start_nothing_need_be_held(tale: Tale) -> None:
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
def the_cache_must_say_what_the_log_says(tale: Tale) -> None:
    tale.acked(1, 2).acked(3, 4, epoch=1).row("n3")["epochs"] = [[0, 0]]


@TALES.tale()
def an_epoch_in_which_nothing_was_written_yet_starts_at_leo(tale: Tale) -> None:
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
def records_without_epochs_and_dead_nodes_caches_take_no_part(tale: Tale) -> None:
    tale.acked(1, 2, epoch=-1)
    for node in NODES:
        tale.row(node).update(epochs="absent")
    tale.row("n2").update(epochs=[[7, 0]], running=False)


@TALES.tale("malformed-log bug 1")
def a_gap_is_no_log(tale: Tale) -> None:
    tale.acked(1, 2, 3).drop("n3", 1)
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale("malformed-log bug 1")
def a_doubled_offset_is_no_log(tale: Tale) -> None:
    tale.acked(1, 2).logs["n3"].insert(1, dict(tale.entry("n3", 1)))


@TALES.tale("malformed-log bug 2")
def a_disordered_log_steps_over_and_back(tale: Tale) -> None:
    log = tale.acked(1, 2, 3, 4).logs["n3"]
    log[1], log[2] = log[2], log[1]
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]
    for node in NODES:
        tale.row(node)["epochs"] = [[0, 0]]
    log.pop()  # the steps: 0 to 2, 2 to 1
    tale.row("n3")["leo"] = 3
    tale.row("n3")["hw"] = 3


@TALES.tale("malformed-log bug 1")
def bytes_must_fit_their_checksum(tale: Tale) -> None:
    tale.acked(1, 2).entry("n1", 1)["crc_ok"] = False


@TALES.tale("malformed-log bug 1")
def no_running_node_has_its_hw_above_leo(tale: Tale) -> None:
    tale.acked(1).row("n2")["hw"] = 2


@TALES.tale()
def a_node_that_was_not_running_may(tale: Tale) -> None:
    tale.acked(1).row("n2").update(hw=2, running=False)


@TALES.tale("malformed-log bug 2")
def bounds_must_be_where_the_entries_end_and_begin(tale: Tale) -> None:
    tale.acked(1, 2).row("n2")["leo"] = 3
    tale.drop("n3", 0).row("n3")["log_start"] = 0
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale("malformed-log bug 1")
def an_empty_log_ends_where_it_begins(tale: Tale) -> None:
    tale.acked(1).drop("n3", 0).row("n3")["leo"] = 1
    tale.run["leaders"]["0"]["isr"] = ["n1", "n2"]


@TALES.tale(unknown=["epoch-lineage", "lost-write", "saw-then-lost", "under-replicated"])
def a_compacted_log_has_gaps_and_other_checksums(tale: Tale) -> None:
    tale.acked(1, 2, 3, 4).run["partitions"]["0"]["cleanup"] = "compact"
    for node in NODES:
        tale.drop(node, 1).row(node)["epochs"] = [[5, 0]]
    tale.entry("n2", 2)["crc"] = 5


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name says what must be so."""
    TALES.check(name, verdicts)


def test_diverged_names_who_differs_from_the_leader(verdicts: dict[str, Verdict]) -> None:
    """`nodes` are those whose record is not the leader's."""
    found = {one.name: one for one in verdicts["another_record_on_a_follower_has_diverged"].findings}

    assert found["diverged"].examples[0]["nodes"] == ["n3"]


def test_under_replicated_names_who_lacks(verdicts: dict[str, Verdict]) -> None:
    """One finding an offset, with the members that lack it."""
    found = verdicts["a_member_that_lacks_committed_records_is_behind"].findings[0]

    assert [(one["offset"], one["nodes"]) for one in found.examples] == [(1, ["n3"]), (2, ["n3"])]
