"""Transactions: reads of uncommitted records, and ops in a cycle; each hit with its near miss."""

import re
from pathlib import Path

import here
import pytest
from folders import Tale
from judging import Tales
from txn_tales import A, B, C, D, began, busy, ended, logged, mutual, two, txn

from floodmark.checkers.laws import cycles
from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

TALES = Tales()
verdicts = TALES.fixture()


# -- reads of values ----------------------------------------------------------------------------------------


@TALES.tale("G1c bug 1")
def two_transactions_may_not_read_each_other(tale: Tale) -> Tale:
    return mutual()


@TALES.tale()
def one_may_read_the_other_while_both_are_open(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    began(tale, 1, A)
    began(tale, 2, C)
    ended(tale, 1, A)
    ended(tale, 2, C, reads=[A])
    return tale


@TALES.tale("G1c isolation 1")
def under_read_uncommitted_they_may(tale: Tale) -> Tale:
    tale = mutual()
    tale.run["guarantees"]["isolation"] = "read_uncommitted"
    return tale


@TALES.tale("G1c bug 2")
def each_cycle_is_one_finding(tale: Tale) -> Tale:
    tale = logged(mutual(), B, D)
    began(tale, 3, B)
    began(tale, 4, D)
    ended(tale, 3, B, reads=[D])
    ended(tale, 4, D, reads=[B])
    return tale


@TALES.tale("G1c-process bug 1")
def a_process_reads_no_value_before_it_sends_it(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, C, reads=[A])
    txn(tale, 1, A)
    return tale


@TALES.tale()
def it_may_read_it_afterwards(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, A)
    txn(tale, 1, C, reads=[A])
    return tale


@TALES.tale("G1c-realtime bug 1")
def nobody_reads_a_value_before_it_is_sent(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, C, reads=[A])
    txn(tale, 2, A)
    return tale


@TALES.tale("G1c-realtime bug 1")
def a_longer_way_through_time_is_seen(tale: Tale) -> Tale:
    """The third reads the second's value and the second reads the first's; the first began after the third
    ended."""
    tale = logged(two(), A, C)
    began(tale, 2, C)
    txn(tale, 3, reads=[C])
    txn(tale, 1, A)
    ended(tale, 2, C, reads=[A])
    return tale


@TALES.tale()
def not_so_if_the_third_is_still_reading(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    began(tale, 2, C)
    began(tale, 3)
    txn(tale, 1, A)
    ended(tale, 3, reads=[C])
    ended(tale, 2, C, reads=[A])
    return tale


@TALES.tale("G1c-process bug 1")
def processes_close_a_cycle_too(tale: Tale) -> Tale:
    """An earlier op of the second process reads a later op of the first, and the other way round."""
    tale = logged(two(), A, C)
    began(tale, 1)
    began(tale, 2)
    ended(tale, 1, reads=[C])
    ended(tale, 2, reads=[A])
    txn(tale, 1, A)
    txn(tale, 2, C)
    return tale


# -- the order of records -----------------------------------------------------------------------------------


@TALES.tale("G0 isolation 1")
def writes_in_two_orders(tale: Tale) -> Tale:
    tale = logged(two(), A, B, C, D)
    began(tale, 1, A, D)
    began(tale, 2, B, C)
    ended(tale, 1, A, D)
    ended(tale, 2, B, C)
    return tale


@TALES.tale()
def writes_in_one_order(tale: Tale) -> Tale:
    tale = logged(two(), A, B, C, D)
    began(tale, 1, A, C)
    began(tale, 2, B, D)
    ended(tale, 1, A, C)
    ended(tale, 2, B, D)
    return tale


@TALES.tale("G0-process isolation 1", "nonmonotonic-send bug 1", "realtime-order bug 1")
def a_process_s_writes_against_its_order(tale: Tale) -> Tale:
    tale = logged(two(), A, B)
    txn(tale, 1, B)
    txn(tale, 1, A)
    return tale


@TALES.tale("G0-realtime isolation 1", "realtime-order bug 1")
def writes_against_time(tale: Tale) -> Tale:
    tale = logged(two(), A, B)
    txn(tale, 1, B)
    txn(tale, 2, A)
    return tale


@TALES.tale("G1c isolation 1")
def one_wrote_before_the_other_and_read_it(tale: Tale) -> Tale:
    tale = logged(two(), A, B, C)
    began(tale, 1, A)
    began(tale, 2, B, C)
    ended(tale, 1, A, reads=[C])
    ended(tale, 2, B, C)
    return tale


def wrote_and_was_read(third: int) -> Tale:
    """The second wrote after the first; the first began after the third had read the second's value."""
    tale = logged(two(), A, B, C)
    began(tale, 2, B, C)
    txn(tale, third, reads=[C])
    txn(tale, 1, A)
    ended(tale, 2, B, C)
    return tale


@TALES.tale("G1c-realtime isolation 1")
def records_and_reads_against_time(tale: Tale) -> Tale:
    return wrote_and_was_read(3)


@TALES.tale("G1c-process isolation 1")
def records_and_reads_against_a_process(tale: Tale) -> Tale:
    return wrote_and_was_read(1)


@TALES.tale("inconsistent-offsets bug 1", "lost-write bug 1")
def an_offset_with_two_values_orders_nothing(tale: Tale) -> Tale:
    """If it ordered something, the first two would be a G0."""
    tale = logged(two(), A, B, C, D)
    began(tale, 1, A, D)
    began(tale, 2, B, C)
    began(tale, 3, (1, 1, 29))
    ended(tale, 1, A, D)
    ended(tale, 2, B, C)
    ended(tale, 3, (1, 1, 29))
    return tale


# -- values that a read did not see -------------------------------------------------------------------------


@TALES.tale()
def half_of_a_transaction_is_read(tale: Tale) -> Tale:
    tale = logged(two(), A, C, D)
    txn(tale, 1, C)
    txn(tale, 1, A, D)
    txn(tale, 2, reads=[A, C])
    return tale


@TALES.tale()
def all_of_it_is_read(tale: Tale) -> Tale:
    tale = logged(two(), A, C, D)
    txn(tale, 1, C)
    txn(tale, 1, A, D)
    txn(tale, 2, reads=[A, C, D])
    return tale


@TALES.tale()
def each_read_up_to_what_the_other_wrote(tale: Tale) -> Tale:
    tale = logged(two(), A, B, C, D)
    txn(tale, 1, A, C)
    began(tale, 2, B)
    began(tale, 3, D)
    ended(tale, 2, B, reads=[C])
    ended(tale, 3, D, reads=[A])
    return tale


@TALES.tale()
def a_reader_may_lag_behind(tale: Tale) -> Tale:
    tale = logged(two(), A, B)
    txn(tale, 1, A)
    txn(tale, 1, B)
    txn(tale, 2, reads=[A])
    txn(tale, 3, reads=[A, B])
    return tale


# -- indeterminate and failed ops ---------------------------------------------------------------------------


@TALES.tale()
def an_indeterminate_write_may_land_later(tale: Tale) -> Tale:
    """The next op's record is before it, and is read."""
    tale = logged(two(), A, B)
    txn(tale, 1, B, kind="info")
    txn(tale, 2, A)
    txn(tale, 3, reads=[A, B])
    return tale


@TALES.tale("G1c-realtime bug 1")
def an_indeterminate_transaction_has_read_its_reads_at_its_end(tale: Tale) -> Tale:
    tale = logged(two(), A, B)
    txn(tale, 1, B, reads=[A], kind="info")
    txn(tale, 2, A)
    return tale


@TALES.tale("G1c bug 1")
def an_indeterminate_transaction_is_one_op_of_a_cycle(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    began(tale, 1, A)
    began(tale, 2, C)
    ended(tale, 1, A, reads=[C], kind="info")
    ended(tale, 2, C, reads=[A])
    return tale


@TALES.tale("G1c-realtime bug 1")
def a_failed_transaction_has_read_its_reads_at_its_end(tale: Tale) -> Tale:
    tale = logged(two(), A)
    txn(tale, 1, (1, 0, 20), reads=[A], kind="fail")
    txn(tale, 2, A)
    return tale


@TALES.tale("G1a bug 1")
def reading_a_failed_value_is_no_cycle(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    began(tale, 1, C)
    began(tale, 2, A)
    ended(tale, 1, C, reads=[A], kind="fail")
    ended(tale, 2, A, reads=[C])
    return tale


@TALES.tale("G1c-process bug 1")
def a_failed_op_in_between_keeps_the_process_order(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, C, reads=[A])
    txn(tale, 1, (1, 5, 29), kind="fail")
    txn(tale, 1, A)
    return tale


# -- what makes it unknown ----------------------------------------------------------------------------------

OVERLAPPING = names.unknown_if(names.If.OVERLAPPING)
KILLED = ("diverged", "nonmonotonic-poll", "phantom", "poll-skip", "under-replicated", "unseen")


@TALES.tale("G1c-realtime bug 1", unknown=OVERLAPPING)
def ops_of_a_process_after_an_info_have_no_order(tale: Tale) -> Tale:
    tale = logged(two(), A)
    txn(tale, 1, reads=[A], kind="info")
    txn(tale, 1, A)
    return tale


@TALES.tale("G1c bug 1", unknown=OVERLAPPING)
def two_open_ops_of_a_process_are_matched_by_their_sends(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    began(tale, 1, A)
    began(tale, 1, C)
    ended(tale, 1, A, reads=[C])
    ended(tale, 1, C, reads=[A])
    return tale


@TALES.tale("G1c bug 1", unknown=names.unknown_if(names.If.BREACHED))
def a_cycle_is_found_beside_an_unreadable_line(tale: Tale) -> Tale:
    tale = mutual()
    tale.edit = lambda lines: [*lines, "{nonsense\n"]
    return tale


@TALES.tale(unknown=names.unknown_if(names.If.BREACHED))
def a_realtime_cycle_is_not_found_beside_an_unreadable_line(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, C, reads=[A])
    txn(tale, 2, A)
    tale.edit = lambda lines: [*lines, "{nonsense\n"]
    return tale


@TALES.tale(unknown=names.unknown_if(names.If.BREACHED))
def a_repeated_index_does_not_merge_two_ops(tale: Tale) -> Tale:
    """Merged, the first and the third would be one op that reads from the second and is read by it."""
    tale = logged(two(), A, C)
    began(tale, 1, A)
    began(tale, 2, C)
    began(tale, 3)
    ended(tale, 1, A)
    ended(tale, 2, C, reads=[A])
    ended(tale, 3, reads=[C])

    def edit(lines: list[dict[str, object]]) -> None:
        lines[2]["index"], lines[5]["index"] = 0, 3

    tale.edit = edit
    return tale


@TALES.tale("G1c-realtime bug 1", unknown=KILLED)
def a_cycle_is_found_in_a_killed_run(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, C, reads=[A])
    txn(tale, 2, A)
    for key in ("settled", "settle", "history_lines", "ended"):
        tale.run[key] = "absent"
    return tale


@TALES.tale(unknown=set(names.unknown_if(names.If.REPEATED)))
def a_value_sent_twice_makes_no_cycle(tale: Tale) -> Tale:
    tale = mutual()
    txn(tale, 5, A, kind="info")
    return tale


@TALES.tale("G1c-realtime bug 1")
def an_empty_transaction_counts_as_one(tale: Tale) -> None:
    """The run is judged as one with transactions, with the same result."""
    tale.poll(5, (0, 1)).acked(1).op(6, "txn")


# -- runs without a transaction -----------------------------------------------------------------------------


@TALES.tale("G1c-realtime bug 1")
def a_poll_before_the_send_is_a_realtime_cycle(tale: Tale) -> None:
    tale.poll(5, (0, 1)).acked(1)


@TALES.tale("G1c-process bug 1")
def a_poll_by_the_sender_before_its_send_is_a_process_cycle(tale: Tale) -> None:
    tale.poll(1, (0, 1)).acked(1, process=1)


@TALES.tale("G1c-process bug 1")
def a_poll_by_the_sender_after_anothers_is_a_process_cycle(tale: Tale) -> None:
    tale.poll(5, (0, 1)).poll(1, (0, 1)).acked(1, process=1)


@TALES.tale("G1c-realtime bug 1")
def a_poll_by_another_is_a_realtime_cycle_though_the_sender_reads_later(tale: Tale) -> None:
    tale.poll(5, (0, 1)).acked(1, process=1).poll(1, (0, 1))


@TALES.tale("G1c-realtime bug 1")
def an_indeterminate_poll_before_the_send_is_a_realtime_cycle(tale: Tale) -> None:
    tale.poll(5, (0, 1), kind="info").send(1, 1, kind="info").logged(1).acked(2, process=2)


@TALES.tale()
def a_poll_may_read_an_open_send(tale: Tale) -> None:
    tale.logged(1).line(1, "invoke", "send", sends=[{"partition": 0, "value": 1}]).poll(5, (0, 1))
    tale.line(1, "ok", "send", sends=[{"partition": 0, "value": 1, "offset": 0}])


@TALES.tale("G1c-realtime bug 1")
def without_transactions_a_poll_before_the_send_is_a_bug_under_read_uncommitted_too(tale: Tale) -> None:
    tale.poll(5, (0, 1)).acked(1).run["guarantees"]["isolation"] = "read_uncommitted"


@TALES.tale("G1a bug 1")
def a_failed_sends_value_is_an_aborted_read(tale: Tale) -> None:
    tale.acked(1).poll(5, (0, 1), (1, 2)).send(6, 2, kind="fail").logged(2)


@TALES.tale("realtime-order bug 1")
def sends_out_of_realtime_order_are_no_cycle(tale: Tale) -> None:
    tale.logged(2, 1).send(1, 1, at=[1]).send(2, 2, at=[0])


# -- reads of uncommitted records ---------------------------------------------------------------------------


@TALES.tale("precommitted-read bug 1")
def a_transaction_does_not_read_its_own_write(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, A, C, reads=[A, C])
    return tale


@TALES.tale("precommitted-read bug 1")
def an_indeterminate_transaction_does_not_read_its_own_write(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, A, reads=[A], kind="info")
    txn(tale, 2, C)
    return tale


@TALES.tale("G1a bug 1", "precommitted-read bug 1")
def a_failed_transaction_does_not_read_its_own_write(tale: Tale) -> Tale:
    txn(tale, 1, A, reads=[A], kind="fail")
    return tale.logged(10).acked(11, process=2)


@TALES.tale("precommitted-read isolation 1")
def under_read_uncommitted_a_transaction_may_read_its_own_write(tale: Tale) -> Tale:
    txn(tale, 1, A, reads=[A])
    tale.run["guarantees"]["isolation"] = "read_uncommitted"
    return tale.logged(10)


@TALES.tale()
def a_transaction_may_read_what_its_process_sent_before(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, A)
    txn(tale, 1, C, reads=[A])
    return tale


@TALES.tale("phantom bug 1")
def the_same_value_of_another_partition_is_not_its_own(tale: Tale) -> Tale:
    tale = logged(two(), A, (1, 0, 10))
    txn(tale, 1, A, reads=[(1, 0, 10)])
    return tale


# -- many ---------------------------------------------------------------------------------------------------


@TALES.tale()
def two_thousand_transactions_of_a_correct_cluster(tale: Tale) -> Tale:
    return busy(3, 2_000)


SMALL_TALES = [name for name in TALES.cases() if name != "two_thousand_transactions_of_a_correct_cluster"]


@pytest.mark.parametrize("name", SMALL_TALES)
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name states what is expected."""
    TALES.check(name, verdicts)


def test_a_busy_run_has_no_finding(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["two_thousand_transactions_of_a_correct_cluster"]

    assert (verdict.valid, verdict.findings) == (True, ())


def test_a_cycle_is_described_edge_by_edge(verdicts: dict[str, Verdict]) -> None:
    """The lines of its ops, in the cycle's order, and a sentence for each step."""
    (found,) = verdicts["a_longer_way_through_time_is_seen"].findings

    assert found.examples == (
        {
            "partition": 0,
            "offset": 0,
            "value": 10,
            "ops": [3, 4, 0, 5, 1, 2],
            "text": "A cycle of 3 ops, each before the next one. "
            "What process 1's txn (index 3, 4) sent, 10 at partition 0 offset 0, was read by "
            "process 2's txn (index 0, 5). "
            "What process 2's txn (index 0, 5) sent, 20 at partition 1 offset 0, was read by "
            "process 3's txn (index 1, 2). "
            "When process 3's txn (index 1, 2) was over, process 1's txn (index 3, 4) had not begun.",
        },
    )


def test_a_run_with_too_many_edges_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reason; its neighbour is judged."""
    few, many = mutual().write(tmp_path / "few"), busy(3, 20).write(tmp_path / "many")
    monkeypatch.setattr(cycles, "MOST_EDGES", 10)

    by_name, left_out = here.judge([few, many])

    assert [one.name for one in by_name.findings] == ["G1c"]
    assert by_name.unknown == ()
    (unknown,) = left_out.unknown
    assert {*unknown.names} == {*names.CYCLES}
    assert re.match(r"\d\d+ dependencies among the ops of this run .* among 10 at the most", unknown.reason)


def test_a_read_of_ones_own_write_gives_the_lowest_offset(verdicts: dict[str, Verdict]) -> None:
    (found,) = verdicts["a_transaction_does_not_read_its_own_write"].findings
    (example,) = found.examples

    assert {key: example[key] for key in ("partition", "offset", "value", "ops")} == {
        "partition": 0,
        "offset": 0,
        "value": 10,
        "ops": [0, 1],
    }
