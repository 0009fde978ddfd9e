"""Tales of ops in a cycle, by what closes it: each level, and a near miss of each."""

from folders import Tale
from judging import Tales
from txn_tales import A, B, C, D, began, ended, logged, mutual, two, txn

CYCLES = Tales()


# -- reads of values ----------------------------------------------------------------------------------------


@CYCLES.tale("G1c bug 1")
def two_transactions_may_not_read_each_other(tale: Tale) -> Tale:
    return mutual()


@CYCLES.tale()
def one_may_read_the_other_while_both_are_open(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    began(tale, 1, A)
    began(tale, 2, C)
    ended(tale, 1, A)
    ended(tale, 2, C, reads=[A])
    return tale


@CYCLES.tale("G1c isolation 1")
def under_read_uncommitted_they_may(tale: Tale) -> Tale:
    tale = mutual()
    tale.run["guarantees"]["isolation"] = "read_uncommitted"
    return tale


@CYCLES.tale("G1c bug 2")
def each_cycle_is_one_finding(tale: Tale) -> Tale:
    tale = logged(mutual(), B, D)
    began(tale, 3, B)
    began(tale, 4, D)
    ended(tale, 3, B, reads=[D])
    ended(tale, 4, D, reads=[B])
    return tale


@CYCLES.tale("G1c-process bug 1")
def a_process_reads_no_value_before_it_sends_it(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, C, reads=[A])
    txn(tale, 1, A)
    return tale


@CYCLES.tale()
def it_may_read_it_afterwards(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, A)
    txn(tale, 1, C, reads=[A])
    return tale


@CYCLES.tale("G1c-realtime bug 1")
def nobody_reads_a_value_before_it_is_sent(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    txn(tale, 1, C, reads=[A])
    txn(tale, 2, A)
    return tale


@CYCLES.tale("G1c-realtime bug 1")
def a_longer_way_through_time_is_seen(tale: Tale) -> Tale:
    """The third reads the second's value and the second reads the first's; the first began after the third
    ended."""
    tale = logged(two(), A, C)
    began(tale, 2, C)
    txn(tale, 3, reads=[C])
    txn(tale, 1, A)
    ended(tale, 2, C, reads=[A])
    return tale


@CYCLES.tale()
def not_so_if_the_third_is_still_reading(tale: Tale) -> Tale:
    tale = logged(two(), A, C)
    began(tale, 2, C)
    began(tale, 3)
    txn(tale, 1, A)
    ended(tale, 3, reads=[C])
    ended(tale, 2, C, reads=[A])
    return tale


@CYCLES.tale("G1c-process bug 1")
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


@CYCLES.tale("G0 isolation 1")
def writes_in_two_orders(tale: Tale) -> Tale:
    tale = logged(two(), A, B, C, D)
    began(tale, 1, A, D)
    began(tale, 2, B, C)
    ended(tale, 1, A, D)
    ended(tale, 2, B, C)
    return tale


@CYCLES.tale()
def writes_in_one_order(tale: Tale) -> Tale:
    tale = logged(two(), A, B, C, D)
    began(tale, 1, A, C)
    began(tale, 2, B, D)
    ended(tale, 1, A, C)
    ended(tale, 2, B, D)
    return tale


@CYCLES.tale("G0-process isolation 1", "nonmonotonic-send bug 1", "realtime-order bug 1")
def a_process_s_writes_against_its_order(tale: Tale) -> Tale:
    tale = logged(two(), A, B)
    txn(tale, 1, B)
    txn(tale, 1, A)
    return tale


@CYCLES.tale("G0-realtime isolation 1", "realtime-order bug 1")
def writes_against_time(tale: Tale) -> Tale:
    tale = logged(two(), A, B)
    txn(tale, 1, B)
    txn(tale, 2, A)
    return tale


@CYCLES.tale("G1c isolation 1")
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


@CYCLES.tale("G1c-realtime isolation 1")
def records_and_reads_against_time(tale: Tale) -> Tale:
    return wrote_and_was_read(3)


@CYCLES.tale("G1c-process isolation 1")
def records_and_reads_against_a_process(tale: Tale) -> Tale:
    return wrote_and_was_read(1)


@CYCLES.tale("inconsistent-offsets bug 1", "lost-write bug 1")
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


@CYCLES.tale("G-single isolation 1")
def half_of_a_transaction_is_read(tale: Tale) -> Tale:
    tale = logged(two(), A, C, D)
    txn(tale, 1, C)
    txn(tale, 1, A, D)
    txn(tale, 2, reads=[A, C])
    return tale


@CYCLES.tale()
def all_of_it_is_read(tale: Tale) -> Tale:
    tale = logged(two(), A, C, D)
    txn(tale, 1, C)
    txn(tale, 1, A, D)
    txn(tale, 2, reads=[A, C, D])
    return tale


@CYCLES.tale("G2-item isolation 1")
def each_read_up_to_what_the_other_wrote(tale: Tale) -> Tale:
    tale = logged(two(), A, B, C, D)
    txn(tale, 1, A, C)
    began(tale, 2, B)
    began(tale, 3, D)
    ended(tale, 2, B, reads=[C])
    ended(tale, 3, D, reads=[A])
    return tale


@CYCLES.tale()
def a_reader_may_lag_behind(tale: Tale) -> Tale:
    tale = logged(two(), A, B)
    txn(tale, 1, A)
    txn(tale, 1, B)
    txn(tale, 2, reads=[A])
    txn(tale, 3, reads=[A, B])
    return tale
