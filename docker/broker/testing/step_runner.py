"""Steps the replicas of one node and carries out their effects in order, stopping at armed failpoints.

Pure: the caller provides the logs, the trace and the failpoints.

Rules
1. There is one queue of events. An event is stepped and all its effects are carried out, in order and
   synchronously, before the next one is taken; events that an effect causes are queued.
2. The trace lines of a step are written before any effect leaves the process; before an append, and after a
   truncation, so that a process that ends in between never has more in its log than in its trace. If the
   trace has too much, the next start line corrects it.
3. A replica held at a failpoint keeps the rest of its step and its later events, in order, until it is
   released; the other replicas go on. Fetches do not wait with it: they may be about other replicas as well,
   so that they get no answer from this one, and are tried again when it is released.
4. While a step is held, the trace has the lines of what has happened; the others follow when it happens.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from floodmark.broker.protocol.messages import (
    Append,
    Fetch,
    ReplicaEffect,
    ReplicaEvent,
    Reset,
    SaveEpochs,
    Tick,
    Truncate,
)
from floodmark.broker.protocol.replica import Replica
from floodmark.broker.testing.armed_failpoint import Fate
from floodmark.broker.testing.failpoint_requests import FailpointSite
from floodmark.broker.testing.failpoint_sites import Stop, find_stops
from floodmark.broker.testing.trace_events import Line, ReplicaSnapshot, replica_lines, take_snapshot

Key = tuple[str, int]  # topic, partition
_BEFORE_THEIR_LINES = (Truncate, Reset, SaveEpochs)  # done on disk before their lines are written


class FlushedLog(Protocol):
    @property
    def recovery_point(self) -> int: ...  # the offset up to which everything is on disk


class StepTrace(Protocol):
    @property
    def enabled(self) -> bool: ...
    def write_replica_lines(
        self, topic: str, partition: int, lines: Sequence[Mapping[str, Any]]
    ) -> None: ...


class MeetsFailpoints(Protocol):
    @property
    def armed(self) -> bool: ...  # while it is false, `meet` is not called
    def meet(self, site: FailpointSite, resume: Callable[[], None]) -> Fate: ...


@dataclass(slots=True, kw_only=True, eq=False)
class StepInProgress:
    """A step whose effects are being carried out, and how far it has come."""

    effects: Sequence[ReplicaEffect]
    lines: Sequence[Mapping[str, Any]]  # of the whole step
    stops: list[Stop]  # still ahead
    hw: int  # before the step
    done: int = 0  # effects
    lines_written: int = 0
    at: FailpointSite | None = None  # where it is held


Log = TypeVar("Log", bound=FlushedLog)


@dataclass(slots=True, kw_only=True, eq=False)
class SteppedReplica(Generic[Log]):
    """One replica of a node: its machine and its log."""

    topic: str
    partition: int
    log: Log
    replica: Replica
    checkpointed_hw: int
    snapshot: ReplicaSnapshot | None = None  # after its last traced step: nothing else changes a replica
    held_step: StepInProgress | None = None  # at a failpoint
    deferred_events: deque[ReplicaEvent] = field(default_factory=deque)  # that came since

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def checkpointable_hw(self) -> int:
        """The HW that may be checkpointed. For a held replica it is the HW before the held step, but never
        above its LEO."""
        if self.held_step is None:
            return self.replica.hw
        return min(self.held_step.hw, self.replica.leo)

    @property
    def visible_hw(self) -> int:
        """The HW that others may see: a follower that is held after its append has not moved its HW yet."""
        held_step = self.held_step
        appended = held_step is not None and held_step.at is not None and held_step.at.name == "F.appended"
        return self.checkpointable_hw if appended else self.replica.hw


Hosted = TypeVar("Hosted", bound=SteppedReplica[Any])


class StepRunner(Generic[Hosted]):
    """Every event goes through `post`."""

    def __init__(
        self,
        carry_out: Mapping[type, Callable[[Hosted, Any], None]],
        trace: StepTrace,
        failpoints: MeetsFailpoints,
        on_resume: Callable[[Hosted], None],
    ) -> None:
        """on_resume: called with each replica that is released."""
        self._carry_out = carry_out
        self._trace = trace
        self._failpoints = failpoints
        self._on_resume = on_resume
        self._queue: deque[tuple[Hosted, ReplicaEvent]] = deque()
        self._stepping = False
        self._closed = False

    def close(self) -> None:
        """Resume no held replica any more: the logs are about to be closed."""
        self._closed = True

    def post(self, hosted: Hosted, event: ReplicaEvent) -> None:
        """Step now or, when called by an effect, after the queued events."""
        self.post_together([(hosted, event)])

    def post_together(self, events: Iterable[tuple[Hosted, ReplicaEvent]]) -> None:
        """Step these in a row: what their effects post comes after all of them."""
        self._queue.extend(events)
        if not self._stepping:
            self._run_queue(None)

    def hold_between_steps(self, hosted: Hosted, site: FailpointSite) -> None:
        """Hold the replica at this point, which it has reached between two of its steps."""
        if hosted.held_step is None:
            stop = Stop(after=0, shown=0, site=site)
            self._run_effects(
                hosted, StepInProgress(effects=(), lines=(), stops=[stop], hw=hosted.replica.hw)
            )

    def step_failed(self, hosted: Hosted, event: ReplicaEvent | None, error: Exception) -> None:
        """A machine raised, or a disk refused. event: None in the rest of a step that was held."""
        raise error

    def _run_queue(self, released: tuple[Hosted, StepInProgress] | None) -> None:
        """Finish the released step, if any, then step until the queue is empty."""
        hosted, event = None if released is None else released[0], None
        self._stepping = True
        try:
            if released is not None:
                self._run_effects(*released)
            while self._queue:
                hosted, event = self._queue.popleft()
                if hosted.held_step is None:
                    self._run_step(hosted, event)
                elif isinstance(event, Fetch):
                    _skip_fetch(event.token)
                elif not isinstance(event, Tick):
                    hosted.deferred_events.append(event)
        except Exception as error:
            assert hosted is not None
            self.step_failed(hosted, event, error)
        finally:
            self._stepping = False

    def _run_step(self, hosted: Hosted, event: ReplicaEvent) -> None:
        replica, tracing = hosted.replica, self._trace.enabled
        if not tracing and not self._failpoints.armed:  # the common case of a broker without a harness
            for effect in replica.step(event):
                self._carry_out[type(effect)](hosted, effect)
            return
        hw = replica.hw
        lines: tuple[Line, ...] = ()
        before = (hosted.snapshot or take_snapshot(replica)) if tracing else None
        effects = replica.step(event)
        if before is not None:
            hosted.snapshot = after = take_snapshot(replica)
            lines = replica_lines(before, event, effects, after)
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

    # -- with armed failpoints -----------------------------------------------------------------------------

    def _run_effects(self, hosted: Hosted, in_progress: StepInProgress) -> None:
        """Carry out the rest of a step, up to the failpoint that holds it."""
        while True:
            while in_progress.stops and in_progress.stops[0].after <= in_progress.done:
                if self._hold_at(hosted, in_progress, in_progress.stops.pop(0)):
                    return
            if in_progress.done == len(in_progress.effects):
                break
            effect = in_progress.effects[in_progress.done]
            if not isinstance(effect, _BEFORE_THEIR_LINES):
                self._write_lines(
                    hosted,
                    in_progress,
                    in_progress.stops[0].shown if in_progress.stops else len(in_progress.lines),
                )
            flushed = hosted.log.recovery_point
            self._carry_out[type(effect)](hosted, effect)
            in_progress.done += 1
            if isinstance(effect, Append) and hosted.log.recovery_point > flushed:
                in_progress.stops.insert(0, _build_fsync_stop(hosted, in_progress))
        self._write_lines(hosted, in_progress, len(in_progress.lines))

    def _hold_at(self, hosted: Hosted, in_progress: StepInProgress, stop: Stop) -> bool:
        self._write_lines(hosted, in_progress, stop.shown)
        # also while this failpoint stops the whole process
        hosted.held_step, in_progress.at = in_progress, stop.site
        if self._failpoints.meet(stop.site, partial(self._resume, hosted)) is Fate.HELD:
            return True
        hosted.held_step = in_progress.at = None
        return False

    def _write_lines(self, hosted: Hosted, in_progress: StepInProgress, lines: int) -> None:
        """Write the trace lines up to this number of them."""
        if in_progress.lines_written < lines:
            self._trace.write_replica_lines(
                hosted.topic, hosted.partition, in_progress.lines[in_progress.lines_written : lines]
            )
            in_progress.lines_written = lines

    def _resume(self, hosted: Hosted) -> None:
        """Carry out the rest of the held step, then the deferred events."""
        if self._closed:
            return
        in_progress, hosted.held_step = hosted.held_step, None
        assert in_progress is not None, f"{hosted.key} is not held"
        assert not self._stepping, f"{hosted.key} is released inside a step"
        in_progress.at = None
        self._queue.extend((hosted, event) for event in hosted.deferred_events)
        hosted.deferred_events.clear()
        self._run_queue((hosted, in_progress))
        self._on_resume(hosted)


def _build_fsync_stop(hosted: SteppedReplica[Any], in_progress: StepInProgress) -> Stop:
    site = FailpointSite(name="D.fsync", topic=hosted.topic, partition=hosted.partition,
                         epoch=hosted.replica.leader_epoch, offset=hosted.log.recovery_point)  # fmt: skip
    return Stop(after=in_progress.done, shown=in_progress.lines_written, site=site)


def _skip_fetch(token: Any) -> None:
    """Give a fetch no answer from this replica now."""
    fetch, index = token
    fetch.complete(index, None)
