"""Collects what must be known about a run's files before a law may claim anything: what is broken in them,
what the nemesis did, and how much there is of everything.

The driver merges it from the facts of all ranges of the files (checkers.read.facts), of the bags of processes
(pairing.py) and of the bags of values (repeats.py), in whatever order they arrive: a range knows its number.
The outcome does not depend on how the files were cut. Nothing here grows with the lines of a run except the
controller's lines and the starts, which are few.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeVar

import orjson

from floodmark.checkers.read import pairing, repeats
from floodmark.checkers.read.facts import (
    DumpFacts,
    HistoryFacts,
    Intervals,
    ReplicaFacts,
    TraceFacts,
    each_of,
    joined,
    size,
)
from floodmark.checkers.read.observed import Observes
from floodmark.checkers.read.pairing import PairingFacts
from floodmark.checkers.read.ranges import AT_BITS
from floodmark.checkers.read.repeats import RepeatFacts
from floodmark.checkers.read.seqs import SeqFacts

Of = TypeVar("Of", HistoryFacts, DumpFacts, ReplicaFacts, TraceFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeqs:
    """The seqs of one node's good lines in the trace."""

    lines: int
    seqs: Intervals

    @property
    def first(self) -> int:
        return self.seqs[0][0]

    @property
    def complete(self) -> bool:
        """Whether every seq from the first to the last is there exactly once. A node may begin at 0 or at
        1."""
        return len(self.seqs) == 1 and self.first in (0, 1) and self.lines == size(self.seqs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """The results of reading one run's trace."""

    bad: int = 0  # lines that break the table of events
    nodes: Mapping[str, NodeSeqs] = field(default_factory=dict)
    # lines before each range, blank ones included; the only value here that depends on how the file was cut
    lines_before: Mapping[int, int] = field(default_factory=dict, compare=False)
    rulings: Sequence[Mapping[str, Any]] = ()  # the controller's lines and all starts (TraceFacts.rulings)

    def line_at(self, at: int) -> int:
        """The number in the file, from 0, of the line at this place of its range."""
        return self.lines_before[at >> AT_BITS] + at % (1 << AT_BITS)

    def flaw(self, nodes: Sequence[str], observes: Observes) -> str | None:
        """Why lines of the trace that `observes` promises are missing or wrong; None if none is."""
        by_brokers = (line for line in self.rulings if line["node"] in nodes)
        bad = self.bad + sum(line["event"] in ("elect", "isr") for line in by_brokers)
        if bad:
            return f"{bad} line{'s are' if bad > 1 else ' is'} not as the table of events says"
        incomplete = sorted(node for node, seqs in self.nodes.items() if not seqs.complete)
        if incomplete:
            return f"seq has a gap in the lines of {', '.join(incomplete)}"
        silent = sorted(set(nodes) - self.nodes.keys())
        if silent and observes.names_brokers:
            return f"it has no line of {', '.join(silent)}"
        has_controller = bool(self.nodes.keys() - set(nodes)) or not observes.names_controllers
        return None if has_controller else "it has no line of a controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """The results of reading one run. Blank lines do not count."""

    # history.jsonl; bad lines break the field table, among them a torn last one
    lines: int = 0
    bad: int = 0
    first_bad: int | None = None  # the number of that line in the file, from 1
    in_order: bool = True  # index is the position in the file, from 0 and without gaps
    disordered: bool = False  # indexes do not rise: of two lines nobody knows which came first
    falls: int | None = None  # index of the first line whose time is below that of one before it
    ok: int = 0  # completions of clients
    fail: int = 0
    info: int = 0
    acked: int = 0  # micro-sends of ok ops, without probes
    acked_at_first: frozenset[int] = frozenset()  # partitions with one before the nemesis's first line
    txns: int = 0  # lines of transactions
    nemesis: Sequence[Mapping[str, Any]] = ()  # its lines, in file order
    # fs of the faults that broken lines may contain: of all lines but the file's last, and of that one
    broken_faults: frozenset[str] = frozenset()
    last_broken_faults: frozenset[str] = frozenset()
    unmatched: int | None = None  # index of the first completion that fits no invocation
    # process -> the index at which it had two ops open, or invoked an op after an info
    overlapping: Mapping[int, int] = field(default_factory=dict)
    repeated: Sequence[int] = ()  # values that were sent more than once, the lowest few
    partitions: frozenset[int] = frozenset()  # that the history names
    used: frozenset[int] = frozenset()  # partitions for which the history or a dump has more than assignments
    # dumps with at least one line, by node
    entries: Mapping[str, int] = field(default_factory=dict)  # lines
    bad_entries: Mapping[str, int] = field(default_factory=dict)
    first_bad_entries: Mapping[str, int] = field(default_factory=dict)  # as first_bad
    # Why a Parquet dump cannot be read, by node: no law uses any of its rows.
    flaws: Mapping[str, str] = field(default_factory=dict)
    # replicas.jsonl
    bad_rows: int = 0  # lines
    first_bad_row: int | None = None  # as first_bad
    undecided: tuple[str, int, int, int] | None = None  # ReplicaFacts.undecided
    # trace.jsonl
    traced: TraceSummary = field(default_factory=TraceSummary)


def preconditions_of(run: int, facts: Sequence[Any]) -> Preconditions:
    """The preconditions of one run, from its facts of all kinds."""
    history = _in_order([each for each in facts if isinstance(each, HistoryFacts)])
    filled = [each for each in history if each.places]
    dumps = _in_order([each for each in facts if isinstance(each, DumpFacts)])
    rows = _in_order([each for each in facts if isinstance(each, ReplicaFacts)])
    trace = _in_order([each for each in facts if isinstance(each, TraceFacts)])
    paired = pairing.merged([each for each in facts if isinstance(each, PairingFacts)], run)
    values = repeats.merged([each for each in facts if isinstance(each, RepeatFacts)], run)
    unmatched = [index for index in (paired.unmatched, values.unmatched) if index is not None]
    flaws = {each.node: each.flaw for each in reversed(dumps) if each.flaw is not None}
    sound = [each for each in dumps if each.node not in flaws]
    used = joined(*(each.used for each in history), *(each.partitions for each in sound))
    named = joined(*(each.used for each in history), *(each.assigned for each in history))
    by_node = defaultdict[str, list[DumpFacts]](list)
    for each in sound:
        by_node[each.node].append(each)
    read = {node: some for node, some in by_node.items() if any(each.lines for each in some)}
    return Preconditions(
        lines=sum(each.lines for each in history),
        bad=sum(each.broken for each in history),
        first_bad=first_broken(history),
        in_order=is_in_order(history),
        disordered=is_disordered(history),
        falls=first_fall(history),
        ok=sum(each.ok for each in history),
        fail=sum(each.fail for each in history),
        info=sum(each.info for each in history),
        acked=sum(each.acked for each in history),
        acked_at_first=frozenset(each_of(joined(*(each.acked_at_first for each in until_nemesis(history))))),
        txns=sum(each.txns for each in history),
        nemesis=tuple(orjson.loads(line) for each in history for line in each.nemesis),
        broken_faults=frozenset().union(
            *(each.broken_faults for each in history), *(each.last_broken_faults for each in filled[:-1])
        ),
        last_broken_faults=frozenset().union(*(each.last_broken_faults for each in filled[-1:])),
        unmatched=min(unmatched, default=None),
        overlapping=paired.overlapping,
        repeated=values.repeated,
        partitions=frozenset(each_of(named)),
        used=frozenset(each_of(used)),
        entries={node: sum(each.lines for each in some) for node, some in read.items()},
        bad_entries={node: sum(each.broken for each in some) for node, some in read.items()},
        first_bad_entries={node: at for node, some in read.items() if (at := first_broken(some)) is not None},
        flaws=flaws,
        bad_rows=sum(each.broken for each in rows),
        first_bad_row=first_broken(rows),
        undecided=next((each.undecided for each in rows if each.undecided is not None), None),
        traced=trace_summary(trace, [each for each in facts if isinstance(each, SeqFacts)]),
    )


def _in_order(facts: list[Of]) -> list[Of]:
    return sorted(facts, key=lambda each: each.number)


# Each of the following functions takes the ranges of one file, in order.


def first_broken(ranges: Iterable[HistoryFacts | DumpFacts | ReplicaFacts]) -> int | None:
    """The number of the first broken line, from 1, blank lines included."""
    before = 0
    for each in ranges:
        if each.first_broken is not None:
            return before + each.first_broken + 1
        before += each.places
    return None


def until_nemesis(ranges: Sequence[HistoryFacts]) -> Sequence[HistoryFacts]:
    """The ranges up to the first that has a line of the nemesis."""
    first = next((place for place, each in enumerate(ranges) if each.nemesis), len(ranges))
    return ranges[:first + 1]


def is_in_order(ranges: Iterable[HistoryFacts]) -> bool:
    """Whether each index is the line's position among all lines that are not blank."""
    before = 0
    for each in ranges:
        if each.first_index is not None and each.shift != before:
            return False
        before += each.lines
    return True


def is_disordered(ranges: Iterable[HistoryFacts]) -> bool:
    """Whether some index is not above all before it."""
    highest: int | None = None
    for each in ranges:
        if each.least_index is None or each.highest_index is None:
            continue
        if not each.rises or (highest is not None and each.least_index <= highest):
            return True
        highest = each.highest_index
    return False


def first_fall(ranges: Iterable[HistoryFacts]) -> int | None:
    """The index of the first line, in file order, whose time is below that of any line before it. If the
    first line of a range does not fall, its time is at least as high as in all ranges before: then a fall in
    that range is a fall within it."""
    highest: int | None = None
    for each in ranges:
        if each.first_time is None or each.highest_time is None:
            continue
        if highest is not None and each.first_time < highest:
            return each.first_index
        if each.falls is not None:
            return each.falls
        highest = each.highest_time
    return None


def trace_summary(ranges: Sequence[TraceFacts], bags: Iterable[SeqFacts]) -> TraceSummary:
    """Merge the facts of one trace."""
    lines, seqs = Counter[str](), defaultdict[str, list[Intervals]](list)
    for each in ranges:
        lines.update(each.nodes)
    for bag in bags:
        for node, intervals in bag.nodes.items():
            seqs[node].append(intervals)
    ends = accumulate(each.places for each in ranges)
    return TraceSummary(
        lines_before={each.number: end - each.places for each, end in zip(ranges, ends, strict=True)},
        bad=sum(each.broken for each in ranges),
        nodes={node: NodeSeqs(lines=lines[node], seqs=joined(*seqs[node])) for node in lines},
        rulings=tuple(line for each in ranges for line in each.rulings),
    )
