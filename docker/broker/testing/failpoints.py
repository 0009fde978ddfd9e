"""Holds what is armed at the failpoints of this process, and what is held at them now.

Rules
1. Code that reaches a point calls `meet` while anything is `armed`, and does not call it otherwise.
2. The trace has a line for a point before anything is done there; a crash is a SIGKILL to oneself.
3. What is held goes on in the event loop's thread, and only there, in the order in which it came.
4. Scope `broker` stops that thread itself; the control socket's own thread goes on asking and arming here, so
   all that is kept here is kept under one lock. A SIGTERM ends a process that stands still.
5. A hold at C.elected closes the way to that peer: every later message to it is held as well, whatever the
   conditions and counts, until the hold is released for good.
"""

import asyncio
import contextlib
import enum
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.broker.process_log import log
from floodmark.broker.testing.failpoint_requests import (
    BROKER,
    Arm,
    CarriedEpochs,
    FailpointError,
    FailpointSite,
    Release,
    parse_arm,
    parse_release,
)

_MET_MAX = 10_000  # the latest are remembered
_ENDS = (signal.SIGTERM, signal.SIGINT)


class Fate(enum.Enum):
    """What becomes of the step or message that met a point."""

    GO = "go"
    HELD = "held"  # `resume` will be called
    DROPPED = "dropped"
    DOUBLED = "doubled"  # go now; `resume` will be called for the second one


@dataclass(slots=True, kw_only=True, eq=False)
class _Armed:
    id: int
    arm: Arm
    matched: int = 0
    acted: int = 0
    closed: set[int] = field(default_factory=set)  # peers to which C.elected lets nothing pass

    @property
    def done(self) -> bool:
        return 0 < self.arm.times <= self.acted

    @property
    def spent(self) -> bool:
        return self.done and not self.closed

    def open_ways(self, peer: int | None) -> None:
        if peer is None:
            self.closed.clear()
        else:
            self.closed.discard(peer)

    def is_named_by(self, release: Release) -> bool:
        """Of one that has closed the ways to some peers, what is said of another peer is not meant."""
        arm = self.arm
        if self.closed and release.peer is not None and release.peer not in self.closed:
            return False
        return release.covers(arm.point, arm.topic, arm.partition, arm.peer)

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, **self.arm.as_json(), "matched": self.matched, "acted": self.acted}


@dataclass(slots=True, kw_only=True, eq=False)
class _Reached:
    armed: _Armed
    site: FailpointSite
    count: int  # of all that matched what is armed there
    time_ns: int
    held: bool = False

    def as_json(self) -> dict[str, Any]:
        site = self.site
        return {
            "id": self.armed.id, "point": site.name, "action": self.armed.arm.action, "topic": site.topic,
            "partition": site.partition, "epoch": site.epoch, "peer": site.peer, "offset": site.offset,
            "count": self.count, "time": self.time_ns, "held": self.held,
        }  # fmt: skip


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    met: _Reached
    carried: CarriedEpochs | None  # None: it is about its place alone
    resume: Callable[[], None]
    loop: asyncio.AbstractEventLoop

    def is_named_by(self, release: Release) -> bool:
        site = self.met.site
        if self.carried is not None:
            return release.covers(site.name, None, None, site.peer) and self.carried.is_touched_by(release)
        partition = None if site.topic is None else site.partition
        return release.covers(site.name, site.topic, partition, site.peer)


@dataclass(slots=True, kw_only=True, eq=False)
class _StoppedLoop:
    """The event loop's thread, stopped."""

    met: _Reached
    state: Mapping[str, Any]  # as it was then
    go: threading.Event = field(default_factory=threading.Event)
    for_good: bool = False


class Failpoints:
    """What is armed in this process. `armed` is false while nothing is: then nothing else here is called."""

    def __init__(
        self,
        role: str = BROKER,
        arms: Sequence[Arm] = (),
        *,
        read_state: Callable[[], Mapping[str, Any]] = dict,
        write_trace: Callable[[FailpointSite, str], None] | None = None,
    ) -> None:
        """`read_state` gives the state to report while the event loop is stopped."""
        self.armed = False
        self._role = role
        self._read_state = read_state
        self._write_trace = write_trace
        self._lock = threading.RLock()
        self._next_id = 1
        self._armed: list[_Armed] = []
        self._at: dict[str, tuple[_Armed, ...]] = {}  # by point
        self._met: deque[_Reached] = deque(maxlen=_MET_MAX)
        self._held: list[_Held] = []
        self._still: _StoppedLoop | None = None
        for arm in arms:
            self._add(arm)

    # -- reaching a point -------------------------------------------------------------------------------

    def meet(
        self,
        site: FailpointSite,
        resume: Callable[[], None],
        *,
        also: Sequence[FailpointSite] = (),
        carried: CarriedEpochs | None = None,
    ) -> Fate:
        """What becomes of something that stands at this place (and at `also`, for a message about several
        partitions). To be called in the event loop's thread. An armed crash does not return."""
        fate = Fate.GO
        for armed in self._at.get(site.name, ()):
            met = self._match(armed, (site, *also))
            if met is not None:
                fate = self._perform(met, resume, carried)
            if fate is not Fate.GO:
                break
        return fate

    async def wait_at(self, site: FailpointSite) -> Fate:
        """The same for a task, which waits here while it is held: GO, or DROPPED."""
        going: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fate = self.meet(site, lambda: None if going.done() else going.set_result(None))
        if fate is not Fate.HELD:
            return fate
        await going
        return Fate.GO

    def is_armed_for(self, point: str, peer: int) -> bool:
        """Whether anything that goes to this peer may matter at that point."""
        return any(each.arm.peer in (None, peer) for each in self._at.get(point, ()))

    def _match(self, armed: _Armed, sites: Sequence[FailpointSite]) -> _Reached | None:
        with self._lock:
            if armed not in self._armed:
                return None  # released by another thread just now
            arm = armed.arm
            site = next((each for each in sites if arm.matches(each)), None)
            if sites[0].peer in armed.closed:
                site = site or sites[0]
                armed.matched += 1
            elif site is None or armed.done:
                return None
            else:
                armed.matched += 1
                if armed.matched <= arm.skip:
                    return None
                armed.acted += 1
                if arm.point == "C.elected" and arm.action == "hold" and arm.scope == "partition":
                    armed.closed.add(site.peer)
            self._reindex()
            met = _Reached(armed=armed, site=site, count=armed.matched, time_ns=time.monotonic_ns())
            self._met.append(met)
            return met

    def _perform(self, met: _Reached, resume: Callable[[], None], carried: CarriedEpochs | None) -> Fate:
        arm, site = met.armed.arm, met.site
        if self._write_trace is not None:
            self._write_trace(site, arm.action)
        if arm.action == "report":
            return Fate.GO
        log("info", "failpoint", point=site.name, action=arm.action, topic=site.topic,
            partition=site.partition, epoch=site.epoch, peer=site.peer, offset=site.offset)  # fmt: skip
        if arm.action == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if arm.action == "drop":
            return Fate.DROPPED
        if arm.scope == "broker":
            self._stop_event_loop(met)
            return Fate.GO
        held = _Held(met=met, carried=carried, resume=resume, loop=asyncio.get_running_loop())
        with self._lock:
            met.held = True
            self._held.append(held)
        if arm.for_ms is not None:
            held.loop.call_later(arm.for_ms / 1000, self._end_delay, held)
        return Fate.DOUBLED if arm.action == "duplicate" else Fate.HELD

    def _end_delay(self, held: _Held) -> None:
        """A delay has passed, unless it was released before."""
        with self._lock:
            if held not in self._held:
                return
            self._held.remove(held)
            held.met.held = False
        held.resume()

    # -- the whole process ---------------------------------------------------------------------------------

    def _stop_event_loop(self, met: _Reached) -> None:
        """The event loop's thread waits here. Signals get the system's own handlers, for the loop could not
        run any other."""
        still = _StoppedLoop(met=met, state=self._read_state())
        with self._lock:
            met.held = True
            self._still = still
        handlers = {number: signal.signal(number, signal.SIG_DFL) for number in _ENDS}
        for_ms = met.armed.arm.for_ms
        still.go.wait(None if for_ms is None else for_ms / 1000)
        with self._lock:
            if not still.for_good:
                met.held = False
                self._still = None
        if still.for_good:
            threading.Event().wait()
        for number, handler in handlers.items():
            signal.signal(number, handler)

    @property
    def stopped_state(self) -> Mapping[str, Any] | None:
        """The state as it was when the whole process stopped at a point; None while it goes."""
        with self._lock:
            return None if self._still is None else self._still.state

    def stay_stopped(self) -> bool:
        """Keep the event loop stopped for good, if it is stopped; whether it is."""
        with self._lock:
            if self._still is not None:
                self._still.for_good = True
            return self._still is not None

    # -- the control socket's acts, from any thread ----------------------------------------------------------

    def arm(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises ArmingError."""
        arm = parse_arm(request, self._role)
        with self._lock:
            twin = next((each for each in self._armed if each.arm == arm and not each.spent), None)
            if twin is not None:
                raise FailpointError(f"that is armed already, as id {twin.id}; release it first")
            return {"id": self._add(arm)}

    def release(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises ArmingError where it names something and nothing of that kind is held or armed."""
        release = parse_release(request, self._role)
        with self._lock:
            going = self._select_released(release)
            arms = [each for each in self._armed if each.is_named_by(release)]
            still = self._still
            stands = still is not None and self._is_named_by(release, still)
            here = arms or stands or any(held.is_named_by(release) for held in self._held)
            if release.names_target and not here:
                raise FailpointError(f"nothing of that kind is held or armed; {self._list_held_and_armed()}")
            for held in going:
                self._held.remove(held)
                held.met.held = False
            if release.through_epoch is None:
                for each in arms:
                    each.open_ways(release.peer)
            if not release.keep:
                self._armed = [each for each in self._armed if each not in arms or each.closed]
            self._reindex()
            if still is not None and stands:
                still.met.held, self._still = False, None
                still.go.set()
        for held in going:
            with contextlib.suppress(RuntimeError):  # the loop has ended: the process is about to
                held.loop.call_soon_threadsafe(held.resume)
        return {"released": len(going) + stands}

    def list_points(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            return {
                "met": [met.as_json() for met in self._met],
                "armed": [each.as_json() for each in self._armed],
            }

    def _add(self, arm: Arm) -> int:
        armed = _Armed(id=self._next_id, arm=arm)
        self._next_id += 1
        self._armed.append(armed)
        self._reindex()
        return armed.id

    def _reindex(self) -> None:
        self._armed = [each for each in self._armed if not each.spent]
        names = {each.arm.point for each in self._armed}
        first = sorted(self._armed, key=lambda each: not each.closed)  # nothing else speaks of a closed way
        self._at = {name: tuple(each for each in first if each.arm.point == name) for name in names}
        self.armed = bool(self._armed)

    def _select_released(self, release: Release) -> list[_Held]:
        """What is let go, in the order in which it came; to one peer nothing overtakes what stays."""
        going, stays = [], set()
        for held in self._held:
            if not held.is_named_by(release):
                continue
            if held.carried is not None and not held.carried.stays_within(release):
                stays.add(held.met.site.peer)
            elif held.carried is None or held.met.site.peer not in stays:
                going.append(held)
        return going

    def _is_named_by(self, release: Release, still: _StoppedLoop) -> bool:
        site = still.met.site
        partition = None if site.topic is None else site.partition
        return not still.for_good and release.covers(site.name, site.topic, partition, site.peer)

    def _list_held_and_armed(self) -> str:
        held = [each.met.site.name for each in self._held]
        if self._still is not None:
            held.append(self._still.met.site.name)
        armed = [each.arm.point for each in self._armed]
        return f"held: {', '.join(held) or 'nothing'}; armed: {', '.join(armed) or 'nothing'}"
