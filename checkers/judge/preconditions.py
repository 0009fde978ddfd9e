"""Collects what must be known about a run's files before a law may claim anything: what is broken in them,
what the nemesis did, and how much there is of everything.

The driver adds it up from the facts of all ranges of the files (checkers.read.facts), of the bags of
processes (pairing.py) and of the bags of values (repeats.py), in whatever order they arrive: a range knows
its number. The outcome does not depend on how the files were cut. Nothing here grows with the lines of a run
except the controller's lines and the starts, which are few.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, groupby
from operator import add, attrgetter
from typing import Any, TypeVar

from floodmark.checkers.read.facts import (
    AcrossFacts,
    DumpFacts,
    HistoryFacts,
    ReplicaFacts,
    TraceFacts,
    each_of,
    joined,
)
from floodmark.checkers.read.folder import Folder, is_int
from floodmark.checkers.read.ranges import AT_BITS

Of = TypeVar("Of", HistoryFacts, DumpFacts, ReplicaFacts, TraceFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """The results of reading one run: the sum of the facts of each file."""

    history: HistoryFacts
    dumps: Mapping[str, DumpFacts]  # by node
    rows: ReplicaFacts
    trace: TraceFacts
    across: AcrossFacts
    # Of the trace the lines before each range, blank ones included; the only value here that depends on how
    # the file was cut.
    lines_before: Mapping[int, int] = field(compare=False)

    @property
    def in_order(self) -> bool:
        """Whether index is the position in the history, from 0 and without gaps."""
        return self.history.order is None or self.history.order.shift == 0

    @property
    def disordered(self) -> bool:
        """Whether indexes do not rise: of two lines nobody knows which came first."""
        return self.history.order is not None and not self.history.order.rises

    @property
    def falls(self) -> int | None:
        """The index of the first line whose time is below that of one before it."""
        return None if self.history.order is None else self.history.order.falls

    @property
    def flaws(self) -> dict[str, str]:
        """Why a Parquet dump cannot be read, or a range of it, by node."""
        return {node: dump.flaw for node, dump in self.dumps.items() if dump.flaw is not None}

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that the history names."""
        return frozenset(each_of(joined(self.history.used, self.history.assigned)))

    @property
    def used(self) -> frozenset[int]:
        """Those for which the history or a dump has more than assignments."""
        dumps = (dump.partitions for dump in self.dumps.values())
        return frozenset(each_of(joined(self.history.used, *dumps)))

    def line_at(self, at: int) -> int:
        """The number in the trace, from 0, of the line at this place of its range."""
        return self.lines_before[at >> AT_BITS] + at % (1 << AT_BITS)


def is_cut_short(folder: Folder, seen: Preconditions) -> bool:
    """Whether the history has fewer lines than when it was closed."""
    closed = folder.about.get("history_lines")
    return is_int(closed) and seen.history.lines - folder.torn < closed


def faults_in_broken(folder: Folder, seen: Preconditions) -> frozenset[str]:
    """The fs of the faults that broken lines of the history may be. The torn last line does not count."""
    last = frozenset[str]() if folder.torn else seen.history.last_broken_faults
    return seen.history.broken_faults | last


def preconditions_of(run: int, facts: Sequence[Any]) -> Preconditions:
    """The preconditions of one run, from its facts of all kinds."""
    dumps = sorted(_in_order(facts, DumpFacts), key=attrgetter("node"))
    trace = _in_order(facts, TraceFacts)
    before = accumulate((each.places for each in trace), initial=0)
    return Preconditions(
        history=reduce(add, _in_order(facts, HistoryFacts), HistoryFacts(run=run, number=0)),
        dumps={node: reduce(add, some) for node, some in groupby(dumps, attrgetter("node"))},
        rows=reduce(add, _in_order(facts, ReplicaFacts), ReplicaFacts(run=run, number=0)),
        trace=reduce(add, trace, TraceFacts(run=run, number=0)),
        across=reduce(add, (one for one in facts if isinstance(one, AcrossFacts)), AcrossFacts(run=run)),
        lines_before={each.number: lines for each, lines in zip(trace, before, strict=False)},
    )


def _in_order(facts: Sequence[Any], kind: type[Of]) -> list[Of]:
    """The facts of the ranges of these files."""
    return sorted((one for one in facts if isinstance(one, kind)), key=attrgetter("number"))
