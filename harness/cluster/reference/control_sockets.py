"""Sends requests to the control sockets of a cluster's processes, except to those that cannot answer now;
arms and releases failpoints, and reads from the trace which were met.

Rules
1. A process that is down is armed by its properties, only for its next start; so is one that ends at a
   failpoint during the request.
2. Met failpoints are read from the trace, which outlives the process. A cluster without traces is asked on
   the control sockets, and what a process met is then lost at its end.
3. A process that ends at an armed crash has not died by itself. The crash is reported as met when the
   process's end is known, not before: whoever waits for it may start the node at once.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from floodmark.harness import runtime
from floodmark.harness.cluster import control_client
from floodmark.harness.cluster.place import Place
from floodmark.harness.cluster.reference import broker_settings, views
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.failpoints import CRASH
from floodmark.harness.schedule.views import Met
from floodmark.harness.trace import Feed

ASK_S = 60.0
END_KNOWN_S = 30.0  # from a lost connection to the host's report that the process has ended
POLL_S = 0.02


class ControlSockets:
    """The control sockets of all processes. A process that does not run, or is paused, is not asked."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._controls = {
            name: control_client.Control(name, *one.asked) for name, one in place.layout.places.items()
        }

    def answers(self, name: str) -> bool:
        return self.place.lives(name) and not self.place.paused(name)

    async def ask(self, name: str, do: str, *, timeout_s: float = ASK_S, **besides: Any) -> views.State:
        """One process's answer. ControlError if it does not answer, Refused if it answers with an error."""
        if not self.answers(name):
            raise FloodmarkError(f"{name} is paused, or down, and cannot be asked to {do}")
        return await self._controls[name].ask(do, timeout_s=timeout_s, **besides)

    async def ask_all(self, do: str, names: Sequence[str], timeout_s: float) -> dict[str, views.State]:
        """The answers by name, without processes that did not answer."""
        asked = [name for name in names if self.answers(name)]
        answers = await asyncio.gather(
            *(self.ask(name, do, timeout_s=timeout_s) for name in asked), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, FloodmarkError):
                raise answer  # else it ended meanwhile, or is silent
        return {name: answer for name, answer in zip(asked, answers, strict=True)
                if not isinstance(answer, BaseException)}

    async def hang_up(self, name: str) -> None:
        await self._controls[name].hang_up()

    async def close(self) -> None:
        for one in self._controls.values():
            await one.hang_up()


class FailpointControl:
    """The failpoints of one cluster's processes. specs: returns its partitions so far."""

    def __init__(self, sockets: ControlSockets, specs: Callable[[], Sequence[PartitionSpec]]) -> None:
        self.sockets = sockets
        self.layout = sockets.place.layout
        self.crashes: list[Met] = []  # in the order in which the ends became known
        self._specs = specs
        self._pending: dict[str, list[dict[str, Any]]] = {}  # for processes that are down
        self._used: set[str] = set()  # processes that ever had an armed failpoint
        self._to_crash: dict[str, str] = {}  # process -> the failpoint at which it is to end
        self._crashed: set[str] = set()  # processes that ended at one and were not started since
        self._began_ns: dict[str, int] = {}  # when each was last started
        self._feed: Feed | None = None
        self._closed = False
        self._met: dict[str, list[Met]] = {name: [] for name in self.layout.names}

    # -- acts ---------------------------------------------------------------------------------------------

    async def arm(self, name: str, point: Mapping[str, Any]) -> None:
        self._read_trace()  # from now on the trace is read
        request = views.point_request(self._names, point)
        self._used.add(name)
        if point["action"] == CRASH:
            self._to_crash[name] = point["name"]
        if not self.sockets.place.lives(name) or await self._ask_or_none(name, "arm", request) is None:
            self._pending.setdefault(name, []).append(request)
            broker_settings.arm_at_start(self.layout, name, self._pending[name])

    async def release(self, name: str, point: Mapping[str, Any] | None) -> int:
        """Releases a failpoint; returns how many processes it held. None is no error: a hold can end by
        itself."""
        request = views.point_request(self._names, point or {})
        if request.get("point") in (None, self._to_crash.get(name)):
            self._to_crash.pop(name, None)
        if not self.sockets.place.lives(name):
            self._drop_pending(name, request)
            return 0
        try:
            ok = await self._ask_or_none(name, "release", request)
        except control_client.Refused:
            if await self._has(name, request):
                raise
            return 0
        if ok is None:
            self._drop_pending(name, request)
        return 0 if ok is None else int(ok["released"])

    async def release_all(self, names: Sequence[str]) -> list[str]:
        """Releases and disarms everything; returns a sentence for each process where that failed."""
        for name in list(self._pending):
            self._drop_pending(name, {})
        asked = [name for name in names if name in self._used and self.sockets.answers(name)]
        return [why for why in await asyncio.gather(*map(self._release_all_of, asked)) if why is not None]

    async def met(self, name: str) -> list[Met]:
        if self._read_trace():
            return [one for one in self._met[name] if one.action != CRASH or one in self.crashes]
        met: list[Met] = [one for one in self.crashes if one.node == name]
        if self.sockets.answers(name):
            ok = await self.sockets.ask(name, "points")
            rows = (views.met_from_answer(self._names, name, row) for row in ok["met"])
            met += (one for one in rows if one.action != CRASH)
        return met

    # -- starts and ends ----------------------------------------------------------------------------------

    def started(self, name: str) -> None:
        """Notes that a process has started; its properties still name the failpoints to arm."""
        self._crashed.discard(name)
        self._began_ns[name] = runtime.current.monotonic_ns()
        if not any(request["action"] == CRASH for request in self._pending.get(name, ())):
            self._to_crash.pop(name, None)

    def clear_pending(self, name: str) -> None:
        """Notes that a process has read its properties, or ended: removes the pending failpoints from
        them."""
        if self._pending.pop(name, None):
            broker_settings.arm_at_start(self.layout, name, [])

    def crashed(self, name: str) -> bool:
        """Whether the process is down because of an armed crash."""
        return name in self._crashed

    def expects_exit(self, name: str, code: int) -> bool:
        """Whether this end, which was not requested, is an armed crash; if so, `met` reports it from now
        on."""
        if name not in self._used:
            return False
        if self._read_trace():
            crash = next((one for one in reversed(self._met[name]) if one.action == CRASH
                          and one.time_ns >= self._began_ns.get(name, 0)), None)
        else:
            point = self._to_crash.pop(name, None) if code == -signal.SIGKILL else None
            crash = None if point is None else Met(
                node=name, name=point, action=CRASH, time_ns=runtime.current.monotonic_ns())
        if crash is None or crash in self.crashes:
            return False
        self.crashes.append(crash)
        self._crashed.add(name)
        return True

    def close(self) -> None:
        if self._feed is not None and not self._closed:
            self._read_trace()
            self._feed.close()
        self._closed = True

    # -- inside -------------------------------------------------------------------------------------------

    @property
    def _names(self) -> views.Names:
        return views.Names(self.layout.nodes, self._specs())

    def _read_trace(self) -> bool:
        """Reads the trace's new lines. False: there is no trace."""
        if self._feed is None:
            raw = broker_settings.raw_traces(self.layout, self._specs())
            if raw is None:
                return False
            self._feed = Feed(raw, 0, events=["failpoint"])
        for line in self._feed.read_new_lines():
            self._met[line["node"]].append(views.met_from_trace(line))
        return True

    async def _ask_or_none(self, name: str, do: str, request: Mapping[str, Any]) -> views.State | None:
        """The answer; None: the process ended by an armed crash before it could answer."""
        try:
            return await self.sockets.ask(name, do, **request)
        except control_client.Refused:
            raise
        except control_client.ControlError:
            deadline = runtime.monotonic_s() + END_KNOWN_S
            while not self.crashed(name):
                if runtime.monotonic_s() > deadline:
                    raise
                await asyncio.sleep(POLL_S)
            return None

    def _drop_pending(self, name: str, request: Mapping[str, Any]) -> None:
        pending = self._pending.get(name, [])
        kept = [one for one in pending if any(one.get(key) != value for key, value in request.items())]
        if len(kept) < len(pending):
            self._pending[name] = kept
            broker_settings.arm_at_start(self.layout, name, kept)

    async def _has(self, name: str, request: Mapping[str, Any]) -> bool:
        """Whether such a failpoint is armed or holds something."""
        ok = await self.sockets.ask(name, "points")
        there = [*ok["armed"], *(row for row in ok["met"] if row["held"])]
        return any(row["point"] == request.get("point", row["point"]) for row in there)

    async def _release_all_of(self, name: str) -> str | None:
        try:
            await self.sockets.ask(name, "release")
            ok = await self.sockets.ask(name, "points")
        except FloodmarkError as error:
            gone = not self.sockets.answers(name)  # and with it what it held
            return None if gone else f"{name} may still be held at a failpoint: {error}"
        left = [*ok["armed"], *(row for row in ok["met"] if row["held"])]
        return f"{name} has failpoints left: {', '.join(row['point'] for row in left)}" if left else None
