"""The controller in memory: runs the state machine, keeps its journal, and sends the metadata to the nodes.

Rules
1. A step's records are in the journal and in the trace before any answer or message of the step leaves.
2. Time in which this process did not run (paused, or a busy machine) does not count against the brokers'
   sessions.
3. Only the latest metadata is sent to a node, again until it is answered. While a failpoint is armed at
   C.elected for the node, each version is a message of its own, in order. A copy is sent once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from floodmark.broker.protocol.controller import Controller, ControllerConfig
from floodmark.broker.protocol.messages import (
    AlterPartition,
    AlterPartitionAnswer,
    ControllerEvent,
    CreateTopic,
    Elect,
    Expire,
    Heartbeat,
    Persist,
    ProposeIsr,
    Publish,
    Register,
    Tick,
)
from floodmark.broker.protocol.metadata import BrokerInfo, Metadata
from floodmark.broker.testing.armed_failpoint import Fate
from floodmark.broker.testing.failpoint_requests import CarriedEpochs, FailpointSite
from floodmark.broker.testing.failpoint_sites import find_metadata_sites, list_leader_epochs
from floodmark.broker.testing.trace_events import controller_lines, missing_lines
from floodmark.harness.cluster.memory.clock import Clock
from floodmark.harness.cluster.memory.disk import Key
from floodmark.harness.cluster.memory.failpoints import Failpoints
from floodmark.harness.cluster.memory.network import Call
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.settings import Settings
from floodmark.harness.cluster.memory.trace_file import TraceFile

_TICK_S = 0.025
_TICK_LATE_MS = 200  # a tick that is later than this: the process did not run
_RETRY_S = 0.05  # after a message that was refused or not answered
_RETRY_S_MAX = 0.5

# (broker, its epoch, the metadata, callback for the answer, callback if there is none)
SendMetadata = Callable[[int, int, Metadata, Callable[[Any], None], Callable[[bool], None]], None]


@dataclass(slots=True, kw_only=True)
class Journal:
    """The controller's durable records; they outlive every incarnation. traced: the metadata version up to
    which the trace has them."""

    records: list[Mapping[str, Any]]
    traced: int = 0


class ControllerNode:
    """One incarnation of the controller."""

    def __init__(
        self,
        *,
        process: Process,
        settings: Settings,
        journal: Journal,
        trace: TraceFile,
        failpoints: Failpoints,
        send: SendMetadata,
    ) -> None:
        self.process = process
        self._settings = settings
        self._journal = journal
        self._trace = trace
        self._failpoints = failpoints
        self._send = send
        self._clock = _WakingClock(process.clock)
        config = ControllerConfig(
            session_timeout_ms=settings.session_timeout_ms,
            unclean_leader_election=settings.unclean_leader_election,
        )
        self._controller = Controller(config, journal.records, settings.rules)
        self._publishers: dict[int, _Publisher] = {}

    def begin(self) -> None:
        """Starts in its process."""
        self._trace.write_process_lines(missing_lines(self._journal.records, self._journal.traced))
        self._journal.traced = self.metadata.version
        self._publish()
        self._tick()

    @property
    def metadata(self) -> Metadata:
        return self._controller.metadata()

    def _tick(self) -> None:
        self._step(Tick(now_ms=self._clock.now_ms()))
        self.process.later(_TICK_S, self._tick)

    def _step(self, event: ControllerEvent) -> Any:
        """Runs a step; returns the answer to the event, or None."""
        answer = None
        before = self.metadata
        for effect in self._controller.step(event):
            if isinstance(effect, Persist):
                self._journal.records.extend(effect.records)
                self._trace.write_process_lines(controller_lines(before, event, effect.records))
                self._journal.traced = self.metadata.version
            elif isinstance(effect, Publish):
                self._publish()
            else:
                answer = effect
        return answer

    # -- asked by nodes ------------------------------------------------------------------------------------

    def register(self, call: Call, broker: int, incarnation: str, *, clean: bool) -> None:
        event = Register(
            now_ms=self._clock.now_ms(), token=None, broker=broker, incarnation=incarnation, host="memory",
            port=broker, clean=clean,
        )  # fmt: skip
        call.reply(self._step(event))

    def heartbeat(
        self, call: Call, broker: int, broker_epoch: int, metadata_version: int, *, stopping: bool
    ) -> None:
        event = Heartbeat(
            now_ms=self._clock.now_ms(), token=None, broker=broker, broker_epoch=broker_epoch,
            metadata_version=metadata_version, stopping=stopping,
        )  # fmt: skip
        call.reply(self._step(event))

    def alter_partition(
        self, call: Call, broker: int, broker_epoch: int, key: Key, proposal: ProposeIsr
    ) -> None:
        event = AlterPartition(
            now_ms=self._clock.now_ms(), token=None, topic=key[0], partition=key[1], broker=broker,
            broker_epoch=broker_epoch, leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch, isr=proposal.isr,
        )  # fmt: skip
        answer = self._step(event)
        assert isinstance(answer, AlterPartitionAnswer), answer
        fate = Fate.GO
        if self._failpoints.armed and not answer.error:
            site = FailpointSite(
                name="C.alter_applied", topic=key[0], partition=key[1], epoch=answer.leader_epoch, peer=broker
            )
            fate = self._failpoints.meet(site, lambda: call.reply(answer))
        if fate is Fate.GO:
            call.reply(answer)

    # -- asked by the harness ------------------------------------------------------------------------------

    def create_topic(self, topic: str, topic_id: str, assignment: Sequence[Sequence[int]]) -> Any:
        return self._step(
            CreateTopic(
                now_ms=self._clock.now_ms(), token=None, topic=topic, topic_id=topic_id,
                partitions=len(assignment), replication_factor=len(assignment[0]),
                assignment=tuple(map(tuple, assignment)), configs={},
            )
        )  # fmt: skip

    def elect(self, keys: Sequence[Key], leader: int, *, unclean: bool) -> Any:
        return self._step(
            Elect(
                now_ms=self._clock.now_ms(), token=None, partitions=tuple(keys), unclean=unclean,
                leader=leader,
            )
        )  # fmt: skip

    def expire(self, broker: int) -> Any:
        return self._step(Expire(now_ms=self._clock.now_ms(), token=None, broker=broker))

    # -- metadata ------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        for broker in self.metadata.brokers:
            if broker.id not in self._publishers:
                self._publishers[broker.id] = _Publisher(
                    broker.id, self.process, lambda: self.metadata, self._failpoints, self._send
                )
            self._publishers[broker.id].publish()


class _WakingClock:
    """A clock in milliseconds without jumps: of a long gap between two readings only _TICK_LATE_MS count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_ms = clock.now_ms()
        self._away_ms = 0

    def now_ms(self) -> int:
        read_ms = self._clock.now_ms()
        self._away_ms += max(0, read_ms - self._read_ms - _TICK_LATE_MS)
        self._read_ms = read_ms
        return read_ms - self._away_ms


@dataclass(slots=True, kw_only=True, eq=False)
class _Message:
    metadata: Metadata
    epoch: int  # of the incarnation that it is for
    before: Metadata | None  # what that incarnation was sent before this message
    kept: bool  # a newer message must not replace it
    may_go: bool = True
    doubled: bool = False
    copy: bool = False  # the second one of a doubled message


class _Publisher:
    """Sends one node its metadata, one message at a time."""

    def __init__(
        self,
        broker: int,
        process: Process,
        metadata: Callable[[], Metadata],
        failpoints: Failpoints,
        send: SendMetadata,
    ) -> None:
        self._broker = broker
        self._process = process
        self._metadata = metadata
        self._failpoints = failpoints
        self._send = send
        self._messages: list[_Message] = []  # still to be sent, in order
        self._latest: Metadata | None = None  # the latest metadata that became a message
        self._in_flight: _Message | None = None
        self._failures = 0

    def publish(self) -> None:
        """Queues the metadata if it is new."""
        metadata = self._metadata()
        if self._latest is not None and self._latest.version == metadata.version:
            return
        watched = self._failpoints.is_armed_for("C.elected", self._broker)
        held = any(not each.may_go for each in self._messages)
        message = _Message(
            metadata=metadata, epoch=self._info(metadata).epoch, before=self._last_sent(metadata),
            kept=watched or held,
        )  # fmt: skip
        self._latest = metadata
        if watched and not self._meet_failpoint(message):
            return
        self._messages = [each for each in self._messages if each.kept]
        self._messages.append(message)
        self._process.soon(self._send_next)

    def _last_sent(self, metadata: Metadata) -> Metadata | None:
        overtaken = [each for each in self._messages if not each.kept]
        before = overtaken[0].before if overtaken else self._latest
        if before is None or self._info(before).epoch != self._info(metadata).epoch:
            return None
        return before

    def _info(self, metadata: Metadata) -> BrokerInfo:
        return next(each for each in metadata.brokers if each.id == self._broker)

    def _meet_failpoint(self, message: _Message) -> bool:
        """Meets failpoints; returns False if the message is dropped. A held message stays in the queue, and
        later ones wait behind it."""
        sites = find_metadata_sites(self._broker, message.metadata, message.before)
        carried = CarriedEpochs(epochs=list_leader_epochs(message.metadata))
        fate = self._failpoints.meet(
            sites[0], partial(self._release, message), also=sites[1:], carried=carried
        )
        if fate is Fate.HELD:
            message.may_go = False
        elif fate is Fate.DOUBLED:
            message.doubled = True
        return fate is not Fate.DROPPED

    def _release(self, message: _Message) -> None:
        """Releases a held message, or queues the copy of a doubled one before all waiting ones."""
        if message.doubled:
            copies = sum(each.copy for each in self._messages)
            self._messages.insert(copies, replace(message, kept=True, copy=True, may_go=True))
        message.may_go = True
        self._send_next()

    def _send_next(self) -> None:
        if self._in_flight is not None or not self._messages or not self._messages[0].may_go:
            return
        message = self._in_flight = self._messages[0]

        def answered(error: int) -> None:
            gone = message.epoch != self._info(self._metadata()).epoch
            self._done(message, over=not error or message.copy or gone)

        self._send(
            self._broker, message.epoch, message.metadata, answered,
            lambda _: self._done(message, over=False),
        )  # fmt: skip

    def _done(self, message: _Message, *, over: bool) -> None:
        self._in_flight = None
        if over:
            self._messages = [each for each in self._messages if each is not message]
            self._failures = 0
            self._send_next()
        else:
            self._failures += 1
            self._process.later(min(_RETRY_S * self._failures, _RETRY_S_MAX), self._send_next)
