"""Finds which completion answers which invocation, and which processes have two ops open at once.

Input: lines of clients, for all of some processes of any number of runs (a bag, by the hash of the process),
in the columns of checkers.laws.tables `lines`, in any order of rows. `at` is the place in the file. `ident`
is a number for the partitions and values that a send or txn names; null if it names none.

Rules
1. A completion answers the last line of its process that has the same f and names the same sends, if that is
   an invocation. One that names no sends answers the line before it, if that is an invocation of the same f
   that names none either, and no other op of the process is open. Otherwise it is ambiguous.
2. A completion is unmatched if its process has no op open; or if it has one, which the line before it
   invoked, and that has another f or names other sends. With two ops open it is ambiguous.
3. A process overlaps where it invokes an op and its line before is an invocation, or some earlier line is an
   info.

All lines are sorted stably once and compared with the one before them of their process, whatever is wrong
with them. A line whose counterpart is not that one is searched by the sends that it names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read.arrays import Bools, Ints, codes_of, numbers_of

_SMALL = 1 << 16  # numpy sorts keys of 16 bits by their digits

ANSWERS = TABLES["answers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingFacts:
    """What the driver learns about one run's processes in a bag."""

    run: int
    unmatched: int | None = None  # lowest index of a completion that fits no invocation
    # process -> lowest index at which it had two ops open, or invoked one after an info
    overlapping: Mapping[int, int] = field(default_factory=dict)


def pairing(lines: pa.Table) -> list[PairingFacts]:
    """What is wrong in these processes: one for each run in which anything is."""
    ordered = _ordered(lines)
    after_invocation = ordered.follows_invocation()
    other = after_invocation & ~ordered.is_like_last()
    open_ops = ordered.open_ops()
    unmatched = ~ordered.invokes & ((open_ops <= 0) | ((open_ops == 1) & other))
    overlaps = ordered.invokes & (after_invocation | ordered.follows_info())
    unmatched_index = dict[int, int]()
    for run, _, index in _lowest_indexes(ordered, unmatched):
        unmatched_index[run] = min(index, unmatched_index.get(run, index))
    overlapping = dict[int, dict[int, int]]()
    for run, process, index in _lowest_indexes(ordered, overlaps):
        overlapping.setdefault(run, {})[process] = index
    return [
        PairingFacts(run=run, unmatched=unmatched_index.get(run), overlapping=overlapping.get(run, {}))
        for run in sorted(unmatched_index.keys() | overlapping.keys())
    ]


def answers(lines: pa.Table) -> pa.Table:
    """A row of ANSWERS for every line of a client, process after process."""
    ordered = _ordered(lines)
    alike, invokes = ordered.is_like_last(), ordered.invokes
    # The counterpart of a line is the one before it or after it. -1: there is none.
    position = np.arange(len(invokes))
    beside_last = alike & ~invokes & ordered.follows_invocation()
    beside_last &= ordered.names_sends | (ordered.open_ops() == 1)
    asked = np.where(beside_last, position - 1, -1)
    answered = np.zeros(len(invokes), dtype=np.bool_)
    answered[position[beside_last] - 1] = True
    _look_further(ordered, asked, answered)
    found = asked >= 0
    columns = [
        ordered.run,
        ordered.at,
        pa.array(ordered.at[asked], mask=~found),
        pa.array(ordered.index[asked], mask=~found),
        pa.array(answered, mask=~(invokes & ordered.names_sends)),
    ]
    return pa.table(dict(zip(ANSWERS.names, columns, strict=True))).cast(ANSWERS)


def merged(facts: Iterable[PairingFacts], run: int) -> PairingFacts:
    """Merge those of one run, from all bags."""
    mine = [each for each in facts if each.run == run]
    overlapping = dict[int, int]()
    for each in mine:
        for process, index in each.overlapping.items():
            overlapping[process] = min(index, overlapping.get(process, index))
    unmatched = min((each.unmatched for each in mine if each.unmatched is not None), default=None)
    return PairingFacts(run=run, unmatched=unmatched, overlapping=overlapping)


# -- lines in order ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ordered:
    """The lines process after process, those of one process in file order."""

    run: Ints
    process: Ints
    at: Ints
    index: Ints
    f: Ints  # a number for each f
    ident: Ints  # 0 where it names no sends
    names_sends: Bools
    invokes: Bools
    informs: Bools  # type info
    first: Bools  # the first line of its process

    def follows_invocation(self) -> Bools:
        """Whether the line before, of the same process, is an invocation."""
        after: Bools = np.roll(self.invokes, 1) & ~self.first
        return after

    def follows_info(self) -> Bools:
        """Whether some line before it, of the same process, is an info."""
        after: Bools = self.before(self.informs.astype(np.int64)) > 0
        return after

    def is_like_last(self) -> Bools:
        """Whether it has the f of the line before, and names the same sends."""
        like = ~self.first
        for column in (self.f, self.ident, self.names_sends):
            like &= column == np.roll(column, 1)
        return like

    def open_ops(self) -> Ints:
        """How many ops of the process are open before the line; below 0 if there were too many
        completions."""
        return self.before(np.where(self.invokes, 1, -1))

    def before(self, steps: Ints) -> Ints:
        """The sum of the steps of all earlier lines of its process."""
        sums = np.cumsum(steps) - steps
        starts = np.flatnonzero(self.first)
        return sums - np.repeat(sums[starts], np.diff(np.append(starts, len(sums))))


def _ordered(lines: pa.Table) -> _Ordered:
    """Sort the lines of clients."""
    lines = lines.filter(pc.greater_equal(lines["process"], 0)).combine_chunks()
    run, process, at = (numbers_of(lines[name]) for name in ("run", "process", "at"))
    order = _by_process(run, process, at)
    run, process = run[order], process[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (process[1:] != process[:-1]) | (run[1:] != run[:-1])
    types, type_words = codes_of(lines["type"])
    f, f_words = codes_of(lines["f"])
    carries = np.isin(f, [code for code, word in enumerate(f_words) if word in ("send", "txn")])
    names_sends = pc.is_valid(lines["ident"]).to_numpy() & carries
    ident = np.where(names_sends, numbers_of(pc.fill_null(lines["ident"], 0)), 0)
    return _Ordered(
        run=run,
        process=process,
        at=at[order],
        index=numbers_of(lines["index"])[order],
        f=f[order],
        ident=ident[order],
        names_sends=names_sends[order],
        invokes=types[order] == type_words.get("invoke", -1),
        informs=types[order] == type_words.get("info", -1),
        first=first,
    )


def _by_process(run: Ints, process: Ints, at: Ints) -> Ints:
    """The order by run, process and place."""
    rising = (run[1:] > run[:-1]) | ((run[1:] == run[:-1]) & (at[1:] > at[:-1]))
    in_file_order = None if rising.all() else np.lexsort((at, run))
    key = process if in_file_order is None else process[in_file_order]
    if len(key) and key.max() < _SMALL:
        key = key.astype(np.uint16)
    by_process = np.argsort(key, kind="stable")
    order = by_process if in_file_order is None else in_file_order[by_process]
    runs = run[order]
    return order if not len(runs) or runs.min() == runs.max() else order[np.argsort(runs, kind="stable")]


def _lowest_indexes(lines: _Ordered, marked: Bools) -> list[tuple[int, int, int]]:
    """Run, process and the lowest index of each process that has a marked line."""
    rows = np.flatnonzero(marked)
    if not len(rows):
        return []
    starts = np.flatnonzero(np.diff(np.cumsum(lines.first)[rows], prepend=0))
    lowest = np.minimum.reduceat(lines.index[rows], starts)
    columns = lines.run[rows[starts]], lines.process[rows[starts]], lowest
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _look_further(lines: _Ordered, asked: Ints, answered: Bools) -> None:
    """Find the invocations of completions that name sends and do not follow them directly; write them into
    `asked` and `answered`."""
    lonely = ~lines.invokes & lines.names_sends & (asked < 0)
    rows = np.flatnonzero(lines.names_sends & _is_in(lines.ident, np.unique(lines.ident[lonely])))
    group = np.cumsum(lines.first)[rows]
    order = np.lexsort((rows, lines.ident[rows], lines.f[rows], group))
    rows, group = rows[order], group[order]
    last = np.roll(rows, 1)
    alike = (np.arange(len(rows)) > 0) & (group == np.roll(group, 1))
    alike &= (lines.f[rows] == lines.f[last]) & (lines.ident[rows] == lines.ident[last])
    found = alike & ~lines.invokes[rows] & lines.invokes[last]
    asked[rows[found]] = last[found]
    answered[last[found]] = True


def _is_in(numbers: Ints, wanted: Ints) -> Bools:
    """np.isin for sorted `wanted`, at once where there are none."""
    if not len(wanted):
        return np.zeros(len(numbers), dtype=np.bool_)
    found: Bools = wanted[np.minimum(np.searchsorted(wanted, numbers), len(wanted) - 1)] == numbers
    return found
