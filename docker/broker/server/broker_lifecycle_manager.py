"""Registers the broker with the controller, sends heartbeats, and asks for a controlled shutdown at the end.

Rules
1. Every start registers with an incarnation of its own. A registration is repeated, the same, until answered.
2. A heartbeat carries the applied metadata version; that of a fenced broker makes the controller unfence it.
3. A broker whose epoch the controller no longer accepts (STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED)
   registers as a new incarnation: it may have missed that it was removed from every ISR.
4. At the end it asks for a controlled shutdown, which moves its leaderships away, and waits a limited time.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from floodmark.broker import runtime
from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol import errors
from floodmark.broker.server.config import CLUSTER_ID, Config
from floodmark.broker.server.node_connection import NodeConnection, Unreachable
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.broker.wire.api_keys import BROKER_HEARTBEAT, BROKER_REGISTRATION
from floodmark.broker.wire.codec import make, request_parts

UNREGISTERED = -1
_REGISTRATION_LOST = (errors.STALE_BROKER_EPOCH, errors.BROKER_ID_NOT_REGISTERED)
_STOP_S_MAX = 10.0
_REGISTRATION, _HEARTBEAT = 4, 1


class BrokerLifecycleManager:
    """The task that talks to the controller. `broker_epoch` identifies this incarnation."""

    def __init__(
        self,
        config: Config,
        connection: NodeConnection,
        clean_epoch: int | None,
        metadata_version: Callable[[], int],
        failpoints: Failpoints,
    ) -> None:
        self.broker_epoch = UNREGISTERED
        self.fenced = True
        self._config = config
        self._connection = connection
        self._clean_epoch = clean_epoch  # at the last clean shutdown; None: the last one was not clean
        self._metadata_version = metadata_version
        self._failpoints = failpoints
        self._stopping = False
        self._may_stop = asyncio.Event()
        self._send_now = asyncio.Event()
        self._interval_s = config.heartbeat_interval_ms / 1000
        # Longer than an interval, and short enough for a second heartbeat before the session ends.
        self._timeout_s = max(self._interval_s, config.session_timeout_ms / 3000)
        self._task = asyncio.create_task(self._run(), name="lifecycle")

    def heartbeat_now(self) -> None:
        """Send a heartbeat at once: new metadata was applied."""
        self._send_now.set()

    async def stop(self) -> bool:
        """Ask for a controlled shutdown; returns whether the controller agreed in time."""
        self._stopping = True
        self._send_now.set()
        limit_s = min(_STOP_S_MAX, 2 * self._config.session_timeout_ms / 1000)
        try:
            async with asyncio.timeout(limit_s):
                await self._may_stop.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._connection.close()

    async def _run(self) -> None:
        try:
            while True:
                await self._register()
                await self._send_heartbeats()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            halt_process("lifecycle-failed", error)

    async def _register(self) -> None:
        self.broker_epoch, self.fenced = UNREGISTERED, True
        incarnation = runtime.current.new_uuid()
        request, parts = request_parts(BROKER_REGISTRATION, _REGISTRATION)
        host, port = self._config.advertised
        listener = make(parts.Listener, name="PLAINTEXT", host=host, port=port, security_protocol=0)
        clean_epoch = self._clean_epoch if self._clean_epoch is not None else -1
        body = make(
            request,
            broker_id=self._config.node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=incarnation,
            listeners=(listener,),
            features=(),
            rack=None,
            log_dirs=(),
            previous_broker_epoch=clean_epoch,
        )
        logged = ""
        while True:
            try:
                answer = await self._connection.send_request(
                    BROKER_REGISTRATION, _REGISTRATION, body, timeout_s=self._timeout_s
                )
                error = int(answer.error_code)
                if error == errors.NONE:
                    break
                why = errors.error_name(error)
            except Unreachable as unreachable:
                why = str(unreachable)
            if why != logged:
                log("warning", "not-registered", why=why)
            logged = why
            await asyncio.sleep(min(self._interval_s, 0.1))
        self.broker_epoch = answer.broker_epoch
        self._clean_epoch = None
        log("info", "registered", broker_epoch=self.broker_epoch, incarnation=incarnation.hex)
        if self._failpoints.armed:
            await self._failpoints.wait_at(FailpointSite(name="B.registered"))

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until the controller does not know this incarnation any more."""
        request, _ = request_parts(BROKER_HEARTBEAT, _HEARTBEAT)
        while True:
            self._send_now.clear()
            body = make(
                request,
                broker_id=self._config.node_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=self._metadata_version(),
                want_fence=False,
                want_shut_down=self._stopping,
                offline_log_dirs=(),
            )
            try:
                answer = await self._connection.send_request(
                    BROKER_HEARTBEAT, _HEARTBEAT, body, timeout_s=self._timeout_s
                )
            except Unreachable as unreachable:
                log("warning", "heartbeat-unanswered", why=unreachable)
            else:
                if int(answer.error_code) in _REGISTRATION_LOST:
                    log("warning", "registration-lost", error=errors.error_name(int(answer.error_code)))
                    return
                self._handle_heartbeat_response(answer)
            await self._await_next_heartbeat()

    def _handle_heartbeat_response(self, answer: Any) -> None:
        if int(answer.error_code):
            log("warning", "heartbeat-refused", error=errors.error_name(int(answer.error_code)))
            return
        if answer.is_fenced != self.fenced:
            self.fenced = answer.is_fenced
            log("info", "fenced" if self.fenced else "unfenced", broker_epoch=self.broker_epoch)
        if answer.should_shut_down:
            self._may_stop.set()

    async def _await_next_heartbeat(self) -> None:
        """Wait until the next heartbeat is due: sooner during a controlled shutdown."""
        rest_s = min(self._interval_s, 0.05) if self._stopping else self._interval_s
        try:
            async with asyncio.timeout(rest_s):
                await self._send_now.wait()
        except TimeoutError:
            pass
