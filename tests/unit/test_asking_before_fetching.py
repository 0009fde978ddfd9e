"""Followers that ask where their last epoch ends, then fetch: KIP-101, KIP-279, and KIP-320 until 2.6."""

from dataclasses import replace

import pytest

from floodmark.broker.protocol import errors
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
    LeaderAndIsr,
    OffsetsForLeaderEpoch,
    Truncate,
)
from floodmark.broker.protocol.replica import RecoveredState, Replica, ReplicaConfig
from floodmark.broker.protocol.rules import GENERATIONS, KIP_279, KIP_320, Rules
from floodmark.broker.testing.bugs import rules_for

TWO_PHASE = rules_for("kip-320", switches=["two-phase"])


def replica(rules: Rules, *epochs: int, hw: int = 0) -> Replica:
    """One with a record of each of these epochs, offset by offset."""
    batches = [Batch(base_offset=at, last_offset=at, epoch=epoch) for at, epoch in enumerate(epochs)]
    starts = [(epoch, epochs.index(epoch)) for epoch in sorted(set(epochs))]
    recovered = RecoveredState(batches=batches, epochs=starts, hw=hw)
    return Replica(me=1, config=ReplicaConfig(), rules=rules, recovered=recovered)


def leads(leader: int, epoch: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        now_ms=0, leader=leader, leader_epoch=epoch, isr=(1, 2, 3), partition_epoch=epoch,
        replicas=(1, 2, 3), broker_epochs={1: 11, 2: 12, 3: 13},
    )  # fmt: skip


def answered(it: Replica, end: EpochEnd | None, error: int = 0, **other: int) -> list[int]:
    """The offsets that it truncates to when it hears this."""
    asked = it.next_request()
    assert isinstance(asked, EndOffsetRequest)
    event = EndOffsetResponse(now_ms=0, leader=2, asked=replace(asked, **other), error=error, end=end)
    return [effect.to for effect in it.step(event) if isinstance(effect, Truncate)]


def end(epoch: int, offset: int) -> EpochEnd:
    return EpochEnd(epoch=epoch, end_offset=offset)


def test_what_kip_101_answers() -> None:
    """The start of the first larger epoch, whichever was asked; nothing for one older or later than all."""
    cache = LeaderEpochFileCache([(1, 0), (4, 3), (6, 5)])
    told = {epoch: cache.kip_101_end_offset_for(epoch, 9) for epoch in range(8)}
    assert told == {0: None, 7: None, 6: end(-1, 9), **dict.fromkeys((1, 2, 3), end(-1, 3)),
                    **dict.fromkeys((4, 5), end(-1, 5))}  # fmt: skip
    assert LeaderEpochFileCache().kip_101_end_offset_for(0, 0) is None


@pytest.mark.parametrize("rules", [GENERATIONS["kip-101"], KIP_279, TWO_PHASE], ids=lambda r: r.generation)
def test_nothing_is_fetched_before_the_answer(rules: Rules) -> None:
    """Its latest epoch is asked; where it ends at the leader the log is cut, and then fetching begins."""
    it = replica(rules, 0, 0, 1)
    it.step(leads(2, 3))
    assert it.next_request() == EndOffsetRequest(leader=2, leader_epoch=3, epoch=1)
    assert answered(it, end(NO_EPOCH if not rules.answers_with_epoch else 1, 3)) == []
    assert it.next_request() == FetchRequest(leader=2, leader_epoch=3, offset=3, last_fetched_epoch=NO_EPOCH)


@pytest.mark.parametrize("rules", [GENERATIONS["kip-101"], KIP_279, TWO_PHASE], ids=lambda r: r.generation)
def test_an_undefined_end_falls_back_to_the_high_watermark(rules: Rules) -> None:
    """As does a log without epochs, though there is then nobody to ask."""
    it = replica(rules, 0, 0, 1, hw=1)
    it.step(leads(2, 3))
    assert answered(it, None) == [1]
    assert isinstance(it.next_request(), FetchRequest)
    empty = replica(rules)
    empty.step(leads(2, 3))
    assert isinstance(empty.next_request(), FetchRequest)


def test_kip_101_takes_the_offset_as_it_is() -> None:
    """At or above its LEO it keeps all, below it cuts there."""
    for offset, cuts in ((5, []), (3, []), (2, [2])):
        it = replica(GENERATIONS["kip-101"], 0, 0, 1)
        it.step(leads(2, 3))
        assert answered(it, end(NO_EPOCH, offset)) == cuts


def test_kip_279_asks_again_where_the_epochs_do_not_meet() -> None:
    """It cuts to the end of its own largest epoch below the one answered, and asks for that one."""
    it = replica(KIP_279, 0, 2, 4)
    it.step(leads(2, 6))
    assert answered(it, end(3, 9)) == [2]
    assert it.next_request() == EndOffsetRequest(leader=2, leader_epoch=6, epoch=2)
    assert answered(it, end(2, 5)) == []
    assert isinstance(it.next_request(), FetchRequest)


def test_kip_279_cuts_all_that_is_younger_than_anything_the_leader_knows() -> None:
    """Z08: it knows nothing of the epoch answered, and holds nothing so old."""
    it = replica(KIP_279, 1)
    it.step(leads(2, 2))
    assert answered(it, end(0, 1)) == [0]
    assert it.next_request() == FetchRequest(leader=2, leader_epoch=2, offset=0, last_fetched_epoch=NO_EPOCH)


def test_who_is_fenced_asks_no_more_and_who_is_ahead_asks_again() -> None:
    """Until the next leader epoch."""
    it = replica(TWO_PHASE, 0)
    it.step(leads(2, 3))
    assert answered(it, None, errors.UNKNOWN_LEADER_EPOCH) == []
    assert isinstance(it.next_request(), EndOffsetRequest)
    assert answered(it, None, errors.FENCED_LEADER_EPOCH) == []
    assert it.next_request() is None
    it.step(leads(2, 4))
    assert isinstance(it.next_request(), EndOffsetRequest)


@pytest.mark.parametrize(("rules", "cuts"), [(TWO_PHASE, []), (KIP_279, [0])], ids=["two-phase", "kip-279"])
def test_a_late_answer_counts_where_nothing_is_fenced(rules: Rules, cuts: list[int]) -> None:
    """Of the same leader, in an older epoch."""
    it = replica(rules, 0)
    it.step(leads(2, 5))
    assert answered(it, end(0, 0), leader_epoch=3) == cuts


@pytest.mark.parametrize(
    ("rules", "epochs", "asks"),
    [("kip-101", (1, 2), False), ("kip-101", (1, 4), False), ("kip-279", (1, 2), False),
     ("kip-279", (1, 3), True), ("kip-320", (1, 2), True)],
)  # fmt: skip
def test_a_new_epoch_of_the_same_leader(rules: str, epochs: tuple[int, int], asks: bool) -> None:
    """KAFKA-7164: before 2.0 it was never a reason to ask, in 2.0.1 where an epoch had been missed."""
    it = replica(rules_for(rules, switches=["two-phase"]), 0)
    it.step(leads(2, epochs[0]))
    answered(it, end(NO_EPOCH if rules == "kip-101" else 0, 1))
    it.step(leads(2, epochs[1]))
    wish = it.next_request()
    assert isinstance(wish, EndOffsetRequest) is asks
    assert wish is not None
    assert wish.leader_epoch == epochs[1]


@pytest.mark.parametrize(
    ("rules", "epoch", "told"),
    [(TWO_PHASE, 3, end(0, 2)), (TWO_PHASE, 2, 74), (TWO_PHASE, 4, 75), (KIP_279, 2, end(0, 2)),
     (GENERATIONS["kip-101"], 4, end(-1, 2))],
)  # fmt: skip
def test_what_a_leader_answers(rules: Rules, epoch: int, told: EpochEnd | int) -> None:
    """Only where there is fencing is the asker's leader epoch compared."""
    it = replica(rules, 0, 0, 2)
    it.step(leads(1, 3))
    asked = OffsetsForLeaderEpoch(now_ms=0, token="e", replica=2, current_leader_epoch=epoch, epoch=1)
    if rules.generation == "kip-101":
        asked = replace(asked, epoch=0)
    (answer,) = it.step(asked)
    assert isinstance(answer, EndOffsetAnswer)
    assert (answer.error or answer.end) == told


def test_a_leader_of_kip_101_notes_its_epoch_when_it_writes() -> None:
    """KAFKA-7415: until then it does not know the epoch that it leads."""
    for rules, noted in ((GENERATIONS["kip-101"], ((0, 0),)), (KIP_279, ((0, 0), (3, 1)))):
        it = replica(rules, 0)
        it.step(leads(1, 3))
        assert it.epochs == noted


def test_a_follower_is_read_from_below_its_own_high_watermark() -> None:
    """Where KIP-392 is on; elsewhere a client is sent to the leader."""
    read = Fetch(now_ms=0, token="r", replica=CONSUMER, broker_epoch=-1, offset=0, current_leader_epoch=-1,
                 last_fetched_epoch=-1)  # fmt: skip
    for rules, error, ends in (
        (rules_for("kip-320", switches=["follower-reads"]), 0, 1),
        (KIP_320, errors.NOT_LEADER_OR_FOLLOWER, 0),
    ):
        it = replica(rules, 0, 0, hw=1)
        it.step(leads(2, 3))
        (answer,) = it.step(read)
        assert isinstance(answer, FetchAnswer)
        assert (answer.error, answer.start, answer.end) == (error, 0, ends)
        (beyond,) = it.step(replace(read, offset=3))
        assert isinstance(beyond, FetchAnswer)
        assert beyond.error in (errors.OFFSET_OUT_OF_RANGE, errors.NOT_LEADER_OR_FOLLOWER)


def test_a_new_follower_of_nobody_truncates_nothing() -> None:
    """KAFKA-1647: while there is no leader nothing is known to be wrong with what is here."""
    for rules in ("high-watermark", "kip-101"):
        it = replica(rules_for(rules), 0, hw=0)
        assert [one for one in it.step(leads(-1, 3)) if isinstance(one, Truncate)] == []
        assert it.next_request() is None
    it = replica(rules_for("high-watermark"), 0, hw=0)
    assert [one.to for one in it.step(leads(2, 3)) if isinstance(one, Truncate)] == [0]


def test_the_mutant_that_believes_the_hw_first_truncates_a_tick_later() -> None:
    """KAFKA-14704; the correct follower uses nothing of an answer that diverges."""
    for bugs, hw, cut in ((("hw_before_trunc",), 2, 0), ((), 0, 1)):
        it = replica(rules_for("kip-320", bugs), 0, 1)
        it.step(leads(2, 3))
        wish = it.next_request()
        assert isinstance(wish, FetchRequest)
        answer = FetchResponse(now_ms=0, leader=2, asked=wish, error=0, hw=2, log_start=0,
                               diverging=end(0, 1), batches=())  # fmt: skip
        cuts = [one for one in it.step(answer) if isinstance(one, Truncate)]
        assert (it.hw, len(cuts)) == (hw, cut)
