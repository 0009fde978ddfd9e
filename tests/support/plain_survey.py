"""What a plain reader sees of a run, line by line: the facts that Preconditions must give as well."""

from dataclasses import dataclass, field
from typing import Any

REPEATED_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The lines of one node, as numbers: enough to see whether its seq has a gap."""

    lines: int
    seqs: int  # distinct ones
    first: int
    last: int

    @property
    def complete(self) -> bool:
        """Whether every seq from the first to the last is there once."""
        return self.first in (0, 1) and self.lines == self.seqs == self.last - self.first + 1


@dataclass(slots=True, kw_only=True)
class Traced:
    """What the reader saw of one run's trace."""

    bad: int = 0
    nodes: dict[str, Lines] = field(default_factory=dict)
    rulings: list[dict[str, Any]] = field(default_factory=list)  # with all starts; unordered


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One split of a history file: its good lines run from `first` to `last` of `lines`."""

    block: int
    lines: int
    bad: int
    first: int | None
    last: int | None
    in_step: bool  # every index fits its place within the block
    times: tuple[int, int] | None  # lowest and highest
    falls: int | None  # index of the first line that is earlier than the one before it
    rising: bool = True  # every index is above those before it within the block


@dataclass(slots=True, kw_only=True)
class Survey:
    """What the reader saw of one run."""

    blocks: list[Block] = field(default_factory=list)
    ok: int = 0
    fail: int = 0
    info: int = 0
    acked: int = 0
    acked_at_first: set[int] = field(default_factory=set)  # partitions with an ack before the first act
    txns: int = 0  # lines of transactions
    nemesis: list[dict[str, Any]] = field(default_factory=list)
    entries: dict[str, int] = field(default_factory=dict)  # node -> lines of its dump
    bad_entries: dict[str, int] = field(default_factory=dict)
    unmatched: int | None = None  # index of the first completion that fits no invocation
    # process -> index where it had two ops open, or went on after an info
    overlapping: dict[int, int] = field(default_factory=dict)
    repeated: list[int] = field(default_factory=list)  # values sent more than once (the first few)
    partitions: set[int] = field(default_factory=set)  # those in the history
    used: set[int] = field(default_factory=set)  # those with more in the history or a dump than assignments
    traced: Traced = field(default_factory=Traced)

    @property
    def lines(self) -> int:
        return sum(block.lines for block in self.blocks)

    @property
    def bad(self) -> int:
        return sum(block.bad for block in self.blocks)

    @property
    def in_order(self) -> bool:
        """Whether index is the position in the file, from 0 and without gaps (apart from bad lines, which are
        reported anyway)."""
        expected = 0
        for block in sorted(self.blocks, key=lambda block: block.block):
            if block.first is not None and (block.first != expected or not block.in_step):
                return False
            expected = expected + block.lines
        return True

    @property
    def disordered(self) -> bool:
        """Whether some index does not rise from line to line: then it is unknown which of two lines came
        first."""
        highest = -1
        for block in sorted(self.blocks, key=lambda block: block.block):
            if block.first is not None and block.last is not None:
                if not block.rising or block.first <= highest:
                    return True
                highest = block.last
        return False

    @property
    def falls(self) -> int | None:
        """Index of the first line whose time is below that of the line before."""
        latest, found = 0, None
        for block in sorted(self.blocks, key=lambda block: block.block):
            if block.times is not None:
                at_once = block.first if block.times[0] < latest else None
                found = least(found, least(at_once, block.falls))
                latest = max(latest, block.times[1])
        return found


def least(one: int | None, other: int | None) -> int | None:
    return min((number for number in (one, other) if number is not None), default=None)
