"""Holds the messages of one fetcher at failpoints: requests not to be sent, responses not to be taken, yet.

Rules
1. Only the one replica that a message is about waits: the others' requests are sent, their responses taken.
2. The message is held. Once its replica requests something else, that is sent; a request that was held
   is then not sent any more, an answer that was held is still given when it is let go: late, as answers are.
"""

from collections.abc import Callable
from functools import partial

from floodmark.broker.protocol.messages import EndOffsetRequest, FollowerRequest, LogEndsRequest
from floodmark.broker.server.effect_runner import HostedPartition, Key
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.failpoints import Failpoints, Fate


class FetcherFailpoints:
    """`look` is called when something may be sent again, `lost` for a message that nobody will get."""

    def __init__(
        self,
        failpoints: Failpoints,
        look: Callable[[], None],
        lost: Callable[[HostedPartition, FollowerRequest], None],
    ) -> None:
        self._failpoints = failpoints
        self._look = look
        self._lost = lost
        self._waiting: dict[Key, FollowerRequest] = {}  # requests held back, or whose answer is
        self._let_go: dict[Key, FollowerRequest] = {}  # requests that may go now, unasked
        self._begun: dict[Key, int] = {}  # the leader epoch in which something was last answered

    def is_waiting(self, hosted: HostedPartition, request: FollowerRequest) -> bool:
        """Whether this request must not be sent now."""
        return hosted.held_step is not None or self._waiting.get(hosted.key) == request

    def note_answered(self, hosted: HostedPartition, request: FollowerRequest) -> None:
        """Something was answered: the fetches after it are not the first request of this leader epoch."""
        self._begun[hosted.key] = request.leader_epoch

    def may_send(self, hosted: HostedPartition, request: FollowerRequest) -> bool:
        """Whether this request is sent now; to be called once before each sending."""
        if not self._failpoints.armed and not self._let_go:
            return True
        key = hosted.key
        if self._let_go.pop(key, None) == request or isinstance(request, LogEndsRequest):
            return True
        first = isinstance(request, EndOffsetRequest) or self._begun.get(key) != request.leader_epoch
        site = _site("F.epoch_req" if first else "F.before_refetch", hosted, request)
        fate = self._failpoints.meet(site, partial(self._release, key, request))
        if fate is Fate.HELD:
            self._waiting[key] = request
        elif fate is Fate.DROPPED:
            self._lost(hosted, request)
        return fate is Fate.GO

    def may_take(self, hosted: HostedPartition, request: FollowerRequest, take: Callable[[], None]) -> bool:
        """Whether the response is taken now; else `take` is called when it is released."""
        if not self._failpoints.armed:
            return True

        def late() -> None:
            self._stop_waiting(hosted.key, request)
            take()
            self._look()

        fate = self._failpoints.meet(_site("F.fetch_resp", hosted, request), late)
        if fate is Fate.HELD:
            self._waiting[hosted.key] = request
        elif fate is Fate.DROPPED:
            self._lost(hosted, request)
        return fate in (Fate.GO, Fate.DOUBLED)

    def _release(self, key: Key, request: FollowerRequest) -> None:
        self._stop_waiting(key, request)
        self._let_go[key] = request
        self._look()

    def _stop_waiting(self, key: Key, request: FollowerRequest) -> None:
        if self._waiting.get(key) == request:
            del self._waiting[key]


def _site(name: str, hosted: HostedPartition, request: FollowerRequest) -> FailpointSite:
    return FailpointSite(
        name=name, topic=hosted.topic, partition=hosted.partition, epoch=request.leader_epoch,
        peer=request.leader,
        offset=-1 if isinstance(request, EndOffsetRequest | LogEndsRequest) else request.offset,
    )  # fmt: skip
