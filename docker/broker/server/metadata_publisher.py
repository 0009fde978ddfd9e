"""Sends new metadata to the brokers: one task for each registered broker, which retries until it is answered.

Rules
1. Only the latest version is sent; older ones that a broker did not answer are dropped. While the failpoint
   C.elected is armed for a broker, each version is a message of its own, sent in order.
2. A message is for the incarnation that its metadata names; a broker that refuses it because it does not know
   yet that it is registered gets it again a little later, another incarnation does not.
3. Every attempt has a time-out, and attempts have no limit; but a duplicate is finished by any answer.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.metadata import BrokerInfo, Metadata
from floodmark.broker.server.config import Config
from floodmark.broker.server.node_connection import NodeConnection, Unreachable
from floodmark.broker.testing.armed_failpoint import Fate
from floodmark.broker.testing.failpoint_requests import CarriedEpochs
from floodmark.broker.testing.failpoint_sites import find_metadata_sites, list_leader_epochs
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.broker.wire.codec import WireError
from floodmark.broker.wire.leader_and_isr_codec import read_leader_and_isr_response, write_leader_and_isr

_RETRY_S = 0.05  # after one failed attempt, and that much more after each further one
_RETRY_S_MAX = 0.5
_DUPLICATE_ID = 0x7FFFFFFF  # the correlation id of a message that may be sent twice


@dataclass(slots=True, kw_only=True, eq=False)
class _PendingMessage:
    metadata: Metadata
    epoch: int  # of the incarnation that it is for
    before: Metadata | None  # the metadata that this incarnation received before; None: none
    kept: bool  # must be sent even when there is a later one
    may_go: bool = True  # not held at a failpoint
    frame: bytes | None = None  # of a duplicated message
    copy: bool = False  # the duplicate


class MetadataPublisher:
    """The task that sends one broker its metadata."""

    def __init__(
        self, config: Config, broker: int, metadata: Callable[[], Metadata], failpoints: Failpoints
    ) -> None:
        self._broker = broker
        self._metadata = metadata
        self._config = config
        self._failpoints = failpoints
        self._queue_changed = asyncio.Event()
        self._timeout_s = max(0.2, config.session_timeout_ms / 3000)
        self._messages: list[_PendingMessage] = []  # still to be sent, in order
        self._latest: Metadata | None = None  # of the last message built
        self._connection = NodeConnection(f"broker {broker}", self._address, "controller")
        self._task = asyncio.create_task(self._run(), name=f"metadata publisher {broker}")

    def publish(self) -> None:
        """Send the controller's current metadata, if it is new."""
        metadata = self._metadata()
        if self._latest is not None and self._latest.version == metadata.version:
            return
        watched = self._failpoints.armed and self._failpoints.is_armed_for("C.elected", self._broker)
        held = any(not each.may_go for each in self._messages)
        message = _PendingMessage(
            metadata=metadata, epoch=self._broker_info(metadata).epoch,
            before=self._last_sent_metadata(metadata), kept=watched or held,
        )  # fmt: skip
        self._latest = metadata
        if watched and not self._meet_failpoint(message):
            return
        self._messages = [each for each in self._messages if each.kept]
        self._messages.append(message)
        self._queue_changed.set()

    def _last_sent_metadata(self, metadata: Metadata) -> Metadata | None:
        overtaken = [each for each in self._messages if not each.kept]
        before = overtaken[0].before if overtaken else self._latest
        if before is None or self._broker_info(before).epoch != self._broker_info(metadata).epoch:
            return None
        return before

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._connection.close()

    # -- failpoints ------------------------------------------------------------------------------------------

    def _meet_failpoint(self, message: _PendingMessage) -> bool:
        """Meet C.elected; returns whether the message is to be queued: not if it is dropped. A held message
        stays in the queue, and all later ones wait for it."""
        sites = find_metadata_sites(self._broker, message.metadata, message.before)
        fate = self._failpoints.meet(
            sites[0],
            partial(self._release, message),
            also=sites[1:],
            carried=CarriedEpochs(epochs=list_leader_epochs(message.metadata)),
        )
        if fate is Fate.HELD:
            message.may_go = False
        elif fate is Fate.DOUBLED:
            message.frame = write_leader_and_isr(_DUPLICATE_ID, self._broker, message.epoch, message.metadata)
        return fate is not Fate.DROPPED

    def _release(self, message: _PendingMessage) -> None:
        """Release a held message, or queue the duplicate of one before all that wait."""
        if message.frame is not None:
            copies = sum(1 for each in self._messages if each.copy)
            copy = replace(message, kept=True, copy=True)
            self._messages.insert(copies, copy)
        message.may_go = True
        self._queue_changed.set()

    # -- sending ---------------------------------------------------------------------------------------------

    def _broker_info(self, metadata: Metadata) -> BrokerInfo:
        return next(each for each in metadata.brokers if each.id == self._broker)

    def _address(self) -> tuple[str, int]:
        info = self._broker_info(self._metadata())
        return self._config.address_to_dial(info.id, (info.host, info.port))

    async def _run(self) -> None:
        failures = 0
        try:
            while True:
                self._queue_changed.clear()
                if not self._messages or not self._messages[0].may_go:
                    await self._queue_changed.wait()
                    failures = 0
                    continue
                message = self._messages[0]
                if await self._send(message, quiet=failures > 0):
                    self._messages = [each for each in self._messages if each is not message]
                    failures = 0
                    continue
                failures += 1
                await self._pause(min(_RETRY_S * failures, _RETRY_S_MAX))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            halt_process("metadata-publisher-failed", error)

    async def _pause(self, pause_s: float) -> None:
        """Wait before the next attempt; new metadata ends the wait (a restarted broker has registered)."""
        try:
            async with asyncio.timeout(pause_s):
                await self._queue_changed.wait()
        except TimeoutError:
            pass

    async def _send(self, message: _PendingMessage, *, quiet: bool) -> bool:
        """Send a message; returns whether it is finished: answered, or for an incarnation that is gone."""
        metadata, epoch, frame = message.metadata, message.epoch, message.frame
        try:
            _, answer = await self._connection.exchange_frames(
                lambda number: frame or write_leader_and_isr(number, self._broker, epoch, metadata),
                timeout_s=self._timeout_s,
            )
            error = read_leader_and_isr_response(answer)
        except (Unreachable, WireError) as failure:
            self._connection.close()
            if not quiet:
                version = metadata.version
                log("warning", "metadata-unanswered", broker=self._broker, version=version, why=failure)
            return False
        if error and not quiet:
            log(
                "info",
                "metadata-refused",
                broker=self._broker,
                broker_epoch=epoch,
                error=errors.error_name(error),
            )
        return not error or message.copy or epoch != self._broker_info(self._metadata()).epoch
