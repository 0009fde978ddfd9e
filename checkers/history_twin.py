"""A judged history kept a second time as Parquet, beside its lines: a tenth of the bytes, quicker to look at
again.

Rules
1. Only a history without a line that the sieve refuses has a twin; the twin gives what its lines give.
2. A twin says which bytes it was made of, and by which reading. Beside lines that are others by now it stands
   for nothing.
3. A twin is there whole or not at all; nobody is the worse for lacking it.
"""

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.chunks import Blemished, Lines, chunks_of, in_turn, read_lines, table_of
from checkers.columns import HISTORY, nemesis_lines, nemesis_rows, piece_of, read_piece
from checkers.plain import is_op
from harness import dump_twin
from harness.places import Place, is_regular_inside, replacing

OF = b"floodmark.history-of"  # in the file's metadata: "READING SIZE CRC" of the lines
READING = b"2 "  # raised whenever another thing is asked of a line
FROM_BYTES = 1 << 20
_TEXT = "line"  # of the nemesis's lines, whose faults are as they please
_TWIN = pa.schema([*HISTORY, (_TEXT, pa.string())])


def keep(history: Path) -> Path | None:
    """Writes the twin, if there is to be one. OSError where it cannot be written."""
    if not is_regular_inside(history, history.parent) or history.stat().st_size < FROM_BYTES:
        return None
    if is_twin(history):
        return None
    twin = twin_of(history)
    told = _TWIN.with_metadata({OF: READING + dump_twin.said_of(history)})
    try:
        threads = os.cpu_count() or 1
        with (
            ThreadPoolExecutor(threads) as pool,
            replacing(twin) as fresh,
            pq.ParquetWriter(fresh, told, compression="zstd", write_page_checksum=True) as writer,
        ):
            for table in in_turn(_whole_table, chunks_of(history), pool, threads + 1):
                writer.write_table(table.replace_schema_metadata(told.metadata))
    except (Blemished, pa.ArrowException):
        return None
    return twin


def _whole_table(chunk: bytes) -> pa.Table:
    """A chunk as rows of the twin; Blemished if the sieve would refuse it."""
    table = table_of(chunk, HISTORY)
    nemesis = nemesis_rows(table)
    texts = nemesis_lines(chunk, nemesis)
    piece_of(table, texts)
    lines = np.full(table.num_rows, None, dtype=object)
    lines[nemesis] = texts
    return table.append_column(_TEXT, pa.array(lines, pa.string()))


def twin_of(history: Path) -> Path:
    return history.with_suffix(".parquet")


def is_twin(history: Path) -> bool:
    """Whether there is a twin that was made of these very lines."""
    twin = twin_of(history)
    return is_regular_inside(twin, history.parent) and dump_twin.is_twin(
        twin, history, key=OF, reading=READING
    )


# -- reading ------------------------------------------------------------------------------------------------


def read(history: Place, pool: Executor, ahead: int) -> Lines:
    """Every line in pieces: from the twin, where there is one, else parsed."""
    if isinstance(history, Path) and is_twin(history):
        try:
            return Lines(pieces=[*_pieces(twin_of(history), pool)])
        except (OSError, pa.ArrowException):
            pass  # it is rotten inside; the lines are as good
    return read_lines(history, read_piece, is_op, pool, ahead)


def _pieces(twin: Path, pool: Executor) -> Iterator[dict[str, npt.NDArray[Any]]]:
    told = pq.read_metadata(twin)
    if not told.schema.to_arrow_schema().equals(_TWIN):
        raise pa.ArrowInvalid("its columns are not those of a history")
    groups = told.num_row_groups

    def piece(group: int) -> dict[str, npt.NDArray[Any]]:
        with pq.ParquetFile(twin, page_checksum_verification=True) as file:
            table = file.read_row_group(group, use_threads=False)
        return piece_of(table.select(HISTORY.names), table[_TEXT].drop_null().to_numpy())

    return iter(pool.map(piece, range(groups)))
