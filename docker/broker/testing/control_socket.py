"""Serves the control socket: JSON lines from the harness, on a thread of its own.

Rules
1. The thread never touches the machines: it runs each request in the event loop's thread, and waits.
2. `freeze` stops the event loop's thread itself, inside a callback, for good: no event is stepped, no timer
   runs, nothing is sent. This thread continues to answer `state` with the state at the freeze.
3. A line that is no request is answered with an error; the connection stays open. Where
   `floodmark.control.from` is set, a client with any other address is disconnected.
4. `arm`, `release` and `points` are served by this thread itself, even while a failpoint holds the event
   loop's thread; `state` is then the state at that stop, and every other request is refused.
"""

import asyncio
import concurrent.futures
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from floodmark.broker import runtime
from floodmark.broker.process_log import log
from floodmark.broker.testing.failpoints import Failpoints

WAIT_S = 10.0
_POLL_S = 0.02  # how often to check whether a failpoint has stopped the event loop

Address = tuple[str, int]
State = Mapping[str, Any]
Act = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class ControlError(Exception):
    """A request that cannot be served; the text is the answer's `error`."""


class ControlSocket:
    """Serves `state`, `freeze`, the failpoint requests and the `acts` given; it must be created in the event
    loop that it serves."""

    def __init__(self, state: Callable[[], State], acts: Mapping[str, Act], points: Failpoints) -> None:
        self._loop = asyncio.get_running_loop()
        self._state = state
        self._acts = acts
        self._points = points
        self._failpoint_acts = {"arm": points.arm, "release": points.release, "points": points.list_points}
        self._frozen: State | None = None
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None

    def open(self, address: Address, hosts: Sequence[str] = ()) -> None:
        """Start to listen, for these IP addresses only if any are given; OSError where the port is taken."""

        def allows(peer: str) -> bool:
            allowed = not hosts or peer.rpartition(":")[0] in hosts
            if not allowed:
                log("warning", "control-refused", peer=peer)
            return allowed

        def answer(line: bytes) -> bytes:
            return json.dumps(self._answer(line)).encode() + b"\n"

        self._end = runtime.current.serve_lines(address, allows, answer)

    def close(self) -> None:
        if self._end is not None:
            self._end()

    def _answer(self, line: bytes) -> Mapping[str, Any]:
        number = None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ControlError("a request is an object")
            number = request.get("id")
            return {"id": number, "ok": self._serve(request)}
        except (ValueError, ControlError) as error:
            return {"id": number, "error": str(error)}
        except (TimeoutError, concurrent.futures.CancelledError):
            return {"id": number, "error": f"not done in {WAIT_S:g} s"}

    def _serve(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        verb = request.get("do")
        if verb == "freeze":
            return self._freeze()
        if verb == "points":
            return self._points.list_points(request)
        with self._lock:
            frozen = self._frozen
        if verb == "state":
            return frozen if frozen is not None else self._run_in_loop(self._read_state, self._stopped_state)
        known = isinstance(verb, str) and (verb in self._acts or verb in self._failpoint_acts)
        if not known:
            words = sorted(["state", "freeze", *self._failpoint_acts, *self._acts])
            raise ControlError(f"cannot {verb!r}; there are: {', '.join(words)}")
        if frozen is not None:
            raise ControlError("frozen")
        if verb in self._failpoint_acts:
            return self._failpoint_acts[verb](request)
        self._refuse_while_stopped()
        act = self._acts[str(verb)]
        return self._run_in_loop(lambda: act(request), self._refuse_while_stopped)

    def _run_in_loop(
        self, make: Callable[[], Awaitable[Mapping[str, Any]]], instead: Callable[[], State | None]
    ) -> Mapping[str, Any]:
        """Run `make` in the event loop; or return `instead()` while a failpoint has stopped the loop: then
        `make` is not run later either."""
        claim = threading.Lock()

        async def run() -> Mapping[str, Any]:
            return await make() if claim.acquire(blocking=False) else {}

        def give_up() -> State | None:
            if self._points.stopped_state is not None:
                claim.acquire(blocking=False)
            return instead()

        return self._wait_for(asyncio.run_coroutine_threadsafe(run(), self._loop), give_up)

    def _wait_for(
        self, future: "concurrent.futures.Future[Any]", instead: Callable[[], State | None]
    ) -> Mapping[str, Any]:
        done = runtime.current.new_event()
        future.add_done_callback(lambda _: done.set())
        until_ns = runtime.current.monotonic_ns() + round(WAIT_S * 1e9)
        while not done.wait(_POLL_S):
            other = instead()
            if other is not None:
                return other
            if runtime.current.monotonic_ns() > until_ns:
                raise TimeoutError
        found: Mapping[str, Any] = future.result()
        return found

    async def _read_state(self) -> State:
        return self._state()

    def _stopped_state(self) -> State | None:
        return self._points.stopped_state

    def _refuse_while_stopped(self) -> None:
        if self._points.stopped_state is not None:
            raise ControlError("a failpoint holds the whole process; release that first")

    def _stop_for_good(self) -> State | None:
        return self._points.stopped_state if self._points.stay_stopped() else None

    def _freeze(self) -> State:
        with self._lock:
            if self._frozen is None:
                seen: concurrent.futures.Future[State] = concurrent.futures.Future()
                self._loop.call_soon_threadsafe(self._freeze_event_loop, seen)
                self._frozen = self._wait_for(seen, self._stop_for_good)
            return self._frozen

    def _freeze_event_loop(self, seen: "concurrent.futures.Future[State]") -> None:
        """Block the event loop's thread for ever. A SIGTERM still ends the process."""
        with runtime.current.end_at_signals():
            seen.set_result(self._state())
            runtime.current.new_event().wait()
