"""Fetches from the leaders: one task for each leader, for all the replicas here that follow it.

Rules
1. The replicas say what to request (Replica.next_request), just before it is sent. A response goes to the
   replica with the request it answers, and the replica drops it if it no longer wants it.
2. A request that changes while its fetch waits at the leader (a new leader epoch, a new replica) ends the
   wait: the connection is closed and asked anew. So a new role is never a long poll late.
3. A leader that answers with an error, or not at all, is asked again after replica.fetch.backoff.ms, or at
   once for a different request.
4. A replica that is held at a failpoint requests nothing; fetcher_failpoints.py keeps what is held.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import Batch, EpochEnd, FetchRequest, FetchResponse, FollowerRequest
from floodmark.broker.server.config import Config
from floodmark.broker.server.effect_runner import HostedPartition, Key
from floodmark.broker.server.fetcher_failpoints import FetcherFailpoints
from floodmark.broker.server.follower_offset_requests import FollowerOffsetRequests, epoch_to_send
from floodmark.broker.server.node_connection import NodeConnection, Unreachable
from floodmark.broker.server.replica_manager import ReplicaManager, now_ms
from floodmark.broker.wire.api_keys import FETCH
from floodmark.broker.wire.fast_codec import FOLLOWER_FETCH_VERSION, FetchPartition, write_follower_fetch
from floodmark.broker.wire.record_batch import CorruptBatch, parse_batches

_RESPONSE_BYTES_MAX = 10 << 20  # replica.fetch.response.max.bytes
_OFFSET_REQUESTS_S = 0.05  # a fetch waits so long for those that first ask something else, to go together

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
            unreachable=self._offset_request_unreachable,
            done=self.refresh,
        )
        self._broker_epoch = broker_epoch
        self._look = asyncio.Event()
        self._delays: dict[Key, Backoff] = {}
        self._in_flight: dict[Key, FollowerRequest] = {}  # what waits at the leader now
        self._waiting: asyncio.Task[Any] | None = None
        self._said = ""  # of a leader that is not reached: once is enough
        self._task = asyncio.create_task(self._run(), name=f"fetcher {leader}")

    def refresh(self) -> None:
        """Roles have changed: send the requests of now, and do not wait for earlier ones."""
        self._look.set()
        asked = self._in_flight
        if (
            self._waiting is not None
            and {key: request for key, (_, request) in self._collect_requests().items()} != asked
        ):
            self._waiting.cancel()

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
            delay = self._delays.get(key)
            if delay is not None and delay.request == request and now < delay.until_ms:
                continue
            requests[key] = hosted, request
        return requests

    async def _run(self) -> None:
        try:
            while True:
                self._look.clear()
                fetches, others = self._split_fetches(self._collect_requests())
                if await self._start_offset_requests(others):
                    continue
                requests = self._drop_held(fetches)
                if not requests:
                    await self._pause()
                elif not await self._run_fetch(requests):
                    self._connection.close()
                    await self._pause(self._config.fetch_backoff_ms)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            halt_process("fetcher-failed", error)

    def _drop_held(self, requests: Requests) -> Requests:
        return {key: each for key, each in requests.items() if self._fetcher_failpoints.may_send(*each)}

    def _split_fetches(self, requests: Requests) -> tuple[Requests, Requests]:
        """Those to fetch, and the others."""
        others = {key: each for key, each in requests.items() if not isinstance(each[1], FetchRequest)}
        fetches = {key: each for key, each in requests.items() if key not in others} if others else requests
        return fetches, others

    async def _start_offset_requests(self, requests: Requests) -> bool:
        """Whether any was started: then the requests are collected again."""
        begun = [
            self._offset_requests.begin(hosted, request)
            for hosted, request in self._drop_held(requests).values()
            if not isinstance(request, FetchRequest)
        ]
        if begun:
            await asyncio.wait(begun, timeout=_OFFSET_REQUESTS_S)
        return bool(begun)

    async def _pause(self, least_ms: int | None = None) -> None:
        """Until a role changes or a delay is over."""
        untils = [delay.until_ms for delay in self._delays.values()]
        rest_ms = least_ms
        if rest_ms is None and untils:
            rest_ms = max(1, min(untils) - now_ms())
        try:
            async with asyncio.timeout(None if rest_ms is None else rest_ms / 1000):
                await self._look.wait()
        except TimeoutError:
            pass
        now = now_ms()
        self._delays = {key: delay for key, delay in self._delays.items() if delay.until_ms > now}

    async def _run_fetch(self, requests: Requests) -> bool:
        """One round; False if the leader was not to be reached."""
        self._in_flight = {key: request for key, (_, request) in requests.items()}
        fetches = [
            (hosted, request) for hosted, request in requests.values() if isinstance(request, FetchRequest)
        ]
        self._waiting = asyncio.ensure_future(self._send_fetch(fetches))
        try:
            await asyncio.wait([self._waiting])
        except asyncio.CancelledError:
            self._waiting.cancel()
            raise
        finally:
            waiting, self._waiting = self._waiting, None
        if waiting.cancelled():
            return True  # ended by `refresh`
        failure = waiting.exception()
        if isinstance(failure, Unreachable):
            self._log_unreachable(failure)
            return False
        if failure is not None:
            raise failure
        self._said = ""
        return True

    def _log_unreachable(self, failure: Unreachable) -> None:
        if str(failure) != self._said:
            log("warning", "leader-unreachable", leader=self.leader, why=failure)
        self._said = str(failure)

    def _offset_request_unreachable(
        self, hosted: HostedPartition, request: FollowerRequest, failure: Unreachable
    ) -> None:
        self._log_unreachable(failure)
        self._back_off(hosted, request)

    def _back_off(self, hosted: HostedPartition, request: FollowerRequest) -> None:
        self._delays[hosted.key] = Backoff(request=request, until_ms=now_ms() + self._config.fetch_backoff_ms)

    def _handle_error(self, hosted: HostedPartition, request: FollowerRequest, error: int) -> None:
        """Back off before the same request; a replica that requests something else now does so at once."""
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
        for hosted, request in by_id.values():  # nothing was said of these
            if answer.error_code:
                self._handle_error(hosted, request, int(answer.error_code))
            else:
                self._back_off(hosted, request)

    def _read_partition(self, hosted: HostedPartition, request: FetchRequest, part: Any) -> None:
        try:
            batches = tuple(parse_batches(part.records or b"", partial_tail=True))
        except CorruptBatch as error:  # of the leader's log, or of the way here: ask again
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
        """The answer goes to the replica."""
        parting, error_code = part.diverging_epoch, int(part.error_code)
        diverging = None
        if parting.end_offset >= 0:
            diverging = EpochEnd(epoch=parting.epoch, end_offset=parting.end_offset)
        self._replica_manager.post(
            hosted,
            FetchResponse(
                now_ms=now_ms(),
                leader=self.leader,
                asked=request,
                error=error_code,
                hw=part.high_watermark,
                log_start=part.log_start_offset,
                diverging=diverging,
                batches=batches,
            ),
        )
        if error_code:
            self._handle_error(hosted, request, error_code)
        else:
            self._fetcher_failpoints.note_answered(hosted, request)


class ReplicaFetcherManager:
    """One Fetcher for each leader that is followed here."""

    def __init__(
        self, make_fetcher: Callable[[int], ReplicaFetcher], replica_manager: Callable[[], ReplicaManager]
    ) -> None:
        self._make = make_fetcher
        self._replica_manager = replica_manager
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._closed = False

    def refresh(self) -> None:
        """Roles have changed."""
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
