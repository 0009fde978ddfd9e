"""Rows by partition, found without going through all of them for every partition."""

from typing import Any

import numpy as np

from checkers.chunks import Bools, Ints


class Groups:
    """Which rows are of which partition; rows keep their order."""

    def __init__(self, partition: Ints) -> None:
        self.rows = len(partition)
        in_step = (partition[1:] >= partition[:-1]).all()
        self._order = None if in_step else short(in_order(partition))
        ordered = partition if self._order is None else partition[self._order]
        first = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        self._bounds = np.concatenate(([0], first, [self.rows]))
        begins = self._bounds[:-1] if self.rows else slice(0)
        self.named: Ints = ordered[begins].astype(np.int64)  # each partition once, in order

    @property
    def keys(self) -> frozenset[int]:
        return frozenset(self.named.tolist())

    def of(self, key: int) -> Any:
        """What takes this partition's rows out of a column: a slice, where they stand together."""
        at = int(np.searchsorted(self.named, key))
        known = at < len(self.named) and self.named[at] == key
        low, high = self._bounds[at : at + 2].tolist() if known else (0, 0)
        return slice(low, high) if self._order is None else self._order[low:high]

    def rows_of(self, key: int, which: Bools | None = None) -> Ints:
        """The numbers of this partition's rows: of all, or of those of them that `which` says."""
        rows = self.of(key)
        numbers: Ints
        if isinstance(rows, slice):
            every = np.arange(rows.start, rows.stop)
            numbers = every if which is None else every[which]
        else:
            numbers = rows if which is None else rows[which]
        return numbers


def short(rows: Ints) -> Ints:
    """Numbers of rows in half the memory, where these are so few."""
    return rows.astype(np.uint32) if len(rows) < 1 << 32 else rows


def in_order(keys: Ints) -> Ints:
    """The stable order of these numbers; quickest where they are small."""
    if len(keys) and keys.min() >= -1 and keys.max() < (1 << 16) - 1:
        keys = (keys + 1).astype(np.uint16)
    return np.argsort(keys, kind="stable")
