"""Finds the last row so far, and the highest: one pass over rows that are sorted in blocks (of one replica,
say).

Rows are identified by position; -1 is none. A block is identified, for every row of it, by its first row.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def numbers(column: Any) -> Rows:
    """An Arrow column of integers; 0 for null."""
    return np.asarray(pc.fill_null(column, 0).to_numpy())


def flags(column: Any) -> Flags:
    """An Arrow column of truth values; false for null."""
    return np.asarray(pc.fill_null(column, False).to_numpy())


def codes(column: Any) -> Rows:
    """An Arrow column of names, as numbers: the same where the names are."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(pc.fill_null(column.dictionary_encode().indices, -1).to_numpy()).astype(np.int64)


def changes(*keys: Rows) -> Flags:
    """Which rows begin a block: some key differs from the row before."""
    begins = np.zeros(len(keys[0]), dtype=np.bool_)
    begins[:1] = True
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return begins


def first_rows(begins: Flags) -> Rows:
    """For every row the first row of its block."""
    return last_row(begins, np.zeros(len(begins), dtype=np.int64))


def ends_of(begins: Flags) -> Rows:
    """The last row of each block."""
    return np.append(np.flatnonzero(begins), len(begins))[1:] - 1


def last_rows(begins: Flags) -> Rows:
    """For every row the last row of its block."""
    rows: Rows = ends_of(begins)[np.cumsum(begins) - 1]
    return rows


def last_row(where: Flags, first: Rows) -> Rows:
    """For every row the last marked row of its block up to it, itself included."""
    rows = np.maximum.accumulate(np.where(where, np.arange(len(where)), -1))
    return np.where(rows >= first, rows, -1)


def highest_row(where: Flags, first: Rows, *values: Rows) -> Rows:
    """For every row the marked row of its block, up to itself, with the highest values, compared from the
    first to the last; of equal ones the last."""
    marked = np.flatnonzero(where)
    order = marked[np.lexsort((marked, *(value[marked] for value in reversed(values)), first[marked]))]
    ranks = np.full(len(where), -1, dtype=np.int64)
    ranks[order] = np.arange(len(order))
    ranks = np.maximum.accumulate(ranks)  # the ranks of a later block are all higher
    rows = np.where(ranks >= 0, order[ranks] if len(order) else -1, -1)
    return np.where(rows >= first, rows, -1)


def as_of(rows: Rows, asked: Rows) -> Rows:
    """The values of the requested rows; -1 where no row is requested."""
    return np.where(asked >= 0, rows[asked], -1) if len(rows) else np.full(len(asked), -1, dtype=np.int64)


def last_not_after(block: Rows, time: Rows, asked_block: Rows, asked_time: Rows) -> Rows:
    """For every requested time the last row of its block that is not later; -1: there is none. The rows are
    sorted by block and time."""
    times = np.unique(time)  # a rank instead of a time: with the block it fits into one number
    key = block * (len(times) + 1) + np.searchsorted(times, time) + 1
    asked = asked_block * (len(times) + 1) + np.searchsorted(times, asked_time, side="right")
    found = np.searchsorted(key, asked, side="right") - 1
    return np.where(as_of(block, found) == asked_block, found, -1)


def before(rows: Rows, first: Rows) -> Rows:
    """The values of the row before, in the same block."""
    shifted = np.concatenate((np.full(min(1, len(rows)), -1, dtype=np.int64), rows[:-1]))
    return np.where(np.arange(len(rows)) > first, shifted, -1)


def column_at(column: Any, rows: Rows) -> Any:
    """The Arrow column's values in these rows; null where the row is -1."""
    return column.take(pa.array(rows, mask=rows < 0))


def nullable(values: Any, known: Flags, kind: pa.DataType | None = None) -> pa.Array:
    """Values, null where they are not known."""
    return pa.array(values, type=kind, mask=~known)
