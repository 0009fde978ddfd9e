"""Every check of the guarantees about records: hits, and near misses without a finding."""

import pytest
from folders import FINAL, Tale
from judging import Tales

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
WITHOUT_A_LOG = names.unknown_if(names.If.LOG | names.If.LEADERS_LOG | names.If.LOSS_HIDDEN)
verdicts = TALES.fixture()


@TALES.tale()
def a_healthy_run_is_valid(tale: Tale) -> None:
    tale.acked(1, 2, 3).send(2, 9, kind="fail").send(3, 8, kind="info")


@TALES.tale("lost-write bug 1")
def an_acked_record_in_no_log_is_gone(tale: Tale) -> None:
    tale.acked(1, 2).send(2, 3, at=[2])


@TALES.tale("lost-write bug 1")
def an_acked_record_at_another_offset_has_moved(tale: Tale) -> None:
    """Its read there is no second finding: the log has it once."""
    tale.acked(1, 2).send(2, 3, at=[7]).logged(3)


@TALES.tale("inconsistent-offsets bug 1", "lost-write bug 1")
def an_acked_record_may_be_overwritten(tale: Tale) -> None:
    tale.acked(1).send(2, 3, at=[1]).logged(4).send(3, 4, kind="info")


@TALES.tale("lost-write bug 1", "malformed-log bug 1")
def a_record_only_on_a_follower_is_orphaned(tale: Tale) -> None:
    tale.acked(1).send(2, 3, at=[1]).logged(3, nodes=["n3"]).row("n3")["hw"] = 9
    tale.row("n3")["leo"] = 2


@TALES.tale("lost-write bug 1")
def a_record_acked_without_an_offset_must_be_in_the_log(tale: Tale) -> None:
    tale.acked(1).send(2, 2).logged(2).send(3, 3)


@TALES.tale()
def records_below_the_log_start_are_not_lost(tale: Tale) -> None:
    tale.acked(1, 2, 3).send(4, 5)  # without an offset it may have been below too
    for node in ("n1", "n2", "n3"):
        tale.drop(node, 0)


@TALES.tale()
def the_record_of_an_indeterminate_send_may_be_anywhere_or_nowhere(tale: Tale) -> None:
    tale.acked(1).send(2, 2, kind="info", at=[1]).send(3, 3, kind="info").logged(3)


@TALES.tale()
def an_open_send_is_indeterminate(tale: Tale) -> None:
    tale.acked(1).line(2, "invoke", "send", sends=[{"partition": 0, "value": 5}]).logged(5)


@TALES.tale("unseen bug 1")
def an_acked_record_that_no_final_read_returns_is_unseen(tale: Tale) -> None:
    tale.acked(1, 2).final = False
    tale.assign(FINAL, 0).poll(FINAL, (0, 1))


@TALES.tale()
def a_record_returned_by_a_final_poll_of_any_outcome_is_seen(tale: Tale) -> None:
    tale.acked(1, 2).final = False
    tale.assign(FINAL, 0).poll(FINAL, (0, 1)).poll(FINAL, (1, 2), kind="fail")


@TALES.tale()
def records_above_the_last_stable_offset_need_not_be_read(tale: Tale) -> None:
    tale.acked(1, 2).final = False
    tale.row("n1")["lso"] = 1
    tale.assign(FINAL, 0).poll(FINAL, (0, 1))


@TALES.tale("duplicate bug 1")
def one_value_twice_in_the_log_is_a_duplicate(tale: Tale) -> None:
    tale.acked(1).logged(1)
    tale.final = False
    tale.assign(FINAL, 0).poll(FINAL, (0, 1))


@TALES.tale("duplicate bug 1", "saw-then-lost bug 1")
def one_value_read_at_two_offsets_is_a_duplicate(tale: Tale) -> None:
    tale.acked(1).poll(2, (0, 1)).poll(3, (5, 1))


@TALES.tale("duplicate bug 1", unknown=WITHOUT_A_LOG)
def a_value_acked_at_one_offset_and_read_at_another_is_a_duplicate(tale: Tale) -> None:
    """Found from the ops of the clients alone too."""
    tale.acked(1).send(3, 2, at=[2]).poll(2, (0, 1), (1, 2)).final = False
    tale.files["logs/n1.jsonl"] = None
    tale.run["final_reads"]["partitions"] = []


@TALES.tale("duplicate bug 1", "saw-then-lost bug 1", unknown=["unseen"])
def an_ack_that_matches_the_log_is_compared_with_a_read(tale: Tale) -> None:
    tale.acked(1, 2).poll(2, (4, 2)).final = False
    tale.run["final_reads"]["partitions"] = []


@TALES.tale()
def the_offset_of_an_indeterminate_send_comes_from_reads_alone(tale: Tale) -> None:
    tale.acked(1).send(3, 2, kind="info", at=[7]).logged(2)


@TALES.tale("duplicate retries 1")
def with_retries_one_copy_may_be_acked_and_another_read(tale: Tale) -> None:
    tale.acked(1).send(3, 2, at=[2]).logged(2, 2).run["guarantees"]["retries"] = 3
    for node in ("n1", "n2", "n3"):
        tale.entry(node, 2)["aborted"] = True


@TALES.tale()
def an_aborted_second_copy_is_no_duplicate(tale: Tale) -> None:
    tale.acked(1).logged(1)
    for node in ("n1", "n2", "n3"):
        tale.entry(node, 1)["aborted"] = True


@TALES.tale("phantom bug 2")
def values_that_were_never_sent_are_phantoms_once_each(tale: Tale) -> None:
    tale.acked(1).logged(77, 78)


@TALES.tale("phantom bug 1")
def a_value_in_another_partition_than_it_was_sent_to_is_a_phantom(tale: Tale) -> Tale:
    tale = Tale(partitions=2)
    return tale.acked(1).acked(2, partition=1).send(5, 3, kind="info").logged(3, partition=1)


@TALES.tale()
def records_of_others_are_no_phantoms(tale: Tale) -> None:
    tale.acked(1).logged(None, None).acked(2)


@TALES.tale("G1a bug 1")
def a_failed_value_that_was_read_is_an_aborted_read(tale: Tale) -> None:
    tale.acked(1).send(2, 9, kind="fail").logged(9)


@TALES.tale("G1a bug 1")
def a_failed_value_below_the_hw_counts_even_if_unread(tale: Tale) -> None:
    tale.acked(1).send(2, 9, kind="fail").logged(9).final = False
    tale.assign(FINAL, 0).poll(FINAL, (0, 1))


@TALES.tale()
def a_failed_value_above_the_hw_or_aborted_is_no_finding(tale: Tale) -> None:
    tale.acked(1).send(2, 8, kind="fail").logged(8).send(2, 9, kind="fail").logged(9)
    tale.final = False
    for node in ("n1", "n2", "n3"):
        tale.entry(node, 1)["aborted"] = True
        tale.row(node)["hw"] = 2
    tale.assign(FINAL, 0).poll(FINAL, (0, 1))


def failed_before_its_marker(tale: Tale, lso: int) -> Tale:
    """A transaction has failed, and its abort marker was not in the log yet when the log was frozen."""
    tale.acked(1).send(2, 9, kind="fail", f="txn").logged(9).final = False
    tale.row("n1")["lso"] = lso
    return tale.assign(FINAL, 0).poll(FINAL, (0, 1))


@TALES.tale(unknown=names.unknown_if(names.If.UNSETTLED))
def a_failed_value_that_is_undecided_is_no_finding(tale: Tale) -> Tale:
    return failed_before_its_marker(tale, 1)


@TALES.tale(unknown=names.unknown_if(names.If.UNSETTLED))
def an_undecided_failed_value_is_no_finding_under_read_uncommitted(tale: Tale) -> Tale:
    tale.run["guarantees"]["isolation"] = "read_uncommitted"
    return failed_before_its_marker(tale, 1)


@TALES.tale("G1a bug 1")
def a_failed_value_below_the_last_stable_offset_is_decided(tale: Tale) -> Tale:
    return failed_before_its_marker(tale, 2)


@TALES.tale("saw-then-lost bug 1")
def a_record_that_was_read_must_stay(tale: Tale) -> None:
    tale.acked(1).send(2, 5, kind="info").poll(3, (0, 1), (1, 5))


@TALES.tale()
def a_record_that_was_read_may_be_deleted_below_the_log_start(tale: Tale) -> None:
    tale.acked(1, 2).poll(3, (0, 1))
    for node in ("n1", "n2", "n3"):
        tale.drop(node, 0)


@TALES.tale("inconsistent-offsets bug 1", "saw-then-lost bug 1")
def two_reads_of_one_offset_must_agree(tale: Tale) -> None:
    tale.acked(1).send(2, 5, kind="info").poll(3, (0, 5))


@TALES.tale("stuck bug 2", unknown=["diverged", "under-replicated", "unseen"])
def a_partition_without_a_leader_or_an_ack_is_stuck(tale: Tale) -> Tale:
    tale = Tale(partitions=3).acked(1)
    tale.run["settled"] = False
    tale.run["settle"] |= {"no_leader": [1], "no_ack": [0, 1], "why": "no ack"}
    return tale


@TALES.tale(unknown=["diverged", "under-replicated", "unseen"])
def a_short_isr_alone_is_not_settled_and_not_stuck(tale: Tale) -> None:
    tale.acked(1).run["settled"] = False
    tale.run["settle"] |= {"isr_short": [0]}


@TALES.tale("broker-died bug 1", unknown=["diverged", "under-replicated", "unseen"])
def if_a_node_died_by_itself_nothing_is_stuck(tale: Tale) -> None:
    tale.acked(1).run.update(settled=False, died=["n2"])
    tale.run["settle"] |= {"no_ack": [0]}


@TALES.tale("broker-died bug 2")
def each_node_that_died_by_itself_is_a_bug_whatever_its_last_words(tale: Tale) -> None:
    """Though the cluster settled again; the controller is a node as well."""
    tale.acked(1).run.update(died=["n2", "controller", "n2"], died_words=["n2"])


@TALES.tale("broker-died bug 1", "lost-write bug 1")
def if_a_node_died_by_itself_other_findings_are_judged_as_usual(tale: Tale) -> None:
    tale.acked(1).send(7, 9, at=[1]).run["died"] = ["n3"]


@TALES.tale()
def a_killed_node_has_not_died_by_itself(tale: Tale) -> None:
    tale.acked(1).fault("kill", "n2").run["died"] = []


@TALES.tale(unknown=["broker-died", "stuck"])
def with_a_damaged_list_of_died_nodes_broker_died_is_unknown(tale: Tale) -> None:
    tale.acked(1).run["died"] = ["n2", 3]


@TALES.tale(unknown=["diverged", "under-replicated", "unseen"])
def if_a_node_is_down_nothing_is_stuck(tale: Tale) -> None:
    tale.acked(1).run.update(settled=False)
    tale.row("n2")["running"] = False
    tale.run["settle"] |= {"no_leader": [0]}


@TALES.tale(unknown=["stuck", "unseen", *names.unknown_if(names.If.LOG)])
def without_the_row_of_a_node_stuck_is_unknown(tale: Tale) -> None:
    tale.acked(1).run.update(settled=False)
    tale.row("n2")["absent"] = True
    tale.run["settle"] |= {"no_leader": [0]}


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name states what is expected."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize(
    ("name", "how", "nodes"),
    [
        ("an_acked_record_in_no_log_is_gone", "gone", []),
        ("an_acked_record_at_another_offset_has_moved", "moved", ["n1", "n2", "n3"]),
        ("an_acked_record_may_be_overwritten", "overwritten", []),
        ("a_record_only_on_a_follower_is_orphaned", "orphaned", ["n3"]),
    ],
)
def test_a_lost_write_states_where_its_record_is(
    name: str, how: str, nodes: list[str], verdicts: dict[str, Verdict]
) -> None:
    """`how`, and the nodes that still have it."""
    example = next(one for one in verdicts[name].findings if one.name == "lost-write").examples[0]

    assert (how, nodes) == (example["how"], example["nodes"])


def test_examples_are_few_and_the_lowest_first(verdicts: dict[str, Verdict]) -> None:
    """An example gives partition, offset, value, the lines concerned and a sentence."""
    example = verdicts["an_acked_record_in_no_log_is_gone"].findings[0].examples[0]

    assert tuple(example[key] for key in ("partition", "offset", "value", "ops")) == (0, 2, 3, [4, 5])
    assert "acked at offset 2" in example["text"]


def test_counts(verdicts: dict[str, Verdict]) -> None:
    """Lines, completions of clients, acked micro-sends, records of every dump."""
    assert verdicts["a_healthy_run_is_valid"].counts == {
        "ops": 14,
        "ok": 5,
        "fail": 1,
        "info": 1,
        "acked": 3,
        "torn": 0,
        "records": {"n1": 3, "n2": 3, "n3": 3},
    }
