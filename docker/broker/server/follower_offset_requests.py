"""Sends a follower's OffsetForLeaderEpoch and ListOffsets: where an epoch and the leader's log begin and end.

Rules
1. Each request has its own connection, so that a leader which does not answer for one replica (a failpoint
   holds it there) delays no other.
2. A replica has one request at a time; a new one cancels it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from floodmark.broker.process_log import halt_process
from floodmark.broker.protocol.messages import (
    NO_EPOCH,
    EndOffsetRequest,
    EndOffsetResponse,
    EpochEnd,
    FollowerRequest,
    LogEndsRequest,
    LogEndsResponse,
)
from floodmark.broker.protocol.rules import Rules
from floodmark.broker.server.config import Config
from floodmark.broker.server.effect_runner import HostedPartition
from floodmark.broker.server.node_connection import NodeConnection, Unreachable
from floodmark.broker.server.replica_manager import ReplicaManager, now_ms
from floodmark.broker.storage.offsets_by_timestamp import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from floodmark.broker.testing.step_runner import Key
from floodmark.broker.wire.api_keys import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from floodmark.broker.wire.codec import make, request_parts

_CONNECTIONS_MAX = 8
OffsetRequest = EndOffsetRequest | LogEndsRequest


class FollowerOffsetRequests:
    """The requests to one leader. The callbacks: `answered` for a response without error, `failed` for one
    with an error, `unreachable` for none, and `done` whenever a request has ended."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        dial: Callable[[], NodeConnection],
        *,
        answered: Callable[[HostedPartition, FollowerRequest], None],
        failed: Callable[[HostedPartition, FollowerRequest, int], None],
        unreachable: Callable[[HostedPartition, FollowerRequest, Unreachable], None],
        done: Callable[[], None],
    ) -> None:
        self._replica_manager = replica_manager
        self._config: Config = replica_manager.config
        self._dial = dial
        self._answered = answered
        self._failed = failed
        self._unreachable = unreachable
        self._done = done
        self._connection_slots = asyncio.Semaphore(_CONNECTIONS_MAX)
        self._free_connections: list[NodeConnection] = []
        self._running: dict[Key, tuple[OffsetRequest, asyncio.Task[None]]] = {}

    def is_running(self, hosted: HostedPartition, request: OffsetRequest) -> bool:
        """Whether this request has been sent and has no response yet."""
        running = self._running.get(hosted.key)
        return running is not None and running[0] == request

    def begin(self, hosted: HostedPartition, request: OffsetRequest) -> asyncio.Task[None]:
        earlier = self._running.get(hosted.key)
        if earlier is not None:
            earlier[1].cancel()
        task = asyncio.create_task(self._run(hosted, request), name=f"offset request to {request.leader}")
        self._running[hosted.key] = request, task
        task.add_done_callback(lambda done: self._finish_task(hosted, done))
        return task

    async def close(self) -> None:
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for connection in self._free_connections:
            connection.close()

    def _finish_task(self, hosted: HostedPartition, task: asyncio.Task[None]) -> None:
        running = self._running.get(hosted.key)
        if running is not None and running[1] is task:
            del self._running[hosted.key]
        if not task.cancelled():
            failure = task.exception()
            if isinstance(failure, Exception):
                halt_process("fetcher-failed", failure)
            self._done()

    async def _run(self, hosted: HostedPartition, request: OffsetRequest) -> None:
        async with self._connection_slots:
            connection = self._free_connections.pop() if self._free_connections else self._dial()
            try:
                if isinstance(request, LogEndsRequest):
                    await self._request_log_ends(connection, hosted, request)
                else:
                    await self._request_end_offset(connection, hosted, request)
            except Unreachable as failure:
                connection.close()
                self._unreachable(hosted, request, failure)
            except asyncio.CancelledError:
                connection.close()
                raise
            else:
                self._free_connections.append(connection)

    async def _request_log_ends(
        self, connection: NodeConnection, hosted: HostedPartition, request: LogEndsRequest
    ) -> None:
        start_error, start = await self._request_offset(connection, hosted, request, EARLIEST_TIMESTAMP)
        end_error, end = await self._request_offset(connection, hosted, request, LATEST_TIMESTAMP)
        error = start_error or end_error
        self._replica_manager.post(
            hosted,
            LogEndsResponse(
                now_ms=now_ms(),
                leader=request.leader,
                asked=request,
                error=error,
                log_start=start,
                log_end=end,
            ),
        )
        self._report(hosted, request, error)

    def _report(self, hosted: HostedPartition, request: OffsetRequest, error: int) -> None:
        if error:
            self._failed(hosted, request, error)
        else:
            self._answered(hosted, request)

    async def _request_offset(
        self, connection: NodeConnection, hosted: HostedPartition, request: LogEndsRequest, timestamp: int
    ) -> tuple[int, int]:
        cls, parts = request_parts(LIST_OFFSETS, 7)
        asked = make(
            parts.ListOffsetsPartition,
            partition_index=hosted.partition,
            timestamp=timestamp,
            current_leader_epoch=epoch_to_send(self._replica_manager.rules, request),
        )
        topic = make(parts.ListOffsetsTopic, name=hosted.topic, partitions=(asked,))
        body = make(cls, replica_id=self._config.node_id, isolation_level=0, topics=(topic,))
        answer = await connection.send_request(
            LIST_OFFSETS, 7, body, timeout_s=self._config.socket_timeout_ms / 1000
        )
        part = _single_partition(answer)
        return int(part.error_code), part.offset

    async def _request_end_offset(
        self, connection: NodeConnection, hosted: HostedPartition, request: EndOffsetRequest
    ) -> None:
        cls, parts = request_parts(OFFSET_FOR_LEADER_EPOCH, 4)
        asked = make(
            parts.OffsetForLeaderPartition,
            partition=hosted.partition,
            leader_epoch=request.epoch,
            current_leader_epoch=epoch_to_send(self._replica_manager.rules, request),
        )
        topic = make(parts.OffsetForLeaderTopic, topic=hosted.topic, partitions=(asked,))
        body = make(cls, replica_id=self._config.node_id, topics=(topic,))
        answer = await connection.send_request(
            OFFSET_FOR_LEADER_EPOCH, 4, body, timeout_s=self._config.socket_timeout_ms / 1000
        )
        part = _single_partition(answer)
        end = None
        if part.end_offset >= 0:
            end = EpochEnd(epoch=part.leader_epoch, end_offset=part.end_offset)
        error = int(part.error_code)
        self._replica_manager.post(
            hosted,
            EndOffsetResponse(now_ms=now_ms(), leader=request.leader, asked=request, error=error, end=end),
        )
        self._report(hosted, request, error)


def epoch_to_send(rules: Rules, request: FollowerRequest) -> int:
    """The current_leader_epoch to send: none in the generations that do not fence."""
    return request.leader_epoch if rules.fences_followers or rules.credits_this_epoch_only else NO_EPOCH


def _single_partition(answer: Any) -> Any:
    """The one partition of a response about one partition."""
    parts = [part for topic in answer.topics for part in topic.partitions]
    if len(parts) != 1:
        raise Unreachable(f"an answer for {len(parts)} partitions, asked for 1")
    return parts[0]
