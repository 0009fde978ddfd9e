"""Steps the replicas of one node in memory and carries out their effects, in order, past the failpoints.

Rules
1. An event is stepped and all its effects are carried out before the next one is looked at; what an effect
   brings about is queued behind.
2. What a step means is in the trace before anything of it leaves the process, and stands there before an
   append and after a truncation.
3. A replica held at a failpoint keeps the rest of its step and its later events, in order; what becomes of
   the others does not depend on it. Fetches get no answer from it, and are asked again when it goes on.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from floodmark.broker.protocol.messages import (
    Append,
    EndOffsetAnswer,
    Fetch,
    FetchAnswer,
    HwMoved,
    ListOffsetsAnswer,
    ProduceAnswer,
    ProposeIsr,
    ReplicaEffect,
    ReplicaEvent,
    Reset,
    RoleChanged,
    SaveEpochs,
    Tick,
    Truncate,
)
from floodmark.broker.protocol.replica import Replica
from floodmark.broker.testing.armed_failpoint import Fate
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.failpoint_sites import Stop, find_stops
from floodmark.broker.testing.trace_events import replica_lines, take_snapshot
from floodmark.harness.cluster.memory.disk import Key, PartitionLog, size_of
from floodmark.harness.cluster.memory.failpoints import Failpoints
from floodmark.harness.cluster.memory.process import Process
from floodmark.harness.cluster.memory.trace_file import TraceFile

_BEFORE_THEIR_LINES = (Truncate, Reset, SaveEpochs)  # on disk before the trace has their lines


class Requester(Protocol):
    """Waits for answers of replicas; the first of an event's token (it, index)."""

    def complete(self, index: int, answer: Any) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class StepInProgress:
    """A step whose effects are being carried out, and what is left of it."""

    effects: Sequence[ReplicaEffect]
    lines: Sequence[Mapping[str, Any]]  # of the whole step
    stops: list[Stop]  # still ahead
    hw: int  # before the step
    done: int = 0  # effects
    lines_written: int = 0
    at: FailpointSite | None = None  # where it is held


@dataclass(slots=True, kw_only=True, eq=False)
class HostedPartition:
    """One replica of a node: its machine and its log."""

    topic: str
    partition: int
    log: PartitionLog
    replica: Replica
    checkpointed_hw: int
    held_step: StepInProgress | None = None  # at a failpoint
    deferred_events: deque[ReplicaEvent] = field(default_factory=deque)  # what has come since

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def checkpointable_hw(self) -> int:
        """What may be written down: of a replica that is held what it was before the step it is held in, as
        far as that step has left the log."""
        return self.replica.hw if self.held_step is None else min(self.held_step.hw, self.replica.leo)

    @property
    def visible_hw(self) -> int:
        """A follower that is held between its append and its HW has not moved it yet."""
        at = None if self.held_step is None else self.held_step.at
        return self.checkpointable_hw if at is not None and at.name == "F.appended" else self.replica.hw


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """What a node does about what its replicas do, beside answering."""

    appended: Callable[[Key, int], None]  # by a leader: so many bytes
    hw_moved: Callable[[Key], None]
    role_changed: Callable[[HostedPartition], None]
    propose: Callable[[HostedPartition, ProposeIsr], None]
    resumed: Callable[[HostedPartition], None]  # a failpoint had held it


class Replicas:
    """All stepping goes through `post`."""

    def __init__(
        self,
        process: Process,
        trace: TraceFile,
        failpoints: Failpoints,
        listeners: Listeners,
        flush_messages: int | None,
    ) -> None:
        self.partitions: dict[Key, HostedPartition] = {}
        self._process = process
        self._trace = trace
        self._failpoints = failpoints
        self._listeners = listeners
        self._flush_messages = flush_messages
        self._queue: deque[tuple[HostedPartition, ReplicaEvent]] = deque()
        self._stepping = False
        self._carry_out: dict[type, Callable[[HostedPartition, Any], None]] = {
            Append: self._append,
            Truncate: lambda hosted, effect: hosted.log.truncate(effect.to),
            Reset: lambda hosted, effect: hosted.log.reset(effect.start),
            SaveEpochs: lambda hosted, effect: setattr(hosted.log, "epochs", effect.entries),
            HwMoved: lambda hosted, _: listeners.hw_moved(hosted.key),
            RoleChanged: lambda hosted, _: listeners.role_changed(hosted),
            ProduceAnswer: _answer_requester,
            FetchAnswer: _answer_requester,
            EndOffsetAnswer: _answer_requester,
            ListOffsetsAnswer: _answer_requester,
            ProposeIsr: listeners.propose,
        }

    def post(self, hosted: HostedPartition, event: ReplicaEvent) -> None:
        """Step now, or, when called out of an effect, after what is queued."""
        self._queue.append((hosted, event))
        self.go_on()

    def go_on(self) -> None:
        """With what is queued; a process that stands still leaves it there."""
        if not self._stepping:
            self._run_queue(None)

    def hold_between_steps(self, hosted: HostedPartition, site: FailpointSite) -> None:
        """Hold the replica at this point, which it has reached between two of its steps."""
        if hosted.held_step is None:
            stop = Stop(after=0, shown=0, site=site)
            step = StepInProgress(effects=(), lines=(), stops=[stop], hw=hosted.replica.hw)
            self._run_effects(hosted, step)

    def _append(self, hosted: HostedPartition, effect: Append) -> None:
        hosted.log.append(effect.batches, self._flush_messages)
        if effect.leading:
            self._listeners.appended(hosted.key, sum(map(size_of, effect.batches)))

    def _run_queue(self, goes_on: tuple[HostedPartition, StepInProgress] | None) -> None:
        """Steps until the queue is empty; first what goes on."""
        self._stepping = True
        try:
            if goes_on is not None:
                self._run_effects(*goes_on)
            while self._queue and not self._process.stands_still:
                hosted, event = self._queue.popleft()
                if hosted.held_step is None:
                    self._run_step(hosted, event)
                elif isinstance(event, Fetch):
                    _skip_fetch(event.token)
                elif not isinstance(event, Tick):
                    hosted.deferred_events.append(event)
        finally:
            self._stepping = False

    def _run_step(self, hosted: HostedPartition, event: ReplicaEvent) -> None:
        replica = hosted.replica
        hw, before = replica.hw, take_snapshot(replica)
        effects = replica.step(event)
        lines = replica_lines(before, event, effects, take_snapshot(replica))
        stops = []
        if self._failpoints.armed:
            stops = find_stops(hosted.key, replica, event, effects, lines)
        if effects or lines:
            self._run_effects(hosted, StepInProgress(effects=effects, lines=lines, stops=stops, hw=hw))

    def _run_effects(self, hosted: HostedPartition, step: StepInProgress) -> None:
        """Carries out what is left of a step, up to where it is held."""
        while True:
            while step.stops and step.stops[0].after <= step.done:
                if self._hold_at(hosted, step, step.stops.pop(0)):
                    return
            if step.done == len(step.effects):
                break
            effect = step.effects[step.done]
            if not isinstance(effect, _BEFORE_THEIR_LINES):
                self._write_lines(hosted, step, step.stops[0].shown if step.stops else len(step.lines))
            flushed = hosted.log.recovery_point
            self._carry_out[type(effect)](hosted, effect)
            step.done += 1
            if isinstance(effect, Append) and hosted.log.recovery_point > flushed and self._failpoints.armed:
                step.stops.insert(0, _fsync_stop(hosted, step))
        self._write_lines(hosted, step, len(step.lines))

    def _hold_at(self, hosted: HostedPartition, step: StepInProgress, stop: Stop) -> bool:
        self._write_lines(hosted, step, stop.shown)
        hosted.held_step, step.at = step, stop.site  # its state is shown so while it is held
        if self._failpoints.meet(stop.site, partial(self._resume, hosted)) is Fate.HELD:
            return True
        hosted.held_step = step.at = None
        return False

    def _write_lines(self, hosted: HostedPartition, step: StepInProgress, lines: int) -> None:
        """The first so many lines are in the trace."""
        if step.lines_written < lines:
            missing = step.lines[step.lines_written : lines]
            self._trace.write_replica_lines(hosted.topic, hosted.partition, missing)
            step.lines_written = lines

    def _resume(self, hosted: HostedPartition) -> None:
        """The rest of the step it was held in, then what has come since."""
        step, hosted.held_step = hosted.held_step, None
        assert step is not None, f"{hosted.key} is not held"
        assert not self._stepping, f"{hosted.key} is let go inside a step"
        step.at = None
        self._queue.extend((hosted, event) for event in hosted.deferred_events)
        hosted.deferred_events.clear()
        self._run_queue((hosted, step))
        self._listeners.resumed(hosted)


def _answer_requester(_hosted: HostedPartition, effect: Any) -> None:
    requester, index = effect.token
    requester.complete(index, effect)


def _skip_fetch(token: Any) -> None:
    """To a fetch: it gets no answer from this replica now."""
    requester, index = token
    requester.complete(index, None)


def _fsync_stop(hosted: HostedPartition, step: StepInProgress) -> Stop:
    site = FailpointSite(
        name="D.fsync", topic=hosted.topic, partition=hosted.partition, epoch=hosted.replica.leader_epoch,
        offset=hosted.log.recovery_point,
    )  # fmt: skip
    return Stop(after=step.done, shown=step.lines_written, site=site)
