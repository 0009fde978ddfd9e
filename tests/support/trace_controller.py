"""The controller of the simulated cluster of traces.py, and the writer of its trace.

Sessions, elections, and ISRs by compare and set. Rules kept here: a registration is a new incarnation,
fenced, out of every ISR of which it is not the last member and out of every leadership; every change of a
partition is news for each of its replicas.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from trace_replica import News

from histories import NODES, Line

CONTROLLER = "controller"


class Pen:
    """The trace while it is written, and the time."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.time = 0
        self.trace: list[Line] = []
        self.seqs = dict.fromkeys((*NODES, CONTROLLER), 0)

    def moment(self) -> None:
        """Lets time pass: all lines of a step have one time."""
        self.time += self.random.randrange(1_000, 3_000_000)

    def write(self, node: str, event: str, **besides: Any) -> None:
        self.trace.append({"time": self.time, "node": node, "seq": self.seqs[node], "event": event} | besides)
        self.seqs[node] += 1


@dataclass(slots=True, kw_only=True)
class Word:
    """The controller's state of a partition."""

    leader: str | None
    epoch: int = 0
    isr: list[str] = field(default_factory=lambda: list(NODES))
    partition_epoch: int = 0

    @property
    def epochs(self) -> tuple[int, int]:
        """The epochs that a proposal is compared with."""
        return self.epoch, self.partition_epoch

    def news(self) -> News:
        return News(leader=self.leader, epoch=self.epoch, isr=tuple(self.isr),
                    partition_epoch=self.partition_epoch)


class Controller:
    def __init__(self, pen: Pen, spread: Callable[[int, News], None], *, unclean: bool) -> None:
        """`spread` is called with the news of a partition for its replicas."""
        self.pen, self.spread, self.unclean = pen, spread, unclean
        self.fenced = dict.fromkeys(NODES, True)
        self.lives = dict.fromkeys(NODES, 0)  # each registration's number: the broker's epoch
        self.words: dict[int, Word] = {}

    def create(self, key: int) -> None:
        self.words[key] = Word(leader=self.pen.random.choice(NODES))
        self.trace_word(key, "elect", clean=True)

    def trace_word(self, key: int, event: str, **besides: Any) -> None:
        word = self.words[key]
        self.pen.write(CONTROLLER, event, partition=key, leader=word.leader, epoch=word.epoch,
                       isr=list(word.isr), partition_epoch=word.partition_epoch, **besides)
        self.spread(key, word.news())

    def alter(self, key: int, isr: set[str], lives: dict[str, int]) -> bool:
        """Refuses a member that the leader knew in another incarnation (KIP-903), and a fenced one."""
        word = self.words[key]
        unknown = any(lives.get(node) != self.lives[node] for node in isr - {*word.isr})
        if unknown or any(map(self.fenced.get, isr)):
            return False
        word.isr = sorted(isr)
        word.partition_epoch += 1
        self.trace_word(key, "isr", cause="alter")
        return True

    def fence(self, node: str) -> None:
        if not self.fenced[node]:
            self.fenced[node] = True
            self.pen.write(CONTROLLER, "fence", broker=node, broker_epoch=self.lives[node])
            self.take_out(node)

    def register(self, node: str) -> None:
        self.lives[node] = 1 + max(self.lives.values())
        self.fenced[node] = True
        self.pen.write(CONTROLLER, "register", broker=node, broker_epoch=self.lives[node], clean=False)
        self.take_out(node)

    def unfence(self, node: str) -> None:
        self.fenced[node] = False
        self.pen.write(CONTROLLER, "unfence", broker=node, broker_epoch=self.lives[node])
        for key, word in self.words.items():
            if word.leader is None:
                self.elect(key, word.isr)

    def take_out(self, node: str) -> None:
        """Takes the node out of every ISR of which it is not the last member, and out of every leadership."""
        for key, word in self.words.items():
            rest = [member for member in word.isr if member != node]
            if node in word.isr and rest:
                word.isr = rest
            elif word.leader != node:
                continue
            if word.leader == node:
                word.leader = None
                if self.elect(key, word.isr):
                    continue
                word.epoch += 1
            word.partition_epoch += 1
            self.trace_word(key, "isr", cause="expired")

    def elect(self, key: int, candidates: Sequence[str]) -> bool:
        word = self.words[key]
        alive = [node for node in candidates if not self.fenced[node]]
        clean = bool(alive)
        if not alive and self.unclean and word.leader is None:
            alive = [node for node in NODES if not self.fenced[node]]
        if not alive:
            return False
        word.leader = self.pen.random.choice(alive)
        word.isr = word.isr if clean else [word.leader]
        word.epoch += 1
        word.partition_epoch += 1
        self.trace_word(key, "elect", clean=clean)
        return True
