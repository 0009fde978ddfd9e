"""Converts Arrow columns to numpy arrays; joins tables, and cuts them up."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]


def numbers_of(column: pa.ChunkedArray) -> Ints:
    """The values of a column without nulls."""
    numbers: Ints = column.to_numpy()
    return numbers


def codes_of(column: pa.ChunkedArray) -> tuple[Ints, dict[str, int]]:
    """A column of texts as numbers, and the number of each text."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return np.zeros(0, dtype=np.int32), {}
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks])
    return codes, {word: code for code, word in enumerate(column.chunk(0).dictionary.to_pylist())}


def concatenated(several: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """Join the rows of tables with the same name; texts that are dictionaries share one."""
    parts: dict[str, list[pa.Table]] = {}
    for tables in several:
        for name, table in tables.items():
            parts.setdefault(name, []).append(table)
    return {name: pa.concat_tables(each).unify_dictionaries() for name, each in parts.items()}


def sliced(table: pa.Table, keys: Ints) -> Iterator[tuple[int, pa.Table]]:
    """Yield each key with its rows, in their order. The table is sorted once, however many keys there are."""
    if not len(keys):
        return
    if not (keys[1:] >= keys[:-1]).all():
        small = keys.min() >= -(1 << 15) and keys.max() < 1 << 15  # then this takes linear time
        order = np.argsort(keys.astype(np.int16) if small else keys, kind="stable")
        table, keys = table.take(pa.array(order)), keys[order]
    starts = np.concatenate(([0], np.flatnonzero(np.diff(keys)) + 1, [len(keys)])).tolist()
    for begin, end in pairwise(starts):
        yield int(keys[begin]), table.slice(begin, end - begin)


def mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Each number with every bit mixed into all of it (splitmix64's finalizer)."""
    bits = numbers + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    made: npt.NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return made
