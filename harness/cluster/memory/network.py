"""Passes requests and answers between processes in memory, unless a cut or a reset is in force.

Rules
1. A cut is of (says, hears) pairs, whoever asked: requests and answers that it stops wait, in order, and are
   delivered at the heal. That a process ended waits as its answers do.
2. A process that does not run refuses at once; one that stands still takes what has come when it goes on.
3. A request is for the incarnation that ran when it was sent; another's is lost.
4. Who gives up a request gets no answer any more. The request itself may still arrive: it had been sent.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from floodmark.harness.cluster.memory.clock import Act, Clock
from floodmark.harness.cluster.memory.process import Process

Pair = tuple[str, str]  # (says, hears)


class Call:
    """One request, and the way back of its answer."""

    def __init__(
        self,
        network: "Network",
        asker: Process,
        to: Process,
        *,
        handle: Callable[["Call"], None],
        answered: Callable[[Any], None],
        lost: Callable[[bool], None],
    ) -> None:
        """answered: with what `reply` was given; lost: with whether the request may have left."""
        self.closed = False  # nobody waits for the answer any more
        self.timed_out = False
        self.on_close: list[Act] = []  # at the process that was asked
        self.asker, self.to = asker, to
        self._network = network
        self._incarnation = to.incarnation
        self._handle, self._answered, self._lost = handle, answered, lost
        self._replied = False

    def reply(self, answer: Any) -> None:
        if not self._replied:
            self._replied = True
            self._network.pass_on(self.to.name, self.asker.name, lambda: self._arrive(answer))

    def close(self) -> None:
        """The asker gives up."""
        if not self.closed:
            self._end()
            self._network.pass_on(self.asker.name, self.to.name, self._notice_close)

    def time_out(self) -> None:
        """In the asker: it gives up, and knows why."""
        self.timed_out = True
        self.close()
        self._lost(True)

    def deliver(self) -> None:
        if not self.to.alive or self.to.incarnation != self._incarnation:
            self.break_off()
        else:
            self.to.run(lambda: self._handle(self))

    def break_off(self) -> None:
        """Whom it asked is gone; the asker hears of that as of an answer."""
        if not self._replied:
            self._replied = True
            self._network.pass_on(self.to.name, self.asker.name, lambda: self.lose(began=True))

    def lose(self, *, began: bool) -> None:
        """The connection is gone."""
        if not self.closed:
            self._end()
            self.asker.run(lambda: self._lost(began))

    def reset(self) -> None:
        """Both ends learn at once that the connection is gone."""
        self._replied = True
        self.lose(began=True)
        self._notice_close()

    def _arrive(self, answer: Any) -> None:
        if not self.closed:
            self._end()
            self.asker.run(lambda: self._answered(answer))

    def _end(self) -> None:
        self.closed = True
        self._network.calls.discard(self)

    def _notice_close(self) -> None:
        acts, self.on_close = self.on_close, []
        if self.to.incarnation == self._incarnation:
            for act in acts:
                self.to.run(act)


class Network:
    """The links between all processes, clients among them."""

    def __init__(self, clock: Clock) -> None:
        self.calls: set[Call] = set()  # that somebody waits for
        self._clock = clock
        self._silent: dict[Pair, deque[Act]] = {}
        self._reset: set[Pair] = set()

    def ask(
        self,
        asker: Process,
        to: Process,
        *,
        handle: Callable[[Call], None],
        answered: Callable[[Any], None],
        lost: Callable[[bool], None],
        timeout_s: float | None = None,
    ) -> Call:
        """handle runs in the process that is asked, and `reply`s, now or later; answered or lost runs in the
        asker, neither after `close`. A time-out is a loss."""
        call = Call(self, asker, to, handle=handle, answered=answered, lost=lost)
        self.calls.add(call)
        pairs = {(asker.name, to.name), (to.name, asker.name)}
        if pairs & self._reset or (not to.alive and not pairs & self._silent.keys()):
            self._clock.soon(lambda: call.lose(began=False))
        else:
            self.pass_on(asker.name, to.name, call.deliver)
            if timeout_s is not None:
                incarnation = asker.incarnation
                self._clock.later(timeout_s, lambda: self._time_out(call, incarnation))
        return call

    def _time_out(self, call: Call, incarnation: int) -> None:
        """By the asker's own timer: while it stands still nothing of it is timed out."""
        if call.closed or call.asker.incarnation != incarnation:
            return

        def give_up() -> None:
            if not call.closed:
                call.time_out()

        call.asker.run(give_up)

    def pass_on(self, says: str, hears: str, act: Act) -> None:
        waiting = self._silent.get((says, hears))
        if waiting is None:
            self._clock.soon(act)
        else:
            waiting.append(act)

    def ended(self, process: Process) -> None:
        """It answers nothing any more, and waits for nothing."""
        for call in list(self.calls):
            if call.asker is process:
                call.close()
            elif call.to is process:
                call.break_off()

    # -- faults ------------------------------------------------------------------------------------------

    def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool) -> None:
        """grudge: who hears -> whom it does not hear. Added to what is cut already."""
        pairs = pairs_of(grudge)
        if reset:
            self._reset |= pairs
            self.reset(pairs)
        else:
            for pair in pairs:
                self._silent.setdefault(pair, deque())

    def heal(self) -> None:
        silent, self._silent = self._silent, {}
        self._reset.clear()
        for waiting in silent.values():
            for act in waiting:
                self._clock.soon(act)

    def reset(self, pairs: Iterable[Pair]) -> int:
        """The requests under way between these, whichever way, are lost; how many."""
        struck = {pair for says, hears in pairs for pair in ((says, hears), (hears, says))}
        lost = [call for call in self.calls if (call.asker.name, call.to.name) in struck]
        for call in lost:
            call.reset()
        return len(lost)


def pairs_of(grudge: Mapping[str, Sequence[str]]) -> set[Pair]:
    return {(says, hears) for hears, unheard in grudge.items() for says in unheard}
