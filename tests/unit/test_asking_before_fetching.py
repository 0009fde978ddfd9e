"""Followers that request the end of their last epoch before fetching: KIP-101, KIP-279, KIP-320 until 2.6.

What comes of it in a cluster: the scenarios of each generation (tests/teeth)."""

import pytest
from msgspec.structs import replace

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
    LeaderAndIsr,
    OffsetsForLeaderEpoch,
    Truncate,
)
from floodmark.broker.protocol.replica import RecoveredState, Replica, ReplicaConfig
from floodmark.broker.protocol.rules import GENERATIONS, KIP_279, KIP_320, Rules
from floodmark.broker.testing.bugs import rules_for

TWO_PHASE = rules_for("kip-320", switches=["two-phase"])


def new_replica(rules: Rules, *epochs: int, hw: int = 0) -> Replica:
    """A replica whose log has one record of each of these epochs, in this order."""
    batches = [Batch(base_offset=at, last_offset=at, epoch=epoch) for at, epoch in enumerate(epochs)]
    starts = [(epoch, epochs.index(epoch)) for epoch in sorted(set(epochs))]
    recovered = RecoveredState(batches=batches, epochs=starts, hw=hw)
    return Replica(me=1, config=ReplicaConfig(), rules=rules, recovered=recovered)


def leader_and_isr(leader: int, epoch: int) -> LeaderAndIsr:
    return LeaderAndIsr(
        now_ms=0, leader=leader, leader_epoch=epoch, isr=(1, 2, 3), partition_epoch=epoch,
        replicas=(1, 2, 3), broker_epochs={1: 11, 2: 12, 3: 13},
    )  # fmt: skip


def truncations_after(replica: Replica, end: EpochEnd | None, error: int = 0, **other: int) -> list[int]:
    """The offsets to which the replica truncates on this answer."""
    request = replica.next_request()
    assert isinstance(request, EndOffsetRequest)
    event = EndOffsetResponse(now_ms=0, leader=2, asked=replace(request, **other), error=error, end=end)
    cuts = [effect for effect in replica.step(event) if isinstance(effect, Truncate)]
    assert all((cut.cause, cut.answer) == ("hw" if end is None else "epoch", end) for cut in cuts)
    return [cut.to for cut in cuts]


def end(epoch: int, offset: int) -> EpochEnd:
    return EpochEnd(epoch=epoch, end_offset=offset)


def test_kip_101_answers_the_start_of_the_first_larger_epoch() -> None:
    """For any requested epoch; none for an epoch earlier or later than all."""
    cache = LeaderEpochFileCache([(1, 0), (4, 3), (6, 5)])
    expected = {epoch: cache.kip_101_end_offset_for(epoch, 9) for epoch in range(8)}
    assert expected == {0: None, 7: None, 6: end(-1, 9), **dict.fromkeys((1, 2, 3), end(-1, 3)),
                    **dict.fromkeys((4, 5), end(-1, 5))}  # fmt: skip
    assert LeaderEpochFileCache().kip_101_end_offset_for(0, 0) is None


@pytest.mark.parametrize("rules", [GENERATIONS["kip-101"], KIP_279, TWO_PHASE], ids=lambda r: r.generation)
def test_nothing_is_fetched_before_the_answer(rules: Rules) -> None:
    """The follower requests the end of its latest epoch, truncates to the answer, then fetches."""
    replica = new_replica(rules, 0, 0, 1)
    replica.step(leader_and_isr(2, 3))
    assert replica.next_request() == EndOffsetRequest(leader=2, leader_epoch=3, epoch=1)
    assert truncations_after(replica, end(NO_EPOCH if not rules.answers_with_epoch else 1, 3)) == []
    assert replica.next_request() == FetchRequest(
        leader=2, leader_epoch=3, offset=3, last_fetched_epoch=NO_EPOCH)


@pytest.mark.parametrize("rules", [GENERATIONS["kip-101"], KIP_279, TWO_PHASE], ids=lambda r: r.generation)
def test_an_undefined_end_falls_back_to_the_high_watermark(rules: Rules) -> None:
    """An empty log has no epoch to request and fetches at once."""
    replica = new_replica(rules, 0, 0, 1, hw=1)
    replica.step(leader_and_isr(2, 3))
    assert truncations_after(replica, None) == [1]
    assert isinstance(replica.next_request(), FetchRequest)
    empty = new_replica(rules)
    empty.step(leader_and_isr(2, 3))
    assert isinstance(empty.next_request(), FetchRequest)


@pytest.mark.parametrize(("rules", "epochs", "answer", "truncations", "then"), [
    (GENERATIONS["kip-101"], (0, 0, 1), end(NO_EPOCH, 5), [], None),  # it compares no epochs
    (GENERATIONS["kip-101"], (0, 0, 1), end(NO_EPOCH, 3), [], None),
    (GENERATIONS["kip-101"], (0, 0, 1), end(NO_EPOCH, 2), [2], None),
    (KIP_279, (0, 2, 4), end(3, 9), [2], 2),  # the end of its largest epoch below; which it requests next
    (KIP_279, (1,), end(0, 1), [0], None),  # Z08: it has no record of that epoch or an earlier one
], ids=repr)
def test_where_a_follower_truncates_to(
        rules: Rules, epochs: tuple[int, ...], answer: EpochEnd, truncations: list[int], then: int | None
) -> None:
    replica = new_replica(rules, *epochs)
    replica.step(leader_and_isr(2, 6))
    assert truncations_after(replica, answer) == truncations
    request = replica.next_request()
    if then is None:
        assert isinstance(request, FetchRequest)
    else:
        assert request == EndOffsetRequest(leader=2, leader_epoch=6, epoch=then)


def test_a_fenced_follower_stops_and_one_ahead_of_its_leader_retries() -> None:
    """It stops until the next leader epoch."""
    replica = new_replica(TWO_PHASE, 0)
    replica.step(leader_and_isr(2, 3))
    assert truncations_after(replica, None, errors.UNKNOWN_LEADER_EPOCH) == []
    assert isinstance(replica.next_request(), EndOffsetRequest)
    assert truncations_after(replica, None, errors.FENCED_LEADER_EPOCH) == []
    assert replica.next_request() is None
    replica.step(leader_and_isr(2, 4))
    assert isinstance(replica.next_request(), EndOffsetRequest)


@pytest.mark.parametrize(
    ("rules", "truncations"), [(TWO_PHASE, []), (KIP_279, [0])], ids=["two-phase", "kip-279"])
def test_a_late_answer_is_used_where_nothing_is_fenced(rules: Rules, truncations: list[int]) -> None:
    """From the same leader, in an older epoch."""
    replica = new_replica(rules, 0)
    replica.step(leader_and_isr(2, 5))
    assert truncations_after(replica, end(0, 0), leader_epoch=3) == truncations


@pytest.mark.parametrize(
    ("rules", "epochs", "requests"),
    [("kip-101", (1, 2), False), ("kip-101", (1, 4), False), ("kip-279", (1, 2), False),
     ("kip-279", (1, 3), True), ("kip-320", (1, 2), True)],
)  # fmt: skip
def test_a_new_epoch_of_the_same_leader(rules: str, epochs: tuple[int, int], requests: bool) -> None:
    """KAFKA-7164: before 2.0 no request was sent, in 2.0.1 only if an epoch had been missed."""
    replica = new_replica(rules_for(rules, switches=["two-phase"]), 0)
    replica.step(leader_and_isr(2, epochs[0]))
    truncations_after(replica, end(NO_EPOCH if rules == "kip-101" else 0, 1))
    replica.step(leader_and_isr(2, epochs[1]))
    request = replica.next_request()
    assert isinstance(request, EndOffsetRequest) is requests
    assert request is not None
    assert request.leader_epoch == epochs[1]


@pytest.mark.parametrize(
    ("rules", "epoch", "expected"),
    [(TWO_PHASE, 3, end(0, 2)), (TWO_PHASE, 2, 74), (TWO_PHASE, 4, 75), (KIP_279, 2, end(0, 2)),
     (GENERATIONS["kip-101"], 4, end(-1, 2))],
)  # fmt: skip
def test_what_a_leader_answers(rules: Rules, epoch: int, expected: EpochEnd | int) -> None:
    """The requester's leader epoch is compared only where there is fencing."""
    replica = new_replica(rules, 0, 0, 2)
    replica.step(leader_and_isr(1, 3))
    request = OffsetsForLeaderEpoch(now_ms=0, token="e", replica=2, current_leader_epoch=epoch, epoch=1)
    if rules.generation == "kip-101":
        request = replace(request, epoch=0)
    (answer,) = replica.step(request)
    assert isinstance(answer, EndOffsetAnswer)
    assert (answer.error or answer.end) == expected


def test_a_leader_of_kip_101_caches_its_epoch_when_it_appends() -> None:
    """KAFKA-7415: until then its cache does not have the epoch that it leads."""
    for rules, epochs in ((GENERATIONS["kip-101"], ((0, 0),)), (KIP_279, ((0, 0), (3, 1)))):
        replica = new_replica(rules, 0)
        replica.step(leader_and_isr(1, 3))
        assert replica.epochs == epochs


def test_a_consumer_reads_from_a_follower_below_its_high_watermark() -> None:
    """With KIP-392; without it the client is sent to the leader."""
    read = Fetch(now_ms=0, token="r", replica=CONSUMER, broker_epoch=-1, offset=0, current_leader_epoch=-1,
                 last_fetched_epoch=-1)  # fmt: skip
    for rules, error, ends in (
        (rules_for("kip-320", switches=["follower-reads"]), 0, 1),
        (KIP_320, errors.NOT_LEADER_OR_FOLLOWER, 0),
    ):
        replica = new_replica(rules, 0, 0, hw=1)
        replica.step(leader_and_isr(2, 3))
        (answer,) = replica.step(read)
        assert isinstance(answer, FetchAnswer)
        assert (answer.error, answer.start, answer.end) == (error, 0, ends)
        (beyond,) = replica.step(replace(read, offset=3))
        assert isinstance(beyond, FetchAnswer)
        assert beyond.error in (errors.OFFSET_OUT_OF_RANGE, errors.NOT_LEADER_OR_FOLLOWER)


def test_a_new_follower_without_a_leader_truncates_nothing() -> None:
    """KAFKA-1647: without a leader no record is known to be wrong."""
    for rules in ("high-watermark", "kip-101"):
        replica = new_replica(rules_for(rules), 0, hw=0)
        assert [one for one in replica.step(leader_and_isr(-1, 3)) if isinstance(one, Truncate)] == []
        assert replica.next_request() is None
    replica = new_replica(rules_for("high-watermark"), 0, hw=0)
    assert [one.to for one in replica.step(leader_and_isr(2, 3)) if isinstance(one, Truncate)] == [0]
