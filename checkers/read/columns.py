"""Columns with many rows and few distinct values: each value is stored once, with a number for each row."""

from collections.abc import Callable, Container, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Of = TypeVar("Of", bound=Hashable)
Other = TypeVar("Other", bound=Hashable)


def contains(items: Container[object], item: object) -> bool:
    return item in items


@dataclass(frozen=True, slots=True, eq=False)
class Coded(Generic[Of]):
    """The value of a row is `values[codes[row]]`."""

    codes: npt.NDArray[np.int32]
    values: tuple[Of, ...]

    @staticmethod
    def of(rows: Iterable[Of]) -> "Coded[Of]":
        seen = dict[Of, int]()
        codes = np.fromiter((seen.setdefault(row, len(seen)) for row in rows), dtype=np.int32)
        return Coded(codes, tuple(seen))

    def __len__(self) -> int:
        return len(self.codes)

    def at(self, row: int) -> Of:
        return self.values[int(self.codes[row])]

    def taken(self, rows: Ints) -> "Coded[Of]":
        return Coded(self.codes[rows], self.values)

    def there(self) -> frozenset[Of]:
        """The values that some row has."""
        return frozenset(self.values[code] for code in np.unique(self.codes).tolist())

    def where(self, is_so: Callable[[Of], bool]) -> Flags:
        """The rows for whose value `is_so` is true; it is called once for each value."""
        flags: Flags = np.fromiter(map(is_so, self.values), np.bool_, len(self.values))[self.codes]
        return flags

    def replaced(self, rows: Ints, others: "Coded[Of]") -> "Coded[Of]":
        """A copy with these other values in these rows."""
        codes = self.codes.copy()
        codes[rows] = others.codes + len(self.values)
        return Coded(codes, (*self.values, *others.values))

    def made(self, make: Callable[[Of], object], kind: pa.DataType) -> pa.Array:
        """`make(value)` for each row, as an Arrow column."""
        made = pa.array([make(value) for value in self.values], type=kind)
        return made.take(pa.array(self.codes))

    def joined(self, other: "Coded[Other]") -> "Coded[tuple[Of, Other]]":
        """Pairs of this and another column, row by row."""
        both = self.codes.astype(np.int64) * max(1, len(other.values)) + other.codes
        different, codes = np.unique(both, return_inverse=True)
        pairs = [divmod(one, max(1, len(other.values))) for one in different.tolist()]
        values = tuple((self.values[one], other.values[two]) for one, two in pairs)
        return Coded(codes.astype(np.int32), values)

    def mapped(self, make: Callable[[Of], Other]) -> "Coded[Other]":
        """`make(value)` for each row, as another Coded."""
        seen = dict[Other, int]()
        codes = [seen.setdefault(make(value), len(seen)) for value in self.values]
        return Coded(np.array(codes, dtype=np.int32)[self.codes], tuple(seen))
