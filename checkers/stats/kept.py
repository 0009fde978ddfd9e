"""The measures of a run, kept in its folder: measures.parquet, one row.

Rules
1. It is written atomically; one from another version, or one that cannot be read, counts as missing.
2. It is not checked against the history, which may have been deleted: that is what the file is for. Code that
   changes a history deletes the file.
"""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.checkers.stats.tables import KEPT
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import MEASURES, write_whole
from floodmark.harness.run_location import Place, read_inside

VERSION = b"2"  # raised whenever the meaning of a figure changes
_KEY = b"floodmark.measures"
_SCHEMA = KEPT.with_metadata({_KEY: VERSION})
_BYTES_AT_MOST = 1 << 28


def table_of(row: dict[str, Any]) -> pa.Table:
    """A row of KEPT as a table."""
    return pa.Table.from_pylist([row], schema=_SCHEMA)


def read(folder: Place) -> pa.Table | None:
    """The kept row, if it is of this version."""
    try:
        data = read_inside(folder / MEASURES, folder, at_most=_BYTES_AT_MOST)
        with pq.ParquetFile(io.BytesIO(data)) as file:
            # Checked before anything is unpacked: the folder may come from somebody else.
            schema, about = file.schema_arrow, file.metadata
            unpacked = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
            is_ours = ((schema.metadata or {}).get(_KEY) == VERSION and schema.equals(_SCHEMA)
                       and about.num_rows == 1 and unpacked <= _BYTES_AT_MOST)
            return file.read(use_threads=False) if is_ours else None
    except (OSError, ValueError, pa.ArrowException):
        return None


def write(folder: Place, table: pa.Table) -> str | None:
    """Write it; returns the reason if that failed, else None."""
    data = io.BytesIO()
    pq.write_table(table, data, compression="zstd")
    try:
        write_whole(folder / MEASURES, data.getvalue())
    except FloodmarkError as error:
        return str(error)
    return None
