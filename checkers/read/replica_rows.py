"""replicas.jsonl as columns: what each replica believed when the cluster was frozen, one row for each
replica.

    replicas = Replicas.of(table)                     from the rows of the ranges (tables.read_range)
    replicas.rows_of("n1", keys)                      where its rows of these partitions are, -1: nowhere
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.read.arrays import codes_of, numbers_of
from floodmark.checkers.read.columns import Coded, Flags, Ints

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
    """The rows, by node and partition; of two for the same replica the first of the file."""

    table: pa.Table
    partition: Ints
    where: Mapping[str, tuple[int, int]]  # node -> its rows, from and to
    second: Mapping[str, int]  # node -> number of duplicate rows

    @staticmethod
    def of(table: pa.Table) -> "Replicas":
        code, words = codes_of(table["node"])
        partition, at = (numbers_of(table[name]).astype(np.int64) for name in ("partition", "at"))
        order = np.lexsort((at, partition, code))
        code, partition = code[order], partition[order]
        is_second = np.zeros(len(order), dtype=np.bool_)
        is_second[1:] = (code[1:] == code[:-1]) & (partition[1:] == partition[:-1])
        second = np.bincount(code[is_second], minlength=len(words)).tolist()
        order, code, partition = order[~is_second], code[~is_second], partition[~is_second]
        bounds = np.searchsorted(code, np.arange(len(words) + 1)).tolist()
        return Replicas(
            table=table.take(pa.array(order)).combine_chunks(),
            partition=partition,
            where=dict(zip(words, pairwise(bounds), strict=True)),
            second={node: count for node, count in zip(words, second, strict=True) if count},
        )

    def rows_of(self, node: str | None, keys: Ints) -> Ints:
        """The positions of the rows of this node and these partitions; -1 where there is none."""
        begin, end = self.where.get(node, (0, 0)) if node is not None else (0, 0)
        mine = self.partition[begin:end]
        if not len(mine):
            return np.full(len(keys), -1, dtype=np.int64)
        found = np.minimum(np.searchsorted(mine, keys), len(mine) - 1)
        return np.where(mine[found] == keys, found + begin, -1)

    def rows_by(self, node: Coded[str | None], keys: Ints) -> Ints:
        """The same, with a node for each partition."""
        found = np.full(len(keys), -1, dtype=np.int64)
        for code, name in enumerate(node.values):
            mine = np.flatnonzero(node.codes == code)
            found[mine] = self.rows_of(name, keys[mine])
        return found

    def __len__(self) -> int:
        return len(self.partition)

    @property
    def all_run(self) -> bool:
        """Whether every one of these nodes was running."""
        return not pc.any(pc.equal(self.table["running"], False)).as_py()

    def unreadable_epochs(self, *, running: bool) -> Flags:
        """Whether each row's epochs could not be read, of nodes that ran, or did not; false at -1: no row."""
        those = pc.and_(pc.fill_null(self.table["epochs_unreadable"], False),
                        pc.equal(pc.fill_null(self.table["running"], True), running))
        return np.append(those.to_numpy(), False)


NO_REPLICAS = Replicas.of(SCHEMA.empty_table())
