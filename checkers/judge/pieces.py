"""Pieces: rows of one table that one task needs, packed to be sent.

A run's partitions are distributed over its units by number. Every unit of the run needs a copy of rows
without a partition (moves, some lines of the trace): their unit is EVERY. Lines and values are distributed by
hash instead. A piece is one compressed Arrow stream, so that Spark moves a few blobs instead of millions of
rows.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.read.arrays import concatenated, sliced

EVERY = -1
_SCATTER = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: separates neighbours
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of a table, of one run."""

    run: int
    table: str
    rows: int
    payload: bytes

    @staticmethod
    def of(run: int, name: str, table: pa.Table) -> "Piece":
        return Piece(run=run, table=name, rows=table.num_rows, payload=packed(table))


def by_unit(table: pa.Table, units: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of one run's table, cut by the unit that needs them: its number in the run, or EVERY."""
    yield from sliced(table, units_of_rows(table, units))


def units_of_rows(table: pa.Table, units: int) -> npt.NDArray[np.int64]:
    """The unit that needs each row of a run's table, or EVERY."""
    if "partition" not in table.column_names:
        return np.full(table.num_rows, EVERY, dtype=np.int64)
    partition = table["partition"]
    numbers = pc.fill_null(partition, 0).to_numpy() % units
    return numbers if not partition.null_count else np.where(pc.is_valid(partition), numbers, EVERY)


def dealt(table: pa.Table, column: str, tasks: int) -> Iterator[tuple[int, pa.Table]]:
    """Distribute the rows of a table over this many tasks, by the hash of the column."""
    keys = (table[column].to_numpy().astype(np.uint64) * _SCATTER >> np.uint64(32)) % np.uint64(tasks)
    yield from sliced(table, keys.astype(np.int64))


def packed(table: pa.Table) -> bytes:
    """Write the table as one Arrow stream."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema, options=_OPTIONS) as writer:
        writer.write_table(table.combine_chunks())
    return out.getvalue()


def unpacked(payload: bytes) -> pa.Table:
    return pa.ipc.open_stream(payload).read_all()


def joined(pieces: Iterable[Piece]) -> dict[str, pa.Table]:
    """Join the tables of all these pieces."""
    return concatenated({piece.table: unpacked(piece.payload)} for piece in pieces)
