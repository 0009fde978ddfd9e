"""A process in memory: it runs acts in order; while it is stopped they wait.

Rules
1. Everything that a broker or the controller does runs in its process: a process that is paused, stopped at a
   failpoint or frozen runs nothing, and then continues with what has arrived.
2. Timers, messages and answers for an incarnation that has ended are lost.
3. An exception ends the process, as it ends a broker: that act gets no answer.
"""

from collections import deque
from collections.abc import Callable

from floodmark.harness.cluster.memory.clock import Act, Clock


class ProcessEnded(Exception):
    """Unwinds an act whose process was ended by a failpoint."""


class Process:
    """One node's process, over all its incarnations."""

    def __init__(self, name: str, clock: Clock, failed: Callable[[str, Exception], None]) -> None:
        """failed: called with the name and the exception that ended the process."""
        self.name = name
        self.clock = clock
        self.incarnation = 0
        self.alive = False
        self.paused = False
        self.stopped = False  # at a failpoint of scope broker
        self.frozen = False  # for good: the run's logs are being read
        self.on_end: list[Act] = []  # run when this incarnation ends
        self.on_resume: Act | None = None
        self._failed = failed
        self._inbox: deque[Act] = deque()

    @property
    def is_stopped(self) -> bool:
        return self.paused or self.stopped or self.frozen

    def begin(self) -> None:
        assert not self.alive, f"{self.name} runs"
        self.alive, self.paused, self.stopped = True, False, False
        self.incarnation += 1
        self._inbox.clear()

    def end(self) -> None:
        """Ends the process, like SIGKILL."""
        if not self.alive:
            return
        self.alive, self.on_resume = False, None
        self._inbox.clear()
        ends, self.on_end = self.on_end, []
        for act in ends:
            act()

    def run(self, act: Act) -> None:
        """Runs `act` now, or when the process is resumed."""
        if not self.alive:
            return
        if self.is_stopped:
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

    def resume(self, first: Act | None = None) -> None:
        """Resumes: runs what was held, then what has arrived since."""
        if first is not None:
            self.run(first)
        if self.on_resume is not None and not self.is_stopped:
            self.run(self.on_resume)
        while self._inbox and self.alive and not self.is_stopped:
            self.run(self._inbox.popleft())

    def _of_this_incarnation(self, act: Act) -> Act:
        incarnation = self.incarnation

        def run() -> None:
            if incarnation == self.incarnation:
                self.run(act)

        return run
