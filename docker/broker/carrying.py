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
   go; what becomes of the others does not depend on it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.failpoints import Failpoints, Place
from broker.logline import die, log
from broker.messages import ReplicaEffect, ReplicaEvent, Reset, SaveEpochs, Tick, Truncate
from broker.narrating import replica_lines, standing
from broker.replica import Replica
from broker.storage import PartitionLog
from broker.trace import Trace

Key = tuple[str, int]  # topic, partition
_UNTOLD = (Truncate, Reset, SaveEpochs)  # on disk before the trace tells of them


@dataclass(slots=True, kw_only=True, eq=False)
class Hosted:
    """One replica here."""

    topic: str
    topic_id: str
    partition: int
    log: PartitionLog
    replica: Replica
    checkpointed_hw: int
    held: bool = False  # at a failpoint
    rest: list[ReplicaEffect] = field(default_factory=list)  # of the step it is held in
    later: deque[ReplicaEvent] = field(default_factory=deque)  # what has come since

    @property
    def key(self) -> Key:
        return self.topic, self.partition


CarryOut = Mapping[type, Callable[[Hosted, Any], None]]


class Carrier:
    """All stepping goes through `post`."""

    def __init__(self, carry_out: CarryOut, trace: Trace, points: Failpoints) -> None:
        self._carry_out = carry_out
        self._trace = trace
        self._points = points
        self._queue: deque[tuple[Hosted, ReplicaEvent]] = deque()
        self._stepping = False

    def post(self, hosted: Hosted, event: ReplicaEvent) -> None:
        """Step now, or, when called out of an effect, after what is queued."""
        self._queue.append((hosted, event))
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._queue:
                hosted, event = self._queue.popleft()
                if not hosted.held:
                    self._step(hosted, event)
                elif not isinstance(event, Tick):
                    hosted.later.append(event)
        except Exception as error:
            log("error", "step-failed", topic=hosted.topic, partition=hosted.partition, by=event)
            die("stopped-by-a-broken-invariant-or-disk", error)
        self._stepping = False

    def _step(self, hosted: Hosted, event: ReplicaEvent) -> None:
        replica = hosted.replica
        if not self._trace.on and not self._points.armed:  # the common case of a broker without a harness
            for effect in replica.step(event):
                self._carry_out[type(effect)](hosted, effect)
            return
        before = standing(replica)
        effects = replica.step(event)
        lines = replica_lines(before, event, effects, standing(replica)) if self._trace.on else ()
        self._carry(hosted, event, effects, lines)

    def _carry(
        self,
        hosted: Hosted,
        event: ReplicaEvent,
        effects: list[ReplicaEffect],
        lines: tuple[Mapping[str, Any], ...],
    ) -> None:
        for position, effect in enumerate(effects):
            if lines and not isinstance(effect, _UNTOLD):
                self._trace.replica(hosted.topic, hosted.partition, lines)
                lines = ()
            self._carry_out[type(effect)](hosted, effect)
            if not self._points.armed:
                continue
            place = place_of(hosted, event, effect, effects)
            if place is not None and self._points.stops(place):
                if lines:
                    self._trace.replica(hosted.topic, hosted.partition, lines)
                hosted.held, hosted.rest = True, effects[position + 1 :]
                return
        if lines:
            self._trace.replica(hosted.topic, hosted.partition, lines)

    def let_go(self, hosted: Hosted) -> None:
        """The rest of the step it was held in, then what has come since."""
        hosted.held = False
        rest, hosted.rest = hosted.rest, []
        for effect in rest:
            self._carry_out[type(effect)](hosted, effect)
        later, hosted.later = hosted.later, deque()
        for event in later:
            self.post(hosted, event)


def place_of(
    hosted: Hosted, event: ReplicaEvent, effect: ReplicaEffect, effects: list[ReplicaEffect]
) -> Place | None:
    """The failpoint that a replica stands at after this effect of that event; None: at none."""
    if isinstance(effect, Truncate):
        return Place(name="F.truncated", topic=hosted.topic, partition=hosted.partition,
                     epoch=hosted.replica.leader_epoch, peer=hosted.replica.leader, offset=effect.to)
    return None
