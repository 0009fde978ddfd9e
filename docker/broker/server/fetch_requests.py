"""Serves Fetch: asks the requested replicas, and responds at once or when there is enough to send.

Rules
1. All partitions of a fetch are asked first, and nothing is appended to any in between; then it is answered
   if it has its bytes, an error, a diverging epoch, or no more time; otherwise it is parked in the purgatory.
2. A fetch that wakes is tried again with `again` set (no follower is credited twice, the HW is read again),
   once per turn of the event loop: produces that arrive together go to a follower in one response.
3. A fetch whose client has left is removed.
4. A partition that gives no answer (a failpoint holds it) is left out of the response; a fetch without any
   answer continues to wait.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from floodmark.broker.process_log import halt_process
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import CONSUMER, Fetch, FetchAnswer
from floodmark.broker.protocol.purgatory import DelayedFetchPurgatory
from floodmark.broker.server.effect_runner import HostedPartition
from floodmark.broker.server.replica_manager import ReplicaManager, now_ms
from floodmark.broker.server.socket_server import Connection
from floodmark.broker.testing.step_runner import Key
from floodmark.broker.wire.codec import RequestHeader
from floodmark.broker.wire.fast_codec import FetchedPartition, write_fetch_response


class RequestedPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a fetch; `hosted` is None where `error` says why it cannot be read here."""

    topic: str  # as in the response: name or id
    partition: int
    hosted: HostedPartition | None
    error: int
    offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


@dataclass(slots=True, kw_only=True, eq=False)
class DelayedFetch:
    """A fetch without a response yet."""

    fetch_requests: "FetchRequests"
    connection: Connection
    head: RequestHeader
    replica: int
    broker_epoch: int
    min_bytes: int
    max_bytes: int
    deadline_ms: int
    wanted: Sequence[RequestedPartition]
    answers: list[FetchAnswer | None] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)  # indexes of partitions that have answered once
    outstanding: int = 0

    def read_partitions(self, *, again: bool) -> None:
        now = now_ms()
        self.answers = [None] * len(self.wanted)
        self.outstanding = sum([each.hosted is not None for each in self.wanted])
        if not self.outstanding:
            self.fetch_requests.try_complete(self)
            return
        self.fetch_requests.replica_manager.post_together(
            (
                each.hosted,
                Fetch(
                    now_ms=now,
                    token=(self, index),
                    replica=self.replica,
                    broker_epoch=self.broker_epoch,
                    offset=each.offset,
                    current_leader_epoch=each.current_leader_epoch,
                    last_fetched_epoch=each.last_fetched_epoch,
                    again=again and index in self.answered,
                ),
            )
            for index, each in enumerate(self.wanted)
            if each.hosted is not None
        )

    def complete(self, index: int, answer: Any) -> None:
        """Take a partition's answer; None if it gives none now."""
        self.answers[index] = answer
        if answer is not None:
            self.answered.add(index)
        self.outstanding -= 1
        if not self.outstanding:
            self.fetch_requests.try_complete(self)


class FetchRequests:
    """All fetches of a broker: answers or parks them, and wakes them when a replica has moved."""

    def __init__(self) -> None:
        self.replica_manager: ReplicaManager  # set by the broker, which both belong to
        self._purgatory = DelayedFetchPurgatory()
        self._woken: list[Any] = []

    def start(self, fetch: DelayedFetch) -> None:
        fetch.connection.on_close.append(lambda: self._drop(fetch))
        fetch.read_partitions(again=False)

    def try_complete(self, fetch: DelayedFetch) -> None:
        """Respond or park, once every partition has answered."""
        try:
            fetched, size, at_once = self._read_records(fetch)
        except Exception as error:
            halt_process("read-failed", error)
        missing = fetch.min_bytes - size
        unanswered = bool(fetch.wanted) and not any(each is not None for each in fetched)
        if not unanswered and (at_once or missing <= 0 or fetch.deadline_ms <= now_ms()):
            self._send_response(fetch, fetched)
            return
        keys = [each.hosted.key for each in fetch.wanted if each.hosted is not None]
        self._purgatory.park(
            fetch,
            keys,
            consumer=fetch.replica == CONSUMER,
            missing_bytes=missing,
            deadline_ms=fetch.deadline_ms,
        )

    def _read_records(self, fetch: DelayedFetch) -> tuple[list[FetchedPartition | None], int, bool]:
        """Build the partitions' responses: (responses, bytes, whether it must not wait). By KIP-74 the first
        partition with data gives a batch, however large. None for a partition without an answer."""
        fetched: list[FetchedPartition | None] = []
        size, at_once = 0, not fetch.wanted
        for each, answer in zip(fetch.wanted, fetch.answers, strict=True):
            if answer is None and each.hosted is not None:
                fetched.append(None)
                continue
            if answer is None:
                fetched.append(
                    FetchedPartition(
                        partition=each.partition, error=each.error, hw=-1, log_start=-1, records=b""
                    )
                )
                at_once = True
                continue
            records = b""
            room = min(each.max_bytes, fetch.max_bytes - size)
            if answer.start < answer.end and each.hosted is not None and (room > 0 or not size):
                records = each.hosted.log.read(answer.start, answer.end, max(room, 1))
                size += len(records)
            failed = answer.error != errors.NONE
            at_once = at_once or failed or answer.diverging is not None
            fetched.append(
                FetchedPartition(
                    partition=each.partition,
                    error=answer.error,
                    hw=-1 if failed else answer.hw,
                    log_start=-1 if failed else answer.log_start,
                    records=records,
                    diverging=answer.diverging,
                )
            )
        return fetched, size, at_once

    def _send_response(self, fetch: DelayedFetch, fetched: list[FetchedPartition | None]) -> None:
        topics: list[tuple[str, list[FetchedPartition]]] = []
        for each, answer in zip(fetch.wanted, fetched, strict=True):
            if answer is None:
                continue
            if not topics or topics[-1][0] != each.topic:
                topics.append((each.topic, []))
            topics[-1][1].append(answer)
        if fetch.connection.closed:
            return
        fetch.connection.on_close.pop()
        fetch.connection.answer(
            write_fetch_response(fetch.head.version, fetch.head.correlation, topics)
        )

    # -- waking --------------------------------------------------------------------------------------------

    def appended(self, key: Key, size: int) -> None:
        self._wake(self._purgatory.appended(key, size))

    def hw_moved(self, key: Key) -> None:
        self._wake(self._purgatory.hw_moved(key))

    def role_changed(self, key: Key) -> None:
        self._wake(self._purgatory.role_changed(key))

    def tick(self) -> None:
        self._wake(self._purgatory.expired(now_ms()))

    def _wake(self, woken: list[Any]) -> None:
        if woken:
            if not self._woken:
                asyncio.get_running_loop().call_soon(self._retry_woken)
            self._woken += woken

    def _retry_woken(self) -> None:
        woken, self._woken = self._woken, []
        for fetch in woken:
            if not fetch.connection.closed:
                fetch.read_partitions(again=True)

    def _drop(self, fetch: DelayedFetch) -> None:
        self._purgatory.forget(fetch)
        with contextlib.suppress(ValueError):
            self._woken.remove(fetch)
