"""Holds what is armed at the failpoints of one process in memory, and what is held at them now.

Rules
1. Sites, conditions and actions are the broker's own (floodmark.broker.testing); what a hold, a drop or a
   copy means to a step or a message is its caller's matter.
2. The trace has a line for a point before anything is done there; a crash ends the process at once.
3. A hold of scope broker stops the process: it goes on from there when that is released.
4. A hold at C.elected closes the way to that peer: every later message to it is held as well, whatever the
   conditions and counts, until the hold is released for good.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.broker.testing.failpoint_requests import (
    Arm,
    CarriedEpochs,
    FailpointError,
    FailpointSite,
    Release,
    parse_arm,
    parse_release,
)
from floodmark.harness.cluster.memory.clock import Act
from floodmark.harness.cluster.memory.process import Process, ProcessEnded
from floodmark.harness.cluster.memory.trace_file import TraceFile


class Fate(enum.Enum):
    """What becomes of the step or message that met a point."""

    GO = "go"
    HELD = "held"  # `resume` will be called
    DROPPED = "dropped"
    DOUBLED = "doubled"  # go now; `resume` will be called for the second one


@dataclass(slots=True, kw_only=True, eq=False)
class _Armed:
    arm: Arm
    matched: int = 0
    acted: int = 0
    closed: set[int] = field(default_factory=set)  # peers to which C.elected lets nothing pass

    @property
    def done(self) -> bool:
        return 0 < self.arm.times <= self.acted

    def is_named_by(self, release: Release) -> bool:
        """Of one that has closed the ways to some peers, what is said of another peer is not meant."""
        arm = self.arm
        if self.closed and release.peer is not None and release.peer not in self.closed:
            return False
        return release.covers(arm.point, arm.topic, arm.partition, arm.peer)

    def open_ways(self, peer: int | None) -> None:
        if peer is None:
            self.closed.clear()
        else:
            self.closed.discard(peer)


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    site: FailpointSite
    carried: CarriedEpochs | None  # None: it is about its place alone
    resume: Act
    stops_process: bool

    def is_named_by(self, release: Release) -> bool:
        site = self.site
        if self.carried is not None:
            return release.covers(site.name, None, None, site.peer) and self.carried.is_touched_by(release)
        partition = None if site.topic is None else site.partition
        return release.covers(site.name, site.topic, partition, site.peer)


Told = Callable[[FailpointSite, str], None]  # (site, action): a point was met


class Failpoints:
    """Of one process, over all its incarnations; what is armed ends with each."""

    def __init__(self, process: Process, role: str, trace: TraceFile, told: Told) -> None:
        self._process = process
        self._role = role
        self._trace = trace
        self._told = told
        self._armed: list[_Armed] = []
        self._held: list[_Held] = []
        self._at_start: list[Arm] = []  # of a process that is down: armed when it starts

    @property
    def armed(self) -> bool:
        return bool(self._armed)

    def begin(self) -> None:
        """A new incarnation."""
        self._armed = [_Armed(arm=arm) for arm in self._at_start]
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
        first = sorted(self._armed, key=lambda each: not each.closed)  # nothing else speaks of a closed way
        for armed in first:
            if armed.arm.point != site.name:
                continue
            met = self._match(armed, (site, *also))
            fate = Fate.GO if met is None else self._perform(armed.arm, met, resume, carried)
            if fate is not Fate.GO:
                return fate
        return Fate.GO

    def is_armed_for(self, point: str, peer: int) -> bool:
        """Whether anything that goes to this peer may matter at that point."""
        return any(each.arm.point == point and each.arm.peer in (None, peer) for each in self._armed)

    def _match(self, armed: _Armed, sites: Sequence[FailpointSite]) -> FailpointSite | None:
        """The site at which it acts now."""
        arm = armed.arm
        site = next((each for each in sites if arm.matches(each)), None)
        if sites[0].peer in armed.closed:
            armed.matched += 1
            return site or sites[0]
        if site is None or armed.done:
            return None
        armed.matched += 1
        if armed.matched <= arm.skip:
            return None
        armed.acted += 1
        if arm.point == "C.elected" and arm.action == "hold" and arm.scope == "partition":
            armed.closed.add(site.peer)
        self._drop_spent()
        return site

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
        self._armed.append(_Armed(arm=arm))

    def release(self, request: Mapping[str, Any]) -> int:
        """How many go on. Nothing there that fits is no error: it may have been let go by itself."""
        release = parse_release(request, self._role)
        self._at_start = [arm for arm in self._at_start if not _Armed(arm=arm).is_named_by(release)]
        going = self._select_released(release)
        arms = [each for each in self._armed if each.is_named_by(release)]
        if release.through_epoch is None:
            for each in arms:
                each.open_ways(release.peer)
        if not release.keep:
            self._armed = [each for each in self._armed if each not in arms or each.closed]
        self._drop_spent()
        for held in going:
            self._go_on(held)
        return len(going)

    def _select_released(self, release: Release) -> list[_Held]:
        """What is let go, in the order in which it came; to one peer nothing overtakes what stays."""
        going, stays = [], set()
        for held in self._held:
            if not held.is_named_by(release):
                continue
            if held.carried is not None and not held.carried.stays_within(release):
                stays.add(held.site.peer)
            elif held.carried is None or held.site.peer not in stays:
                going.append(held)
        return going

    def _drop_spent(self) -> None:
        self._armed = [each for each in self._armed if not each.done or each.closed]
