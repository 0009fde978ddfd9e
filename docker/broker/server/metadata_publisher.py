"""Sends new metadata to the brokers: one task for each registered broker, which repeats until answered.

Rules
1. Only the latest version is sent; what was overtaken while a broker did not answer is never sent. While
   anything is armed at C.elected for a broker, each version is a message of its own, and none overtakes.
2. A message is for the incarnation that its metadata names; a broker that refuses it because it has not yet
   heard that it is registered gets it again a little later, another incarnation does not.
3. Every attempt has a time-out, and there is no last one; but a copy is done with whatever its answer.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from floodmark.broker.process_log import halt_process, log
from floodmark.broker.protocol import errors
from floodmark.broker.protocol.metadata import BrokerInfo, Metadata, PartitionInfo
from floodmark.broker.server.config import Config
from floodmark.broker.server.node_connection import NodeConnection, Unreachable
from floodmark.broker.testing.failpoint_requests import CarriedEpochs, FailpointSite
from floodmark.broker.testing.failpoints import Failpoints, Fate
from floodmark.broker.wire.codec import WireError
from floodmark.broker.wire.leader_and_isr_codec import read_leader_and_isr_response, write_leader_and_isr

_AGAIN_S = 0.05  # after a refusal
_AGAIN_S_MAX = 0.5  # after the last of several that did not get through
_COPY = 0x7FFFFFFF  # the correlation id of a message that may be sent twice


@dataclass(slots=True, kw_only=True, eq=False)
class _PendingMessage:
    metadata: Metadata
    epoch: int  # of the incarnation that it is for
    before: Metadata | None  # what that incarnation had been sent, or will be, when this came
    kept: bool  # not to be overtaken
    may_go: bool = True
    frame: bytes | None = None  # of a message that was doubled, as it is or was sent
    copy: bool = False  # the second one


class MetadataPublisher:
    """The task that sends one broker its metadata."""

    def __init__(
        self, config: Config, broker: int, metadata: Callable[[], Metadata], failpoints: Failpoints
    ) -> None:
        self._broker = broker
        self._metadata = metadata
        self._config = config
        self._failpoints = failpoints
        self._more = asyncio.Event()
        self._timeout_s = max(0.2, config.session_timeout_ms / 3000)
        self._messages: list[_PendingMessage] = []  # still to be sent, in order
        self._latest: Metadata | None = None  # that became a message
        self._connection = NodeConnection(f"broker {broker}", self._address, "controller")
        self._task = asyncio.create_task(self._run(), name=f"metadata publisher {broker}")

    def publish(self) -> None:
        """There is new metadata."""
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
        self._more.set()

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
        """Whether there is such a message: not if it is dropped. One that is held stands in the queue, and
        all that comes later behind it."""
        sites = _sites(self._broker, message.metadata, message.before)
        fate = self._failpoints.meet(
            sites[0],
            partial(self._release, message),
            also=sites[1:],
            carried=CarriedEpochs(epochs=_leader_epochs(message.metadata)),
        )
        if fate is Fate.HELD:
            message.may_go = False
        elif fate is Fate.DOUBLED:
            message.frame = write_leader_and_isr(_COPY, self._broker, message.epoch, message.metadata)
        return fate is not Fate.DROPPED

    def _release(self, message: _PendingMessage) -> None:
        """A message that was held, or the second of one that was doubled: that goes before all that wait."""
        if message.frame is not None:
            copies = sum(1 for each in self._messages if each.copy)
            copy = replace(message, kept=True, copy=True)
            self._messages.insert(copies, copy)
        message.may_go = True
        self._more.set()

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
                self._more.clear()
                if not self._messages or not self._messages[0].may_go:
                    await self._more.wait()
                    failures = 0
                    continue
                message = self._messages[0]
                if await self._send(message, quiet=failures > 0):
                    self._messages = [each for each in self._messages if each is not message]
                    failures = 0
                    continue
                failures += 1
                await self._pause(min(_AGAIN_S * failures, _AGAIN_S_MAX))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            halt_process("metadata-publisher-failed", error)

    async def _pause(self, rest_s: float) -> None:
        """Before the next attempt; cut short by new metadata (a broker that is back has registered)."""
        try:
            async with asyncio.timeout(rest_s):
                await self._more.wait()
        except TimeoutError:
            pass

    async def _send(self, message: _PendingMessage, *, quiet: bool) -> bool:
        """Whether it is done with: answered, or never to be taken any more."""
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
                log(
                    "warning", "news-unanswered", broker=self._broker, version=metadata.version, why=failure
                )
            return False
        if error and not quiet:
            log(
                "info",
                "news-refused",
                broker=self._broker,
                broker_epoch=epoch,
                error=errors.error_name(error),
            )
        return not error or message.copy or epoch != self._broker_info(self._metadata()).epoch


def _sites(broker: int, metadata: Metadata, before: Metadata | None) -> list[FailpointSite]:
    """One for each partition of which the broker hears something new, or one without a partition."""
    sites = [
        FailpointSite(
            name="C.elected", topic=name, partition=part.partition, epoch=part.leader_epoch, peer=broker
        )
        for name, topic in metadata.topics.items()
        for part in topic.partitions
        if not _already_knew(before, name, part)
    ]
    return sites or [FailpointSite(name="C.elected", peer=broker)]


def _already_knew(before: Metadata | None, topic: str, part: PartitionInfo) -> bool:
    known = None if before is None else before.topics.get(topic)
    return known is not None and part in known.partitions


def _leader_epochs(metadata: Metadata) -> dict[tuple[str, int], int]:
    return {
        (name, part.partition): part.leader_epoch
        for name, topic in metadata.topics.items()
        for part in topic.partitions
    }
