"""What the driver learns about each range of a file: a few numbers, whatever the range contains.

A file is cut into ranges (ranges.py), each read by itself. The facts of two ranges that follow one another,
added up, are those of the one range that both make: so the sum over a file, in the order of `number`, is
exactly the result of reading the file at once.

Words: a `place` is the position of a line within its range, from 0, and blank lines have one. `lines` are
those that are not blank; a `broken` one breaks the field table, all others are good. Only `places`, `lines`,
`broken` and `first_broken` count broken lines. Intervals are disjoint and rising, with both ends included, as
few as possible.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from floodmark.checkers.read.arrays import mixed
from floodmark.checkers.read.observed import Observes

Intervals = tuple[tuple[int, int], ...]
REPEATED_SHOWN = 5  # values that a reason names
_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFacts:
    """The facts of any range."""

    run: int
    number: int
    places: int = 0
    lines: int = 0
    broken: int = 0
    first_broken: int | None = None  # its place

    @property
    def first_broken_line(self) -> int | None:
        """The number in the file, from 1, of the first broken line; of the complete file."""
        return None if self.first_broken is None else self.first_broken + 1

    def counts_with(self, after: "RangeFacts") -> dict[str, Any]:
        """The fields above, of this range and the one after it."""
        first = self.first_broken
        if first is None and after.first_broken is not None:
            first = self.places + after.first_broken
        return {"run": self.run, "number": self.number, "places": self.places + after.places,
                "lines": self.lines + after.lines, "broken": self.broken + after.broken,
                "first_broken": first}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of the good lines of a range of history.jsonl. `first` is of the first of them."""

    first_index: int
    least_index: int
    highest_index: int
    # A line's index minus the number of lines (good or broken, not blank) before it in the range, if that is
    # the same for all lines; in a complete file, where index is the position, 0.
    shift: int | None
    rises: bool  # every index is above all before it
    first_time: int
    highest_time: int
    falls: int | None  # index of the first line whose time is below that of any line before it

    def behind(self, before: "Order | None", lines: int) -> "Order":
        """The order of the lines `before`, of a range with so many lines, and of these."""
        shift = None if self.shift is None else self.shift - lines
        if before is None:
            return replace(self, shift=shift)
        falls = self.falls if self.first_time >= before.highest_time else self.first_index
        return Order(
            first_index=before.first_index,
            least_index=min(before.least_index, self.least_index),
            highest_index=max(before.highest_index, self.highest_index),
            shift=shift if shift == before.shift else None,
            rises=before.rises and self.rises and before.highest_index < self.least_index,
            first_time=before.first_time,
            highest_time=max(before.highest_time, self.highest_time),
            falls=falls if before.falls is None else before.falls,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFacts(RangeFacts):
    """The facts of a range of history.jsonl."""

    order: Order | None = None  # None: it has no good line
    ok: int = 0  # completions of clients
    fail: int = 0
    info: int = 0
    txns: int = 0  # lines of clients, of any type
    acked: int = 0  # micro-sends of ok ops, without those of settle.processes
    acked_at_first: Intervals = ()  # partitions with such a micro-send before the nemesis's first line
    used: Intervals = ()  # partitions for which it has more than assignments
    assigned: Intervals = ()  # partitions that assign and subscribe name
    nemesis: tuple[Mapping[str, Any], ...] = ()  # its lines
    # The fs of the faults that broken lines may be (tables.faults_in); and of the last line, if that is
    # broken.
    broken_faults: frozenset[str] = frozenset()
    last_broken_faults: frozenset[str] = frozenset()

    def __add__(self, after: "HistoryFacts") -> "HistoryFacts":
        last = after.last_broken_faults if after.places else self.last_broken_faults
        not_last = self.broken_faults | after.broken_faults
        return HistoryFacts(
            **self.counts_with(after),
            order=self.order if after.order is None else after.order.behind(self.order, self.lines),
            ok=self.ok + after.ok,
            fail=self.fail + after.fail,
            info=self.info + after.info,
            txns=self.txns + after.txns,
            acked=self.acked + after.acked,
            acked_at_first=joined(self.acked_at_first, () if self.nemesis else after.acked_at_first),
            used=joined(self.used, after.used),
            assigned=joined(self.assigned, after.assigned),
            nemesis=self.nemesis + after.nemesis,
            broken_faults=not_last | self.last_broken_faults if after.places else not_last,
            last_broken_faults=last,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpFacts(RangeFacts):
    """The facts of a range of a node's dump; in Parquet a row group is a range, and a row is a line."""

    node: str
    partitions: Intervals = ()
    flaw: str | None = None  # why a range of a Parquet file cannot be read; then no field counts

    def __add__(self, after: "DumpFacts") -> "DumpFacts":
        return DumpFacts(**self.counts_with(after), node=self.node, flaw=self.flaw or after.flaw,
                         partitions=joined(self.partitions, after.partitions))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts(RangeFacts):
    """The facts of a range of replicas.jsonl."""

    # The first row whose last stable offset is below its LEO: (node, partition, lso, leo)
    undecided: tuple[str, int, int, int] | None = None

    def __add__(self, after: "ReplicaFacts") -> "ReplicaFacts":
        return ReplicaFacts(**self.counts_with(after), undecided=self.undecided or after.undecided)


@dataclass(frozen=True, slots=True)
class Seqs:
    """The seqs of one node's good lines in a trace. digest: the sum of arrays.mixed of each, modulo 2^64;
    other numbers, or one that comes twice, have that of all from the first to the last once in 2^64."""

    lines: int
    first: int
    last: int
    digest: int

    def __add__(self, other: "Seqs") -> "Seqs":
        return Seqs(self.lines + other.lines, min(self.first, other.first), max(self.last, other.last),
                    (self.digest + other.digest) % (1 << 64))  # fmt: skip

    @property
    def complete(self) -> bool:
        """Whether every seq from the first to the last is there exactly once. A node may begin at 0 or at
        1."""
        end = self.last + 1
        if self.first not in (0, 1) or self.lines != end - self.first:
            return False
        every = (np.arange(begin, min(begin + _AT_ONCE, end), dtype=np.uint64)
                 for begin in range(self.first, end, _AT_ONCE))  # fmt: skip
        return self.digest == sum(int(mixed(some).sum()) for some in every) % (1 << 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts(RangeFacts):
    """The facts of a range of trace.jsonl. `rulings`: the controller's lines (elect, register, fence,
    unfence, and the isr lines without a LEO) and every start, each as {at, time, node, seq, event, partition,
    epoch, isr, leader, broker, clean}, in file order."""

    nodes: Mapping[str, Seqs] = field(default_factory=dict)
    rulings: tuple[Mapping[str, Any], ...] = ()

    def __add__(self, after: "TraceFacts") -> "TraceFacts":
        nodes = dict(self.nodes)
        for node, seqs in after.nodes.items():
            nodes[node] = nodes[node] + seqs if node in nodes else seqs
        return TraceFacts(**self.counts_with(after), nodes=nodes, rulings=self.rulings + after.rulings)

    def flaw(self, nodes: Sequence[str], observes: Observes, replicas: Iterable[str] = ()) -> str | None:
        """Why lines of the trace that `observes` promises are missing or wrong; None if none is. replicas:
        all nodes that have one."""
        by_brokers = (line for line in self.rulings if line["node"] in nodes)
        bad = self.broken + sum(line["event"] in ("elect", "isr") for line in by_brokers)
        if bad:
            return f"{bad} line{'s are' if bad > 1 else ' is'} not as the table of events says"
        incomplete = sorted(node for node, seqs in self.nodes.items() if not seqs.complete)
        if incomplete:
            return f"seq has a gap in the lines of {', '.join(incomplete)}"
        if unnamed := sorted({*replicas} - {*nodes}):
            return f"run.json's `nodes` lacks {', '.join(unnamed)}: its lines look like a controller's"
        silent = sorted(set(nodes) - self.nodes.keys())
        if silent and observes.names_brokers:
            return f"it has no line of {', '.join(silent)}"
        has_controller = bool(self.nodes.keys() - set(nodes)) or not observes.names_controllers
        return None if has_controller else "it has no line of a controller"


Facts = HistoryFacts | DumpFacts | ReplicaFacts | TraceFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class AcrossFacts:
    """What is wrong in some processes of a run (pairing.py), or with some of its values (repeats.py)."""

    run: int
    unmatched: int | None = None  # lowest index of a completion that fits no invocation
    # process -> lowest index at which it had two ops open, or invoked one after an info
    overlapping: Mapping[int, int] = field(default_factory=dict)
    repeated: tuple[int, ...] = ()  # the lowest few values that were sent more than once

    def __add__(self, other: "AcrossFacts") -> "AcrossFacts":
        overlapping = dict(self.overlapping)
        for process, index in other.overlapping.items():
            overlapping[process] = min(index, overlapping.get(process, index))
        unmatched = (each for each in (self.unmatched, other.unmatched) if each is not None)
        repeated = sorted(self.repeated + other.repeated)[:REPEATED_SHOWN]
        return AcrossFacts(run=self.run, unmatched=min(unmatched, default=None), overlapping=overlapping,
                           repeated=tuple(repeated))  # fmt: skip


def joined(*several: Intervals) -> Intervals:
    """The union."""
    made: list[tuple[int, int]] = []
    for first, last in sorted(one for each in several for one in each):
        if made and first <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(last, made[-1][1])
        else:
            made.append((first, last))
    return tuple(made)


def each_of(intervals: Intervals) -> Iterator[int]:
    return (number for first, last in intervals for number in range(first, last + 1))
