"""Parses a range of a file into rows of the laws' tables, and facts for the driver.

    parsed = read_range(one, folder.special)
    parsed.tables["sends"]            by the names of checkers.laws.tables, texts as dictionaries; or
                                      REPLICA_ROWS
    parsed.facts                      a HistoryFacts, DumpFacts, ReplicaFacts or TraceFacts

Rules
1. Rows are in the order of their lines; `at` combines the range's number and the line's place in it, blank
   lines included, so that it rises over all ranges of a file.
2. A line that breaks the field table has no row, but is counted.
"""

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.laws.tables import TABLES
from floodmark.checkers.read import history_parquet, parquet, ranges
from floodmark.checkers.read.arrays import Bools, mixed
from floodmark.checkers.read.facts import (
    DumpFacts,
    Facts,
    HistoryFacts,
    Intervals,
    Order,
    ReplicaFacts,
    Seqs,
    TraceFacts,
)
from floodmark.checkers.read.field_table import CARRIED_BY, HISTORY, REPLICAS, TRACE, dump_of
from floodmark.checkers.read.folder import NOBODY_SPECIAL, Special
from floodmark.checkers.read.json_lines import Rows, as_json, rows_of
from floodmark.checkers.read.ranges import AT_BITS, Range
from floodmark.checkers.read.replica_rows import REPLICA_ROWS
from floodmark.checkers.read.replica_rows import SCHEMA as REPLICA_SCHEMA
from floodmark.harness.faults import FAULTS, LOSES

Ints = npt.NDArray[np.int64]

WORD = pa.dictionary(pa.int32(), pa.string())
LISTS = {  # field -> table
    "sends": "sends", "reads": "reads", "corrupt": "corrupt", "offsets": "ends", "starts": "starts",
    "partitions": "assigned",
}  # fmt: skip
MOVES = ("assign", "subscribe", "crash")
# The events that checks use; a hw only if it is a leader's.
EVENTS = (
    "append", "truncate", "hw", "become_leader", "become_follower", "ack", "fetch", "isr_proposed", "isr",
    "elect", "register", "fence", "unfence", "start",
)  # fmt: skip
_NEMESIS = re.compile(rb'"fault"|"lost"|"process"\s*:\s*-')
_CLEAN = re.compile(rb'"unclean"\s*:\s*false')
_F = re.compile(rb'"f"\s*:\s*"(\w+)"')
_RULING = ("at", "time", "node", "seq", "event", "partition", "epoch", "isr", "leader", "broker", "clean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A parsed range."""

    tables: Mapping[str, pa.Table]
    facts: Facts


def schema_of(name: str) -> pa.Schema:
    """The schema of one of the tables as it is made here: texts are dictionaries, except in lists."""
    return pa.schema([
        (each.name, WORD if each.type == pa.string() else each.type) for each in TABLES[name]
    ])


def read_range(one: Range, special: Special = NOBODY_SPECIAL, data: bytes | None = None) -> Parsed:
    """Read the range. data: its lines, or all of the Parquet file, if they have been read already."""
    if one.copy is not None:
        with suppress(history_parquet.Rotten):  # then the lines are read
            return _history(one, history_parquet.group_of(one), special)
    if not one.is_parquet:
        return read_bytes(one, ranges.bytes_of(one) if data is None else data, special)
    assert one.node is not None
    try:
        rows = parquet.group_of(one, data)
    except parquet.Unreadable as error:
        facts = DumpFacts(run=one.run, number=one.number, node=one.node, flaw=str(error))
        return Parsed(tables={"entries": schema_of("entries").empty_table()}, facts=facts)
    return _dump(one, rows)


def read_bytes(one: Range, data: bytes | memoryview, special: Special = NOBODY_SPECIAL) -> Parsed:
    """Read the range from these lines, all of them complete."""
    if one.kind == "history":
        return _history(one, rows_of(data, HISTORY), special)
    if one.kind == "trace":
        return _trace(one, rows_of(data, TRACE))
    if one.kind == "replicas":
        return _replicas(one, rows_of(data, REPLICAS))
    assert one.node is not None
    return _dump(one, rows_of(data, dump_of(one.node)))


def _table(name: str, run: int, columns: Mapping[str, Any]) -> pa.Table:
    """These columns (at least one) with the run; the table's other columns are null."""
    schema = schema_of(name)
    size = len(next(iter(columns.values())))
    given = {"run": np.full(size, run, dtype=np.int32), **columns}
    return pa.Table.from_arrays(
        [_column(given[each.name], each.type) if each.name in given else pa.nulls(size, each.type)
         for each in schema],
        schema=schema,
    )  # fmt: skip


def _column(column: Any, kind: pa.DataType) -> pa.Array:
    made = column if isinstance(column, pa.Array) else pa.array(column)
    return made if made.type == kind else made.cast(kind)


def _at(one: Range, places: Ints) -> Ints:
    return places + (one.number << AT_BITS)


def _counts(one: Range, rows: Rows) -> dict[str, Any]:
    """The fields of facts of every kind."""
    first = int(rows.broken[0]) if len(rows.broken) else None
    return {"run": one.run, "number": one.number, "places": rows.all_places, "lines": rows.lines,
            "broken": len(rows.broken), "first_broken": first}  # fmt: skip


def intervals(numbers: Ints) -> Intervals:
    """The intervals of the distinct numbers."""
    unique = np.unique(numbers)
    # Compared, not subtracted: the difference of two 64-bit numbers may overflow.
    gaps = np.flatnonzero(unique[:-1] < unique[1:] - 1).tolist()
    bounds = pairwise([-1, *gaps, len(unique) - 1]) if len(unique) else ()
    return tuple((int(unique[before + 1]), int(unique[last])) for before, last in bounds)


def _different(numbers: Ints) -> Ints:
    """Each number once: by hashing, because many rows have few distinct ones."""
    return pc.unique(pa.array(numbers)).to_numpy()  # type: ignore[no-any-return]


# -- history.jsonl ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Items:
    """The items of one of the lines' lists, one in each row."""

    row: Ints  # of the line
    pos: npt.NDArray[np.int32]
    flat: pa.Array  # the items

    @property
    def partition(self) -> Ints:
        numbers = self.flat.field("partition") if pa.types.is_struct(self.flat.type) else self.flat
        return numbers.to_numpy()  # type: ignore[no-any-return]


def _history(one: Range, rows: Rows, special: Special) -> Parsed:
    process = rows.columns["process"].to_numpy()
    is_client = process >= 0
    asks = {name: is_client & _is(rows, "f", *by) for name, by in CARRIED_BY.items()}
    for name in ("reads", "corrupt"):
        asks[name] &= ~_is(rows, "type", "invoke")
    items = {name: _items(rows.columns[name], asked) for name, asked in asks.items()}
    base = {name: rows.columns[name] for name in ("index", "time", "process", "type", "f")}
    base["at"] = pa.array(_at(one, rows.places))
    tables = {
        LISTS[name]: _of_items(LISTS[name], one.run, base, each) for name, each in items.items()
    }
    moves = is_client & _is(rows, "f", *MOVES)
    moves |= is_client & _is(rows, "f", "list_offsets") & _is(rows, "type", "invoke")
    empty = _in(process, special.final) & _is(rows, "f", "poll") & _is(rows, "type", "ok")
    empty[items["reads"].row] = empty[items["corrupt"].row] = False
    tables["empty_polls"] = _table("empty_polls", one.run, _take_rows(
        {"at": base["at"], "process": base["process"]}, pa.array(np.flatnonzero(empty))))
    clients = pa.array(np.flatnonzero(is_client))
    tables["moves"] = _table("moves", one.run, _take_rows(base, pa.array(np.flatnonzero(moves))))
    ident = _idents(len(process), items["sends"])
    tables["lines"] = _table("lines", one.run, _take_rows({**base, "ident": ident}, clients))
    counted = ~_in(process, special.settling) & _is(rows, "type", "ok")
    first = counted & (np.cumsum(~is_client) == 0)  # before the first line of the nemesis
    facts = HistoryFacts(
        **_counts(one, rows),
        order=_order(rows),
        ok=int((is_client & _is(rows, "type", "ok")).sum()),
        fail=int((is_client & _is(rows, "type", "fail")).sum()),
        info=int((is_client & _is(rows, "type", "info")).sum()),
        txns=int((is_client & _is(rows, "f", "txn")).sum()),
        acked=int(counted[items["sends"].row].sum()),
        acked_at_first=intervals(_different(items["sends"].partition[first[items["sends"].row]])),
        used=intervals(np.concatenate([
            _different(each.partition) for name, each in items.items() if name != "partitions"])),
        assigned=intervals(_different(items["partitions"].partition)),
        **_broken_faults(rows),
        nemesis=tuple(orjson.loads(as_json(rows.line(int(rows.places[row]))))
                      for row in np.flatnonzero(~is_client)),
    )
    return Parsed(tables=tables, facts=facts)


def _in(process: Ints, those: Collection[int]) -> Bools:
    return np.isin(process, np.array(sorted(those), dtype=np.int64))


def _broken_faults(rows: Rows) -> dict[str, Any]:
    faults = dict.fromkeys(("broken_faults", "last_broken_faults"), frozenset[str]())
    for place in rows.broken.tolist():
        is_last = place == rows.all_places - 1
        faults["last_broken_faults" if is_last else "broken_faults"] |= faults_in(rows.line(place))
    return faults


def faults_in(line: bytes) -> frozenset[str]:
    """The fs of the faults that a broken line may be: none if it does not mention the nemesis; all that lose
    data, and an unclean election, if it has more faults than names (two lines may have become one)."""
    if not _NEMESIS.search(line):
        return frozenset()
    fs = [f for f in (found.decode() for found in _F.findall(line)) if f in FAULTS]
    named = frozenset(fs) - ({"elect"} if _CLEAN.search(line) else frozenset())
    if len(fs) >= max(1, line.count(b'"fault"')):
        return named
    return named | LOSES | ({"elect"} if b"unclean" in line else frozenset())


def _is(rows: Rows, name: str, *words: str) -> Bools:
    """Which lines have one of these words in the column, which is never null."""
    column = rows.columns[name]
    right = np.array([word in words for word in column.dictionary.to_pylist()], dtype=np.bool_)
    return right[column.indices.to_numpy()] if len(right) else np.zeros(len(column), dtype=np.bool_)


def _items(column: pa.ListArray, asked: Bools) -> _Items:
    """The items of the selected lines."""
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    starts = np.cumsum(sizes) - sizes
    row = pc.list_parent_indices(column).to_numpy()
    pos = (np.arange(len(row)) - starts[row]).astype(np.int32)
    flat = column.flatten()
    if not asked[row].all():
        kept = np.flatnonzero(asked[row])
        row, pos, flat = row[kept], pos[kept], flat.take(pa.array(kept))
    return _Items(row=row, pos=pos, flat=flat)


def _of_items(name: str, run: int, base: Mapping[str, pa.Array], items: _Items) -> pa.Table:
    columns = _take_rows(base, pa.array(items.row))
    if pa.types.is_struct(items.flat.type):
        there = {each.name for each in items.flat.type}
        columns |= {key: items.flat.field(key) for key in ("value", "offset", "epoch", "why") if key in there}
    columns |= {"partition": pa.array(items.partition), "pos": pa.array(items.pos)}
    return _table(name, run, columns)


def _take_rows(columns: Mapping[str, pa.Array], rows: pa.Array) -> dict[str, pa.Array]:
    return {name: column.take(rows) for name, column in columns.items()}


def _idents(size: int, sends: _Items) -> pa.Array:
    """64 bits for each line's list of (partition, value): equal for equal lists, null for none."""
    value = sends.flat.field("value").to_numpy()
    bits = mixed(mixed(sends.partition.view(np.uint64)) + value.view(np.uint64))
    bits = mixed(bits + sends.pos.astype(np.uint64))
    hashes, empty = np.zeros(size, dtype=np.uint64), np.ones(size, dtype=np.bool_)
    empty[sends.row] = False
    if len(bits):
        starts = np.flatnonzero(np.concatenate(([True], sends.row[1:] != sends.row[:-1])))
        hashes[sends.row[starts]] = np.add.reduceat(bits, starts)
    return pa.array(hashes.view(np.int64), mask=empty)


def _order(rows: Rows) -> Order | None:
    index, time = rows.columns["index"].to_numpy(), rows.columns["time"].to_numpy()
    if not len(index):
        return None
    shift = index - rows.before
    falls = np.flatnonzero(time[1:] < time[:-1])
    return Order(
        first_index=int(index[0]), least_index=int(index.min()), highest_index=int(index.max()),
        shift=int(shift[0]) if (shift == shift[0]).all() else None,
        rises=bool((index[1:] > index[:-1]).all()),
        first_time=int(time[0]), highest_time=int(time.max()),
        falls=int(index[falls[0] + 1]) if len(falls) else None,
    )  # fmt: skip


# -- logs/NODE ----------------------------------------------------------------------------------------------


def _dump(one: Range, rows: Rows) -> Parsed:
    assert one.node is not None
    columns = dict(rows.columns)
    columns["crc_ok"] = columns["crc_ok"].fill_null(True)
    columns["aborted"] = columns["aborted"].fill_null(False)
    columns["at"] = pa.array(_at(one, rows.places))
    partitions = intervals(_different(columns["partition"].to_numpy()))
    facts = DumpFacts(**_counts(one, rows), node=one.node, partitions=partitions)
    return Parsed(tables={"entries": _table("entries", one.run, columns)}, facts=facts)


# -- replicas.jsonl -----------------------------------------------------------------------------------------


def _replicas(one: Range, rows: Rows) -> Parsed:
    columns = {**rows.columns, "at": pa.array(_at(one, rows.places))}
    columns["run"] = pa.array(np.full(len(rows.places), one.run, dtype=np.int32))
    table = pa.Table.from_arrays([columns[name] for name in REPLICA_SCHEMA.names], schema=REPLICA_SCHEMA)
    open_rows = table.filter(pc.less(table["lso"], table["leo"])).slice(0, 1)
    undecided = [(row["node"], row["partition"], row["lso"], row["leo"]) for row in open_rows.to_pylist()]
    facts = ReplicaFacts(**_counts(one, rows), undecided=next(iter(undecided), None))
    return Parsed(tables={REPLICA_ROWS: table}, facts=facts)


# -- trace.jsonl --------------------------------------------------------------------------------------------


def _trace(one: Range, rows: Rows) -> Parsed:
    columns = dict(rows.columns)
    columns["cut_from"], columns["cut_to"] = columns.pop("from"), columns.pop("to")
    # A file of an earlier version has no cause: there, recovery is what says so in its words for people.
    is_recovery = pc.match_substring(columns.pop("why").cast(pa.string()), "recover", ignore_case=True)
    columns["cause"] = pc.coalesce(columns["cause"].cast(pa.string()),
                                   pc.if_else(is_recovery, "recovery", None))
    columns["at"] = pa.array(_at(one, rows.places))
    by_follower = pc.fill_null(pc.equal(columns["role"].cast(pa.string()), "follower"), False)
    selected = _is(rows, "event", *EVENTS) & ~(
        _is(rows, "event", "hw") & by_follower.to_numpy(zero_copy_only=False))
    ruled = _is(rows, "event", "elect", "register", "fence", "unfence", "start")
    ruled |= _is(rows, "event", "isr") & columns["leo"].is_null().to_numpy(zero_copy_only=False)
    rulings = pa.table({name: columns[name] for name in _RULING}).take(pa.array(np.flatnonzero(ruled)))
    nodes = _seqs(columns["node"], columns["seq"].to_numpy())
    facts = TraceFacts(**_counts(one, rows), nodes=nodes, rulings=tuple(rulings.to_pylist()))
    kept = columns if selected.all() else _take_rows(columns, pa.array(np.flatnonzero(selected)))
    return Parsed(tables={"trace": _table("trace", one.run, kept)}, facts=facts)


def _seqs(node: pa.DictionaryArray, seq: Ints) -> dict[str, Seqs]:
    """The seqs of each node."""
    given = pa.table({"node": node, "seq": seq, "mixed": mixed(seq.view(np.uint64))})
    figures = [("seq", "count"), ("seq", "min"), ("seq", "max"), ("mixed", "sum")]
    of_nodes = given.group_by("node", use_threads=False).aggregate(figures)
    columns = (of_nodes[name].to_pylist() for name in ("node", *map("_".join, figures)))
    return {name: Seqs(*those) for name, *those in zip(*columns, strict=True)}
