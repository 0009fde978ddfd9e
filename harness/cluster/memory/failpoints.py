"""Holds what is armed at the failpoints of one process in memory, and what is held at them now.

Rules
1. Sites, conditions and actions are the broker's own (floodmark.broker.testing); what a hold, a drop or a
   copy means to a step or a message is its caller's matter.
2. The trace has a line for a point before anything is done there; a crash ends the process at once.
3. A hold of scope broker stops the process: it goes on from there when that is released.
4. A hold at C.elected closes the way to that peer: every later message to it is held as well, whatever the
   conditions and counts, until the hold is released for good.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.broker.testing.armed_failpoint import (
    ArmedFailpoint,
    Fate,
    HeldAt,
    blocked_first,
    select_released,
)
from floodmark.broker.testing.failpoint_requests import (
    Arm,
    CarriedEpochs,
    FailpointError,
    FailpointSite,
    parse_arm,
    parse_release,
)
from floodmark.harness.cluster.memory.clock import Act
from floodmark.harness.cluster.memory.process import Process, ProcessEnded
from floodmark.harness.cluster.memory.trace_file import TraceFile


@dataclass(slots=True, kw_only=True, eq=False)
class _Held(HeldAt):
    stops_process: bool


Told = Callable[[FailpointSite, str], None]  # (site, action): a point was met


class Failpoints:
    """Of one process, over all its incarnations; what is armed ends with each."""

    def __init__(self, process: Process, role: str, trace: TraceFile, told: Told) -> None:
        self._process = process
        self._role = role
        self._trace = trace
        self._told = told
        self._armed: list[ArmedFailpoint] = []
        self._held: list[_Held] = []
        self._at_start: list[Arm] = []  # of a process that is down: armed when it starts

    @property
    def armed(self) -> bool:
        return bool(self._armed)

    def begin(self) -> None:
        """A new incarnation."""
        self._armed = [ArmedFailpoint(arm=arm) for arm in self._at_start]
        self._held.clear()
        self._at_start.clear()

    def end(self) -> None:
        self._armed.clear()
        self._held.clear()

    # -- reaching a point --------------------------------------------------------------------------------

    def meet(
        self,
        site: FailpointSite,
        resume: Act,
        *,
        also: Sequence[FailpointSite] = (),
        carried: CarriedEpochs | None = None,
    ) -> Fate:
        """What becomes of something that stands at this place (and at `also`, for a message about several
        partitions). An armed crash does not return."""
        for armed in blocked_first(self._armed):
            if armed.arm.point != site.name:
                continue
            met = armed.match((site, *also))
            self._drop_spent()
            fate = Fate.GO if met is None else self._perform(armed.arm, met, resume, carried)
            if fate is not Fate.GO:
                return fate
        return Fate.GO

    def is_armed_for(self, point: str, peer: int) -> bool:
        """Whether anything that goes to this peer may matter at that point."""
        return any(each.arm.point == point and each.arm.peer in (None, peer) for each in self._armed)

    def _perform(self, arm: Arm, site: FailpointSite, resume: Act, carried: CarriedEpochs | None) -> Fate:
        self._trace.write_failpoint(site, arm.action)
        self._told(site, arm.action)
        if arm.action == "report":
            return Fate.GO
        if arm.action == "crash":
            self._process.end()
            raise ProcessEnded
        if arm.action == "drop":
            return Fate.DROPPED
        held = _Held(site=site, carried=carried, resume=resume, stops_process=arm.scope == "broker")
        self._held.append(held)
        if held.stops_process:
            self._process.stopped = True
        if arm.for_ms is not None:
            self._process.clock.later(arm.for_ms / 1000, lambda: self._go_on(held))
        return Fate.DOUBLED if arm.action == "duplicate" else Fate.HELD

    def _go_on(self, held: _Held) -> None:
        if held in self._held:
            self._held.remove(held)
            if held.stops_process:
                self._process.stopped = False
                self._process.go_on(held.resume)
            else:
                self._process.run(held.resume)

    # -- the harness's acts --------------------------------------------------------------------------------

    def arm(self, request: Mapping[str, Any]) -> None:
        """FailpointError says what is not known or does not fit. Of a process that is down: at its start."""
        arm = parse_arm(request, self._role)
        if not self._process.alive:
            self._at_start.append(arm)
            return
        if any(each.arm == arm and not each.done for each in self._armed):
            raise FailpointError("that is armed already; release it first")
        self._armed.append(ArmedFailpoint(arm=arm))

    def release(self, request: Mapping[str, Any]) -> int:
        """How many go on. Nothing there that fits is no error: it may have been let go by itself."""
        release = parse_release(request, self._role)
        self._at_start = [arm for arm in self._at_start if not ArmedFailpoint(arm=arm).is_named_by(release)]
        going = select_released(self._held, release)
        arms = [each for each in self._armed if each.is_named_by(release)]
        if release.through_epoch is None:
            for each in arms:
                each.unblock(release.peer)
        if not release.keep:
            self._armed = [each for each in self._armed if each not in arms or each.blocked]
        self._drop_spent()
        for held in going:
            self._go_on(held)
        return len(going)

    def _drop_spent(self) -> None:
        self._armed = [each for each in self._armed if not each.spent]
