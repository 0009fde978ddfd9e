"""One replica as a pure machine: its answer to each event of replica.txt, and the trace lines of the step.

`pytest --rewrite` writes it; then read the diff. What comes of the rules in a cluster: tests/teeth.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from machine_text import happened_as_written, line_text, shown
from msgspec.structs import replace

from floodmark.broker.protocol.errors import IllegalEvent
from floodmark.broker.protocol.messages import (
    AlterPartitionResponse,
    Batch,
    EndOffsetRequest,
    EndOffsetResponse,
    EpochEnd,
    Fetch,
    FetchRequest,
    FetchResponse,
    FollowerRequest,
    LeaderAndIsr,
    ListOffsets,
    LogEndsRequest,
    LogEndsResponse,
    OffsetsForLeaderEpoch,
    Produce,
    ProposeIsr,
    ReplicaEvent,
    Tick,
)
from floodmark.broker.protocol.replica import RecoveredState, Replica, ReplicaConfig
from floodmark.broker.storage.log_recovery import mend_epochs
from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.testing.trace_events import replica_lines, take_snapshot

ALIVE = {1: 11, 2: 12, 3: 13}


def frame(base: int, epoch: int = -1, last: int | None = None, producer: tuple[int, int, int] = (-1, -1, -1)
          ) -> Batch:
    return Batch(base_offset=base, last_offset=base if last is None else last, epoch=epoch,
                 producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])


def ended(end: tuple[int, int] | None) -> EpochEnd | None:
    return end and EpochEnd(epoch=end[0], end_offset=end[1])


class Stage:
    """Replica 1 of three, and what is needed to answer it; one story after another."""

    asked: FollowerRequest | None = None
    before: FollowerRequest | None = None

    def begin(self, *epochs: int, rules: str = "kip-320", hw: int = 0, bugs: str = "", switches: str = "",
                 saved: tuple[tuple[int, int], ...] = ()) -> None:
        """With a record of each of these epochs."""
        log = [frame(at, epoch) for at, epoch in enumerate(epochs)]
        self.replica = Replica(
            me=1, config=ReplicaConfig(min_insync_replicas=2, replica_lag_time_max_ms=1_000),
            rules=rules_for(rules, bugs.split(), switches=switches.split()),
            recovered=RecoveredState(batches=log, epochs=mend_epochs(saved, log, len(log)), hw=hw))
        self.asked = self.before = None
        self.proposals: list[ProposeIsr] = []
        self.produced = 0

    def leads(self, leader: int, epoch: int, isr: tuple[int, ...] = (1, 2, 3), at: int = 0) -> ReplicaEvent:
        """`at`: the partition epoch."""
        return LeaderAndIsr(now_ms=0, leader=leader, leader_epoch=epoch, isr=isr, partition_epoch=at,
                            replicas=(1, 2, 3), broker_epochs=ALIVE)

    def produce(self, batches: int = 1, acks: int = -1, **producer: Any) -> ReplicaEvent:
        self.produced += 1
        return Produce(now_ms=0, token=f"p{self.produced}", acks=acks, timeout_ms=100,
                       batches=tuple(frame(at, **producer) for at in range(batches)))

    def fetch(self, by: int, offset: int, last: int = 0, epoch: int | None = None, broker_epoch: int = 0,
              again: bool = False) -> ReplicaEvent:
        """By a consumer, if it is -1."""
        return Fetch(now_ms=0, token="f", replica=by, broker_epoch=broker_epoch or ALIVE.get(by, -1),
                     offset=offset, last_fetched_epoch=last if by > 0 else -1, again=again,
                     current_leader_epoch=self.replica.leader_epoch if epoch is None else epoch)

    def end_of(self, of: int, epoch: int) -> ReplicaEvent:
        """A follower in this leader epoch asks for the end of that one."""
        return OffsetsForLeaderEpoch(now_ms=0, token="e", replica=2, current_leader_epoch=epoch, epoch=of)

    def offsets(self, by: int, epoch: int, latest: bool = True) -> ReplicaEvent:
        return ListOffsets(now_ms=0, token="o", replica=by, current_leader_epoch=epoch, latest=latest)

    def tick(self, now_ms: int) -> ReplicaEvent:
        return Tick(now_ms=now_ms)

    def answer(self, *batches: tuple[int, ...], error: int = 0, hw: int = 0, end: Any = None, start: int = 0,
               late: bool = False, epoch: int | None = None) -> ReplicaEvent:
        """To the request that was shown last, or the one before it; of an epoch. `end`: of an epoch, or of
        the log."""
        asked = self.before if late else self.asked
        assert asked is not None
        plain: dict[str, Any] = {"now_ms": 0, "leader": asked.leader, "error": error}
        match asked:
            case FetchRequest():
                return FetchResponse(**plain, asked=asked, hw=hw, diverging=ended(end),
                                     batches=tuple(frame(*one) for one in batches))
            case EndOffsetRequest():
                if epoch is not None:
                    asked = replace(asked, leader_epoch=epoch)
                return EndOffsetResponse(**plain, asked=asked, end=ended(end))
        assert isinstance(asked, LogEndsRequest)
        return LogEndsResponse(**plain, asked=asked, log_start=start, log_end=end)

    def altered(self, isr: tuple[int, ...] = (), error: int = 0, at: int = 1, now: int = 0,
                epoch: int | None = None, first: bool = False) -> ReplicaEvent:
        """The answer to the last proposal, or to the first."""
        return AlterPartitionResponse(
            now_ms=now, proposal=self.proposals[0 if first else -1], error=error, isr=isr,
            leader_epoch=self.replica.leader_epoch if epoch is None else epoch, partition_epoch=at)

    def state(self) -> str:
        one = self.replica
        return (f"leader {one.leader} of epoch {one.leader_epoch}; {one.log_start} to {one.leo}, "
                f"HW {one.hw}; isr {shown(one.maximal_isr)}; epochs {shown(one.epochs)}")

    def happens(self, name: str, *given: Any, **named: Any) -> Iterator[str]:
        if name == "replica":
            self.begin(*given, **named)
            yield f". {self.state()}"
        else:
            yield from self.follows(getattr(self, name)(*given, **named))
        if self.replica.next_request() != self.asked:
            self.before, self.asked = self.asked, self.replica.next_request()
            yield f"> {shown(self.asked)}"

    def follows(self, event: ReplicaEvent) -> Iterator[str]:
        one, state = self.replica, self.state()
        before = take_snapshot(one)
        try:
            effects = one.step(event)
        except IllegalEvent as error:
            yield f"! {error}"
            assert (self.state(), take_snapshot(one)) == (state, before)
            return
        for effect in effects:
            self.proposals += [effect] if isinstance(effect, ProposeIsr) else []
            yield f"= {shown(effect)}"
        for line in replica_lines(before, event, effects, take_snapshot(one)):
            yield f"~ {line_text(line)}"
        if self.state() != state:
            yield f". {self.state()}"


def test_what_a_replica_does(request: pytest.FixtureRequest) -> None:
    happened_as_written("replica.txt", Stage().happens, request)
