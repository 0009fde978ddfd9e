"""Holds one fetcher's messages at failpoints: requests before they are sent, responses before they are taken.

Rules
1. Only the replica that a message is about waits: the others' requests are sent, their responses taken.
2. When the replica of a held message requests something else, that request is sent. A held request is then
   dropped; a held response is still delivered when it is released, as a late response.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from floodmark.broker.protocol.messages import EndOffsetRequest, FollowerRequest, LogEndsRequest
from floodmark.broker.testing.armed_failpoint import Fate
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.step_runner import Key, MeetsFailpoints, SteppedReplica

Hosted = TypeVar("Hosted", bound=SteppedReplica[Any])


class FetcherFailpoints(Generic[Hosted]):
    """`refresh` is called when a request may be sent again, `drop` for a message that a failpoint dropped."""

    def __init__(
        self,
        failpoints: MeetsFailpoints,
        refresh: Callable[[], None],
        drop: Callable[[Hosted, FollowerRequest], None],
    ) -> None:
        self._failpoints = failpoints
        self._refresh = refresh
        self._drop = drop
        self._waiting: dict[Key, FollowerRequest] = {}  # requests that are held, or whose response is
        self._released: dict[Key, FollowerRequest] = {}  # requests that may be sent without another failpoint
        self._answered_epochs: dict[Key, int] = {}  # the leader epoch of the last response

    def is_waiting(self, hosted: Hosted, request: FollowerRequest) -> bool:
        """Whether a failpoint keeps this request from being sent."""
        return hosted.held_step is not None or self._waiting.get(hosted.key) == request

    def note_answered(self, hosted: Hosted, request: FollowerRequest) -> None:
        """Note a response: later requests are not the first of this leader epoch."""
        self._answered_epochs[hosted.key] = request.leader_epoch

    def may_send(self, hosted: Hosted, request: FollowerRequest) -> bool:
        """Whether this request is sent now; called once before each attempt."""
        if not self._failpoints.armed and not self._released:
            return True
        key = hosted.key
        if self._released.pop(key, None) == request or isinstance(request, LogEndsRequest):
            return True
        new_epoch = self._answered_epochs.get(key) != request.leader_epoch
        first = isinstance(request, EndOffsetRequest) or new_epoch
        site = _build_site("F.epoch_req" if first else "F.before_refetch", hosted, request)
        fate = self._failpoints.meet(site, partial(self._release, key, request))
        if fate is Fate.HELD:
            self._waiting[key] = request
        elif fate is Fate.DROPPED:
            self._drop(hosted, request)
        return fate is Fate.GO

    def may_take(self, hosted: Hosted, request: FollowerRequest, take: Callable[[], None]) -> bool:
        """Whether the response is taken now; else `take` is called when it is released."""
        if not self._failpoints.armed:
            return True

        def take_late() -> None:
            self._stop_waiting(hosted.key, request)
            take()
            self._refresh()

        fate = self._failpoints.meet(_build_site("F.fetch_resp", hosted, request), take_late)
        if fate is Fate.HELD:
            self._waiting[hosted.key] = request
        elif fate is Fate.DROPPED:
            self._drop(hosted, request)
        return fate in (Fate.GO, Fate.DOUBLED)

    def _release(self, key: Key, request: FollowerRequest) -> None:
        self._stop_waiting(key, request)
        self._released[key] = request
        self._refresh()

    def _stop_waiting(self, key: Key, request: FollowerRequest) -> None:
        if self._waiting.get(key) == request:
            del self._waiting[key]


def _build_site(name: str, hosted: SteppedReplica[Any], request: FollowerRequest) -> FailpointSite:
    return FailpointSite(
        name=name, topic=hosted.topic, partition=hosted.partition, epoch=request.leader_epoch,
        peer=request.leader,
        offset=-1 if isinstance(request, EndOffsetRequest | LogEndsRequest) else request.offset,
    )  # fmt: skip
