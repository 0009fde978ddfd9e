"""Transactions of a run that is sieved: what transactions.py says of them, from its arrays.

The same frame of edges comes of it, and the same findings; a line is its row. All of it is looked at, for
whether an op lies on a circle no value shows by itself. Parts of the frame come from each partition alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from checkers import names
from checkers.chunks import Bools, Ints, refuse_if
from checkers.columns import FAIL, INVOKE, MISSING, OK, POLL, TXN, History, Items
from checkers.cycles import MOST_EDGES, found_in, graph_of, rows_of
from checkers.findings import COLUMNS, ISOLATION
from checkers.groups import Groups
from checkers.transactions import FS, LINE, RW, WR, WW

Longs = npt.NDArray[np.int64]
Table = dict[str, Longs]
_COLUMNS = ("kind", "x", "y", "partition", "offset", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A transaction's read of what it sends itself; of each value only by the first that does."""

    line: int
    place: tuple[int, int, int]  # partition, offset, value
    invoked: int  # index of the value's first invocation, MISSING if nobody asked for it


def about_transactions(
    history: History,
    groups: Mapping[str, Groups],
    pool: Executor,
    *,
    repeated: Ints,
    overlapping: Iterable[int],
    uncommitted: bool,
) -> list[dict[str, Any]]:
    """All findings, in the common columns; Blemished where there is too much to look at."""

    def at(key: int) -> tuple[Table, list[Own]]:
        mine = (getattr(history, name).where(groups[name].of(key)) for name in ("sends", "reads"))
        return at_partition(history, key, *(items.where(~np.isin(items.value, repeated)) for items in mine))

    keys = np.union1d(groups["sends"].named, groups["reads"].named).tolist()
    tables, own = [], []
    for table, some in pool.map(at, keys):
        tables.append(table)
        own += some
    refuse_if(sum(len(table["kind"]) for table in tables) > MOST_EDGES, "too many dependencies")
    tables.append(lines_of(history))
    whole = {name: np.concatenate([table.pop(name) for table in tables]) for name in _COLUMNS}
    graph, records = graph_of(whole, frozenset(overlapping))
    found = rows_of(0, found_in(graph), records, uncommitted=uncommitted)
    told = [dict(zip(COLUMNS, row, strict=True)) for row in found]
    return [*precommitted(history, own, uncommitted=uncommitted), *told]


# -- what was read and written ------------------------------------------------------------------------------


def at_partition(history: History, key: int, sends: Items, reads: Items) -> tuple[Table, list[Own]]:
    """The edges that its records give, and who read its own."""
    values, which = np.unique(np.concatenate((sends.value, reads.value)), return_inverse=True)
    sent, read = which[: len(sends.value)], which[len(sends.value) :]
    asks = history.type[sends.line] == INVOKE
    asked = first_of(sent[asks], sends.line[asks], len(values))
    told = first_of(sent[~asks], np.flatnonzero(~asks), len(values))
    done = np.where(told >= 0, sends.line[told], MISSING) if len(sends.line) else told
    kind = np.where(told >= 0, history.type[done], INVOKE)
    writer = np.where(kind == FAIL, MISSING, np.where(asked >= 0, asked, done))
    ended = np.where(kind == OK, sends.offset[told], MISSING) if len(sends.line) else told
    acked = np.flatnonzero(ended != MISSING)
    known = writer[read] >= 0
    seen = reads.where(known)
    edges = [
        rows(key, WR, writer[read[known]], seen.line, seen.offset, seen.value),
        *versions(
            key,
            values,
            writer,
            reads,
            proven=(np.concatenate((reads.offset, ended[acked])), np.concatenate((read, acked))),
        ),
    ]
    answers = ~asks & (history.f[sends.line] == TXN)
    own = own_reads(history, key, asked, (sent[answers], sends.line[answers]), (read, reads))
    table = {name: np.concatenate([each[name] for each in edges]) for name in _COLUMNS}
    order = np.argsort(table["offset"], kind="stable")  # as cycles.tables_of has it
    return {name: column[order] for name, column in table.items()}, own


def first_of(which: Ints, what: Ints, count: int) -> Longs:
    """Of each of so many values the first that there is; MISSING where there is none."""
    first = np.full(count, MISSING, dtype=np.int64)
    first[which[::-1]] = what[::-1]
    return first


def versions(
    key: int, values: Ints, writer: Ints, reads: Items, *, proven: tuple[Ints, Ints]
) -> Iterator[Table]:
    """WW and RW: each record, and each op's last read, with the next record. `proven`: offsets, and which of
    the values each showed; one that showed two is left out."""
    offset, value = proven
    order = np.lexsort((value, offset))
    offset, value = offset[order], value[order]
    begins = np.flatnonzero(np.diff(offset, prepend=-1) != 0)
    ends = np.append(begins[1:], len(offset)) - 1
    single = value[begins] == value[ends] if len(offset) else np.zeros(0, dtype=np.bool_)
    offset, value = offset[begins[single]], value[begins[single]]
    wrote = writer[value]
    both = np.flatnonzero((wrote[:-1] >= 0) & (wrote[1:] >= 0))
    yield rows(key, WW, wrote[both], wrote[both + 1], offset[both], values[value[both]])
    lines = np.flatnonzero(np.diff(reads.line, prepend=-1) != 0)
    last = np.maximum.reduceat(reads.offset, lines) if len(lines) else reads.offset
    following = np.searchsorted(offset, last, side="right")
    next_writer = np.append(wrote, MISSING)[following]
    linked = next_writer >= 0
    nothing = np.full(int(linked.sum()), MISSING, dtype=np.int64)
    yield rows(key, RW, reads.line[lines][linked], next_writer[linked], last[linked], nothing)


def rows(key: int, kind: int, x: Ints, y: Ints, *about: Ints) -> Table:
    told = (np.full(len(x), kind), x, y, np.full(len(x), key), *about)
    return {name: column.astype(np.int64) for name, column in zip(_COLUMNS, told, strict=True)}


# -- reads of an op's own sends -----------------------------------------------------------------------------


def own_reads(
    history: History, key: int, asked: Ints, answers: tuple[Ints, Ints], shown: tuple[Ints, Items]
) -> list[Own]:
    """`answers`: which values transactions were told of, and where; `shown`: which were read, and how."""
    (which, line), (read, reads), size = answers, shown, len(history.type)
    mine = np.flatnonzero(np.isin(read * size + reads.line, which * size + line))
    first: dict[int, int] = {}
    for at in mine.tolist():  # in file order
        first.setdefault(int(read[at]), int(reads.line[at]))
    return [
        Own(
            line=int(reads.line[at]),
            place=(key, int(reads.offset[at]), int(reads.value[at])),
            invoked=int(history.indexes(asked[read[at]])) if asked[read[at]] >= 0 else MISSING,
        )
        for at in mine.tolist()
        if first[int(read[at])] == int(reads.line[at])
    ]


def precommitted(history: History, own: Sequence[Own], *, uncommitted: bool) -> Iterator[dict[str, Any]]:
    """One finding an op, of the lowest place."""
    by_line: dict[int, list[Own]] = {}
    for one in own:
        by_line.setdefault(one.line, []).append(one)
    for line, mine in sorted(by_line.items()):
        partition, offset, value = min(one.place for one in mine)
        invoked = min((one.invoked for one in mine if one.invoked >= 0), default=None)
        done = int(history.indexes(np.array([line]))[0])
        yield {
            "name": names.PRECOMMITTED_READ, "partition": partition, "offset": offset, "value": value,
            "process": int(history.process[line]), "by": ISOLATION if uncommitted else None,
            "ops": [each for each in (invoked, done) if each is not None],
        }  # fmt: skip


# -- lines --------------------------------------------------------------------------------------------------


def lines_of(history: History) -> Table:
    """The completions, each with its invocation; and the invocations with sends that were never completed."""
    clients = np.flatnonzero(history.process >= 0)
    order = clients[np.argsort(history.process[clients], kind="stable")]
    process, kinds, fs = history.process[order], history.type[order], history.f[order]
    ident, bare = idents_of(history)
    ident, bare, invokes = ident[order], bare[order], kinds == INVOKE
    begins = np.diff(process, prepend=-1) != 0
    last = np.roll(np.arange(len(order)), 1)  # the line before, where it is of the same process
    sums = np.cumsum(np.where(invokes, 1, -1)) - np.where(invokes, 1, -1)
    starts = np.flatnonzero(begins)
    open_ = sums - np.repeat(sums[starts], np.diff(np.append(starts, len(order))))
    mine, answered = alike_of(process, fs, ident, invokes)
    by_name = ~bare & ~invokes & (mine >= 0)
    by_name[by_name] = invokes[mine[by_name]]
    by_turn = ~invokes & ~by_name & ~begins & invokes[last] & (open_ == 1) & (fs[last] == fs)
    by_turn &= (fs == POLL) | (ident[last] == ident)
    asked = np.where(by_name, mine, np.where(by_turn, last, MISSING))
    known = invokes | by_name | by_turn
    asked = np.where(invokes, np.arange(len(order)), asked)
    told = np.flatnonzero((fs < len(FS)) & (~invokes | (~bare & ~answered)))
    at, known, asked = order[told], known[told], order[asked[told]]
    return {
        "kind": LINE + kinds[told].astype(np.int64) * len(FS) + fs[told],
        "x": at.astype(np.int64),
        "y": np.where(known, asked, at).astype(np.int64),
        "partition": np.where(known, history.indexes(asked), MISSING).astype(np.int64),
        "offset": np.where(invokes[told], MISSING, history.indexes(at)).astype(np.int64),
        "value": process[told].astype(np.int64),
    }


def alike_of(process: Ints, fs: Ints, ident: npt.NDArray[np.uint64], invokes: Bools) -> tuple[Longs, Bools]:
    """Of each line the one before of the same process, f and sends (MISSING: none), and whether the next one
    is a completion."""
    whose = mixed(process.astype(np.uint64) * np.uint64(len(FS) + 8) + fs.astype(np.uint64)) ^ ident
    order = np.argsort(whose, kind="stable")
    same = np.append(whose[order][1:] == whose[order][:-1], False)[: len(order)]
    pairs = np.flatnonzero(same)
    before, answered = np.full(len(order), MISSING, dtype=np.int64), np.zeros(len(order), dtype=np.bool_)
    before[order[pairs + 1]] = order[pairs]
    answered[order[pairs]] = ~invokes[order[pairs + 1]]
    return before, answered


def idents_of(history: History) -> tuple[npt.NDArray[np.uint64], Bools]:
    """Of each line a fingerprint of its sends' partitions and values, in their order; and whether it has
    none."""
    sends, size = history.sends, len(history.type)
    begins = np.flatnonzero(np.diff(sends.line, prepend=-1) != 0)
    place = np.arange(len(sends.line)) - np.repeat(begins, np.diff(np.append(begins, len(sends.line))))
    told = mixed(sends.value.astype(np.int64).view(np.uint64))
    told = mixed(told ^ mixed(sends.partition.astype(np.uint64)) ^ (place.astype(np.uint64) << np.uint64(32)))
    ident, bare = np.zeros(size, dtype=np.uint64), np.ones(size, dtype=np.bool_)
    if len(begins):
        ident[sends.line[begins]] = np.add.reduceat(told, begins)
        bare[sends.line] = False
    return ident, bare


def mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """splitmix64: every bit of the one depends on every bit of the other."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
