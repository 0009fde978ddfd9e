"""Stepping the replicas and carrying out what they want: one queue of events, effects in order.

Rules
1. There is one queue of events. An event is stepped and all its effects are carried out, in order and
   synchronously, before the next one is looked at; what an effect brings about is queued behind.
2. A machine that raises, an invariant that does not hold, a disk that refuses: the process dies at once,
   before anything of that step is answered.
3. What a step means is written to the trace before anything of it leaves the process, and, so that a process
   that ends in between never holds more than its trace tells, before it appends and after it truncates: what
   the trace has too much the next start line takes back.
4. A replica held at a failpoint keeps the rest of its step and its later events, in order, until it is let
   go; what becomes of the others does not depend on it. Fetches do not wait with it: they may be about other
   replicas as well, so that they hear nothing of this one, and ask again when it goes on.
5. Of a step that is held the trace has what has happened, and the rest once it happens.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from broker.process_log import halt_process, log
from broker.protocol.messages import (
    Append,
    Fetch,
    ReplicaEffect,
    ReplicaEvent,
    Reset,
    SaveEpochs,
    Tick,
    Truncate,
)
from broker.protocol.replica import Replica
from broker.storage.local_log import LocalLog
from broker.testing.failpoint_requests import FailpointSite
from broker.testing.failpoint_sites import Stop, find_stops
from broker.testing.failpoints import Failpoints, Fate
from broker.testing.trace import Trace
from broker.testing.trace_events import replica_lines, take_snapshot

Key = tuple[str, int]  # topic, partition
_BEFORE_THEIR_LINES = (Truncate, Reset, SaveEpochs)  # on disk before the trace tells of them


@dataclass(slots=True, kw_only=True, eq=False)
class StepInProgress:
    """What is left of a step."""

    effects: Sequence[ReplicaEffect]
    lines: Sequence[Mapping[str, Any]]  # of the whole step
    stops: list[Stop]  # still ahead
    hw: int  # before the step
    done: int = 0  # effects
    lines_written: int = 0
    at: FailpointSite | None = None  # where it is held


@dataclass(slots=True, kw_only=True, eq=False)
class HostedPartition:
    """One replica here."""

    topic: str
    topic_id: str
    partition: int
    log: LocalLog
    replica: Replica
    checkpointed_hw: int
    configs: Mapping[str, str] = field(default_factory=dict)  # the topic's own
    held: StepInProgress | None = None  # at a failpoint
    later: deque[ReplicaEvent] = field(default_factory=deque)  # what has come since

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def checkpointable_hw(self) -> int:
        """What may be written down: of a replica that is held what it was before the step it is held in, as
        far as that step has left the log."""
        return (
            self.replica.hw
            if self.held is None
            else min(self.held.hw, self.replica.leo)
        )

    @property
    def visible_hw(self) -> int:
        """A follower that is held between its append and its HW has not moved it yet."""
        held = self.held
        appended = held is not None and held.at is not None and held.at.name == "F.appended"
        return self.checkpointable_hw if appended else self.replica.hw


EffectHandlers = Mapping[type, Callable[[HostedPartition, Any], None]]


class EffectRunner:
    """All stepping goes through `post`. `let_go` is told of replicas that go on."""

    def __init__(
        self,
        carry_out: EffectHandlers,
        trace: Trace,
        points: Failpoints,
        let_go: Callable[[HostedPartition], None],
    ) -> None:
        self._carry_out = carry_out
        self._trace = trace
        self._failpoints = points
        self._on_resume = let_go
        self._queue: deque[tuple[HostedPartition, ReplicaEvent]] = deque()
        self._stepping = False
        self._closed = False

    def close(self) -> None:
        """The logs are about to be closed: what is held stays where it is."""
        self._closed = True

    def post(self, hosted: HostedPartition, event: ReplicaEvent) -> None:
        """Step now, or, when called out of an effect, after what is queued."""
        self._queue.append((hosted, event))
        if not self._stepping:
            self._run_queue(None)

    def hold_between_steps(self, hosted: HostedPartition, place: FailpointSite) -> None:
        """It has reached this point between two of its steps."""
        if hosted.held is None:
            stop = Stop(after=0, shown=0, place=place)
            self._run_effects(
                hosted, StepInProgress(effects=(), lines=(), stops=[stop], hw=hosted.replica.hw)
            )

    def _run_queue(self, goes_on: tuple[HostedPartition, StepInProgress] | None) -> None:
        """Steps until the queue is empty; first what goes on."""
        self._stepping = True
        hosted, event = None, None
        try:
            if goes_on is not None:
                self._run_effects(*goes_on)
            while self._queue:
                hosted, event = self._queue.popleft()
                if hosted.held is None:
                    self._run_step(hosted, event)
                elif isinstance(event, Fetch):
                    _skip_fetch(event.token)
                elif not isinstance(event, Tick):
                    hosted.later.append(event)
        except Exception as error:
            if hosted is None and goes_on is not None:
                hosted = goes_on[0]
            assert hosted is not None
            log("error", "step-failed", topic=hosted.topic, partition=hosted.partition, by=event)
            halt_process("stopped-by-a-broken-invariant-or-disk", error)
        self._stepping = False

    def _run_step(self, hosted: HostedPartition, event: ReplicaEvent) -> None:
        replica, tracing = hosted.replica, self._trace.on
        if not tracing and not self._failpoints.armed:  # the common case of a broker without a harness
            for effect in replica.step(event):
                self._carry_out[type(effect)](hosted, effect)
            return
        hw = replica.hw
        before = take_snapshot(replica) if tracing else None
        effects = replica.step(event)
        lines = () if before is None else replica_lines(before, event, effects, take_snapshot(replica))
        if self._failpoints.armed:
            stops = find_stops(hosted.key, replica, event, effects, lines)
            self._run_effects(hosted, StepInProgress(effects=effects, lines=lines, stops=stops, hw=hw))
            return
        for effect in effects:
            if lines and not isinstance(effect, _BEFORE_THEIR_LINES):
                self._trace.write_replica_lines(hosted.topic, hosted.partition, lines)
                lines = ()
            self._carry_out[type(effect)](hosted, effect)
        if lines:
            self._trace.write_replica_lines(hosted.topic, hosted.partition, lines)

    # -- with anything armed -------------------------------------------------------------------------------

    def _run_effects(self, hosted: HostedPartition, walk: StepInProgress) -> None:
        """Carries out what is left of a step, up to where it is held."""
        while True:
            while walk.stops and walk.stops[0].after <= walk.done:
                if self._hold_at(hosted, walk, walk.stops.pop(0)):
                    return
            if walk.done == len(walk.effects):
                break
            effect = walk.effects[walk.done]
            if not isinstance(effect, _BEFORE_THEIR_LINES):
                self._write_lines(hosted, walk, walk.stops[0].shown if walk.stops else len(walk.lines))
            flushed = hosted.log.recovery_point
            self._carry_out[type(effect)](hosted, effect)
            walk.done += 1
            if isinstance(effect, Append) and hosted.log.recovery_point > flushed:
                walk.stops.insert(0, self._fsync_stop(hosted, walk))
        self._write_lines(hosted, walk, len(walk.lines))

    def _hold_at(self, hosted: HostedPartition, walk: StepInProgress, stop: Stop) -> bool:
        self._write_lines(hosted, walk, stop.shown)
        hosted.held, walk.at = walk, stop.place  # also while the whole process stands still there
        if self._failpoints.meet(stop.place, partial(self._resume, hosted)) is Fate.HELD:
            return True
        hosted.held = walk.at = None
        return False

    def _write_lines(self, hosted: HostedPartition, walk: StepInProgress, lines: int) -> None:
        """The first so many lines are in the trace."""
        if walk.lines_written < lines:
            self._trace.write_replica_lines(
                hosted.topic, hosted.partition, walk.lines[walk.lines_written : lines]
            )
            walk.lines_written = lines

    def _fsync_stop(self, hosted: HostedPartition, walk: StepInProgress) -> Stop:
        place = FailpointSite(name="D.fsync", topic=hosted.topic, partition=hosted.partition,
                      epoch=hosted.replica.leader_epoch, offset=hosted.log.recovery_point)  # fmt: skip
        return Stop(after=walk.done, shown=walk.lines_written, place=place)

    def _resume(self, hosted: HostedPartition) -> None:
        """The rest of the step it was held in, then what has come since."""
        if self._closed:
            return
        walk, hosted.held = hosted.held, None
        assert walk is not None, f"{hosted.key} is not held"
        assert not self._stepping, f"{hosted.key} is let go inside a step"
        walk.at = None
        self._queue.extend((hosted, event) for event in hosted.later)
        hosted.later.clear()
        self._run_queue((hosted, walk))
        self._on_resume(hosted)


def _skip_fetch(token: Any) -> None:
    """To a fetch: it hears nothing of this replica now."""
    asker, index = token
    asker.complete(index, None)
