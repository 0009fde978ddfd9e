"""The leader's view of its ISR: the members it counts while a proposal is pending."""

import pytest

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.isr import Isr
from floodmark.broker.protocol.messages import AlterPartitionResponse, ProposeIsr
from floodmark.broker.protocol.rules import KIP_320

EXPAND = ProposeIsr(leader_epoch=4, partition_epoch=7, isr=((1, 11), (2, 12), (3, 13)))
SHRINK = ProposeIsr(leader_epoch=4, partition_epoch=7, isr=((1, 11),))


def proposed(proposal: ProposeIsr) -> Isr:
    isr = Isr(committed=(1, 2), partition_epoch=7, rules=KIP_320)
    isr.propose(proposal)
    return isr


def answer(proposal: ProposeIsr, error: int = 0, isr: tuple[int, ...] = (),
           leader_epoch: int = 4) -> AlterPartitionResponse:
    return AlterPartitionResponse(now_ms=0, proposal=proposal, error=error, leader_epoch=leader_epoch,
                                  isr=isr, partition_epoch=8)  # fmt: skip


def test_an_expansion_counts_at_once_and_a_shrink_when_it_is_confirmed() -> None:
    """KIP-497: the larger of both."""
    assert proposed(EXPAND).maximal == (1, 2, 3)
    isr = proposed(SHRINK)
    assert isr.maximal == (1, 2)
    assert isr.handle_response(answer(SHRINK, isr=(1,)))
    assert isr.maximal == (1,)


@pytest.mark.parametrize("error", [errors.INELIGIBLE_REPLICA, errors.OPERATION_NOT_ATTEMPTED])
def test_a_member_refused_for_certain_is_no_longer_counted(error: int) -> None:
    """The controller changed nothing."""
    isr = proposed(EXPAND)
    assert isr.handle_response(answer(EXPAND, error))
    assert isr.maximal == (1, 2)
    assert isr.pending is None


@pytest.mark.parametrize(
    "error", [errors.FENCED_LEADER_EPOCH, errors.INVALID_UPDATE_VERSION, errors.NEW_LEADER_ELECTED]
)
def test_a_refused_epoch_keeps_the_member_until_new_metadata(error: int) -> None:
    """The ISR was changed meanwhile; the proposal is not sent again."""
    isr = proposed(EXPAND)
    isr.handle_response(answer(EXPAND, error))
    assert isr.maximal == (1, 2, 3)
    assert isr.take_resend() is None
    assert not isr.apply_metadata((1, 2), 7)
    assert isr.maximal == (1, 2, 3)
    assert isr.apply_metadata((1, 2), 8)
    assert isr.maximal == (1, 2)


def test_a_refusal_after_a_lost_request_proves_nothing() -> None:
    """It is sent again once. The lost one may still arrive: the committed ISR is proposed, which rules it
    out when accepted."""
    isr = proposed(EXPAND)
    isr.handle_response(answer(EXPAND, errors.REQUEST_TIMED_OUT))
    assert isr.maximal == (1, 2, 3)
    assert (isr.take_resend(), isr.take_resend()) == (EXPAND, None)
    isr.handle_response(answer(EXPAND, errors.INELIGIBLE_REPLICA))
    assert isr.maximal == (1, 2, 3)
    settling = isr.take_resend()
    assert settling is not None
    assert settling.isr == ((1, 11), (2, 12))
    isr.handle_response(answer(settling, isr=(1, 2)))
    assert isr.maximal == (1, 2)
    assert isr.partition_epoch == 8


def test_an_answer_to_another_request_is_dropped() -> None:
    """To an earlier proposal, and a success of another leader epoch."""
    isr = proposed(EXPAND)
    assert not isr.handle_response(answer(SHRINK, isr=(1,)))
    assert not isr.handle_response(answer(EXPAND, isr=(1, 2, 3), leader_epoch=5))
    assert isr.maximal == (1, 2, 3)
