"""One replica of the simulated cluster of traces.py: its log, its role, and where it differs from its leader.

Rules kept here: a log is a list of (epoch, value); nothing that was learned in one epoch is kept in the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

Entry = tuple[int, int]  # epoch and value


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The controller's message about a partition."""

    leader: str | None
    epoch: int
    isr: tuple[str, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A leader's answer on its way to a follower: records, or where the logs diverge."""

    epoch: int
    cut: int | None
    hw: int
    records: tuple[Entry, ...]


@dataclass(slots=True, kw_only=True)
class Replica:
    node: str
    log: list[Entry] = field(default_factory=list)
    hw: int = 0
    flushed: int = 0
    checkpoint: int = 0
    epoch: int = -1
    leader: str | None = None
    partition_epoch: int = -1
    news: list[News] = field(default_factory=list)
    answer: Answer | None = None
    # as leader
    isr: set[str] = field(default_factory=set)  # committed
    pending: set[str] | None = None
    proposed: dict[str, int] = field(default_factory=dict)  # replica -> its incarnation when it was proposed
    start: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=dict)  # replica -> the broker epoch of its fetches
    parked: list[tuple[int, int]] = field(default_factory=list)  # process, and the HW it waits for

    @property
    def leo(self) -> int:
        return len(self.log)

    @property
    def leads(self) -> bool:
        return self.leader == self.node

    def counted(self) -> set[str]:
        return self.isr | (self.pending or set())

    def counted_end(self) -> int:
        return min([self.leo, *(self.ends.get(node, -1) for node in self.counted() if node != self.node)])

    def turn(self, news: News) -> None:
        self.leader, self.epoch, self.partition_epoch = news.leader, news.epoch, news.partition_epoch
        self.isr, self.pending, self.ends, self.start = set(news.isr), None, {}, self.leo
        self.lives, self.answer = {}, None

    def parting(self, leader: "Replica") -> int:
        """The end of the common part of both logs: by epochs, as a leader's answers give it, in one step."""
        shared = 0
        for mine, yours in zip(self.log, leader.log, strict=False):
            if mine != yours:
                break
            shared += 1
        return shared

    def cut(self, end: int) -> None:
        del self.log[end:]
        self.hw, self.flushed = min(self.hw, end), min(self.flushed, end)

    def die(self, kept: int) -> None:
        """Loses what was in memory, and at most the part of the log that was not flushed."""
        self.cut(kept)
        self.hw, self.epoch, self.partition_epoch = min(self.checkpoint, kept), -1, -1
        self.leader, self.answer, self.news = None, None, []


def epochs_of(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """(epoch, position of its first record) of some consecutive records."""
    return [(epoch, place) for place, (epoch, _) in enumerate(entries)
            if place == 0 or entries[place - 1][0] != epoch]
