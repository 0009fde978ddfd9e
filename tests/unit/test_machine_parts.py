"""The parts of a replica alone: log, epoch cache, producers, purgatory, ISR."""

import dataclasses

import pytest

from floodmark.broker.protocol import errors, messages
from floodmark.broker.protocol.errors import IllegalEvent
from floodmark.broker.protocol.isr import Isr
from floodmark.broker.protocol.leader_epoch_cache import LeaderEpochFileCache
from floodmark.broker.protocol.log import Log
from floodmark.broker.protocol.messages import AlterPartitionResponse, Batch, EpochEnd, ProposeIsr
from floodmark.broker.protocol.producer_state_manager import SEQUENCES, ProducerStateManager
from floodmark.broker.protocol.purgatory import DelayedFetchPurgatory
from floodmark.broker.protocol.rules import KIP_320
from floodmark.broker.server.controller_clock import ControllerClock


def batch(
    base: int, last: int, epoch: int = 0, producer: int = -1, epoch_of: int = 0, first: int = -1
) -> Batch:
    return Batch(
        base_offset=base, last_offset=last, epoch=epoch, producer_id=producer, producer_epoch=epoch_of,
        base_sequence=first,
    )  # fmt: skip


LOG = (batch(0, 2), batch(3, 3), batch(4, 8, epoch=2))


@pytest.mark.parametrize(("offset", "end"), [(9, 9), (12, 9), (8, 4), (4, 4), (3, 3), (2, 0), (0, 0)])
def test_a_truncation_ends_at_a_batch_boundary_at_or_below(offset: int, end: int) -> None:
    """An offset inside a batch removes the whole batch; one at or above the LEO removes nothing. The log then
    accepts the next offset only."""
    log = Log(0, LOG)
    assert log.truncate_to(offset) == end == log.end
    for base in (end - 1, end + 1):
        with pytest.raises(IllegalEvent):
            log.append(batch(base, end + 3))
    log.append(batch(end, end, epoch=3))
    assert log.epoch_at(end) == 3


def test_a_log_knows_the_epoch_of_each_record() -> None:
    log = Log(0, LOG)
    assert [log.epoch_at(offset) for offset in (-1, 0, 3, 4, 9)] == [-1, 0, 0, 2, -1]


CACHE = [(1, 0), (3, 10), (4, 12)]


@pytest.mark.parametrize(
    ("epoch", "found"),
    [(0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 12)), (4, (4, 20)), (5, None), (-1, None)],
)
def test_the_end_of_an_epoch_is_that_of_the_largest_at_or_below(
    epoch: int, found: tuple[int, int] | None
) -> None:
    """KIP-279: the largest epoch <= the requested one, and its end; nothing above the latest."""
    end = LeaderEpochFileCache(CACHE).end_offset_for(epoch, leo=20)
    assert end == (None if found is None else EpochEnd(epoch=found[0], end_offset=found[1]))


def test_kip_101_answers_the_start_of_the_first_larger_epoch() -> None:
    """For any requested epoch; none for an epoch earlier or later than all."""
    found = [LeaderEpochFileCache(CACHE).kip_101_end_offset_for(epoch, 20) for epoch in range(6)]
    assert [end and end.end_offset for end in found] == [None, 10, 10, 12, 20, None]
    assert LeaderEpochFileCache().kip_101_end_offset_for(0, 0) is None


def test_an_assignment_removes_contradicting_entries() -> None:
    """A new epoch that begins where others began, or before, replaces them; the latest again is no change."""
    cache = LeaderEpochFileCache(CACHE)
    assert not cache.assign(4, 15)
    assert cache.assign(6, 12)
    assert cache.entries == [(1, 0), (3, 10), (6, 12)]
    assert cache.assign(7, 5)
    assert cache.entries == [(1, 0), (7, 5)]


def test_truncating_to_the_leo_removes_the_entry_at_it() -> None:
    """KAFKA-10706; an entry below it stays."""
    cache = LeaderEpochFileCache(CACHE)
    assert cache.truncate_from_end(12)
    assert not cache.truncate_from_end(12)
    assert cache.entries == [(1, 0), (3, 10)]


def appended(producers: ProducerStateManager, one: Batch) -> None:
    assert producers.check_batch(one) == (errors.NONE, None)
    producers.update(one)


def test_a_retry_is_known_among_the_last_five() -> None:
    """The sixth last is out of order like any other."""
    producers = ProducerStateManager()
    sent = [batch(k, k, producer=7, first=k) for k in range(6)]
    for one in sent:
        appended(producers, one)
    error, known = producers.check_batch(batch(0, 0, producer=7, first=1))
    assert (error, known and known.base_offset) == (errors.NONE, 1)
    assert producers.check_batch(batch(0, 0, producer=7, first=0)) == (
        errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    assert producers.check_batch(batch(0, 1, producer=7, first=5))[0] == errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_epochs_fence_and_restart_the_sequence() -> None:
    """Lower: INVALID_PRODUCER_EPOCH. Higher: only from sequence 0. Unknown producer: from any sequence."""
    producers = ProducerStateManager()
    appended(producers, batch(0, 1, producer=7, epoch_of=1, first=40))
    for epoch, first, error in ((0, 42, errors.INVALID_PRODUCER_EPOCH),
                                (2, 1, errors.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        assert producers.check_batch(batch(0, 0, producer=7, epoch_of=epoch, first=first)) == (error, None)
    appended(producers, batch(2, 2, producer=7, epoch_of=2, first=0))
    assert producers.check_batch(batch(0, 0, producer=8, first=99)) == (errors.NONE, None)


def test_the_sequence_after_the_largest_is_zero() -> None:
    """Also within a batch."""
    producers = ProducerStateManager()
    appended(producers, batch(0, 1, producer=7, first=SEQUENCES - 1))
    appended(producers, batch(2, 2, producer=7, first=1))
    appended(producers, batch(3, 3, producer=8, first=SEQUENCES - 1))
    appended(producers, batch(4, 4, producer=8, first=0))


def test_a_truncation_undoes_the_state_of_producers() -> None:
    """The state is as if the truncated batches had never been appended."""
    producers = ProducerStateManager()
    for k in range(7):
        appended(producers, batch(2 * k, 2 * k, producer=7, first=k))
        appended(producers, batch(2 * k + 1, 2 * k + 1, producer=8, first=k))
    producers.truncate_to(6)
    expected = ProducerStateManager([batch(k, k, producer=7 + k % 2, first=k // 2) for k in range(6)])
    for producer in (7, 8):
        for first in range(8):
            one = batch(6, 6, producer=producer, first=first)
            assert producers.check_batch(one) == expected.check_batch(one)


def parked() -> DelayedFetchPurgatory:
    purgatory = DelayedFetchPurgatory()
    purgatory.park("follower", ["p0", "p1"], consumer=False, missing_bytes=10, deadline_ms=500)
    purgatory.park("client", ["p0"], consumer=True, missing_bytes=1, deadline_ms=300)
    return purgatory


def test_an_hw_move_completes_no_fetch_of_a_follower() -> None:
    """KAFKA-9731: only that of a client."""
    purgatory = parked()
    assert purgatory.hw_moved("p0") == ["client"]
    assert purgatory.hw_moved("p0") == []
    assert purgatory.expired(500) == ["follower"]


def test_bytes_add_up_over_partitions() -> None:
    """Nine are too few, the tenth completes the fetch; an append does not complete a client's."""
    purgatory = parked()
    assert purgatory.appended("p0", 9) == []
    assert purgatory.appended("p1", 1) == ["follower"]
    assert purgatory.appended("p0", 100) == []


def test_role_changes_and_deadlines_complete_each_fetch_once() -> None:
    """The token is removed from every partition that it waited for."""
    purgatory = parked()
    assert purgatory.expired(299) == []
    assert purgatory.expired(300) == ["client"]
    assert purgatory.role_changed("p1") == ["follower"]
    assert purgatory.appended("p0", 100) == []
    assert purgatory.expired(500) == []


def test_a_fetch_can_be_forgotten() -> None:
    """Whether it was parked or not."""
    purgatory = parked()
    assert purgatory.forget("client")
    assert not purgatory.forget("client")
    with pytest.raises(ValueError, match="parked already"):
        purgatory.park("follower", ["p0"], consumer=False, missing_bytes=1, deadline_ms=1)


def test_a_log_line_on_an_event_names_no_address_in_memory() -> None:
    """A token is an object of the server, which has another address in each process: one seed, one log."""
    shown = [f"{name}.{field.name}" for name, kind in vars(messages).items() if dataclasses.is_dataclass(kind)
             for field in dataclasses.fields(kind) if field.type in ("object", object) and field.repr]

    assert shown == []


# -- the leader's view of its ISR: the members it counts while a proposal is pending ---------------------


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


# -- the controller's clock does not count the time in which it was suspended ----------------------------


def test_short_steps_are_counted_in_full() -> None:
    """No step is above the limit of 200 ms."""
    time = iter([1000, 1000, 1025, 1225])
    clock = ControllerClock(lambda: next(time), 200)

    assert [clock.now_ms() for _ in range(3)] == [1000, 1025, 1225]
    assert clock.away_ms == 0


def test_a_long_gap_is_counted_as_the_limit() -> None:
    """A gap of a minute counts as 200 ms, the longest gap that is no suspension."""
    time = iter([0, 100, 60_100, 60_150])
    clock = ControllerClock(lambda: next(time), 200)

    assert [clock.now_ms() for _ in range(3)] == [100, 300, 350]
    assert clock.away_ms == 59_800
