"""A replica's answers one by one: errors in Kafka's order, acks, fencing, what it drops and refuses.

What comes of the rules in a cluster, each generation and each known-bad one: tests/teeth, simulated."""

from collections.abc import Sequence
from typing import TypeVar

import pytest
from msgspec.structs import replace

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.errors import IllegalEvent
from floodmark.broker.protocol.leader_epoch_cache import LeaderEpochFileCache
from floodmark.broker.protocol.messages import (
    CONSUMER,
    NO_EPOCH,
    Batch,
    EndOffsetAnswer,
    EndOffsetRequest,
    EndOffsetResponse,
    EpochEnd,
    Fetch,
    FetchAnswer,
    FetchRequest,
    FetchResponse,
    HwMoved,
    LeaderAndIsr,
    ListOffsets,
    ListOffsetsAnswer,
    LogEndsRequest,
    LogEndsResponse,
    OffsetsForLeaderEpoch,
    Produce,
    ProduceAnswer,
    ProposeIsr,
    ReplicaEffect,
    RoleChanged,
    SaveEpochs,
    Tick,
    Truncate,
)
from floodmark.broker.protocol.replica import RecoveredState, Replica, ReplicaConfig
from floodmark.broker.protocol.rules import GENERATIONS, KIP_279, KIP_320, Rules
from floodmark.broker.storage.log_recovery import mend_epochs
from floodmark.broker.testing.bugs import rules_for

Effect = TypeVar("Effect")
ALIVE = {1: 11, 2: 12, 3: 13}


def epoch_end(epoch: int, offset: int) -> EpochEnd:
    return EpochEnd(epoch=epoch, end_offset=offset)


def batch(base: int, epoch: int = 0, **more: int) -> Batch:
    return Batch(base_offset=base, last_offset=base, epoch=epoch, data=b"x", **more)


def replica(*batches: Batch, epochs: Sequence[tuple[int, int]] = (), hw: int = 0, rules: str = "kip-320",
            bugs: tuple[str, ...] = ()) -> Replica:
    config = ReplicaConfig(min_insync_replicas=2, replica_lag_time_max_ms=1_000)
    leo = batches[-1].last_offset + 1 if batches else 0
    recovered = RecoveredState(batches=batches, epochs=mend_epochs(epochs, batches, leo), hw=hw)
    return Replica(me=1, config=config, rules=rules_for(rules, bugs), recovered=recovered)


def leads(
    leader: int, epoch: int, isr: tuple[int, ...] = (1, 2, 3), partition_epoch: int = 0
) -> LeaderAndIsr:
    return LeaderAndIsr(
        now_ms=0, leader=leader, leader_epoch=epoch, isr=isr, partition_epoch=partition_epoch,
        replicas=(1, 2, 3), broker_epochs=ALIVE,
    )  # fmt: skip


def produce(acks: int = -1, **more: int) -> Produce:
    return Produce(now_ms=0, token="p", acks=acks, timeout_ms=100, batches=(batch(0, -1, **more),))


def fetch(
    by: int, offset: int, epoch: int = 0, last: int = 0, now_ms: int = 0, broker_epoch: int = 0
) -> Fetch:
    return Fetch(
        now_ms=now_ms, token="f", replica=by, broker_epoch=broker_epoch or ALIVE.get(by, -1), offset=offset,
        current_leader_epoch=epoch, last_fetched_epoch=last,
    )  # fmt: skip


def only(effects: list[ReplicaEffect], kind: type[Effect]) -> Effect:
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, effects
    return found[0]


def leader(*batches: Batch, isr: tuple[int, ...] = (1, 2, 3), hw: int = 0, epoch: int = 0,
           bugs: tuple[str, ...] = ()) -> Replica:
    it = replica(*batches, hw=hw, bugs=bugs)
    it.step(leads(1, epoch, isr))
    assert it.leading
    return it


def test_epochs_are_checked_before_leadership() -> None:
    """By a follower, which could answer to all of them that it does not lead."""
    it = replica()
    it.step(leads(2, 5))
    of_epoch = {4: errors.FENCED_LEADER_EPOCH, 6: errors.UNKNOWN_LEADER_EPOCH,
                5: errors.NOT_LEADER_OR_FOLLOWER, -1: errors.NOT_LEADER_OR_FOLLOWER}
    for epoch, error in of_epoch.items():
        assert only(it.step(fetch(CONSUMER, 0, epoch, -1)), FetchAnswer).error == error
        request = OffsetsForLeaderEpoch(now_ms=0, token="e", replica=3, current_leader_epoch=epoch, epoch=0)
        assert only(it.step(request), EndOffsetAnswer).error == error
        listed = ListOffsets(now_ms=0, token="o", replica=CONSUMER, current_leader_epoch=epoch, latest=True)
        assert only(it.step(listed), ListOffsetsAnswer).error == error


def test_a_refused_produce_has_no_offset_and_leaves_no_record() -> None:
    """6 from a follower, 19 below min.insync.replicas, 21 for other acks."""
    it = replica()
    it.step(leads(2, 0))
    assert only(it.step(produce()), ProduceAnswer).error == errors.NOT_LEADER_OR_FOLLOWER
    it = leader(isr=(1,))
    for event, error in ((produce(), 19), (produce(acks=2), 21)):
        (answer,) = it.step(event)
        assert isinstance(answer, ProduceAnswer)
        assert (answer.error, answer.base_offset, it.leo) == (error, -1, 0)
    assert only(it.step(produce(acks=1)), ProduceAnswer).error == errors.NONE


def test_an_ack_waits_for_all_records_of_its_produce() -> None:
    """In the whole ISR; the fetch that commits them is answered with the HW before it."""
    it = leader()
    it.step(replace(produce(), batches=(batch(0, -1), batch(1, -1))))
    it.step(fetch(2, 2))
    between = it.step(fetch(3, 1))
    assert (only(between, HwMoved).hw, only(between, FetchAnswer).hw) == (1, 0)
    assert not [one for one in between if isinstance(one, ProduceAnswer)]
    assert only(it.step(fetch(3, 2)), ProduceAnswer) == ProduceAnswer(
        token="p", error=0, base_offset=0, log_start=0, last_offset=1)


def test_a_parked_produce_that_loses_its_leader_answers_its_offset() -> None:
    """The error does not mean that it was refused: its record is in the log."""
    it = leader(batch(0), epoch=1)
    it.step(produce())
    effects = it.step(leads(2, 2))
    assert only(effects, ProduceAnswer) == ProduceAnswer(
        token="p", error=6, base_offset=1, log_start=0, last_offset=1)
    assert only(effects, RoleChanged) == RoleChanged(leading=False, leader=2, leader_epoch=2)


def test_a_deposed_leader_truncates_before_its_parked_produces_fail() -> None:
    """A step's trace lines leave with its first effect that is none on the disk: by then the log must have
    been cut, or a kill would leave more in it than the trace has."""
    it = replica(rules="high-watermark")
    it.step(leads(1, 0))
    it.step(produce())

    effects = it.step(leads(2, 1, (2, 3)))

    assert [type(one) for one in effects] == [Truncate, ProduceAnswer, RoleChanged]


def test_a_parked_produce_times_out_with_its_offset() -> None:
    """Not a millisecond before."""
    it = leader()
    it.step(produce())
    assert it.step(Tick(now_ms=99)) == []
    assert only(it.step(Tick(now_ms=100)), ProduceAnswer) == ProduceAnswer(
        token="p", error=errors.REQUEST_TIMED_OUT, base_offset=0, log_start=0, last_offset=0)


def test_a_retry_is_answered_with_the_offset_it_had() -> None:
    """And waits for the ISR as the first would have."""
    it = leader()
    once = produce(producer_id=9, producer_epoch=0, base_sequence=0)
    it.step(once)
    assert it.step(replace(once, token="again")) == []
    it.step(fetch(2, 1))
    answers = [effect for effect in it.step(fetch(3, 1)) if isinstance(effect, ProduceAnswer)]
    assert [(answer.token, answer.error, answer.base_offset) for answer in answers] == [
        ("p", 0, 0), ("again", 0, 0)]
    late = only(it.step(replace(once, token="late")), ProduceAnswer)
    assert (late.error, late.base_offset, it.leo) == (0, 0, 1)
    gap = only(it.step(produce(producer_id=9, producer_epoch=0, base_sequence=5)), ProduceAnswer)
    assert (gap.error, gap.base_offset) == (errors.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_the_known_bad_rule_appends_a_retry_that_comes_late() -> None:
    """The sixth last batch of its producer."""
    it = leader(bugs=("seq_gap_ok",))
    for sequence in (*range(6), 0):
        it.step(produce(acks=1, producer_id=9, producer_epoch=0, base_sequence=sequence))
    assert it.leo == 7


@pytest.mark.parametrize(("bugs", "above_hw"), [((), 0), (("oor_above_hw",), errors.OFFSET_OUT_OF_RANGE)])
def test_a_consumer_reads_below_the_hw_and_finds_nothing_above(bugs: tuple[str, ...], above_hw: int) -> None:
    """Between HW and LEO is empty, not out of range; above the LEO is."""
    it = leader(batch(0), batch(1), hw=1, epoch=1, bugs=bugs)
    for offset, error, end in ((0, 0, 1), (1, 0, 1), (2, above_hw, 2), (3, 1, 3)):
        answer = only(it.step(fetch(CONSUMER, offset, epoch=1, last=-1)), FetchAnswer)
        assert (answer.error, answer.end) == (error, end)


def test_end_offsets_wait_until_the_hw_reaches_the_start_of_the_epoch() -> None:
    """KIP-207; a follower gets the LEO all the same."""
    it = leader(batch(0), batch(1), hw=1, epoch=1)
    request = ListOffsets(now_ms=0, token="o", replica=CONSUMER, current_leader_epoch=1, latest=True)
    assert only(it.step(request), ListOffsetsAnswer).error == errors.OFFSET_NOT_AVAILABLE
    assert only(it.step(replace(request, replica=2)), ListOffsetsAnswer).offset == 2
    assert only(it.step(replace(request, latest=False)), ListOffsetsAnswer).offset == 0
    it.step(fetch(2, 2, epoch=1))
    it.step(fetch(3, 2, epoch=1))
    assert only(it.step(request), ListOffsetsAnswer).offset == 2


def test_an_earlier_incarnation_is_not_credited() -> None:
    """KIP-903: neither one below the metadata's broker epoch nor one below that of an earlier fetch."""
    it = leader(batch(0), epoch=1, isr=(1, 2))
    old = fetch(2, 1, epoch=1, broker_epoch=11)
    assert only(it.step(old), FetchAnswer).error == errors.NOT_LEADER_OR_FOLLOWER
    it.step(fetch(2, 0, epoch=1, broker_epoch=20))
    assert only(it.step(fetch(2, 1, epoch=1)), FetchAnswer).error == errors.NOT_LEADER_OR_FOLLOWER
    assert it.hw == 0


def test_an_expansion_names_the_incarnation_that_has_caught_up() -> None:
    """And is not proposed for one that the metadata does not know."""
    it = leader(isr=(1, 2))
    assert not [e for e in it.step(fetch(3, 0, last=-1, broker_epoch=20)) if isinstance(e, ProposeIsr)]
    it = leader(isr=(1, 2))
    assert only(it.step(fetch(3, 0, last=-1)), ProposeIsr).isr == ((1, 11), (2, 12), (3, 13))
    assert it.maximal_isr == (1, 2, 3)


def test_a_diverging_fetch_gets_the_end_of_its_epoch_and_no_credit() -> None:
    """KAFKA-13141."""
    it = leader(batch(0), batch(1), epoch=2, isr=(1, 2))
    it.step(produce())
    answer = only(it.step(fetch(2, 3, epoch=2, last=1)), FetchAnswer)
    assert (answer.diverging, answer.start, answer.end) == (epoch_end(0, 2), 3, 3)
    assert it.hw == 0


def response(it: Replica, *batches: Batch, **more: object) -> FetchResponse:
    request = it.next_request()
    assert isinstance(request, FetchRequest)
    plain = FetchResponse(now_ms=0, leader=request.leader, asked=request, error=0, hw=0, diverging=None,
                          batches=batches)
    return replace(plain, **more)  # type: ignore[arg-type]


def follower(*batches: Batch, epoch: int = 3, rules: str = "kip-320", hw: int = 0) -> Replica:
    it = replica(*batches, rules=rules, hw=hw)
    it.step(leads(2, epoch))
    return it


def test_a_late_response_is_dropped() -> None:
    """A response from the previous epoch, though its offset fits (KAFKA-18991)."""
    it = follower(batch(0))
    late = response(it, batch(1), hw=2)
    it.step(leads(2, 4))
    assert it.step(late) == []
    assert (it.leo, it.hw) == (1, 0)


def test_a_follower_saves_an_epoch_before_it_appends() -> None:
    """HW = min(LEO, leader's HW)."""
    it = follower(batch(0))
    effects = it.step(response(it, batch(1, 3), hw=9))
    assert [type(effect).__name__ for effect in effects] == ["SaveEpochs", "Append"]
    assert (it.leo, it.hw) == (2, 2)


def test_a_gap_from_the_leader_is_illegal_and_changes_nothing() -> None:
    """Nor may epochs fall, or come from the future."""
    for wrong in (batch(2, 3), batch(0, 3), batch(1, 4), batch(1, 0)):
        it = follower(batch(0, 1))
        with pytest.raises(IllegalEvent):
            it.step(response(it, wrong, hw=1))
        assert (it.leo, it.hw) == (1, 0)


@pytest.mark.parametrize(("end", "leo"), [
    (epoch_end(1, 2), 2),  # both know epoch 1: the shorter of both ends
    (epoch_end(1, 9), 3),
    (epoch_end(2, 9), 3),  # epoch 2 is unknown here: our end of 1, and fetch again
    (epoch_end(0, 0), 0),  # older than anything here
])
def test_a_diverging_response_truncates_and_does_nothing_else(end: EpochEnd, leo: int) -> None:
    """KIP-279; what came with it is not appended, nor its HW taken (KAFKA-14704)."""
    it = follower(batch(0, 1), batch(1, 1), batch(2, 1), batch(3, 3), batch(4, 3), epoch=4)
    effects = it.step(response(it, batch(5, 4), hw=5, diverging=end))
    assert only(effects, Truncate).to == leo == it.leo
    assert isinstance(effects[-1], SaveEpochs)
    assert it.hw == 0


@pytest.mark.parametrize(("rules", "start", "end", "after"), [
    ("kip-320", 5, 9, (5, 5, 5)),  # it restarts at the leader's log start
    ("kip-320", 0, 1, (0, 2, 2)),
    ("high-watermark", 0, 1, (0, 1, 1)),  # without epochs it truncates, as 2.8.2
])
def test_out_of_range_requests_the_leaders_ends(
        rules: str, start: int, end: int, after: tuple[int, int, int]) -> None:
    """With epochs the leader's end alone truncates nothing."""
    it = follower(batch(0), batch(1), hw=2, rules=rules)
    it.step(response(it, error=errors.OFFSET_OUT_OF_RANGE))
    request = it.next_request()
    assert request == LogEndsRequest(leader=2, leader_epoch=3)
    it.step(LogEndsResponse(now_ms=0, leader=2, asked=request, error=0, log_start=start, log_end=end))
    assert (it.log_start, it.leo, it.hw) == after
    last = 0 if rules == "kip-320" and not start else -1
    assert it.next_request() == FetchRequest(
        leader=2, leader_epoch=3, offset=it.leo, last_fetched_epoch=last)


def test_a_fenced_follower_fetches_nothing_until_it_learns_a_newer_epoch() -> None:
    """The same epoch again does not wake it."""
    it = follower(batch(0))
    it.step(response(it, error=errors.FENCED_LEADER_EPOCH))
    assert it.next_request() is None
    it.step(leads(2, 3, partition_epoch=1))
    assert it.next_request() is None
    it.step(leads(2, 4))
    assert it.next_request() is not None


def test_without_epochs_a_misfit_batch_halts_the_replica() -> None:
    """Z05: a batch that begins below the LEO is not appended; the partition is given up until a new epoch."""
    it = follower(batch(0), hw=1, rules="high-watermark")
    assert it.step(response(it, Batch(base_offset=0, last_offset=3, epoch=3, data=b"x"), hw=4)) == []
    assert it.next_request() is None


def test_an_epoch_below_any_seen_is_ignored() -> None:
    """In memory or in the recovered checkpoint; an equal one is accepted, but not to lead it again (Z28a)."""
    it = replica(batch(0, 2), epochs=[(2, 0), (4, 1)])
    for old in (leads(2, 3), leads(1, 4), leads(1, 2)):
        assert it.step(old) == []
    assert it.leader_epoch == -1
    it.step(leads(2, 4))
    assert it.leader == 2
    assert it.step(leads(1, 3)) == []


def test_two_leaders_of_one_epoch_are_illegal() -> None:
    """No correct controller sends this."""
    it = follower()
    with pytest.raises(IllegalEvent, match="epoch 3"):
        it.step(leads(3, 3, partition_epoch=1))
    assert it.leader == 2


def test_a_checkpointed_high_watermark_above_the_leo_is_the_leo() -> None:
    """A power cut leaves it so."""
    assert replica(batch(0), hw=9).hw == 1


# -- followers that request the end of their last epoch first: KIP-101, KIP-279, KIP-320 until 2.6 ----------

TWO_PHASE = rules_for("kip-320", switches=["two-phase"])


def with_epochs(rules: Rules, *epochs: int, hw: int = 0) -> Replica:
    """A replica whose log has one record of each of these epochs, in this order."""
    batches = [Batch(base_offset=at, last_offset=at, epoch=epoch) for at, epoch in enumerate(epochs)]
    starts = [(epoch, epochs.index(epoch)) for epoch in sorted(set(epochs))]
    recovered = RecoveredState(batches=batches, epochs=starts, hw=hw)
    return Replica(me=1, config=ReplicaConfig(), rules=rules, recovered=recovered)


def truncations_after(it: Replica, end: EpochEnd | None, error: int = 0, **other: int) -> list[int]:
    """The offsets to which the replica truncates on this answer."""
    request = it.next_request()
    assert isinstance(request, EndOffsetRequest)
    event = EndOffsetResponse(now_ms=0, leader=2, asked=replace(request, **other), error=error, end=end)
    cuts = [effect for effect in it.step(event) if isinstance(effect, Truncate)]
    assert all((cut.cause, cut.answer) == ("hw" if end is None else "epoch", end) for cut in cuts)
    return [cut.to for cut in cuts]


def test_kip_101_answers_the_start_of_the_first_larger_epoch() -> None:
    """For any requested epoch; none for an epoch earlier or later than all."""
    cache = LeaderEpochFileCache([(1, 0), (4, 3), (6, 5)])
    expected = {epoch: cache.kip_101_end_offset_for(epoch, 9) for epoch in range(8)}
    assert expected == {0: None, 7: None, 6: epoch_end(-1, 9), **dict.fromkeys((1, 2, 3), epoch_end(-1, 3)),
                    **dict.fromkeys((4, 5), epoch_end(-1, 5))}  # fmt: skip
    assert LeaderEpochFileCache().kip_101_end_offset_for(0, 0) is None


@pytest.mark.parametrize("rules", [GENERATIONS["kip-101"], KIP_279, TWO_PHASE], ids=lambda r: r.generation)
def test_nothing_is_fetched_before_the_answer(rules: Rules) -> None:
    """The follower requests the end of its latest epoch, truncates to the answer, then fetches."""
    it = with_epochs(rules, 0, 0, 1)
    it.step(leads(2, 3))
    assert it.next_request() == EndOffsetRequest(leader=2, leader_epoch=3, epoch=1)
    assert truncations_after(it, epoch_end(NO_EPOCH if not rules.answers_with_epoch else 1, 3)) == []
    assert it.next_request() == FetchRequest(
        leader=2, leader_epoch=3, offset=3, last_fetched_epoch=NO_EPOCH)


@pytest.mark.parametrize("rules", [GENERATIONS["kip-101"], KIP_279, TWO_PHASE], ids=lambda r: r.generation)
def test_an_undefined_end_falls_back_to_the_high_watermark(rules: Rules) -> None:
    """An empty log has no epoch to request and fetches at once."""
    it = with_epochs(rules, 0, 0, 1, hw=1)
    it.step(leads(2, 3))
    assert truncations_after(it, None) == [1]
    assert isinstance(it.next_request(), FetchRequest)
    empty = with_epochs(rules)
    empty.step(leads(2, 3))
    assert isinstance(empty.next_request(), FetchRequest)


@pytest.mark.parametrize(("rules", "epochs", "answer", "truncations", "then"), [
    (GENERATIONS["kip-101"], (0, 0, 1), epoch_end(NO_EPOCH, 5), [], None),  # it compares no epochs
    (GENERATIONS["kip-101"], (0, 0, 1), epoch_end(NO_EPOCH, 3), [], None),
    (GENERATIONS["kip-101"], (0, 0, 1), epoch_end(NO_EPOCH, 2), [2], None),
    (KIP_279, (0, 2, 4), epoch_end(3, 9), [2], 2),  # the end of its largest epoch below, requested next
    (KIP_279, (1,), epoch_end(0, 1), [0], None),  # Z08: it has no record of that epoch or an earlier one
], ids=repr)
def test_where_a_follower_truncates_to(
        rules: Rules, epochs: tuple[int, ...], answer: EpochEnd, truncations: list[int], then: int | None
) -> None:
    it = with_epochs(rules, *epochs)
    it.step(leads(2, 6))
    assert truncations_after(it, answer) == truncations
    request = it.next_request()
    if then is None:
        assert isinstance(request, FetchRequest)
    else:
        assert request == EndOffsetRequest(leader=2, leader_epoch=6, epoch=then)


def test_a_fenced_follower_stops_and_one_ahead_of_its_leader_retries() -> None:
    """It stops until the next leader epoch."""
    it = with_epochs(TWO_PHASE, 0)
    it.step(leads(2, 3))
    assert truncations_after(it, None, errors.UNKNOWN_LEADER_EPOCH) == []
    assert isinstance(it.next_request(), EndOffsetRequest)
    assert truncations_after(it, None, errors.FENCED_LEADER_EPOCH) == []
    assert it.next_request() is None
    it.step(leads(2, 4))
    assert isinstance(it.next_request(), EndOffsetRequest)


@pytest.mark.parametrize(
    ("rules", "truncations"), [(TWO_PHASE, []), (KIP_279, [0])], ids=["two-phase", "kip-279"])
def test_a_late_answer_is_used_where_nothing_is_fenced(rules: Rules, truncations: list[int]) -> None:
    """From the same leader, in an older epoch."""
    it = with_epochs(rules, 0)
    it.step(leads(2, 5))
    assert truncations_after(it, epoch_end(0, 0), leader_epoch=3) == truncations


@pytest.mark.parametrize(
    ("rules", "epochs", "requests"),
    [("kip-101", (1, 2), False), ("kip-101", (1, 4), False), ("kip-279", (1, 2), False),
     ("kip-279", (1, 3), True), ("kip-320", (1, 2), True)],
)  # fmt: skip
def test_a_new_epoch_of_the_same_leader(rules: str, epochs: tuple[int, int], requests: bool) -> None:
    """KAFKA-7164: before 2.0 no request was sent, in 2.0.1 only if an epoch had been missed."""
    it = with_epochs(rules_for(rules, switches=["two-phase"]), 0)
    it.step(leads(2, epochs[0]))
    truncations_after(it, epoch_end(NO_EPOCH if rules == "kip-101" else 0, 1))
    it.step(leads(2, epochs[1]))
    request = it.next_request()
    assert isinstance(request, EndOffsetRequest) is requests
    assert request is not None
    assert request.leader_epoch == epochs[1]


@pytest.mark.parametrize(
    ("rules", "epoch", "expected"),
    [(TWO_PHASE, 3, epoch_end(0, 2)), (TWO_PHASE, 2, 74), (TWO_PHASE, 4, 75), (KIP_279, 2, epoch_end(0, 2)),
     (GENERATIONS["kip-101"], 4, epoch_end(-1, 2))],
)  # fmt: skip
def test_what_a_leader_answers(rules: Rules, epoch: int, expected: EpochEnd | int) -> None:
    """The requester's leader epoch is compared only where there is fencing."""
    it = with_epochs(rules, 0, 0, 2)
    it.step(leads(1, 3))
    request = OffsetsForLeaderEpoch(now_ms=0, token="e", replica=2, current_leader_epoch=epoch, epoch=1)
    if rules.generation == "kip-101":
        request = replace(request, epoch=0)
    (answer,) = it.step(request)
    assert isinstance(answer, EndOffsetAnswer)
    assert (answer.error or answer.end) == expected


def test_a_leader_of_kip_101_caches_its_epoch_when_it_appends() -> None:
    """KAFKA-7415: until then its cache does not have the epoch that it leads."""
    for rules, epochs in ((GENERATIONS["kip-101"], ((0, 0),)), (KIP_279, ((0, 0), (3, 1)))):
        it = with_epochs(rules, 0)
        it.step(leads(1, 3))
        assert it.epochs == epochs


def test_a_consumer_reads_from_a_follower_below_its_high_watermark() -> None:
    """With KIP-392; without it the client is sent to the leader."""
    read = Fetch(now_ms=0, token="r", replica=CONSUMER, broker_epoch=-1, offset=0, current_leader_epoch=-1,
                 last_fetched_epoch=-1)  # fmt: skip
    for rules, error, ends in (
        (rules_for("kip-320", switches=["follower-reads"]), 0, 1),
        (KIP_320, errors.NOT_LEADER_OR_FOLLOWER, 0),
    ):
        it = with_epochs(rules, 0, 0, hw=1)
        it.step(leads(2, 3))
        (answer,) = it.step(read)
        assert isinstance(answer, FetchAnswer)
        assert (answer.error, answer.start, answer.end) == (error, 0, ends)
        (beyond,) = it.step(replace(read, offset=3))
        assert isinstance(beyond, FetchAnswer)
        assert beyond.error in (errors.OFFSET_OUT_OF_RANGE, errors.NOT_LEADER_OR_FOLLOWER)


def test_a_new_follower_without_a_leader_truncates_nothing() -> None:
    """KAFKA-1647: without a leader no record is known to be wrong."""
    for rules in ("high-watermark", "kip-101"):
        it = with_epochs(rules_for(rules), 0, hw=0)
        assert [one for one in it.step(leads(-1, 3)) if isinstance(one, Truncate)] == []
        assert it.next_request() is None
    it = with_epochs(rules_for("high-watermark"), 0, hw=0)
    assert [one.to for one in it.step(leads(2, 3)) if isinstance(one, Truncate)] == [0]
