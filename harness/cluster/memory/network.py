"""Delivers requests and answers between processes in memory, subject to cuts and resets.

Rules
1. A cut is a set of pairs (sender, receiver): requests and answers of such a pair wait, in order, and are
   delivered at the heal. The news that a process ended waits like its answers.
2. A process that does not run refuses at once; a stopped one handles what has arrived when it is resumed.
3. A request is for the incarnation that ran when it was sent; it is lost if that has ended.
4. After giving up, the asker gets no answer. The request itself may still arrive.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from floodmark.harness.cluster.memory.clock import Act, Clock
from floodmark.harness.cluster.memory.process import Process

Pair = tuple[str, str]  # (sender, receiver)


class Call:
    """One request and its answer."""

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
        """answered: called with the reply; lost: called with whether the request may have left."""
        self.closed = False  # the asker no longer waits
        self.timed_out = False
        self.on_close: list[Act] = []  # run in the process that was asked
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
        """Gives up, as the asker."""
        if not self.closed:
            self._end()
            self._network.pass_on(self.asker.name, self.to.name, self._run_close_acts)

    def time_out(self) -> None:
        """Gives up because of the time-out, as the asker."""
        self.timed_out = True
        self.close()
        self._lost(True)

    def deliver(self) -> None:
        if not self.to.alive or self.to.incarnation != self._incarnation:
            self.report_end()
        else:
            self.to.run(lambda: self._handle(self))

    def report_end(self) -> None:
        """Reports to the asker that the other process ended; the report is delivered like an answer."""
        if not self._replied:
            self._replied = True
            self._network.pass_on(self.to.name, self.asker.name, lambda: self.lose(began=True))

    def lose(self, *, began: bool) -> None:
        """Loses the request: the connection is closed."""
        if not self.closed:
            self._end()
            self.asker.run(lambda: self._lost(began))

    def reset(self) -> None:
        """Loses the request at both ends at once."""
        self._replied = True
        self.lose(began=True)
        self._run_close_acts()

    def _arrive(self, answer: Any) -> None:
        if not self.closed:
            self._end()
            self.asker.run(lambda: self._answered(answer))

    def _end(self) -> None:
        self.closed = True
        self._network.calls.discard(self)

    def _run_close_acts(self) -> None:
        acts, self.on_close = self.on_close, []
        if self.to.incarnation == self._incarnation:
            for act in acts:
                self.to.run(act)


class Network:
    """The links between all processes, clients among them."""

    def __init__(self, clock: Clock) -> None:
        self.calls: set[Call] = set()  # calls with a waiting asker
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
        """Sends a request. handle runs in the process `to` and calls `reply`, now or later; answered or lost
        runs in the asker, neither after `close`. A time-out counts as lost."""
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
        """Times a call out by the asker's own timer: not while the asker is stopped."""
        if call.closed or call.asker.incarnation != incarnation:
            return

        def give_up() -> None:
            if not call.closed:
                call.time_out()

        call.asker.run(give_up)

    def pass_on(self, sender: str, receiver: str, act: Act) -> None:
        waiting = self._silent.get((sender, receiver))
        if waiting is None:
            self._clock.soon(act)
        else:
            waiting.append(act)

    def ended(self, process: Process) -> None:
        """Ends the open calls from and to a process that ended."""
        for call in list(self.calls):
            if call.asker is process:
                call.close()
            elif call.to is process:
                call.report_end()

    # -- faults ------------------------------------------------------------------------------------------

    def cut(self, grudge: Mapping[str, Sequence[str]], *, reset: bool) -> None:
        """Cuts links, in addition to those cut already. grudge: node -> the nodes it receives nothing
        from."""
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
        """Loses the open requests between these pairs, in both directions; returns their number."""
        struck = {pair for sender, receiver in pairs for pair in ((sender, receiver), (receiver, sender))}
        lost = [call for call in self.calls if (call.asker.name, call.to.name) in struck]
        for call in lost:
            call.reset()
        return len(lost)


def pairs_of(grudge: Mapping[str, Sequence[str]]) -> set[Pair]:
    return {(sender, receiver) for receiver, unheard in grudge.items() for sender in unheard}
