"""replicas.jsonl as columns: what each replica believed when the cluster was frozen, one row for each
replica.

    replicas = Replicas.of(table)                     from the rows of the ranges (tables.read_range)
    replicas.partitions("n1")                         of which n1 has a row
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.read.arrays import Ints, codes_of, numbers_of

REPLICA_ROWS = "replica_rows"  # the table
WORD = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([
    ("run", pa.int32()), ("at", pa.int64()), ("node", WORD), ("partition", pa.int64()), ("leader", WORD),
    ("epoch", pa.int64()), ("log_start", pa.int64()), ("leo", pa.int64()), ("hw", pa.int64()),
    ("isr", pa.list_(pa.string())), ("running", pa.bool_()), ("epochs", pa.list_(pa.list_(pa.int64()))),
    ("epochs_unreadable", pa.bool_()), ("lso", pa.int64()),
])  # fmt: skip


# The driver must know for each row that it is there, whether the node was running, and what is unreadable.
_KNOWN = ("run", "at", "node", "partition", "running", "epochs_unreadable")


def for_driver(table: pa.Table, asked: Ints) -> pa.Table:
    """The part of these rows that the driver needs. asked: partitions for which it needs more."""
    is_asked = np.isin(numbers_of(table["partition"]), asked)
    rows = pa.array(np.arange(len(is_asked)), mask=~is_asked)
    columns = [table[name] if name in _KNOWN else table[name].take(rows) for name in SCHEMA.names]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replicas:
    """The rows; of two for the same replica the first of the file."""

    table: pa.Table
    node: Ints  # of each row, by its number
    numbers: Mapping[str, int]  # of the nodes
    second: Mapping[str, int]  # node -> number of duplicate rows

    @staticmethod
    def of(table: pa.Table) -> "Replicas":
        node, numbers = codes_of(table["node"])
        partition, at = (numbers_of(table[name]) for name in ("partition", "at"))
        order = np.lexsort((at, partition, node))
        same = (np.diff(node[order]) == 0) & (partition[order][1:] == partition[order][:-1])
        first = np.delete(order, np.flatnonzero(same) + 1)
        second = np.bincount(node, minlength=len(numbers)) - np.bincount(node[first], minlength=len(numbers))
        return Replicas(
            table=table.take(pa.array(first)).combine_chunks(), node=node[first], numbers=numbers,
            second={name: int(second[number]) for name, number in numbers.items() if second[number]})

    def partitions(self, node: str, those: pa.ChunkedArray | None = None) -> Ints:
        """The partitions of which the node has a row; those: only of these rows."""
        mine = self.node == self.numbers.get(node, -1)
        found: Ints = numbers_of(self.table["partition"])[mine if those is None else mine & those.to_numpy()]
        return found

    @property
    def all_run(self) -> bool:
        """Whether every one of these nodes was running."""
        return not pc.any(pc.equal(self.table["running"], False)).as_py()

    @property
    def unreadable_epochs(self) -> pa.ChunkedArray:
        """Whether each row's epochs could not be read although the node was running."""
        return pc.and_(pc.fill_null(self.table["epochs_unreadable"], False),
                       pc.fill_null(self.table["running"], True))


NO_REPLICAS = Replicas.of(SCHEMA.empty_table())
