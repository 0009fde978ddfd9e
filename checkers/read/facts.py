"""What the driver learns about each range of a file: a few numbers, whatever the range contains.

A file is cut into ranges (ranges.py), each read by itself. The facts of all ranges of a file, in the order of
`number`, give exactly the result of reading the file at once.

Words: a `place` is the position of a line within its range, from 0, and blank lines have one. `lines` are
those that are not blank; a `broken` one breaks the field table, all others are good. Only `places`, `lines`,
`broken` and `first_broken` count broken lines. Intervals are disjoint and rising, with both ends included, as
few as possible.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Intervals = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFacts:
    """The facts of any range."""

    run: int
    number: int
    places: int = 0
    lines: int = 0
    broken: int = 0
    first_broken: int | None = None  # its place


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFacts(RangeFacts):
    """The facts of a range of history.jsonl. `first` is of the first good line, in file order."""

    first_index: int | None = None
    least_index: int | None = None
    highest_index: int | None = None
    # A line's index minus the number of lines (good or broken, not blank) before it in the range, if that is
    # the same for all lines; None: it is not, or there is no good line. Index is the position in the file if
    # this equals the number of lines of all ranges before.
    shift: int | None = None
    rises: bool = True  # every index is above all before it in the range
    first_time: int | None = None
    highest_time: int | None = None
    # Index of the first line, in file order, whose time is below that of any line before it in the range. For
    # the complete file it is that of the first range that has one, unless the first_time of a range up to
    # that one is below the highest time of the ranges before: then it is that range's first_index.
    falls: int | None = None
    ok: int = 0  # completions of clients
    fail: int = 0
    info: int = 0
    txns: int = 0  # lines of clients, of any type
    acked: int = 0  # micro-sends of ok ops, without those of settle.processes
    acked_at_first: Intervals = ()  # partitions with such a micro-send before the nemesis's first line here
    used: Intervals = ()  # partitions for which it has more than assignments
    assigned: Intervals = ()  # partitions that assign and subscribe name
    nemesis: tuple[str, ...] = ()  # the lines of the nemesis, unparsed
    # The fs of the faults that broken lines may be (tables.faults_in); and of the last line, if that is
    # broken.
    broken_faults: tuple[str, ...] = ()
    last_broken_faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpFacts(RangeFacts):
    """The facts of a range of a node's dump; in Parquet a row group is a range, and a row is a line."""

    node: str
    partitions: Intervals = ()
    # why this range of a Parquet file cannot be read; then the other fields are empty
    flaw: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts(RangeFacts):
    """The facts of a range of replicas.jsonl."""

    # The first row whose last stable offset is below its LEO: (node, partition, lso, leo)
    undecided: tuple[str, int, int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts(RangeFacts):
    """The facts of a range of trace.jsonl. `nodes`: how many good lines each has (with which seqs: seqs.py).
    `rulings`: the controller's lines (elect, register, fence, unfence, and the isr lines without a LEO) and
    every start, each as {at, time, node, seq, event, partition, epoch, isr, leader, broker, clean}, in file
    order."""

    nodes: Mapping[str, int]
    rulings: tuple[Mapping[str, Any], ...] = ()


Facts = HistoryFacts | DumpFacts | ReplicaFacts | TraceFacts


def joined(*several: Intervals) -> Intervals:
    """The union."""
    made: list[tuple[int, int]] = []
    for first, last in sorted(one for each in several for one in each):
        if made and first <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(last, made[-1][1])
        else:
            made.append((first, last))
    return tuple(made)


def size(intervals: Intervals) -> int:
    """How many numbers they contain."""
    return sum(last - first + 1 for first, last in intervals)


def is_in(intervals: Intervals, number: int) -> bool:
    return any(first <= number <= last for first, last in intervals)


def each_of(intervals: Intervals) -> Iterable[int]:
    return (number for first, last in intervals for number in range(first, last + 1))
