"""What an answer proves, row by row of the table; and what a missing answer proves."""

import pytest

from floodmark.harness.client import classify
from floodmark.harness.client.error_names import name_of
from floodmark.harness.op import Send, Type

SENDS = (Send(partition=3, value=10), Send(partition=3, value=11))
REFUSED = (2, 3, 6, 10, 17, 18, 19, 21, 29, 32, 35, 42, 43, 45, 47, 74, 75, 76, 87, 100)
UNCLEAR = (-1, 7, 13, 20, 46, 56)


def test_error_zero_is_ok_with_an_offset_for_each_value() -> None:
    outcome = classify.answered(SENDS, 0, 40)
    assert outcome.type is Type.OK
    assert [(send.partition, send.value, send.offset) for send in outcome.sends] == [(3, 10, 40), (3, 11, 41)]
    assert outcome.error is None


def test_error_zero_without_an_offset_is_ok_and_names_none() -> None:
    outcome = classify.answered(SENDS, 0, -1)
    assert outcome.type is Type.OK
    assert [send.offset for send in outcome.sends] == [None, None]


@pytest.mark.parametrize("error", REFUSED)
def test_a_refusal_without_an_offset_is_a_definite_failure(error: int) -> None:
    outcome = classify.answered(SENDS, error, -1)
    assert (outcome.type, outcome.error) == (Type.FAIL, name_of(error))
    assert [(send.value, send.offset) for send in outcome.sends] == [(10, None), (11, None)]


@pytest.mark.parametrize("error", REFUSED)
def test_the_same_refusal_with_an_offset_was_appended_and_may_survive(error: int) -> None:
    outcome = classify.answered(SENDS, error, 0)  # 0 is an offset like any other
    assert (outcome.type, outcome.error) == (Type.INFO, name_of(error))
    assert [send.offset for send in outcome.sends] == [0, 1]


@pytest.mark.parametrize("error", UNCLEAR)
@pytest.mark.parametrize("base_offset", [-1, 7])
def test_errors_from_after_the_append_prove_nothing(error: int, base_offset: int) -> None:
    assert classify.answered(SENDS, error, base_offset).type is Type.INFO


@pytest.mark.parametrize("error", sorted(set(range(-1, 130)) - set(REFUSED) - {0}))
def test_every_other_code_is_info_known_or_not(error: int) -> None:
    assert classify.answered(SENDS, error, -1).type is Type.INFO


def test_a_code_without_a_name_is_reported_by_number() -> None:
    assert classify.answered(SENDS, 4711, -1).error == "ERROR_4711"


def test_no_answer_is_a_failure_only_if_no_byte_was_sent() -> None:
    assert classify.unanswered(SENDS, began=False, error=classify.CONNECTION).type is Type.FAIL
    assert classify.unanswered(SENDS, began=True, error=classify.CONNECTION).type is Type.INFO
    assert classify.unanswered(SENDS, began=True, error=classify.TIMEOUT).error == "TIMEOUT"


def test_a_send_that_expects_no_answer_is_info_without_an_error() -> None:
    outcome = classify.unasked(SENDS)
    assert (outcome.type, outcome.sends, outcome.error) == (Type.INFO, SENDS, None)


@pytest.mark.parametrize("error", [2, 3, 5, 6, 7, 13, 15, 19, 20, 56, 74])
def test_an_idempotent_producer_repeats_what_may_succeed_later(error: int) -> None:
    assert classify.is_retried(error, first=True)
    assert classify.is_retried(error, first=False)


@pytest.mark.parametrize("error", [-1, 0, 10, 22, 31, 35, 46, 47, 59, 87, 90])
def test_it_repeats_nothing_else(error: int) -> None:
    assert not classify.is_retried(error, first=True)
    assert not classify.is_retried(error, first=False)


def test_it_repeats_a_batch_out_of_order_only_behind_another_that_it_repeats() -> None:
    assert classify.is_retried(45, first=False)
    assert not classify.is_retried(45, first=True)
