"""Registers a node in memory with the controller, and sends its heartbeats.

Rules
1. Every start registers a new incarnation; the same registration is repeated until it is answered.
2. A broker with another epoch than the controller's registers again: it may have missed its removal from
   every ISR.
3. An orderly stop asks the controller for release, which moves leaderships away, for a limited time.
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

# Callbacks of a request to the controller: with its answer, or without one.
Answered = Callable[[Any], None]
Lost = Callable[[bool], None]
AskRegister = Callable[[str, bool, Answered, Lost, float], None]  # incarnation, clean
AskHeartbeat = Callable[[int, bool, Answered, Lost, float], None]  # broker epoch, stopping


class Lifecycle:
    """Registration and heartbeats of one incarnation of a node; `broker_epoch` is the controller's for it."""

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
        self._clean = clean  # the last stop was orderly; reported once
        self._ask_register, self._ask_heartbeat = register, heartbeat
        self._interval_s = settings.heartbeat_interval_ms / 1000
        self._session_s = settings.session_timeout_ms / 1000
        self._timeout_s = max(self._interval_s, self._session_s / 3)
        self._registrations = 0
        self._released: Act | None = None  # called when it may stop
        self._beats = 0  # numbers the due heartbeats: only the latest counts
        self._beating = False  # true after registration, unless a failpoint holds it there
        self._in_flight = False
        self._again = False  # another heartbeat is due after the open one

    def begin(self) -> None:
        self._registrations += 1
        self._register(f"{self._process.name}/{self._process.incarnation}/{self._registrations}")

    def heartbeat_now(self) -> None:
        """Sends a heartbeat now, because new metadata was applied."""
        if self._beating:
            self._beat()

    def stop(self, released: Act) -> None:
        """Asks for release; `released` is called once, when the controller agrees or does not in time."""
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
