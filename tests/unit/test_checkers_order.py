"""The order of sends, of reads and of end offsets: hits, and near misses without a finding."""

import pytest
from folders import NODES, Tale, reads_of
from judging import Tales

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
WITHOUT_A_LOG = names.unknown_if(names.If.LOG | names.If.LEADERS_LOG | names.If.LOSS_HIDDEN)
READ_TO_THE_END = names.unknown_if(names.If.LOG | names.If.LEADERS_LOG)  # so that reads show losses
verdicts = TALES.fixture()


@TALES.tale("realtime-order bug 1")
def an_earlier_ack_must_have_the_lower_offset(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, at=[1]).send(2, 2, at=[0])


@TALES.tale()
def sends_that_overlap_may_have_either_order(tale: Tale) -> None:
    tale.logged(2, 1)
    tale.line(1, "invoke", "send", sends=[{"partition": 0, "value": 1}])
    tale.line(2, "invoke", "send", sends=[{"partition": 0, "value": 2}])
    tale.line(1, "ok", "send", sends=[{"partition": 0, "value": 1, "offset": 1}])
    tale.line(2, "ok", "send", sends=[{"partition": 0, "value": 2, "offset": 0}])


@TALES.tale()
def partitions_have_no_order_among_one_another(tale: Tale) -> Tale:
    return Tale(partitions=2).acked(1, 2, 3).acked(4, partition=1)


@TALES.tale("nonmonotonic-send bug 1", "realtime-order bug 1")
def offsets_of_a_processs_sends_must_rise(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, at=[1]).send(1, 2, at=[0])


@TALES.tale("int-nonmonotonic-send bug 1")
def offsets_of_sends_inside_one_op_must_rise(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, 2, at=[1, 0])


@TALES.tale("int-nonmonotonic-send bug 1")
def offsets_of_sends_inside_one_transaction_must_rise(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, 2, at=[1, 0], f="txn")


@TALES.tale()
def sends_and_reads_of_a_transaction_have_no_order_between_them(tale: Tale) -> None:
    sent = {"partition": 0, "value": 3}
    tale.acked(1, 2).line(5, "invoke", "txn", sends=[sent])
    tale.line(5, "ok", "txn", sends=[{**sent, "offset": 2}], reads=reads_of([(0, 1), (1, 2)], 0)).logged(3)
    tale.poll(5, (2, 3))


@TALES.tale("nonmonotonic-send bug 1")
def an_offset_known_only_from_a_read_must_rise_too(tale: Tale) -> None:
    """The real-time order compares acks alone."""
    tale.logged(2, 1).send(1, 1).send(1, 2)


@TALES.tale("nonmonotonic-send bug 1")
def an_ack_is_compared_with_a_read(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, at=[1]).send(1, 2)


@TALES.tale("int-nonmonotonic-send bug 1")
def inside_one_op_an_ack_is_compared_with_a_read(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, 2, at=[1, None])


@TALES.tale("duplicate bug 1", unknown=WITHOUT_A_LOG)
def a_value_read_at_two_offsets_has_no_known_offset(tale: Tale) -> None:
    tale.send(1, 1).send(1, 2).poll(5, (0, 2), (2, 1)).poll(6, (3, 1)).files["logs/n1.jsonl"] = None
    tale.run["final_reads"]["partitions"] = []


@TALES.tale(unknown=["unseen"])
def a_value_that_was_not_read_has_no_known_offset(tale: Tale) -> None:
    tale.send(1, 1).send(1, 2).logged(2, 1).poll(5, (1, 1)).final = False
    tale.run["final_reads"]["partitions"] = []


@TALES.tale()
def the_offset_of_an_indeterminate_send_is_no_evidence(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, kind="info", at=[5]).send(2, 2, at=[0])


@TALES.tale("nonmonotonic-poll bug 1")
def a_consumers_position_never_falls(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1), (1, 2)).poll(5, (1, 2))


@TALES.tale("poll-skip bug 1")
def a_poll_skips_no_record(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1)).poll(5, (2, 3))


@TALES.tale()
def control_records_and_aborted_ones_may_be_skipped(tale: Tale) -> None:
    tale.acked(1).logged(None, 9).send(7, 9, kind="fail").acked(2).poll(5, (0, 1)).poll(5, (3, 2))
    for node in ("n1", "n2", "n3"):
        tale.entry(node, 2)["aborted"] = True


@TALES.tale()
def an_assign_forgets_the_positions_of_other_partitions(tale: Tale) -> Tale:
    tale = Tale(partitions=2).acked(1, 2).acked(3, partition=1)
    return tale.assign(5, 0).poll(5, (0, 1), (1, 2)).assign(5, 1).assign(5, 0).poll(5, (0, 1))


@TALES.tale("nonmonotonic-poll bug 1")
def an_assign_keeps_the_positions_of_its_partitions(tale: Tale) -> Tale:
    tale = Tale(partitions=2).acked(1, 2).acked(3, partition=1)
    return tale.assign(5, 0).poll(5, (0, 1), (1, 2)).assign(5, 0, 1).poll(5, (0, 1))


@TALES.tale("poll-skip bug 1")
def records_of_a_failed_poll_do_not_count_as_read(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1)).poll(5, (1, 2), kind="fail").poll(5, (2, 3))


@TALES.tale()
def a_failed_poll_moves_no_position(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(6, (0, 1)).poll(6, (1, 2), kind="fail").poll(6, (1, 2), (2, 3))


@TALES.tale("int-nonmonotonic-poll bug 2", "int-poll-skip bug 1")
def an_ok_poll_skips_nothing_that_it_returns_later_itself(tale: Tale) -> None:
    """A failed poll skips it: the records of a failed poll do not count as read."""
    tale.acked(1, 2, 3).poll(5, (0, 1), (2, 3), (1, 2)).poll(6, (0, 1), (2, 3), (1, 2), kind="fail")


@TALES.tale("int-poll-skip bug 2")
def inside_a_transaction_no_record_is_skipped(tale: Tale) -> None:
    tale.acked(1, 2, 3).op(5, "txn", reads=reads_of([(0, 1), (2, 3)], 0))
    tale.op(6, "txn", "fail", reads=reads_of([(0, 1), (2, 3)], 0))


@TALES.tale("int-nonmonotonic-poll bug 1")
def inside_a_transaction_offsets_rise(tale: Tale) -> None:
    tale.acked(1, 2).op(5, "txn", reads=reads_of([(1, 2), (0, 1)], 0))


@TALES.tale("int-nonmonotonic-poll bug 1", "nonmonotonic-poll bug 1")
def the_position_after_a_transaction_is_that_of_its_last_read(tale: Tale) -> None:
    tale.acked(1, 2, 3).op(5, "txn", reads=reads_of([(0, 1), (1, 2), (0, 1)], 0)).poll(5, (0, 1), (1, 2))


@TALES.tale()
def a_crash_forgets_the_consumers_positions(tale: Tale) -> None:
    """Whatever its outcome; the assignment is forgotten too."""
    tale.acked(1, 2)
    for process, kind in ((5, "ok"), (6, "fail")):
        tale.assign(process, 0).poll(process, (0, 1), (1, 2)).op(process, "crash", kind).poll(process, (0, 1))
        tale.poll(process, (1, 2)).op(process, "crash", kind).assign(process, 0).poll(process, (1, 2))


@TALES.tale("nonmonotonic-poll bug 1")
def positions_after_a_crash_count_again(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1)).op(5, "crash", "ok").poll(5, (0, 1), (1, 2)).poll(5, (1, 2))


@TALES.tale("nonmonotonic-poll bug 1")
def a_crash_of_another_process_forgets_nothing(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1), (1, 2)).op(6, "crash", "ok").poll(5, (0, 1))


@TALES.tale("int-nonmonotonic-poll bug 1")
def inside_a_poll_offsets_rise(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1), (1, 2), (0, 1))


@TALES.tale("int-poll-skip bug 1")
def inside_a_poll_no_record_is_skipped(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1), (2, 3))


@TALES.tale("int-poll-skip bug 1", "poll-skip bug 1", unknown=READ_TO_THE_END)
def without_the_leaders_log_acks_and_reads_show_what_was_skipped(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1)).poll(5, (2, 3)).poll(6, (0, 1), (2, 3)).files["logs/n1.jsonl"] = None


@TALES.tale(unknown={*WITHOUT_A_LOG, *names.unknown_if(names.If.COMPACT)})
def an_acked_record_may_have_been_compacted_away(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1)).poll(5, (2, 3)).poll(6, (0, 1), (2, 3)).files["logs/n1.jsonl"] = None
    tale.run["partitions"]["0"]["cleanup"] = "compact"


@TALES.tale()
def polls_below_the_log_start_are_not_checked(tale: Tale) -> None:
    tale.acked(1, 2, 3, 4).poll(5, (0, 1)).poll(5, (2, 3)).poll(6, (1, 2)).poll(6, (0, 1))
    for node in ("n1", "n2", "n3"):
        tale.drop(node, 0).drop(node, 1).drop(node, 2)


@TALES.tale(unknown=READ_TO_THE_END)
def polls_below_the_log_start_of_a_follower_are_not_checked(tale: Tale) -> None:
    polls_below_the_log_start_are_not_checked(tale)
    tale.row("n1")["isr"] = 3


BELOW_AN_UNKNOWN_LOG_START = {*READ_TO_THE_END, names.NONMONOTONIC_POLL, names.POLL_SKIP}


@TALES.tale(unknown=BELOW_AN_UNKNOWN_LOG_START)
def without_the_leaders_row_polls_may_be_below_the_log_start(tale: Tale) -> None:
    polls_below_the_log_start_are_not_checked(tale)
    for node in ("n1", "n2", "n3"):
        tale.row(node)["absent"] = True


@TALES.tale(unknown=BELOW_AN_UNKNOWN_LOG_START)
def a_followers_row_does_not_show_the_log_start(tale: Tale) -> None:
    """It may be behind: its leader deletes first."""
    tale.acked(1, 2, 3, 4).poll(5, (0, 1)).poll(5, (2, 3)).poll(6, (1, 2)).poll(6, (0, 1))
    tale.drop("n1", 0).drop("n1", 1).drop("n1", 2)
    tale.row("n1")["absent"] = True


@TALES.tale(unknown=READ_TO_THE_END)
def without_rows_polls_in_order_are_in_order_whatever_the_log_start(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1)).poll(5, (1, 2), (2, 3))
    for node in ("n1", "n2", "n3"):
        tale.row(node)["absent"] = True


@TALES.tale("end-offset-regressed bug 1")
def an_end_offset_never_falls_for_one_client(tale: Tale) -> None:
    tale.acked(1, 2).ends(5, 2).ends(5, 1)


@TALES.tale("end-offset-regressed bug 1")
def an_end_offset_is_compared_with_the_one_before_not_with_the_highest(tale: Tale) -> None:
    tale.acked(1, 2).ends(5, 10).ends(5, 5).ends(5, 7)


@TALES.tale("end-offset-regressed bug 1")
def an_end_offset_is_not_below_what_the_client_has_read(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1), (1, 2)).ends(5, 1)


@TALES.tale()
def two_clients_may_get_different_end_offsets(tale: Tale) -> None:
    tale.acked(1, 2).ends(5, 2).ends(6, 1)


# -- an end behind an ack, under read_uncommitted -----------------------------------------------------------


def asked(tale: Tale, end: int, epoch: int | None = 4, process: int = 7, at: int = 2) -> Tale:
    """The records 1, 2, 3 are acked, and read in epoch 4; before the last ack, a process asks for the end."""
    answered = {} if epoch is None else {"epoch": epoch}
    tale.acked(*range(1, at + 1), epoch=4).line(process, "invoke", "list_offsets").acked(at + 1, epoch=4)
    tale.line(process, "ok", "list_offsets", offsets=[{"partition": 0, "offset": end, **answered}])
    tale.run["guarantees"]["isolation"] = "read_uncommitted"
    return tale


@TALES.tale("end-offset-regressed bug 1")
def an_end_is_above_what_was_acked_before_it_was_asked_for(tale: Tale) -> None:
    asked(tale, 1)


@TALES.tale()
def an_end_may_be_below_what_was_acked_while_it_was_asked_for(tale: Tale) -> None:
    asked(tale, 2)


@TALES.tale()
def a_leader_of_another_epoch_may_not_know_of_the_ack_yet(tale: Tale) -> None:
    asked(tale, 1, epoch=5)


@TALES.tale()
def an_end_without_its_epoch_proves_nothing(tale: Tale) -> None:
    asked(tale, 1, epoch=None)


@TALES.tale()
def under_read_committed_the_end_is_the_last_stable_offset(tale: Tale) -> None:
    asked(tale, 1).run["guarantees"]["isolation"] = "read_committed"


@TALES.tale("end-offset-regressed bug 1", unknown=names.unknown_if(names.If.ISOLATION))
def a_process_may_have_an_isolation_of_its_own(tale: Tale) -> None:
    asked(tale, 1).run["isolation_of"] = {"7": "read_uncommitted"}
    tale.run["guarantees"]["isolation"] = "read_committed"


@TALES.tale(unknown=names.unknown_if(names.If.ISOLATION))
def a_process_may_read_committed_records_alone(tale: Tale) -> None:
    asked(tale, 1).run["isolation_of"] = {"7": "read_committed"}


@TALES.tale()
def with_acks_1_an_end_may_be_below_an_ack(tale: Tale) -> None:
    asked(tale, 1).run["guarantees"]["acks"] = "1"


@TALES.tale()
def an_idempotent_client_may_have_its_ack_from_a_later_leader_which_knew_the_record(tale: Tale) -> None:
    """The first leader, alone by then, has appended it, and never learns that all have it."""
    asked(tale, 1).run["guarantees"] |= {"idempotence": True, "retries": 3}


@TALES.tale()
def so_may_a_client_that_retries(tale: Tale) -> None:
    asked(tale, 1).run["guarantees"]["retries"] = 1


@TALES.tale(unknown=names.unknown_if(names.If.RETRIES))
def so_may_one_of_which_nobody_knows_whether_it_does(tale: Tale) -> None:
    asked(tale, 1).run["guarantees"]["idempotence"] = "maybe"


@TALES.tale()
def so_may_a_transaction(tale: Tale) -> None:
    for line in asked(tale, 1).lines:
        line["f"] = "txn" if line["f"] == "send" else line["f"]


@TALES.tale("end-offset-regressed bug 1")
def a_read_tells_the_epoch_where_no_log_does(tale: Tale) -> None:
    asked(tale, 1).files["logs/n1.jsonl"] = None
    tale.files |= {"logs/n2.jsonl": None, "logs/n3.jsonl": None}
    tale.run["observes"] = {"dumps": False}
    tale.op(8, "poll", reads=[{"partition": 0, "offset": 1, "value": 2, "epoch": 4}])


@TALES.tale()
def without_a_known_epoch_of_the_record_nothing_is_claimed(tale: Tale) -> None:
    a_read_tells_the_epoch_where_no_log_does(tale)
    del tale.lines[-1]["reads"][0]["epoch"]


@TALES.tale(
    "end-offset-regressed fault budget 1", "lost-write fault budget 2", "saw-then-lost fault budget 1"
)
def an_end_below_an_ack_follows_from_a_permitted_loss(tale: Tale) -> None:
    asked(tale, 1).fault("power_cut", *NODES, lost=True)
    tale.op(8, "poll", reads=[{"partition": 0, "offset": 1, "value": 2, "epoch": 4}])
    for node in NODES:
        tale.drop(node, 2).drop(node, 1)


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name states what is expected."""
    TALES.check(name, verdicts)
