"""A process in memory: it runs what comes to it, unless it stands still; then that waits, in order.

Rules
1. All that a broker or the controller does is run through its process: a process that is paused, stopped at a
   failpoint or frozen takes nothing, and goes on with what has come meanwhile.
2. What was meant for an incarnation that has ended is lost with it: timers, messages, answers.
3. An exception ends the process, as it ends a broker: nothing of that act is answered.
"""

from collections import deque
from collections.abc import Callable

from floodmark.harness.cluster.memory.clock import Act, Clock


class ProcessEnded(Exception):
    """Unwinds what a process was doing when a failpoint ended it."""


class Process:
    """One node's process, over all its incarnations."""

    def __init__(self, name: str, clock: Clock, failed: Callable[[str, Exception], None]) -> None:
        """failed: is called with the name and the exception that ended it."""
        self.name = name
        self.clock = clock
        self.incarnation = 0
        self.alive = False
        self.paused = False
        self.stopped = False  # at a failpoint of scope broker
        self.frozen = False  # for good: the run is being collected
        self.on_end: list[Act] = []  # of this incarnation
        self.on_going_on: Act | None = None
        self._failed = failed
        self._inbox: deque[Act] = deque()

    @property
    def stands_still(self) -> bool:
        return self.paused or self.stopped or self.frozen

    def begin(self) -> None:
        assert not self.alive, f"{self.name} runs"
        self.alive, self.paused, self.stopped = True, False, False
        self.incarnation += 1
        self._inbox.clear()

    def end(self) -> None:
        """As SIGKILL ends one."""
        if not self.alive:
            return
        self.alive, self.on_going_on = False, None
        self._inbox.clear()
        ends, self.on_end = self.on_end, []
        for act in ends:
            act()

    def run(self, act: Act) -> None:
        """Now, or when it goes on."""
        if not self.alive:
            return
        if self.stands_still:
            self._inbox.append(act)
            return
        try:
            act()
        except ProcessEnded:
            pass
        except Exception as error:
            self._failed(self.name, error)

    def soon(self, act: Act) -> None:
        self.clock.soon(self._of_this_incarnation(act))

    def later(self, delay_s: float, act: Act) -> None:
        self.clock.later(delay_s, self._of_this_incarnation(act))

    def go_on(self, first: Act | None = None) -> None:
        """With what was held, then with what has come since."""
        if first is not None:
            self.run(first)
        if self.on_going_on is not None and not self.stands_still:
            self.run(self.on_going_on)
        while self._inbox and self.alive and not self.stands_still:
            self.run(self._inbox.popleft())

    def _of_this_incarnation(self, act: Act) -> Act:
        incarnation = self.incarnation

        def run() -> None:
            if incarnation == self.incarnation:
                self.run(act)

        return run
