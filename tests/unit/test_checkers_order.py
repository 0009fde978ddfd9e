"""The order of sends, what consumers were shown, and end offsets: hits, and near misses that stay silent."""

import pytest
from folders import Tale, reads_of
from judging import Tales

from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
WITHOUT_A_LOG = (*names.OF_THE_LOGS, *names.OF_THE_LEADERS_LOG)
READ_TO_THE_END = (*names.OF_THE_LOGS, *names.OF_THE_LOG_ALONE)  # so that reads tell of losses
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
def a_process_gets_rising_offsets(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, at=[1]).send(1, 2, at=[0])


@TALES.tale("int-nonmonotonic-send bug 1")
def so_does_one_op(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, 2, at=[1, 0])


@TALES.tale("int-nonmonotonic-send bug 1")
def so_does_one_transaction(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, 2, at=[1, 0], f="txn")


@TALES.tale()
def between_its_sends_and_its_reads_there_is_no_order(tale: Tale) -> None:
    sent = {"partition": 0, "value": 3}
    tale.acked(1, 2).line(5, "invoke", "txn", sends=[sent])
    tale.line(5, "ok", "txn", sends=[{**sent, "offset": 2}], reads=reads_of([(0, 1), (1, 2)], 0)).logged(3)
    tale.poll(5, (2, 3))


@TALES.tale("nonmonotonic-send bug 1")
def an_offset_that_only_a_read_tells_must_rise_too(tale: Tale) -> None:
    """Real time is held against acks alone."""
    tale.logged(2, 1).send(1, 1).send(1, 2)


@TALES.tale("nonmonotonic-send bug 1")
def an_ack_is_held_against_a_read(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, at=[1]).send(1, 2)


@TALES.tale("int-nonmonotonic-send bug 1")
def inside_one_op_too(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, 2, at=[1, None])


@TALES.tale("duplicate bug 1", unknown=WITHOUT_A_LOG)
def read_at_two_places_it_has_no_known_offset(tale: Tale) -> None:
    tale.send(1, 1).send(1, 2).poll(5, (0, 2), (2, 1)).poll(6, (3, 1)).files["logs/n1.jsonl"] = None
    tale.run["final_reads"]["partitions"] = []


@TALES.tale(unknown=["unseen"])
def nor_has_it_one_where_nobody_read_it(tale: Tale) -> None:
    tale.send(1, 1).send(1, 2).logged(2, 1).poll(5, (1, 1)).final = False
    tale.run["final_reads"]["partitions"] = []


@TALES.tale()
def a_doubtful_sends_offset_is_no_evidence(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, kind="info", at=[5]).send(2, 2, at=[0])


@TALES.tale("nonmonotonic-poll bug 1")
def a_position_never_falls(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1), (1, 2)).poll(5, (1, 2))


@TALES.tale("poll-skip bug 1")
def a_poll_skips_nothing(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1)).poll(5, (2, 3))


@TALES.tale()
def control_records_and_aborted_ones_may_be_passed_over(tale: Tale) -> None:
    tale.acked(1).logged(None, 9).send(7, 9, kind="fail").acked(2).poll(5, (0, 1)).poll(5, (3, 2))
    for node in ("n1", "n2", "n3"):
        tale.entry(node, 2)["aborted"] = True


@TALES.tale()
def an_assign_forgets_what_it_does_not_keep(tale: Tale) -> Tale:
    tale = Tale(partitions=2).acked(1, 2).acked(3, partition=1)
    return tale.assign(5, 0).poll(5, (0, 1), (1, 2)).assign(5, 1).assign(5, 0).poll(5, (0, 1))


@TALES.tale("nonmonotonic-poll bug 1")
def an_assign_keeps_what_it_names(tale: Tale) -> Tale:
    tale = Tale(partitions=2).acked(1, 2).acked(3, partition=1)
    return tale.assign(5, 0).poll(5, (0, 1), (1, 2)).assign(5, 0, 1).poll(5, (0, 1))


@TALES.tale("poll-skip bug 1")
def what_a_failed_poll_showed_was_given_back(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1)).poll(5, (1, 2), kind="fail").poll(5, (2, 3))


@TALES.tale()
def a_failed_poll_moves_nothing(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(6, (0, 1)).poll(6, (1, 2), kind="fail").poll(6, (1, 2), (2, 3))


@TALES.tale("int-nonmonotonic-poll bug 2", "int-poll-skip bug 1")
def a_poll_that_was_not_given_back_showed_what_it_jumped_over(tale: Tale) -> None:
    """The ok one jumped over what it showed itself; so did the failed one, which gave it back."""
    tale.acked(1, 2, 3).poll(5, (0, 1), (2, 3), (1, 2)).poll(6, (0, 1), (2, 3), (1, 2), kind="fail")


@TALES.tale("int-poll-skip bug 2")
def a_transaction_skips_nothing_inside(tale: Tale) -> None:
    tale.acked(1, 2, 3).op(5, "txn", reads=reads_of([(0, 1), (2, 3)], 0))
    tale.op(6, "txn", "fail", reads=reads_of([(0, 1), (2, 3)], 0))


@TALES.tale("int-nonmonotonic-poll bug 1")
def inside_a_transaction_offsets_rise(tale: Tale) -> None:
    tale.acked(1, 2).op(5, "txn", reads=reads_of([(1, 2), (0, 1)], 0))


@TALES.tale("int-nonmonotonic-poll bug 1", "nonmonotonic-poll bug 1")
def a_transaction_ends_where_its_last_read_was(tale: Tale) -> None:
    tale.acked(1, 2, 3).op(5, "txn", reads=reads_of([(0, 1), (1, 2), (0, 1)], 0)).poll(5, (0, 1), (1, 2))


@TALES.tale()
def a_crash_ends_the_consumer(tale: Tale) -> None:
    """However it ended; what it held was forgotten too."""
    tale.acked(1, 2)
    for process, kind in ((5, "ok"), (6, "fail")):
        tale.assign(process, 0).poll(process, (0, 1), (1, 2)).op(process, "crash", kind).poll(process, (0, 1))
        tale.poll(process, (1, 2)).op(process, "crash", kind).assign(process, 0).poll(process, (1, 2))


@TALES.tale("nonmonotonic-poll bug 1")
def after_a_crash_positions_count_again(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1)).op(5, "crash", "ok").poll(5, (0, 1), (1, 2)).poll(5, (1, 2))


@TALES.tale("nonmonotonic-poll bug 1")
def another_process_crashes(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1), (1, 2)).op(6, "crash", "ok").poll(5, (0, 1))


@TALES.tale("int-nonmonotonic-poll bug 1")
def inside_a_poll_offsets_rise(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1), (1, 2), (0, 1))


@TALES.tale("int-poll-skip bug 1")
def inside_a_poll_nothing_is_skipped(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1), (2, 3))


@TALES.tale("int-poll-skip bug 1", "poll-skip bug 1", unknown=READ_TO_THE_END)
def without_the_leaders_log_acks_and_reads_say_what_was_skipped(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1)).poll(5, (2, 3)).poll(6, (0, 1), (2, 3)).files["logs/n1.jsonl"] = None


@TALES.tale(unknown={*WITHOUT_A_LOG, *names.IF_COMPACT})
def what_was_acked_may_be_compacted_away_since(tale: Tale) -> None:
    tale.acked(1, 2, 3).poll(5, (0, 1)).poll(5, (2, 3)).poll(6, (0, 1), (2, 3)).files["logs/n1.jsonl"] = None
    tale.run["partitions"]["0"]["cleanup"] = "compact"


@TALES.tale()
def below_the_log_start_nothing_is_claimed_of_polls(tale: Tale) -> None:
    tale.acked(1, 2, 3, 4).poll(5, (0, 1)).poll(5, (2, 3)).poll(6, (1, 2)).poll(6, (0, 1))
    for node in ("n1", "n2", "n3"):
        tale.drop(node, 0).drop(node, 1).drop(node, 2)


@TALES.tale(unknown=READ_TO_THE_END)
def nor_where_only_a_follower_tells_it(tale: Tale) -> None:
    below_the_log_start_nothing_is_claimed_of_polls(tale)
    tale.row("n1")["isr"] = 3


@TALES.tale("end-offset-regressed bug 1")
def an_end_offset_never_falls_for_one_client(tale: Tale) -> None:
    tale.acked(1, 2).ends(5, 2).ends(5, 1)


@TALES.tale("end-offset-regressed bug 1")
def it_falls_from_the_one_before_not_from_the_highest_ever(tale: Tale) -> None:
    tale.acked(1, 2).ends(5, 10).ends(5, 5).ends(5, 7)


@TALES.tale("end-offset-regressed bug 1")
def nor_is_it_below_what_the_client_has_read(tale: Tale) -> None:
    tale.acked(1, 2).poll(5, (0, 1), (1, 2)).ends(5, 1)


@TALES.tale()
def two_clients_may_hear_different_ends(tale: Tale) -> None:
    tale.acked(1, 2).ends(5, 2).ends(6, 1)


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name says what must be so."""
    TALES.check(name, verdicts)
