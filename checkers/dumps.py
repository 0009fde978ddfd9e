"""The final dumps as arrays, from JSON lines or Parquet.

Rules
1. A line that is no entry is counted and gives nothing; its dump is then damaged, as one with a torn end is.
2. In Parquet the columns are those of the lines, integers of any width; a file that has them otherwise is
   refused, for what it means is for the checks to say.
"""

from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkers.chunks import Blemished, Bools, Ints, Lines, narrow, read_lines, refuse_if, table_of
from checkers.columns import numbers
from checkers.groups import Groups
from checkers.plain import is_entry
from harness.places import Place

NUMBERS = ("partition", "offset", "epoch", "value", "crc")
FLAGS = ("crc_ok", "aborted")
_TYPED = [(name, pa.int64()) for name in NUMBERS] + [(name, pa.bool_()) for name in FLAGS]
_DUMP = pa.schema([("node", pa.string()), *_TYPED])
_ROWS = 1 << 18  # of Parquet, at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One node's dump, in file order."""

    groups: Groups  # its rows by partition
    offset: Ints
    epoch: Ints
    value: Ints  # 0 where not ours
    ours: Bools
    crc: Ints
    crc_ok: Bools
    aborted: Bools
    lines: int
    broken: int  # of those


# -- reading ----------------------------------------------------------------------------------------------


def read_dump(path: Place, node: str, pool: Executor, ahead: int) -> Dump:
    """A whole dump, all of it this node's; an empty file is an empty log."""
    if path.suffix == ".parquet":
        lines = Lines(pieces=read_parquet(path, node))
    else:
        lines = read_lines(path, partial(read_piece, node=node), is_entry(node), pool, ahead)
    groups = Groups(lines.take("partition"))
    told = {name: lines.take(name) for name in NUMBERS[1:]}
    told |= {name: lines.take(name, np.bool_) for name in ("ours", *FLAGS)}
    return Dump(groups=groups, lines=groups.rows + lines.broken, broken=lines.broken, **told)


def read_piece(chunk: bytes, node: str) -> dict[str, npt.NDArray[Any]]:
    table = table_of(chunk, _DUMP)
    refuse_if(table["node"].null_count, "an entry of nobody")
    refuse_if(table["value"].null_count and chunk.count(b'"value"') != table.num_rows, "one without a value")
    return columns_of(table, node)


def read_parquet(path: Place, node: str) -> list[dict[str, npt.NDArray[Any]]]:
    """Its row groups, one by one."""
    try:
        with path.open("rb") as opened:
            file = pq.ParquetFile(opened)
            there = {field.name: field.type for field in file.schema_arrow}
            integers = all(pa.types.is_integer(there.get(name, pa.null())) for name in NUMBERS)
            flags = all(there.get(name, pa.bool_()) == pa.bool_() for name in FLAGS)
            words = there.get("node", pa.string()) == pa.string()
            refuse_if(not (integers and flags and words), "columns of other types")
            names = [name for name in ("node", *NUMBERS, *FLAGS) if name in there]
            return [
                columns_of(whole(pa.Table.from_batches([batch])), node)
                for batch in file.iter_batches(batch_size=_ROWS, columns=names)
            ]
    except (pa.ArrowException, ValueError, OSError) as error:  # what a decoder meets it may call anything
        raise Blemished(f"{path.name}: {error}") from error


def whole(table: pa.Table) -> pa.Table:
    """With every column of a dump; integers of 64 bits."""
    for column in _DUMP:
        if column.name not in table.column_names:
            table = table.append_column(column, pa.nulls(table.num_rows, column.type))
    return table.select(_DUMP.names).cast(_DUMP)


def columns_of(table: pa.Table, node: str) -> dict[str, npt.NDArray[Any]]:
    refuse_if(not pc.all(pc.equal(table["node"], node), min_count=0).as_py(), "another node's entry")
    value = table["value"].combine_chunks()
    refuse_if(table["crc"].null_count, "crc is missing")
    return {
        "partition": numbers(table, "partition"),
        "offset": numbers(table, "offset"),
        "epoch": numbers(table, "epoch", least=-1),
        "value": narrow(value.fill_null(0).to_numpy()),
        "ours": value.is_valid().to_numpy(zero_copy_only=False),
        "crc": short(table["crc"].to_numpy()),
        "crc_ok": pc.fill_null(table["crc_ok"], True).to_numpy(),
        "aborted": pc.fill_null(table["aborted"], False).to_numpy(),
    }


def short(crc: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """A checksum of 32 bits in as many."""
    fits = not len(crc) or (crc.min() >= 0 and crc.max() < 1 << 32)
    return crc.astype(np.uint32) if fits else crc.copy()
