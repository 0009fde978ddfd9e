"""Pieces: rows of one table of one run that one task needs. They travel as one compressed Arrow stream each,
so that Spark moves a few blobs instead of millions of rows."""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.read.arrays import concatenated, sliced

EVERY = -1  # instead of a unit: rows without a partition (moves, some lines of the trace) are in every one
_SCATTER = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing: separates neighbours
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows of a table, of one run."""

    run: int
    name: str  # of the table
    rows: int
    content: pa.Table | bytes  # as a stream where it travels

    @staticmethod
    def of(run: int, name: str, table: pa.Table) -> "Piece":
        return Piece(run=run, name=name, rows=table.num_rows, content=table)

    def packed(self) -> "Piece":
        out, table = io.BytesIO(), self.table
        with pa.ipc.new_stream(out, table.schema, options=_OPTIONS) as writer:
            writer.write_table(table.combine_chunks())
        return replace(self, content=out.getvalue())

    @property
    def table(self) -> pa.Table:
        packed = isinstance(self.content, bytes)
        return pa.ipc.open_stream(self.content).read_all() if packed else self.content


def joined(pieces: Iterable[Piece]) -> dict[str, pa.Table]:
    """The tables of all these pieces, by name."""
    return concatenated({piece.name: piece.table} for piece in pieces)


def by_unit(table: pa.Table, units: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of one run's table, cut by the unit that needs them: its number in the run, or EVERY."""
    yield from [(0, table)] if units == 1 else sliced(table, units_of_rows(table, units))


def units_of_rows(table: pa.Table, units: int) -> npt.NDArray[np.int64]:
    """The unit that needs each row of a run's table, or EVERY."""
    if "partition" not in table.column_names:
        return np.full(table.num_rows, EVERY, dtype=np.int64)
    partition = table["partition"]
    numbers = pc.fill_null(partition, 0).to_numpy() % units
    return numbers if not partition.null_count else np.where(pc.is_valid(partition), numbers, EVERY)


def by_hash(table: pa.Table, column: str, tasks: int) -> Iterator[tuple[int, pa.Table]]:
    """Distribute the rows of a table over this many tasks, by the hash of the column."""
    if tasks == 1:
        yield 0, table
        return
    keys = (table[column].to_numpy().astype(np.uint64) * _SCATTER >> np.uint64(32)) % np.uint64(tasks)
    yield from sliced(table, keys.astype(np.int64))
