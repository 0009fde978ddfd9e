"""Serves what clients and followers ask a node in memory about its replicas, and keeps delayed fetches.

Rules
1. A fetch is asked of all its partitions before it is looked at; it is answered if it has its bytes, an
   error, a diverging epoch or no more time, else parked; one that wakes is asked again with `again`.
2. A partition that gives no answer (a failpoint holds it) is left out of the answer; a fetch that gets no
   answer at all waits on.
3. A partition that is not here: error 6 where the cluster has it, 3 where it has not.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import (
    CONSUMER,
    Batch,
    EndOffsetAnswer,
    EpochEnd,
    Fetch,
    FetchAnswer,
    ListOffsets,
    ListOffsetsAnswer,
    OffsetsForLeaderEpoch,
    Produce,
    ProduceAnswer,
)
from floodmark.broker.protocol.purgatory import DelayedFetchPurgatory
from floodmark.harness.cluster.memory.disk import Key, size_of
from floodmark.harness.cluster.memory.network import Call
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.replicas import HostedPartition, Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """What a fetch asks of one partition."""

    key: Key
    offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchQuery:
    replica: int  # CONSUMER: a client's
    broker_epoch: int
    partitions: Sequence[FetchPartition]
    max_wait_ms: int
    min_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one partition answers to a fetch."""

    error: int
    hw: int = -1
    log_start: int = -1
    batches: tuple[Batch, ...] = ()
    diverging: EpochEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A requester with one question."""

    answered: Callable[[Any], None]

    def complete(self, index: int, answer: Any) -> None:
        self.answered(answer)


@dataclass(slots=True, kw_only=True, eq=False)
class _DelayedFetch:
    """A fetch that is not answered yet."""

    requests: "Requests"
    call: Call
    query: FetchQuery
    deadline_ms: int
    hosted: Sequence[HostedPartition | None]
    answers: list[FetchAnswer | None] = field(default_factory=list)
    heard: set[int] = field(default_factory=set)  # indexes of those that have spoken: credited, if at all
    outstanding: int = 0

    def complete(self, index: int, answer: Any) -> None:
        self.answers[index] = answer
        if answer is not None:
            self.heard.add(index)
        self.outstanding -= 1
        if not self.outstanding:
            self.requests.try_complete(self)


class Requests:
    """Of one incarnation of a node. `knows`: whether the cluster has such a partition."""

    def __init__(self, process: Process, replicas: Replicas, knows: Callable[[Key], bool]) -> None:
        self._process = process
        self._replicas = replicas
        self._knows = knows
        self._purgatory = DelayedFetchPurgatory()
        self._woken: list[_DelayedFetch] = []

    def _find(self, key: Key) -> tuple[HostedPartition | None, int]:
        """The replica here, or the error that says why there is none."""
        hosted = self._replicas.partitions.get(key)
        if hosted is not None:
            return hosted, errors.NONE
        known = self._knows(key)
        return None, errors.NOT_LEADER_OR_FOLLOWER if known else errors.UNKNOWN_TOPIC_OR_PARTITION

    # -- produce, offsets --------------------------------------------------------------------------------

    def produce(self, call: Call, key: Key, *, acks: int, timeout_ms: int, batch: Batch) -> None:
        """Replied (error, base offset)."""
        hosted, error = self._find(key)
        if hosted is None:
            call.reply((error, -1))
            return

        def answer(done: ProduceAnswer) -> None:
            call.reply((done.error, done.base_offset))

        self._replicas.post(
            hosted,
            Produce(
                now_ms=self._process.clock.now_ms(), token=(Once(answered=answer), 0), acks=acks,
                timeout_ms=timeout_ms, batches=(batch,),
            ),
        )  # fmt: skip

    def list_offsets(
        self, call: Call, key: Key, *, replica: int, current_leader_epoch: int, latest: bool
    ) -> None:
        """Replied (error, offset)."""
        hosted, error = self._find(key)
        if hosted is None:
            call.reply((error, -1))
            return

        def answer(found: ListOffsetsAnswer) -> None:
            call.reply((found.error, found.offset))

        self._replicas.post(
            hosted,
            ListOffsets(
                now_ms=self._process.clock.now_ms(), token=(Once(answered=answer), 0), replica=replica,
                current_leader_epoch=current_leader_epoch, latest=latest,
            ),
        )  # fmt: skip

    def end_offset(
        self, call: Call, key: Key, *, replica: int, current_leader_epoch: int, epoch: int
    ) -> None:
        """Replied (error, end or None)."""
        hosted, error = self._find(key)
        if hosted is None:
            call.reply((error, None))
            return

        def answer(found: EndOffsetAnswer) -> None:
            call.reply((found.error, found.end))

        self._replicas.post(
            hosted,
            OffsetsForLeaderEpoch(
                now_ms=self._process.clock.now_ms(), token=(Once(answered=answer), 0), replica=replica,
                current_leader_epoch=current_leader_epoch, epoch=epoch,
            ),
        )  # fmt: skip

    # -- fetch -------------------------------------------------------------------------------------------

    def fetch(self, call: Call, query: FetchQuery) -> None:
        """Replied Fetched by key."""
        fetch = _DelayedFetch(
            requests=self, call=call, query=query,
            deadline_ms=self._process.clock.now_ms() + query.max_wait_ms,
            hosted=[self._find(each.key)[0] for each in query.partitions],
        )  # fmt: skip
        call.on_close.append(lambda: self._drop(fetch))
        self._read(fetch, again=False)

    def _read(self, fetch: _DelayedFetch, *, again: bool) -> None:
        fetch.answers = [None] * len(fetch.hosted)
        fetch.outstanding = sum(hosted is not None for hosted in fetch.hosted)
        if not fetch.outstanding:
            self.try_complete(fetch)
        for index, (hosted, asked) in enumerate(zip(fetch.hosted, fetch.query.partitions, strict=True)):
            if hosted is not None:
                self._replicas.post(
                    hosted,
                    Fetch(
                        now_ms=self._process.clock.now_ms(), token=(fetch, index),
                        replica=fetch.query.replica, broker_epoch=fetch.query.broker_epoch,
                        offset=asked.offset, current_leader_epoch=asked.current_leader_epoch,
                        last_fetched_epoch=asked.last_fetched_epoch, again=again and index in fetch.heard,
                    ),
                )  # fmt: skip

    def try_complete(self, fetch: _DelayedFetch) -> None:
        """Every partition has spoken: answer or park."""
        if fetch.call.closed:
            return
        fetched, size, at_once = self._collect(fetch)
        silent = bool(fetch.hosted) and not fetched
        missing, now_ms = fetch.query.min_bytes - size, self._process.clock.now_ms()
        if not silent and (at_once or missing <= 0 or fetch.deadline_ms <= now_ms):
            fetch.call.reply(fetched)
            return
        keys: list[Hashable] = [hosted.key for hosted in fetch.hosted if hosted is not None]
        consumer = fetch.query.replica == CONSUMER
        self._purgatory.park(
            fetch, keys, consumer=consumer, missing_bytes=missing, deadline_ms=fetch.deadline_ms
        )

    def _collect(self, fetch: _DelayedFetch) -> tuple[Mapping[Key, Fetched], int, bool]:
        """What the answer would hold, how many bytes, and whether it must not wait."""
        fetched: dict[Key, Fetched] = {}
        size, at_once = 0, False
        for asked, hosted, answer in zip(fetch.query.partitions, fetch.hosted, fetch.answers, strict=True):
            if hosted is None:
                fetched[asked.key] = Fetched(error=self._find(asked.key)[1])
                at_once = True
            elif answer is not None and answer.error:
                fetched[asked.key] = Fetched(error=answer.error)
                at_once = True
            elif answer is not None:
                batches: tuple[Batch, ...] = ()
                if answer.start < answer.end:
                    batches = hosted.log.read(answer.start, answer.end, asked.max_bytes)
                size += sum(map(size_of, batches))
                at_once = at_once or answer.diverging is not None
                fetched[asked.key] = Fetched(
                    error=errors.NONE, hw=answer.hw, log_start=answer.log_start, batches=batches,
                    diverging=answer.diverging,
                )  # fmt: skip
        return fetched, size, at_once

    # -- waking ------------------------------------------------------------------------------------------

    def appended(self, key: Key, size: int) -> None:
        self._wake(self._purgatory.appended(key, size))

    def hw_moved(self, key: Key) -> None:
        self._wake(self._purgatory.hw_moved(key))

    def role_changed(self, key: Key) -> None:
        self._wake(self._purgatory.role_changed(key))

    def tick(self) -> None:
        self._wake(self._purgatory.expired(self._process.clock.now_ms()))

    def _wake(self, woken: Sequence[Any]) -> None:
        if woken:
            if not self._woken:
                self._process.soon(self._retry_woken)
            self._woken += woken

    def _retry_woken(self) -> None:
        woken, self._woken = self._woken, []
        for fetch in woken:
            if not fetch.call.closed:
                self._read(fetch, again=True)

    def _drop(self, fetch: _DelayedFetch) -> None:
        self._purgatory.forget(fetch)
