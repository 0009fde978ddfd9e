"""Registers a node in memory with the controller as a new incarnation, and sends its heartbeats.

Rules
1. Every start registers anew; a registration is repeated, the same, until it is answered.
2. A broker whose epoch is not the controller's any more registers anew: it may have missed that it was taken
   out of every ISR.
3. At an orderly stop it asks to be released, which moves its leaderships away, for a limited time.
"""

from collections.abc import Callable
from typing import Any

from floodmark.broker.protocol import errors
from floodmark.broker.protocol.messages import HeartbeatAnswer, Registered
from floodmark.broker.testing.armed_failpoint import Fate
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.harness.cluster.memory.clock import Act
from floodmark.harness.cluster.memory.failpoints import Failpoints
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.settings import Settings

UNREGISTERED = -1
_GONE = (errors.STALE_BROKER_EPOCH, errors.BROKER_ID_NOT_REGISTERED)
_STOP_S_MAX = 10.0
_AGAIN_S = 0.1

# (stopping or not) -> to the controller: what is done with its answer, and what if there is none
Answered = Callable[[Any], None]
Lost = Callable[[bool], None]
AskRegister = Callable[[str, bool, Answered, Lost, float], None]  # incarnation, clean
AskHeartbeat = Callable[[int, bool, Answered, Lost, float], None]  # broker epoch, stopping


class Lifecycle:
    """Of one incarnation of a node; `broker_epoch` is what the controller knows it by."""

    def __init__(
        self,
        process: Process,
        settings: Settings,
        failpoints: Failpoints,
        *,
        clean: bool,
        register: AskRegister,
        heartbeat: AskHeartbeat,
    ) -> None:
        self.broker_epoch = UNREGISTERED
        self._process = process
        self._failpoints = failpoints
        self._clean = clean  # the last stop was orderly; told once
        self._ask_register, self._ask_heartbeat = register, heartbeat
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._session_s = settings.session_timeout_ms / 1000
        self._timeout_s = max(self._interval_s, self._session_s / 3)
        self._registrations = 0
        self._released: Act | None = None  # what is done once it may stop
        self._beats = 0  # of each heartbeat that is due only the latest counts
        self._beating = False  # since the registration was answered, and no failpoint holds it there
        self._in_flight = False
        self._again = False  # another is due once that is answered

    def begin(self) -> None:
        self._registrations += 1
        self._register(f"{self._process.name}/{self._process.incarnation}/{self._registrations}")

    def heartbeat_now(self) -> None:
        """New metadata was taken: the controller should know."""
        if self._beating:
            self._beat()

    def stop(self, released: Act) -> None:
        """`released` is called once, when the controller lets it go, or does not in time."""
        self._released = released
        self._beat()
        self._process.later(min(_STOP_S_MAX, 2 * self._session_s), self._release)

    def _release(self) -> None:
        released, self._released = self._released, None
        if released is not None:
            released()

    def _register(self, incarnation: str) -> None:
        self.broker_epoch, self._beating = UNREGISTERED, False

        def again(_began: bool) -> None:
            self._process.later(min(self._interval_s, _AGAIN_S), lambda: self._register(incarnation))

        def answered(answer: Registered) -> None:
            self.broker_epoch, self._clean = answer.broker_epoch, False
            fate = Fate.GO
            if self._failpoints.armed:
                fate = self._failpoints.meet(FailpointSite(name="B.registered"), self._begin_beating)
            if fate is not Fate.HELD:
                self._begin_beating()

        self._ask_register(incarnation, self._clean, answered, again, self._timeout_s)

    def _begin_beating(self) -> None:
        self._beating = True
        self._beat()

    def _beat(self) -> None:
        if self._in_flight:
            self._again = True
            return
        self._beats += 1
        self._in_flight, self._again = True, False
        self._ask_heartbeat(
            self.broker_epoch, self._released is not None, self._answered, lambda _: self._next(),
            self._timeout_s,
        )  # fmt: skip

    def _answered(self, answer: HeartbeatAnswer) -> None:
        if answer.error in _GONE:
            self._in_flight = False
            self.begin()
            return
        if answer.may_stop:
            self._release()
        self._next()

    def _next(self) -> None:
        self._in_flight = False
        if self._again:
            self._beat()
            return
        beats = self._beats
        rest_s = min(self._interval_s, 0.05) if self._released is not None else self._interval_s
        self._process.later(rest_s, lambda: self._beat() if beats == self._beats else None)
