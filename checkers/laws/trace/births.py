"""When the records of a partition were first written: the earliest line of any replica that shows them.

This is asked only in partitions in which something may be wrong, and whose copies were struck beyond the
budget.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from floodmark.checkers.laws.permits import BUDGET, BUDGET_MAYBE
from floodmark.checkers.laws.trace.epoch_spans import pieces_of
from floodmark.checkers.laws.unit import Unit

Key = tuple[int, int]  # run, partition


class Piece(NamedTuple):
    """Records that one line shows: offsets from lo up to hi, exclusive, at a time in ns."""

    lo: int
    hi: int
    time: int


class Births:
    """The births of one partition's records, by their epoch; the epoch of some is unknown (None)."""

    def __init__(self, pieces: Sequence[tuple[int | None, Piece]] = ()) -> None:
        self.pieces = pieces
        self.known: dict[int | None, list[Piece]] = {}

    def last(self, written: int | None, lo: int, hi: int) -> int | None:
        """When the last of these records was first written; None: no line shows any of them."""
        return max((piece.time for piece in self.between(written, lo, hi)), default=None)

    def first_after(self, time: int, written: int | None, lo: int, hi: int) -> int | None:
        """The lowest offset of these records that were first written after the time; None: there is none."""
        return min(
            (max(lo, piece.lo) for piece in self.between(written, lo, hi) if piece.time > time), default=None
        )

    def between(self, written: int | None, lo: int, hi: int) -> Sequence[Piece]:
        if written not in self.known:
            may_be = (piece for epoch, piece in self.pieces if written is None or epoch in (None, written))
            self.known[written] = list(earliest(may_be))
        pieces = self.known[written]
        first = bisect_right(pieces, lo, key=itemgetter(1))
        return pieces[first : bisect_left(pieces, hi, key=itemgetter(0))]


def earliest(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """For every offset the earliest piece that has it; the pieces that come out do not overlap."""
    coming = sorted(pieces, reverse=True)
    bounds = sorted({bound for piece in coming for bound in (piece.lo, piece.hi)})
    open_pieces: list[tuple[int, int]] = []  # time, hi
    for lo, hi in pairwise(bounds):
        while coming and coming[-1].lo == lo:
            piece = coming.pop()
            heappush(open_pieces, (piece.time, piece.hi))
        while open_pieces and open_pieces[0][1] <= lo:
            heappop(open_pieces)
        if open_pieces:
            yield Piece(lo, hi, open_pieces[0][0])


def births_of(unit: Unit) -> dict[Key, Births]:
    """Of the partitions of the table `suspected` that have an excuse by the fault budget."""
    found: dict[Key, list[tuple[int | None, Piece]]] = {}
    columns = (column.to_pylist() for column in unit.rows(_BIRTHS).columns)
    for run, partition, epoch, *piece in zip(*columns, strict=True):
        found.setdefault((run, partition), []).append((epoch, Piece(*piece)))
    return {key: Births(pieces) for key, pieces in found.items()}


_STRUCK = f"""
    select run, partition from traced semi join suspected using (run, partition)
    where len(list_filter(excuses, lambda each: each.permit in ({BUDGET}, {BUDGET_MAYBE}))) > 0"""
# Appends, line by line; and what a start found.
_BIRTHS = f"""
    with struck as ({_STRUCK}), lines as (from timeline semi join struck using (run, partition)),
    {pieces_of("lines")}
    select run, partition, epoch, lo, hi, time from apart where appends and lo < hi
    union all
    select run, partition, epoch, lo, hi, born_time as time from epoch_spans
    semi join struck using (run, partition) where "full" = born_time"""
