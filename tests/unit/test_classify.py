"""What an answer proves, row by row of the table; and what a missing answer proves."""

import pytest

from floodmark.harness.client import classify
from floodmark.harness.client.classify import name_of
from floodmark.harness.op import Send, Type

SENDS = (Send(partition=3, value=10), Send(partition=3, value=11))
REFUSED = (2, 3, 6, 10, 17, 18, 19, 21, 29, 32, 35, 42, 43, 45, 47, 74, 75, 76, 87, 100)
ERRORS = sorted({*range(-1, 130), 4711} - {0})  # known or not
RETRIED = (2, 3, 5, 6, 7, 13, 15, 19, 20, 56, 74)


@pytest.mark.parametrize("error", ERRORS)
def test_only_a_refusal_without_an_offset_is_a_definite_failure(error: int) -> None:
    """With one it was appended and may survive; 0 is an offset like any other."""
    outcome = classify.answered(SENDS, error, -1)
    assert outcome.type is (Type.FAIL if error in REFUSED else Type.INFO)
    assert (outcome.error, [one.offset for one in outcome.sends]) == (name_of(error), [None, None])
    outcome = classify.answered(SENDS, error, 0)
    assert (outcome.type, outcome.error, [one.offset for one in outcome.sends]) == (
        Type.INFO, name_of(error), [0, 1])


def test_a_code_without_a_name_is_reported_by_number() -> None:
    assert name_of(4711) == "ERROR_4711"


@pytest.mark.parametrize(("base", "offsets"), [(40, [40, 41]), (-1, [None, None])])
def test_error_zero_is_ok_with_an_offset_for_each_value_if_it_names_one(
        base: int, offsets: list[int | None]) -> None:
    outcome = classify.answered(SENDS, 0, base)
    assert (outcome.type, outcome.error) == (Type.OK, None)
    assert [(one.partition, one.value, one.offset) for one in outcome.sends] == [
        (3, 10, offsets[0]), (3, 11, offsets[1])]


def test_no_answer_is_a_failure_only_if_no_byte_was_sent() -> None:
    assert classify.unanswered(SENDS, began=False, error=classify.CONNECTION).type is Type.FAIL
    assert classify.unanswered(SENDS, began=True, error=classify.CONNECTION).type is Type.INFO
    assert classify.unanswered(SENDS, began=True, error=classify.TIMEOUT).error == "TIMEOUT"


@pytest.mark.parametrize("error", [*RETRIED, -1, 0, 10, 22, 31, 35, 46, 47, 59, 87, 90])
def test_an_idempotent_producer_repeats_what_may_succeed_later_and_nothing_else(error: int) -> None:
    assert {classify.is_retried(error, first=first) for first in (True, False)} == {error in RETRIED}


def test_it_repeats_a_batch_out_of_order_only_behind_another_that_it_repeats() -> None:
    assert [classify.is_retried(45, first=first) for first in (True, False)] == [False, True]
