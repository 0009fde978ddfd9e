"""Tangles: transactions, sends and polls that read and write at random, to be judged by two judges.

Rules kept here: the right verdict of such a run is not known; every order of steps, outcome, process and read
is possible, so healthy runs occur, and cycles of every kind are frequent.
"""

from dataclasses import dataclass, field
from random import Random

from damages import extend
from txn_clients import Client, clients, picks

from histories import Line, RunFolder

KINDS = ("ok", "ok", "ok", "info", "fail", "never")
PROCESSES = 3  # ops without a process of their own share so many


@dataclass(slots=True, kw_only=True)
class Tangle:
    """Ops that are being made."""

    random: Random
    values: list[Line] = field(default_factory=list)  # the records of the logs, which any op may read
    waiting: list[Client] = field(default_factory=list)
    under_way: list[Client] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)  # processes that invoke nothing more

    def ask(self) -> None:
        """Invokes the next op, by another process if its own is busy or has ended; sometimes by its own all
        the same."""
        op = self.waiting.pop(0)
        busy = {other.process for other in self.under_way} | self.gone
        if op.process in busy and self.random.random() < 0.98:
            op.process = op.folder.fresh_process()
        op.asks()
        self.under_way.append(op)

    def answer(self) -> None:
        op = self.under_way.pop(self.random.randrange(len(self.under_way)))
        kind = self.random.choice(KINDS)
        if kind in ("info", "never"):
            self.gone.add(op.process)
        if kind == "never":
            return
        count = 0 if op.f == "send" else min(len(self.values), self.random.choice((0, 1, 1, 2, 3)))
        reads = [dict(read) for read in self.random.sample(self.values, count)]
        if reads and self.random.random() < 0.05:
            reads[0]["offset"] += 1
        op.answers(kind, *reads)


def tangle(folder: RunFolder, random: Random) -> None:
    """Adds some ops at the end of the history, invoked and answered in any order; each reads any of the
    values that any of them sends."""
    count = random.randrange(2, 9)
    ops = clients(folder, *(picks(folder, random, random.choice((0, 1, 1, 2, 3))) for _ in range(count)))
    for op in ops:
        if len(op.sends) == 1:
            op.f = random.choice(("txn", "txn", "txn", "send", "poll"))
        if op.f == "poll":
            op.sends = []
        if random.random() < 0.6:
            op.process = ops[random.randrange(min(count, PROCESSES))].process
    made = Tangle(random=random, waiting=ops)
    appending = [(op, which) for op in ops for which in range(len(op.sends))]
    for op, which in random.sample(appending, len(appending)):
        if random.random() < 0.9:
            made.values.append(op.appends(which, aborted=random.random() < 0.1))
        if random.random() < 0.1:
            extend(folder, op.sends[which]["partition"], None)
    while made.waiting or made.under_way:
        if made.waiting and (not made.under_way or random.random() < 0.5):
            made.ask()
        else:
            made.answer()
