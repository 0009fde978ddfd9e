"""What clients asked and how it ended, as sorted times: the load of a run, partition by partition."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read.arrays import codes_of, concatenated
from floodmark.checkers.read.facts import HistoryFacts
from floodmark.checkers.read.folder import NOBODY_SPECIAL, Folder, Special
from floodmark.checkers.read.history_parquet import with_parquet
from floodmark.checkers.read.ranges import cut
from floodmark.checkers.read.tables import Parsed, read_range
from floodmark.harness.run_location import Place

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
INVOKE, OK = "invoke", "ok"
KEPT = {
    "lines": ["at", "time", "process", "type", "f"],
    "sends": ["at", "time", "process", "type", "partition", "offset", "value"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """Ops, by their invocations. Times: ns; an op without an answer ends NEVER."""

    at: Ints
    asked: Ints  # rows of the two lines; an op without an answer has none, -1
    answered: Ints
    began: Ints
    ended: Ints
    next_began: Ints  # of its process; NEVER where there is none
    ok: Mask
    sends: Mask  # f is send


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSends:
    """The sends that clients began, and those that they would have begun had they not waited for an answer:
    when each was due, and how long it took until it was served (the package's docstring). ns."""

    due: Ints
    took: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """A partition: when sends to it were invoked, answered and acked; each sorted."""

    partition: int
    began: Ints
    ended: Ints
    acked: Ints

    def waits(self, ends_ns: int) -> tuple[Ints, Ints]:
        """(begins, ends) of the times in which somebody waited for an ack, without one in between; the last
        wait may end with the load."""
        after = np.concatenate((np.array([-NEVER], dtype=np.int64), self.acked))
        begin, end = self.since(after), np.append(self.acked, max(ends_ns, int(after[-1])))
        kept = begin < end
        return begin[kept], end[kept]

    def since(self, instants: Ints) -> Ints:
        """For each instant, when the wait begins: at that instant if a send is open then, else at the next
        invocation; NEVER if there is none."""
        begun = np.searchsorted(self.began, instants, side="right")
        is_open = begun > np.searchsorted(self.ended, instants, side="right")
        following = np.append(self.began, NEVER)[begun]
        return np.where(is_open, instants, following)

    def next_ack(self, instants: Ints) -> Ints:
        """The next ack after each instant; NEVER if there is none."""
        return np.append(self.acked, NEVER)[np.searchsorted(self.acked, instants, side="right")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients' part of a run's history."""

    facts: Sequence[HistoryFacts]
    ops: Ops
    due_sends: DueSends
    partitions: tuple[Waited, ...]
    ends_ns: int  # when the load ended; 0 where there was none
    unanswered: int

    @property
    def nemesis(self) -> Iterator[str]:
        for one in self.facts:
            yield from one.nemesis


def clients_of(folder: Folder) -> Clients:
    """Read the history. OSError if it cannot be read."""
    assert folder.history is not None
    return clients_in(folder, list(read_history(folder.history, folder.special)))


def read_history(place: Place, special: Special = NOBODY_SPECIAL, *, threads: int = 1) -> Iterator[Parsed]:
    """Its ranges, in order: the KEPT tables, and for each line how many records it sends and reads. OSError
    if it cannot be read."""
    ranges = list(with_parquet(cut(0, "history", None, place)))
    if min(threads, len(ranges)) < 2:
        yield from (_kept(read_range(one, special)) for one in ranges)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda one: _kept(read_range(one, special)), ranges)


def _kept(parsed: Parsed) -> Parsed:
    """The needed part of a range: the rest of a large history would not fit into memory."""
    tables = {name: parsed.tables[name].select(columns) for name, columns in KEPT.items()}
    at = numbers(tables["lines"], "at")
    records = np.zeros(len(at), dtype=np.int64)
    for name in ("sends", "reads"):  # their rows are in the order of the lines
        items = numbers(parsed.tables[name], "at")
        records += np.searchsorted(items, at, "right") - np.searchsorted(items, at, "left")
    tables["lines"] = tables["lines"].append_column("records", pa.array(records))
    return Parsed(tables=tables, facts=parsed.facts)


def clients_in(folder: Folder, history: Sequence[Parsed]) -> Clients:
    """The load of a history that was read."""
    facts = [one.facts for one in history if isinstance(one.facts, HistoryFacts)]
    joined = concatenated([one.tables for one in history] or [
        {name: TABLES[name].empty_table() for name in KEPT}])
    aside = [*folder.special.settling, *folder.special.final]
    lines, sends = (_but(joined[name], aside) for name in ("lines", "sends"))
    ops, times = ops_of(lines), numbers(lines, "time")
    ends_ns = int(times.max()) if len(times) else 0
    served_ns = np.where(ops.ok, ops.ended, ops.began)
    partitions = tuple(_partitions(sends, ops, served_ns))
    return Clients(
        facts=facts,
        ops=ops,
        due_sends=_due_sends(ops, np.minimum(served_ns, ends_ns)),
        partitions=partitions,
        ends_ns=ends_ns,
        unanswered=int((ops.ended == NEVER).sum()),
    )


def _but(table: pa.Table, processes: Sequence[int]) -> pa.Table:
    """The table without the lines of these processes."""
    aside = np.isin(numbers(table, "process"), np.array(processes, dtype=np.int64))
    return table.filter(pa.array(~aside)) if aside.any() else table


def ops_of(lines: pa.Table) -> Ops:
    """Each invocation with the next line of its process, if that completes it."""
    process, at = numbers(lines, "process"), numbers(lines, "at")
    order = np.lexsort((at, process))
    time, process, at = numbers(lines, "time")[order], process[order], at[order]
    invoked, ok = (is_one_of(lines, "type", word)[order] for word in (INVOKE, OK))
    answered = np.zeros(len(order), dtype=np.bool_)
    if len(order):
        answered[:-1] = invoked[:-1] & ~invoked[1:] & (process[:-1] == process[1:])
    following = np.minimum(np.arange(len(order)) + 1, max(len(order) - 1, 0))
    ended = np.where(answered, time[following], NEVER)
    kept = np.flatnonzero(invoked)
    following_same = np.append(process[kept][1:] == process[kept][:-1], np.zeros(min(len(kept), 1), np.bool_))
    next_began = np.where(following_same, np.append(time[kept][1:], time[kept][:1]), NEVER)
    by_line = np.argsort(at[kept])
    kept = kept[by_line]
    return Ops(
        at=at[kept],
        asked=order[kept],
        answered=np.where(answered, order[following], -1)[kept],
        began=time[kept],
        ended=ended[kept],
        next_began=next_began[by_line],
        ok=(answered & ok[following])[kept],
        sends=is_one_of(lines, "f", "send")[order][kept],
    )


def _due_sends(ops: Ops, served_ns: Ints) -> DueSends:
    """A process begins an op at the usual interval, which is the median of the run. If it waits for longer
    than two intervals, a send is due at each of them meanwhile (coordinated omission)."""
    intervals = (ops.next_began - ops.began)[ops.next_began < NEVER]
    waited_ns = np.where(ops.next_began < NEVER, ops.next_began, ops.ended)  # an info ends its process
    began, served, waited = (times[ops.sends] for times in (ops.began, served_ns, waited_ns))
    usual = int(np.median(intervals)) if len(intervals) else 0
    if usual <= 0:
        return DueSends(due=began, took=served - began)
    missed = np.maximum(np.minimum((waited - 1 - began) // usual, (served - began) // usual - 1), 0)
    of = np.repeat(np.arange(len(began)), missed + 1)
    number = np.arange(len(of)) - np.repeat(np.cumsum(missed + 1) - (missed + 1), missed + 1)
    due = began[of] + usual * number
    return DueSends(due=due, took=served[of] - due)


def _partitions(sends: pa.Table, ops: Ops, served_ns: Ints) -> Iterator[Waited]:
    """The partitions of the load. Raises served_ns of each send that was not acked to the next ack of its
    partition, the latest where it has several."""
    partition, time = numbers(sends, "partition"), numbers(sends, "time")
    invoked, ok = (is_one_of(sends, "type", word) for word in (INVOKE, OK))
    op_of = np.searchsorted(ops.at, numbers(sends, "at"))  # every invocation among the sends has a line
    for key in np.unique(partition).tolist():
        mine = partition == key
        asked = mine & invoked
        waited = Waited(partition=key, began=np.sort(time[asked]), ended=np.sort(ops.ended[op_of[asked]]),
                        acked=np.sort(time[mine & ok]))
        unacked = op_of[asked][~ops.ok[op_of[asked]]]
        np.maximum.at(served_ns, unacked, waited.next_ack(ops.ended[unacked]))
        yield waited


def numbers(table: pa.Table, name: str) -> Ints:
    """A column without null."""
    return table[name].to_numpy()  # type: ignore[no-any-return]


def is_one_of(table: pa.Table, name: str, *words: str) -> Mask:
    """Which rows have one of these texts in the column."""
    codes, words_there = codes_of(table[name])
    return np.isin(codes, [code for word, code in words_there.items() if word in words])
