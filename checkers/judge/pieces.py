"""Pieces: the rows of one table that belong to one bucket of partitions, packed to be shipped.

A run's partitions are dealt to buckets by their number; the driver later puts whole buckets together to units
(units.py). Of a table whose rows have no partition (moves, some lines of the trace) every unit of the run
needs a copy: such a piece has bucket EVERY. A piece is one compressed Arrow stream, so that Spark moves a few
blobs instead of millions of rows.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

BUCKETS = 1024  # of one run at the most: a bucket is a partition, or every 1024th
EVERY = -1
DEALS_BITS = 6  # what is dealt by hash goes into so many bits' worth of pieces
_SCATTER = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: neighbours go apart
_APART = 1 << 32
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of a table, of one bucket of one run."""

    run: int
    bucket: int
    table: str
    rows: int
    payload: bytes


def pieces_of(name: str, table: pa.Table, *, whole: bool = False) -> Iterator[Piece]:
    """The rows of a table of the contract, cut by run and bucket; whole: by run alone."""
    for run, bucket, part in cut(table, by_partition=not whole):
        yield Piece(run=run, bucket=bucket, table=name, rows=part.num_rows, payload=packed(part))


def cut(table: pa.Table, *, by_partition: bool = True) -> Iterator[tuple[int, int, pa.Table]]:
    """Run, bucket and rows; what has no partition is of bucket EVERY."""
    if not table.num_rows:
        return
    buckets = np.full(table.num_rows, EVERY, dtype=np.int64)
    if by_partition and "partition" in table.column_names:
        partition = table["partition"].combine_chunks()
        there = partition.is_valid().to_numpy(zero_copy_only=False)
        buckets = np.where(there, pc.fill_null(partition, 0).to_numpy() % BUCKETS, EVERY)
    yield from sliced(table, buckets)


def dealt(name: str, table: pa.Table, column: str) -> Iterator[Piece]:
    """The rows of a table, cut by run and by the hash of this column."""
    keys = table[column].to_numpy().astype(np.uint64) * _SCATTER >> np.uint64(64 - DEALS_BITS)
    for run, deal, part in sliced(table, keys.astype(np.int64)):
        yield Piece(run=run, bucket=deal, table=name, rows=part.num_rows, payload=packed(part))


def sliced(table: pa.Table, keys: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, pa.Table]]:
    """Run, key and rows. Sorted once and sliced: a run may have 100,000 partitions. Rows keep their order
    within a slice."""
    both = table["run"].to_numpy().astype(np.int64) * _APART + keys
    if not (both[1:] >= both[:-1]).all():
        order = np.argsort(both, kind="stable")
        table, both = table.take(pa.array(order)), both[order]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(both)) + 1, [len(both)])).tolist()
    for begin, end in pairwise(starts):
        run, key = divmod(int(both[begin]) + 1, _APART)
        yield run, key - 1, table.slice(begin, end - begin)


def packed(table: pa.Table) -> bytes:
    """The table as one Arrow stream."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table.combine_chunks())
    return out.getvalue()


def unpacked(payload: bytes) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()


def joined(pieces: Iterable[Piece]) -> dict[str, pa.Table]:
    """The tables of all these pieces."""
    parts: dict[str, list[pa.Table]] = {}
    for piece in pieces:
        parts.setdefault(piece.table, []).append(unpacked(piece.payload))
    return {name: pa.concat_tables(each).unify_dictionaries() for name, each in parts.items()}
