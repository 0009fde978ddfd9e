"""Fetches from the leaders: one task for each leader, which serves all the replicas here that follow it.

Rules
1. The replicas decide what to request (Replica.next_request), just before it is sent. A response is delivered
   with the request that it answers, and the replica drops it if it no longer wants it.
2. A request that changes while its fetch waits at the leader (a new leader epoch, a new replica) ends the
   wait: the connection is closed, and a new fetch is sent. So a new role never waits for a long poll.
3. After an error, or no response, the same request is sent again after replica.fetch.backoff.ms, a different
   one at once.
4. A replica that is held at a failpoint requests nothing; fetcher_failpoints.py keeps held messages.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import Batch, EpochEnd, FetchRequest, FetchResponse, FollowerRequest
from floodmark.broker.server.config import Config
from floodmark.broker.server.effect_runner import HostedPartition
from floodmark.broker.server.follower_offset_requests import FollowerOffsetRequests, epoch_to_send
from floodmark.broker.server.node_connection import NodeConnection, Unreachable
from floodmark.broker.server.replica_manager import ReplicaManager, now_ms
from floodmark.broker.testing.fetcher_failpoints import FetcherFailpoints
from floodmark.broker.testing.step_runner import Key
from floodmark.broker.wire.api_keys import FETCH
from floodmark.broker.wire.fast_codec import FOLLOWER_FETCH_VERSION, FetchPartition, write_follower_fetch
from floodmark.broker.wire.record_batch import CorruptBatch, parse_batches

_RESPONSE_BYTES_MAX = 10 << 20  # replica.fetch.response.max.bytes
_OFFSET_REQUESTS_S = 0.05  # a fetch waits so long for replicas that must first send an offset request

Requests = dict[Key, tuple[HostedPartition, FollowerRequest]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """A request that failed, and until when it is not sent again."""

    request: FollowerRequest
    until_ms: int


class ReplicaFetcher:
    """The task that fetches from one leader."""

    def __init__(
        self,
        leader: int,
        replica_manager: ReplicaManager,
        dial: Callable[[], NodeConnection],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.leader = leader
        self._replica_manager = replica_manager
        self._config: Config = replica_manager.config
        self._connection = dial()
        self._fetcher_failpoints = FetcherFailpoints(replica_manager.failpoints, self.refresh, self._back_off)
        self._offset_requests = FollowerOffsetRequests(
            replica_manager,
            dial,
            answered=self._fetcher_failpoints.note_answered,
            failed=self._handle_error,
            unreachable=self._handle_unreachable,
            done=self.refresh,
        )
        self._broker_epoch = broker_epoch
        self._roles_changed = asyncio.Event()
        self._backoffs: dict[Key, Backoff] = {}
        self._in_flight: dict[Key, FollowerRequest] = {}  # requests that wait at the leader now
        self._fetch_task: asyncio.Task[Any] | None = None
        self._last_failure = ""  # the last failure logged: each is logged once
        self._task = asyncio.create_task(self._run(), name=f"fetcher {leader}")

    def refresh(self) -> None:
        """Roles have changed: send the current requests, and do not wait for earlier ones."""
        self._roles_changed.set()
        asked = self._in_flight
        if (
            self._fetch_task is not None
            and {key: request for key, (_, request) in self._collect_requests().items()} != asked
        ):
            self._fetch_task.cancel()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._offset_requests.close()
        self._connection.close()

    def _collect_requests(self) -> Requests:
        now = now_ms()
        requests: Requests = {}
        for key, hosted in self._replica_manager.partitions.items():
            request = hosted.replica.next_request()
            if (
                request is None
                or request.leader != self.leader
                or self._fetcher_failpoints.is_waiting(hosted, request)
            ):
                continue
            if not isinstance(request, FetchRequest) and self._offset_requests.is_running(hosted, request):
                continue
            backoff = self._backoffs.get(key)
            if backoff is not None and backoff.request == request and now < backoff.until_ms:
                continue
            requests[key] = hosted, request
        return requests

    async def _run(self) -> None:
        try:
            while True:
                self._roles_changed.clear()
                fetches, others = self._split_fetches(self._collect_requests())
                if await self._start_offset_requests(others):
                    continue
                requests = self._filter_sendable(fetches)
                if not requests:
                    await self._await_change()
                elif not await self._run_fetch(requests):
                    self._connection.close()
                    await self._await_change(self._config.fetch_backoff_ms)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            halt_process("fetcher-failed", error)

    def _filter_sendable(self, requests: Requests) -> Requests:
        return {key: each for key, each in requests.items() if self._fetcher_failpoints.may_send(*each)}

    def _split_fetches(self, requests: Requests) -> tuple[Requests, Requests]:
        """Split requests into (fetches, others)."""
        others = {key: each for key, each in requests.items() if not isinstance(each[1], FetchRequest)}
        fetches = {key: each for key, each in requests.items() if key not in others} if others else requests
        return fetches, others

    async def _start_offset_requests(self, requests: Requests) -> bool:
        """Start the offset requests; returns whether there were any: then the requests are collected
        again."""
        started = [
            self._offset_requests.begin(hosted, request)
            for hosted, request in self._filter_sendable(requests).values()
            if not isinstance(request, FetchRequest)
        ]
        if started:
            await asyncio.wait(started, timeout=_OFFSET_REQUESTS_S)
        return bool(started)

    async def _await_change(self, pause_ms: int | None = None) -> None:
        """Wait until a role changes or a back-off is over."""
        untils = [backoff.until_ms for backoff in self._backoffs.values()]
        wait_ms = pause_ms
        if wait_ms is None and untils:
            wait_ms = max(1, min(untils) - now_ms())
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await self._roles_changed.wait()
        except TimeoutError:
            pass
        now = now_ms()
        self._backoffs = {key: backoff for key, backoff in self._backoffs.items() if backoff.until_ms > now}

    async def _run_fetch(self, requests: Requests) -> bool:
        """Send one fetch and deliver its response; returns False if the leader could not be reached."""
        self._in_flight = {key: request for key, (_, request) in requests.items()}
        fetches = [
            (hosted, request) for hosted, request in requests.values() if isinstance(request, FetchRequest)
        ]
        self._fetch_task = asyncio.ensure_future(self._send_fetch(fetches))
        try:
            await asyncio.wait([self._fetch_task])
        except asyncio.CancelledError:
            self._fetch_task.cancel()
            raise
        finally:
            task, self._fetch_task = self._fetch_task, None
        if task.cancelled():
            return True  # ended by `refresh`
        failure = task.exception()
        if isinstance(failure, Unreachable):
            self._log_unreachable(failure)
            return False
        if failure is not None:
            raise failure
        self._last_failure = ""
        return True

    def _log_unreachable(self, failure: Unreachable) -> None:
        if str(failure) != self._last_failure:
            log("warning", "leader-unreachable", leader=self.leader, why=failure)
        self._last_failure = str(failure)

    def _handle_unreachable(
        self, hosted: HostedPartition, request: FollowerRequest, failure: Unreachable
    ) -> None:
        self._log_unreachable(failure)
        self._back_off(hosted, request)

    def _back_off(self, hosted: HostedPartition, request: FollowerRequest) -> None:
        until_ms = now_ms() + self._config.fetch_backoff_ms
        self._backoffs[hosted.key] = Backoff(request=request, until_ms=until_ms)

    def _handle_error(self, hosted: HostedPartition, request: FollowerRequest, error: int) -> None:
        """Back off before the same request; a replica that requests something else does so at once."""
        if hosted.replica.next_request() == request:
            self._back_off(hosted, request)
            log(
                "info",
                "fetch-refused",
                topic=hosted.topic,
                partition=hosted.partition,
                leader=self.leader,
                error=errors.error_name(error),
            )

    # -- Fetch -----------------------------------------------------------------------------------------------

    async def _send_fetch(self, fetches: list[tuple[HostedPartition, FetchRequest]]) -> None:
        by_id: dict[tuple[str, int], tuple[HostedPartition, FetchRequest]] = {}
        topics: dict[str, list[FetchPartition]] = {}
        for hosted, request in fetches:
            by_id[hosted.topic_id, hosted.partition] = hosted, request
            topics.setdefault(hosted.topic_id, []).append(
                FetchPartition(
                    partition=hosted.partition,
                    current_leader_epoch=epoch_to_send(self._replica_manager.rules, request),
                    offset=request.offset,
                    last_fetched_epoch=request.last_fetched_epoch,
                    log_start=hosted.replica.log_start,
                    max_bytes=self._config.fetch_max_bytes,
                )
            )
        config = self._config
        asked = list(topics.items())
        answer = await self._connection.send_frame(
            FETCH,
            FOLLOWER_FETCH_VERSION,
            lambda number: write_follower_fetch(
                number,
                f"broker-{config.node_id}",
                asked,
                replica=config.node_id,
                broker_epoch=self._broker_epoch(),
                max_wait_ms=config.fetch_wait_max_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=_RESPONSE_BYTES_MAX,
            ),
            timeout_s=config.socket_timeout_ms / 1000,
        )
        for topic in answer.responses:
            for part in topic.partitions:
                found = by_id.pop(
                    (topic.topic_id.hex if topic.topic_id else "", part.partition_index), None
                )
                if found is not None:
                    self._read_partition(*found, part)
        for hosted, request in by_id.values():  # not in the response
            if answer.error_code:
                self._handle_error(hosted, request, int(answer.error_code))
            else:
                self._back_off(hosted, request)

    def _read_partition(self, hosted: HostedPartition, request: FetchRequest, part: Any) -> None:
        try:
            batches = tuple(parse_batches(part.records or b"", partial_tail=True))
        except CorruptBatch as error:  # in the leader's log, or on the wire: fetch again
            log("error", "fetched-garbage", topic=hosted.topic, partition=hosted.partition, why=error)
            self._handle_error(hosted, request, errors.CORRUPT_MESSAGE)
            return
        if self._fetcher_failpoints.may_take(
            hosted, request, lambda: self._deliver(hosted, request, part, batches)
        ):
            self._deliver(hosted, request, part, batches)

    def _deliver(
        self, hosted: HostedPartition, request: FetchRequest, part: Any, batches: tuple[Batch, ...]
    ) -> None:
        """Post the response to the replica."""
        diverging_epoch, error_code = part.diverging_epoch, int(part.error_code)
        diverging = None
        if diverging_epoch.end_offset >= 0:
            diverging = EpochEnd(epoch=diverging_epoch.epoch, end_offset=diverging_epoch.end_offset)
        self._replica_manager.post(
            hosted,
            FetchResponse(
                now_ms=now_ms(),
                leader=self.leader,
                asked=request,
                error=error_code,
                hw=part.high_watermark,
                diverging=diverging,
                batches=batches,
            ),
        )
        if error_code:
            self._handle_error(hosted, request, error_code)
        else:
            self._fetcher_failpoints.note_answered(hosted, request)


class ReplicaFetcherManager:
    """Has one ReplicaFetcher for each leader that replicas here follow."""

    def __init__(
        self, make_fetcher: Callable[[int], ReplicaFetcher], replica_manager: Callable[[], ReplicaManager]
    ) -> None:
        self._make = make_fetcher
        self._replica_manager = replica_manager
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._closed = False

    def refresh(self) -> None:
        """Roles have changed: start missing fetchers, and refresh all."""
        if self._closed:
            return
        me = self._replica_manager().config.node_id
        for hosted in self._replica_manager().partitions.values():
            leader = hosted.replica.leader
            if leader >= 0 and leader != me and leader not in self._fetchers:
                self._fetchers[leader] = self._make(leader)
        for fetcher in self._fetchers.values():
            fetcher.refresh()

    async def close(self) -> None:
        self._closed = True
        fetchers = list(self._fetchers.values())
        for fetcher in fetchers:
            await fetcher.close()
