"""The failpoints of one process in memory: what is armed, and what is held at them.

Rules
1. Sites, conditions and actions are the broker's own code (floodmark.broker.testing); the caller decides what
   a hold, a drop or a copy means for a step or a message.
2. The trace gets a failpoint's line before its action; a crash ends the process at once.
3. A hold of scope broker stops the process, which continues from there when it is released.
4. A hold at C.elected blocks that peer: every later message to it is held too, whatever the conditions and
   counts, until the hold is released for good.
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
class _Hold(HeldAt):
    stops_process: bool


OnMet = Callable[[FailpointSite, str], None]  # (site, action): a failpoint was met


class Failpoints:
    """The failpoints of one process over all its incarnations; armed ones end with the incarnation."""

    def __init__(self, process: Process, role: str, trace: TraceFile, on_met: OnMet) -> None:
        self._process = process
        self._role = role
        self._trace = trace
        self._on_met = on_met
        self._armed: list[ArmedFailpoint] = []
        self._holds: list[_Hold] = []
        self._at_start: list[Arm] = []  # armed at the next start, if the process is down

    @property
    def armed(self) -> bool:
        return bool(self._armed)

    def begin(self) -> None:
        """Starts a new incarnation."""
        self._armed = [ArmedFailpoint(arm=arm) for arm in self._at_start]
        self._holds.clear()
        self._at_start.clear()

    def end(self) -> None:
        self._armed.clear()
        self._holds.clear()

    # -- meeting failpoints --------------------------------------------------------------------------------

    def meet(
        self,
        site: FailpointSite,
        resume: Act,
        *,
        also: Sequence[FailpointSite] = (),
        carried: CarriedEpochs | None = None,
    ) -> Fate:
        """What happens to a step or message at this site (and at `also`, for a message about several
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
        """Whether a failpoint is armed here for messages to this peer."""
        return any(each.arm.point == point and each.arm.peer in (None, peer) for each in self._armed)

    def _perform(self, arm: Arm, site: FailpointSite, resume: Act, carried: CarriedEpochs | None) -> Fate:
        self._trace.write_failpoint(site, arm.action)
        self._on_met(site, arm.action)
        if arm.action == "report":
            return Fate.GO
        if arm.action == "crash":
            self._process.end()
            raise ProcessEnded
        if arm.action == "drop":
            return Fate.DROPPED
        hold = _Hold(site=site, carried=carried, resume=resume, stops_process=arm.scope == "broker")
        self._holds.append(hold)
        if hold.stops_process:
            self._process.stopped = True
        if arm.for_ms is not None:
            self._process.clock.later(arm.for_ms / 1000, lambda: self._resume(hold))
        return Fate.DOUBLED if arm.action == "duplicate" else Fate.HELD

    def _resume(self, hold: _Hold) -> None:
        if hold in self._holds:
            self._holds.remove(hold)
            if hold.stops_process:
                self._process.stopped = False
                self._process.resume(hold.resume)
            else:
                self._process.run(hold.resume)

    # -- requests of the harness ----------------------------------------------------------------------------

    def arm(self, request: Mapping[str, Any]) -> None:
        """Arms a failpoint; if the process is down, at its next start. FailpointError for a wrong request."""
        arm = parse_arm(request, self._role)
        if not self._process.alive:
            self._at_start.append(arm)
            return
        if any(each.arm == arm and not each.done for each in self._armed):
            raise FailpointError("that is armed already; release it first")
        self._armed.append(ArmedFailpoint(arm=arm))

    def release(self, request: Mapping[str, Any]) -> int:
        """Releases failpoints; returns how many holds. None is no error: a hold can end by itself."""
        release = parse_release(request, self._role)
        self._at_start = [arm for arm in self._at_start if not ArmedFailpoint(arm=arm).is_named_by(release)]
        released = select_released(self._holds, release)
        arms = [each for each in self._armed if each.is_named_by(release)]
        if release.through_epoch is None:
            for each in arms:
                each.unblock(release.peer)
        if not release.keep:
            self._armed = [each for each in self._armed if each not in arms or each.blocked]
        self._drop_spent()
        for hold in released:
            self._resume(hold)
        return len(released)

    def _drop_spent(self) -> None:
        self._armed = [each for each in self._armed if not each.spent]
