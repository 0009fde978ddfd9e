"""Keeps a judged history a second time as Parquet, beside its lines: a tenth of the bytes, and faster to read
again.

Rules
1. Only a history whose lines are all good has a copy; reading the copy gives the same result as its lines.
2. A copy names the bytes it was made from, the version of the reader, and where they were cut. If the lines
   have changed, it is ignored.
3. A row group has the lines of one range. If it is damaged, the lines are read instead, which only takes
   time.
4. A copy is written atomically; without it everything still works.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.checkers.read.field_table import HISTORY
from floodmark.checkers.read.json_lines import Rows, as_json, encoded, rows_of
from floodmark.checkers.read.ranges import RANGE_BYTES, Range, bytes_of, cut
from floodmark.harness import parquet_dump
from floodmark.harness.run_location import is_regular_inside, replacing

OF = b"floodmark.history-of"  # in the file's metadata: "READING SIZE CRC" of the lines
READING = f"6/{RANGE_BYTES} ".encode()  # raised whenever the reader uses other fields of a line
FROM_BYTES = 1 << 20
NEMESIS = -1
_LINE = "line"  # of the nemesis's lines, whose faults have no fixed fields


class Rotten(Exception):
    """The row group cannot be read."""


def keep(history: Path) -> Path | None:
    """Write the copy, if there can be one. OSError where it cannot be written."""
    if not is_regular_inside(history, history.parent) or history.stat().st_size < FROM_BYTES:
        return None
    if is_copy(history):
        return None
    copy = copy_of(history)
    schema = _schema().with_metadata({OF: READING + parquet_dump.fingerprint_of(history)})
    try:
        with (
            replacing(copy) as fresh,
            pq.ParquetWriter(fresh, schema, compression="zstd", write_page_checksum=True) as writer,
        ):
            for one in cut(0, "history", None, history):
                table = _table_of(rows_of(bytes_of(one), HISTORY))
                writer.write_table(table.replace_schema_metadata(schema.metadata), row_group_size=1 << 30)
    except (_NoCopy, pa.ArrowException):
        return None
    return copy


@cache
def _schema() -> pa.Schema:
    """The columns of a copy."""
    columns = {name: column.type for name, column in rows_of(b"", HISTORY).columns.items()}
    del columns["fault"]
    return pa.schema([*columns.items(), (_LINE, pa.string())])


class _NoCopy(Exception):
    """Some of its lines are not good."""


def _table_of(rows: Rows) -> pa.Table:
    """A range as rows of the copy."""
    size = len(rows.places)
    if not size or size != rows.all_places:
        raise _NoCopy
    process = rows.columns["process"].to_numpy()
    lines = np.full(size, None, dtype=object)
    for row in np.flatnonzero(process == NEMESIS):
        lines[row] = as_json(rows.line(int(rows.places[row])))
    columns = {**rows.columns, _LINE: pa.array(lines, pa.string())}
    return pa.Table.from_arrays([columns[name] for name in _schema().names], schema=_schema())


def copy_of(history: Path) -> Path:
    return history.with_suffix(".parquet")


def is_copy(history: Path) -> bool:
    """Whether there is a copy that was made from these lines."""
    copy = copy_of(history)
    return is_regular_inside(copy, history.parent) and parquet_dump.is_copy(
        copy, history, key=OF, reading=READING
    )


def with_parquet(ranges: Iterable[Range]) -> Iterator[Range]:
    """The ranges; for a history with a copy those with the copy."""
    copies: dict[Path, Path | None] = {}
    for one in ranges:
        place = one.place
        if one.kind != "history" or not isinstance(place, Path):
            yield one
            continue
        if place not in copies:
            copies[place] = copy_of(place) if is_copy(place) else None
        yield replace(one, copy=copies[place])


def group_of(one: Range) -> Rows:
    """The lines of a range, from its row group. Raises Rotten."""
    assert one.copy is not None
    try:
        with one.copy.open("rb") as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
            if not file.schema_arrow.equals(_schema()):
                raise Rotten("its columns are not those of a history")
            table = file.read_row_group(one.number, use_threads=False)
    except (pa.ArrowException, ValueError, OSError, IndexError) as error:
        raise Rotten(str(error)) from error
    lines = table[_LINE]
    places = np.arange(table.num_rows)

    def line(place: int) -> bytes:
        return str(lines[place].as_py()).encode()

    return Rows(columns=encoded(table), places=places, before=places, line=line, lines=len(places),
                all_places=len(places), broken=places[:0])  # fmt: skip
