"""Arms and releases failpoints over control sockets, and reads from the trace which were met.

Rules
1. A process that is down is armed by its properties, for its next start alone; and so is one that ends as it
   was armed to while it is asked.
2. What was met is read from the trace, which outlives the process; only a cluster that writes none is asked
   on the control sockets, and then what a process met is forgotten with it.
3. A process that ends where it was armed to crash has not died by itself. That it stood there is told when
   its end is known, not before: whoever waits for it may start the node at once.
"""

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.cluster import control_client
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.reference import broker_properties, views
from floodmark.harness.cluster.reference.control_sockets import ControlSockets
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import Met, PartitionSpec
from floodmark.harness.schedule.failpoints import CRASH
from floodmark.harness.trace import Feed

ASK_S = 10.0
END_KNOWN_S = 5.0  # from a lost connection to the host's word that the process has ended
POLL_S = 0.02


class FailpointControl:
    """Of the processes of one cluster. `specs`: its partitions, as they are by now."""

    def __init__(self, layout: Layout, sockets: ControlSockets) -> None:
        self.specs: tuple[PartitionSpec, ...] = ()
        self.crashes: list[Met] = []  # in the order in which the ends were known
        self._layout = layout
        self._sockets = sockets
        self._pending: dict[str, list[dict[str, Any]]] = {}  # of processes that are down
        self._used: set[str] = set()  # processes that anything was ever armed in
        self._to_crash: dict[str, str] = {}  # process -> the point at which it is to end
        self._crashed: set[str] = set()  # processes that ended so and were not started since
        self._began_ns: dict[str, int] = {}  # when each was last started
        self._feed: Feed | None = None
        self._closed = False
        self._met: dict[str, list[Met]] = {name: [] for name in layout.names}

    # -- acts ---------------------------------------------------------------------------------------------

    async def arm(self, name: str, point: Mapping[str, Any], *, lives: bool) -> None:
        self._look()  # from here on the trace is followed
        request = views.point_request(self._names, point)
        self._used.add(name)
        if point["action"] == CRASH:
            self._to_crash[name] = point["name"]
        if not lives or not await self._takes(name, request):
            self._pending.setdefault(name, []).append(request)
            broker_properties.arm_at_start(self._layout, name, self._pending[name])

    async def release(self, name: str, point: Mapping[str, Any] | None, *, lives: bool) -> int:
        """How many were held. Nothing there that fits is no error: it may have been let go by itself."""
        request = views.point_request(self._names, point or {})
        if request.get("point") in (None, self._to_crash.get(name)):
            self._to_crash.pop(name, None)
        if not lives:
            self._forget(name, request)
            return 0
        try:
            ok = await self._asked(name, "release", request)
        except control_client.Refused:
            if await self._has(name, request):
                raise
            return 0
        except control_client.ControlError:
            if not await self._ends_as_armed(name):
                raise
            self._forget(name, request)
            return 0
        return int(ok["released"])

    async def release_all(self, names: Sequence[str]) -> list[str]:
        """Whatever is held goes on and nothing is armed any more; returns what could not be."""
        for name in list(self._pending):
            self._forget(name, {})
        asked = [name for name in names if name in self._used and self._sockets.answers(name)]
        return [why for why in await asyncio.gather(*map(self._cleared, asked)) if why is not None]

    async def met(self, name: str) -> list[Met]:
        if self._look():
            return [one for one in self._met[name] if one.action != CRASH or one in self.crashes]
        told: list[Met] = [one for one in self.crashes if one.node == name]
        if self._sockets.answers(name):
            ok = await self._asked(name, "points", {})
            rows = (views.met_from_answer(self._names, name, row) for row in ok["met"])
            told += (one for one in rows if one.action != CRASH)
        return told

    # -- starts and ends ----------------------------------------------------------------------------------

    def started(self, name: str) -> None:
        """A process has begun; what it was to arm at its start is still in its properties."""
        self._crashed.discard(name)
        self._began_ns[name] = time.monotonic_ns()
        if not any(request["action"] == CRASH for request in self._pending.get(name, ())):
            self._to_crash.pop(name, None)

    def has_read(self, name: str) -> None:
        """It has read its properties, or it has ended: what was pending is its own now."""
        if self._pending.pop(name, None):
            broker_properties.arm_at_start(self._layout, name, [])

    def crashed(self, name: str) -> bool:
        """Whether it is down, ended by what it was armed with."""
        return name in self._crashed

    def foreseen(self, name: str, code: int) -> bool:
        """Whether this end, for which nobody asked, is an armed crash; then it is told from now on."""
        if name not in self._used:
            return False
        if self._look():
            crash = next((one for one in reversed(self._met[name]) if one.action == CRASH
                          and one.time_ns >= self._began_ns.get(name, 0)), None)
        else:
            point = self._to_crash.pop(name, None) if code == -signal.SIGKILL else None
            crash = None if point is None else Met(
                node=name, name=point, action=CRASH, time_ns=time.monotonic_ns())
        if crash is None or crash in self.crashes:
            return False
        self.crashes.append(crash)
        self._crashed.add(name)
        return True

    def close(self) -> None:
        if self._feed is not None and not self._closed:
            self._look()
            self._feed.close()
        self._closed = True

    # -- inside -------------------------------------------------------------------------------------------

    @property
    def _names(self) -> views.Names:
        return views.Names(self._layout.nodes, self.specs)

    def _look(self) -> bool:
        """Takes in what the trace has told since. False: there is none."""
        if self._feed is None:
            raw = broker_properties.raw_traces(self._layout, self.specs)
            if raw is None:
                return False
            self._feed = Feed(raw, 0, events=["failpoint"])
        for line in self._feed.read_new_lines():
            self._met[line["node"]].append(views.met_from_trace(line))
        return True

    async def _takes(self, name: str, request: Mapping[str, Any]) -> bool:
        """Arm it in the running process. False: that has ended at a failpoint before it could answer."""
        try:
            await self._asked(name, "arm", request)
        except control_client.Refused:
            raise
        except control_client.ControlError:
            if not await self._ends_as_armed(name):
                raise
            return False
        return True

    async def _ends_as_armed(self, name: str) -> bool:
        """Of a process that has gone away: whether its end turns out to be an armed crash."""
        deadline = time.monotonic() + END_KNOWN_S
        while not self.crashed(name) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        return self.crashed(name)

    def _forget(self, name: str, request: Mapping[str, Any]) -> None:
        pending = self._pending.get(name, [])
        kept = [one for one in pending if any(one.get(key) != value for key, value in request.items())]
        if len(kept) < len(pending):
            self._pending[name] = kept
            broker_properties.arm_at_start(self._layout, name, kept)

    async def _has(self, name: str, request: Mapping[str, Any]) -> bool:
        """Whether anything at such a point is held or armed."""
        ok = await self._asked(name, "points", {})
        there = [*ok["armed"], *(row for row in ok["met"] if row["held"])]
        return any(row["point"] == request.get("point", row["point"]) for row in there)

    async def _cleared(self, name: str) -> str | None:
        try:
            await self._asked(name, "release", {})
            ok = await self._asked(name, "points", {})
        except FloodmarkError as error:
            gone = not self._sockets.answers(name)  # and with it what it held
            return None if gone else f"{name} may still be held at a failpoint: {error}"
        left = [*ok["armed"], *(row for row in ok["met"] if row["held"])]
        return f"{name} has failpoints left: {', '.join(row['point'] for row in left)}" if left else None

    async def _asked(self, name: str, do: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._sockets.answers(name):
            raise FloodmarkError(f"{name} is paused, or down, and cannot be asked to {do}")
        return await self._sockets.ask(name, do, timeout_s=ASK_S, **request)
