"""Sends the fetch and offset requests of one node's followers to the leaders, one at a time for each replica.

Rules
1. The replica decides the request just before it is sent (Replica.next_request), and drops answers that it no
   longer needs. A changed request ends the one that is open.
2. After an error or no answer the same request is sent again after replica.fetch.backoff.ms.
3. The broker's own code decides what a failpoint does to a message (fetcher_failpoints.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import (
    NO_EPOCH,
    EndOffsetRequest,
    EndOffsetResponse,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FollowerRequest,
    LogEndsRequest,
    LogEndsResponse,
    ReplicaEvent,
)
from floodmark.broker.testing.fetcher_failpoints import FetcherFailpoints
from floodmark.harness.cluster.memory.failpoints import Failpoints
from floodmark.harness.cluster.memory.network import Call
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.replicas import HostedPartition, Replicas
from floodmark.harness.cluster.memory.requests import Fetched, FetchPartition, FetchQuery, Requests
from floodmark.harness.cluster.memory.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherContext:
    """What every fetcher of a node needs. `ask` sends a request to a broker: (leader, the leader's handler,
    callback for the answer, callback if there is none)."""

    node: int
    process: Process
    settings: Settings
    replicas: Replicas
    failpoints: Failpoints
    broker_epoch: Callable[[], int]
    ask: Callable[
        [int, Callable[[Requests, Call], None], Callable[[object], None], Callable[[bool], None]], Call
    ]


class Fetcher:
    """The fetcher of one replica."""

    def __init__(self, context: FetcherContext, hosted: HostedPartition) -> None:
        self._context = context
        self._hosted = hosted
        self._call: Call | None = None
        self._asked: FollowerRequest | None = None  # the open request
        self._delay: tuple[FollowerRequest, int] | None = None  # (failed, its next time in ms)
        self._failpoints: FetcherFailpoints[HostedPartition] = FetcherFailpoints(
            context.failpoints, self.send_next, lambda _, request: self._back_off(request))

    def send_next(self) -> None:
        """Sends the replica's next request, and gives up an earlier one."""
        request = self._hosted.replica.next_request()
        if self._call is not None and self._asked != request:
            self._call.close()
            self._call = None
        if request is None or self._call is not None:
            return
        if self._failpoints.is_waiting(self._hosted, request):
            return
        now_ms = self._context.process.clock.now_ms()
        if self._delay is not None and self._delay[0] == request and now_ms < self._delay[1]:
            return
        if self._failpoints.may_send(self._hosted, request):
            self._send(request)

    def _send(self, request: FollowerRequest) -> None:
        self._asked = request
        if isinstance(request, FetchRequest):
            self._call = self._send_fetch(request)
        elif isinstance(request, EndOffsetRequest):
            self._call = self._send_end_offset(request)
        else:
            self._call = self._send_list_offsets(request, latest=False, log_start=-1)

    def _lost(self, request: FollowerRequest) -> None:
        self._call = None
        self._back_off(request)
        self.send_next()

    def _back_off(self, request: FollowerRequest) -> None:
        wait_ms = self._context.settings.fetch_backoff_ms
        self._delay = request, self._context.process.clock.now_ms() + wait_ms
        self._context.process.later((wait_ms + 1) / 1000, self.send_next)

    def _take(self, request: FollowerRequest, take: Callable[[], None]) -> None:
        """Handles an answer: `take` gives it to the replica, now or when a failpoint releases it."""
        self._call = None
        if self._failpoints.may_take(self._hosted, request, take):
            take()
        self.send_next()

    # -- requests and answers ----------------------------------------------------------------------------

    def _epoch_to_send(self, request: FollowerRequest) -> int:
        """The leader epoch to send; generations without fencing send none."""
        rules = self._context.settings.rules
        fenced = rules.fences_followers or rules.credits_this_epoch_only
        return request.leader_epoch if fenced else NO_EPOCH

    def _send_fetch(self, request: FetchRequest) -> Call:
        context, settings, key = self._context, self._context.settings, self._hosted.key
        part = FetchPartition(
            key=key, offset=request.offset, current_leader_epoch=self._epoch_to_send(request),
            last_fetched_epoch=request.last_fetched_epoch, max_bytes=settings.fetch_max_bytes,
        )  # fmt: skip
        query = FetchQuery(
            replica=context.node, broker_epoch=context.broker_epoch(), partitions=(part,),
            max_wait_ms=settings.fetch_wait_max_ms, min_bytes=1,
        )  # fmt: skip

        def answered(answer: object) -> None:
            assert isinstance(answer, dict), answer
            found = answer[key]
            assert isinstance(found, Fetched), found
            self._take(request, lambda: self._give_fetched(request, found))

        return context.ask(
            request.leader, lambda leader, call: leader.fetch(call, query), answered,
            lambda _: self._lost(request),
        )  # fmt: skip

    def _give_fetched(self, request: FetchRequest, found: Fetched) -> None:
        self._give(
            request,
            FetchResponse(
                now_ms=self._context.process.clock.now_ms(), leader=request.leader, asked=request,
                error=found.error, hw=found.hw, log_start=found.log_start, diverging=found.diverging,
                batches=found.batches,
            ),
            found.error,
        )  # fmt: skip

    def _send_end_offset(self, request: EndOffsetRequest) -> Call:
        context, key = self._context, self._hosted.key

        def answered(answer: object) -> None:
            assert isinstance(answer, tuple), answer
            error, end = answer
            assert end is None or isinstance(end, EpochEnd), end
            self._call = None
            response = EndOffsetResponse(
                now_ms=context.process.clock.now_ms(), leader=request.leader, asked=request, error=error,
                end=end,
            )  # fmt: skip
            self._give(request, response, error)
            self.send_next()

        return context.ask(
            request.leader,
            lambda leader, call: leader.end_offset(
                call, key, replica=context.node, current_leader_epoch=self._epoch_to_send(request),
                epoch=request.epoch,
            ),
            answered,
            lambda _: self._lost(request),
        )  # fmt: skip

    def _send_list_offsets(self, request: LogEndsRequest, *, latest: bool, log_start: int) -> Call:
        """Requests the leader's log start, then its LEO."""
        context, key = self._context, self._hosted.key

        def answered(answer: object) -> None:
            assert isinstance(answer, tuple), answer
            error, offset = answer
            if not error and not latest:
                self._call = self._send_list_offsets(request, latest=True, log_start=offset)
                return
            self._call = None
            response = LogEndsResponse(
                now_ms=context.process.clock.now_ms(), leader=request.leader, asked=request, error=error,
                log_start=log_start, log_end=offset,
            )  # fmt: skip
            self._give(request, response, error)
            self.send_next()

        return context.ask(
            request.leader,
            lambda leader, call: leader.list_offsets(
                call, key, replica=context.node, current_leader_epoch=self._epoch_to_send(request),
                latest=latest,
            ),
            answered,
            lambda _: self._lost(request),
        )  # fmt: skip

    def _give(self, request: FollowerRequest, event: ReplicaEvent, error: int) -> None:
        self._context.replicas.post(self._hosted, event)
        if error == errors.NONE:
            self._failpoints.note_answered(self._hosted, request)
        elif self._hosted.replica.next_request() == request:
            self._back_off(request)
