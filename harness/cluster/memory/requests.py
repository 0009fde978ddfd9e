"""Handles the requests of clients and followers to a node in memory, and keeps delayed fetches.

Rules
1. A fetch first asks all its partitions. It is answered if it has its bytes, an error, a diverging epoch or
   no time left, else parked; when it wakes, the partitions are asked again with `again`.
2. A partition without an answer (a failpoint holds it) is left out of the answer; a fetch without any answer
   waits.
3. For a partition that is not here the error is 6 if the cluster has it, else 3.
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
    """What a fetch requests of one partition."""

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
    """One partition's answer to a fetch."""

    error: int
    hw: int = -1
    log_start: int = -1
    batches: tuple[Batch, ...] = ()
    diverging: EpochEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A requester with a single request."""

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
    answered_indexes: set[int] = field(default_factory=set)  # of partitions: the follower was credited
    outstanding: int = 0

    def complete(self, index: int, answer: Any) -> None:
        self.answers[index] = answer
        if answer is not None:
            self.answered_indexes.add(index)
        self.outstanding -= 1
        if not self.outstanding:
            self.requests.try_complete(self)


class Requests:
    """The requests to one incarnation of a node. `exists`: whether the cluster has a partition."""

    def __init__(self, process: Process, replicas: Replicas, exists: Callable[[Key], bool]) -> None:
        self._process = process
        self._replicas = replicas
        self._exists = exists
        self._purgatory = DelayedFetchPurgatory()
        self._woken: list[_DelayedFetch] = []

    def _find(self, key: Key) -> tuple[HostedPartition | None, int]:
        """The replica here, or the error code if there is none."""
        hosted = self._replicas.partitions.get(key)
        if hosted is not None:
            return hosted, errors.NONE
        known = self._exists(key)
        return None, errors.NOT_LEADER_OR_FOLLOWER if known else errors.UNKNOWN_TOPIC_OR_PARTITION

    # -- produce, offsets --------------------------------------------------------------------------------

    def produce(self, call: Call, key: Key, *, acks: int, timeout_ms: int, batch: Batch) -> None:
        """Appends a batch; replies (error, base offset)."""
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
        """Lists an offset; replies (error, offset)."""
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
        """Finds the end of an epoch; replies (error, end or None)."""
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
        """Fetches; replies Fetched by key."""
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
                        last_fetched_epoch=asked.last_fetched_epoch,
                        again=again and index in fetch.answered_indexes,
                    ),
                )  # fmt: skip

    def try_complete(self, fetch: _DelayedFetch) -> None:
        """Answers or parks a fetch after all its partitions have answered."""
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
        """The answer so far, its bytes, and whether it must be sent at once."""
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
