"""The measures of a run as its folder keeps them: measures.parquet, one row.

Rules
1. It is there whole or not at all; one that another version of these measures wrote, or that cannot be
   read, is as good as none.
2. It is not asked whether the history is still the one that was measured: that may be gone by then, which is
   what the file is for. Whoever changes a history takes the file away.
"""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from checkers.stats.tables import KEPT
from harness.errors import FloodmarkError
from harness.places import Place, read_inside
from harness.run import MEASURES, write_whole

VERSION = b"1"  # raised whenever a figure means another thing
_KEY = b"floodmark.measures"
_SCHEMA = KEPT.with_metadata({_KEY: VERSION})
_BYTES_AT_MOST = 1 << 28


def table_of(row: dict[str, Any]) -> pa.Table:
    """A row of KEPT as a table."""
    return pa.Table.from_pylist([row], schema=_SCHEMA)


def read(folder: Place) -> pa.Table | None:
    """What the folder keeps, if it is of this version."""
    try:
        data = read_inside(folder / MEASURES, folder, at_most=_BYTES_AT_MOST)
        with pq.ParquetFile(io.BytesIO(data)) as file:
            table = file.read(use_threads=False)
    except (OSError, ValueError, pa.ArrowException):
        return None
    is_ours = (table.schema.metadata or {}).get(_KEY) == VERSION
    return table if is_ours and table.schema.equals(_SCHEMA) and table.num_rows == 1 else None


def write(folder: Place, table: pa.Table) -> str | None:
    """Why it could not be written; None if it was."""
    data = io.BytesIO()
    pq.write_table(table, data, compression="zstd")
    try:
        write_whole(folder / MEASURES, data.getvalue())
    except FloodmarkError as error:
        return str(error)
    return None
