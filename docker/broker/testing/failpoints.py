"""Keeps the armed failpoints of this process, and the steps and messages that they hold.

Rules
1. Code that reaches a point calls `meet` while anything is `armed`, and does not call it otherwise.
2. A point's line is in the trace before its action is done; a crash is a SIGKILL to this process itself.
3. A held step or message continues in the event loop's thread, and only there, in the order of arrival.
4. Scope `broker` stops that thread itself; the control socket's thread still arms and releases, so that all
   state here is under one lock. A SIGTERM ends a stopped process.
5. A hold at C.elected blocks that peer: every later message to it is held as well, whatever the conditions
   and counts, until the hold is released and disarmed.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.broker import runtime
from floodmark.broker.process_log import log
from floodmark.broker.testing.armed_failpoint import (
    ArmedFailpoint,
    Fate,
    HeldAt,
    blocked_first,
    covers_site,
    select_released,
)
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


@dataclass(slots=True, kw_only=True, eq=False)
class _Reached:
    armed: ArmedFailpoint
    site: FailpointSite
    count: int  # 1 for the first match of this armed point, 2 for the second, ...
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
class _Held(HeldAt):
    met: _Reached
    loop: asyncio.AbstractEventLoop


@dataclass(slots=True, kw_only=True, eq=False)
class _StoppedLoop:
    """The event loop's thread while a failpoint has stopped it."""

    met: _Reached
    state: Mapping[str, Any]  # when it was stopped
    go: runtime.Event
    for_good: bool = False


class Failpoints:
    """The failpoints of this process. While `armed` is false no point is armed, and `meet` is not called."""

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
        self._armed: list[ArmedFailpoint] = []
        self._at: dict[str, tuple[ArmedFailpoint, ...]] = {}  # by point
        self._met: deque[_Reached] = deque(maxlen=_MET_MAX)
        self._held: list[_Held] = []
        self._stopped_loop: _StoppedLoop | None = None
        for arm in arms:
            self._add_arm(arm)

    # -- reaching a point -------------------------------------------------------------------------------

    def meet(
        self,
        site: FailpointSite,
        resume: Callable[[], None],
        *,
        also: Sequence[FailpointSite] = (),
        carried: CarriedEpochs | None = None,
    ) -> Fate:
        """Do what is armed for this site (and `also`, for a message about several partitions); returns what
        the caller must do. Call it in the event loop's thread. An armed crash does not return."""
        fate = Fate.GO
        for armed in self._at.get(site.name, ()):
            met = self._match_site(armed, (site, *also))
            if met is not None:
                fate = self._act(met, resume, carried)
            if fate is not Fate.GO:
                break
        return fate

    async def wait_at(self, site: FailpointSite) -> Fate:
        """Like `meet`, for a task, which waits here while it is held: GO or DROPPED."""
        released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fate = self.meet(site, lambda: None if released.done() else released.set_result(None))
        if fate is not Fate.HELD:
            return fate
        await released
        return Fate.GO

    def is_armed_for(self, point: str, peer: int) -> bool:
        """Whether that point may be armed for messages to this peer."""
        return any(each.arm.peer in (None, peer) for each in self._at.get(point, ()))

    def _match_site(self, armed: ArmedFailpoint, sites: Sequence[FailpointSite]) -> _Reached | None:
        with self._lock:
            if armed not in self._armed:
                return None  # released by another thread just now
            site = armed.match(sites)
            if site is None:
                return None
            self._reindex()
            now_ns = runtime.current.monotonic_ns()
            met = _Reached(armed=armed, site=site, count=armed.matched, time_ns=now_ns)
            self._met.append(met)
            return met

    def _act(self, met: _Reached, resume: Callable[[], None], carried: CarriedEpochs | None) -> Fate:
        arm, site = met.armed.arm, met.site
        if self._write_trace is not None:
            self._write_trace(site, arm.action)
        if arm.action == "report":
            return Fate.GO
        log("info", "failpoint", point=site.name, action=arm.action, topic=site.topic,
            partition=site.partition, epoch=site.epoch, peer=site.peer, offset=site.offset)  # fmt: skip
        if arm.action == "crash":
            runtime.current.kill()
        if arm.action == "drop":
            return Fate.DROPPED
        if arm.scope == "broker":
            self._stop_event_loop(met)
            return Fate.GO
        held = _Held(site=met.site, met=met, carried=carried, resume=resume, loop=asyncio.get_running_loop())
        with self._lock:
            met.held = True
            self._held.append(held)
        if arm.for_ms is not None:
            held.loop.call_later(arm.for_ms / 1000, self._end_delay, held)
        return Fate.DOUBLED if arm.action == "duplicate" else Fate.HELD

    def _end_delay(self, held: _Held) -> None:
        """End a delay, unless it was released before."""
        with self._lock:
            if held not in self._held:
                return
            self._held.remove(held)
            held.met.held = False
        held.resume()

    # -- the whole process ---------------------------------------------------------------------------------

    def _stop_event_loop(self, met: _Reached) -> None:
        """Block the event loop's thread until it is released. Signals end the process meanwhile, because the
        loop cannot run its handlers."""
        stopped_loop = _StoppedLoop(met=met, state=self._read_state(), go=runtime.current.new_event())
        with self._lock:
            met.held = True
            self._stopped_loop = stopped_loop
        for_ms = met.armed.arm.for_ms
        with runtime.current.end_at_signals():
            stopped_loop.go.wait(None if for_ms is None else for_ms / 1000)
            with self._lock:
                if not stopped_loop.for_good:
                    met.held = False
                    self._stopped_loop = None
            if stopped_loop.for_good:
                runtime.current.new_event().wait()

    @property
    def stopped_state(self) -> Mapping[str, Any] | None:
        """The state when a point stopped the whole process; None while it runs."""
        with self._lock:
            return None if self._stopped_loop is None else self._stopped_loop.state

    def stay_stopped(self) -> bool:
        """Keep the event loop stopped for good, if it is stopped; returns whether it is."""
        with self._lock:
            if self._stopped_loop is not None:
                self._stopped_loop.for_good = True
            return self._stopped_loop is not None

    # -- the control socket's acts, from any thread ----------------------------------------------------------

    def arm(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Arm a point. Raises FailpointError."""
        arm = parse_arm(request, self._role)
        with self._lock:
            armed = next((each for each in self._armed if each.arm == arm and not each.spent), None)
            if armed is not None:
                raise FailpointError(f"that is armed already, as id {armed.id}; release it first")
            return {"id": self._add_arm(arm)}

    def release(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Release what is held, and disarm. Raises FailpointError where the request names a target and
        nothing of that kind is held or armed."""
        release = parse_release(request, self._role)
        with self._lock:
            released = select_released(self._held, release)
            arms = [each for each in self._armed if each.is_named_by(release)]
            stopped_loop = self._stopped_loop
            releases_loop = stopped_loop is not None and self._covers_stopped_loop(release, stopped_loop)
            covers_any = arms or releases_loop or any(held.is_named_by(release) for held in self._held)
            if release.names_target and not covers_any:
                raise FailpointError(f"nothing of that kind is held or armed; {self._list_held_and_armed()}")
            for held in released:
                self._held.remove(held)
                held.met.held = False
            if release.through_epoch is None:
                for each in arms:
                    each.unblock(release.peer)
            if not release.keep:
                self._armed = [each for each in self._armed if each not in arms or each.blocked]
            self._reindex()
            if stopped_loop is not None and releases_loop:
                stopped_loop.met.held, self._stopped_loop = False, None
                stopped_loop.go.set()
        for held in released:
            # the event loop has ended, and the process is about to end
            with contextlib.suppress(RuntimeError):
                held.loop.call_soon_threadsafe(held.resume)
        return {"released": len(released) + releases_loop}

    def list_points(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            return {
                "met": [met.as_json() for met in self._met],
                "armed": [each.as_json() for each in self._armed],
            }

    def _add_arm(self, arm: Arm) -> int:
        armed = ArmedFailpoint(id=self._next_id, arm=arm)
        self._next_id += 1
        self._armed.append(armed)
        self._reindex()
        return armed.id

    def _reindex(self) -> None:
        self._armed = [each for each in self._armed if not each.spent]
        names = {each.arm.point for each in self._armed}
        first = blocked_first(self._armed)
        self._at = {name: tuple(each for each in first if each.arm.point == name) for name in names}
        self.armed = bool(self._armed)

    def _covers_stopped_loop(self, release: Release, stopped_loop: _StoppedLoop) -> bool:
        return not stopped_loop.for_good and covers_site(release, stopped_loop.met.site)

    def _list_held_and_armed(self) -> str:
        held = [each.met.site.name for each in self._held]
        if self._stopped_loop is not None:
            held.append(self._stopped_loop.met.site.name)
        armed = [each.arm.point for each in self._armed]
        return f"held: {', '.join(held) or 'nothing'}; armed: {', '.join(armed) or 'nothing'}"
