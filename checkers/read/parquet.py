"""Reads dumps kept as Parquet: a row group as the columns of the field table.

Rules
1. Integers may have any width; one that does not fit 64 signed bits breaks its row, as a null does.
2. A file that cannot be read, or has a column of another type, or no column of values, is a damaged dump,
   with the reason, and none of it counts (its lines may be beside it). Columns that the format does not have
   are ignored.
3. Without a column of nodes every row belongs to the node in the file's name.
"""

import io

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.inspect import IntType

from floodmark.checkers.read.field_table import dump_of
from floodmark.checkers.read.json_lines import Rows, encoded, keeps, selected
from floodmark.checkers.read.ranges import Range

_FORM = dump_of("").columns
NUMBERS = tuple(name for name, kind in _FORM.items() if kind == "BIGINT")
FLAGS = tuple(name for name, kind in _FORM.items() if kind == "BOOLEAN")
VALUELESS = "it has no column value"


class Unreadable(Exception):
    """No row of the file can be read; the text says why."""


def group_of(one: Range, data: bytes | None = None) -> Rows:
    """The good rows of a row group, of its file or of these bytes of it. Raises Unreadable; FileNotFoundError
    or PermissionError where the file cannot be opened here."""
    assert one.node is not None
    try:
        source = one.place.open("rb") if data is None else io.BytesIO(data)
        with source as opened, pq.ParquetFile(opened) as file:
            refuse_types(file.schema_arrow)
            names = [name for name in ("node", *NUMBERS, *FLAGS) if name in file.schema_arrow.names]
            read = file.read_row_group(one.start, columns=names, use_threads=False)
    except (Unreadable, FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, ValueError, OSError) as error:  # a decoder may raise any of these
        raise Unreadable((str(error).splitlines() or ["damaged"])[0]) from error
    return _rows(read, one.node)


def refuse_types(schema: pa.Schema) -> None:
    """Unreadable if a column's type cannot be that of a dump."""
    kinds = pa.types
    right = {**dict.fromkeys(NUMBERS, (kinds.is_integer,)), **dict.fromkeys(FLAGS, (kinds.is_boolean,)),
             "node": (kinds.is_string, kinds.is_large_string)}
    for field in schema:
        allowed = right.get(field.name)
        if allowed is not None and not any(is_so(field.type) for is_so in (kinds.is_null, *allowed)):
            raise Unreadable(f"its column {field.name} is of type {field.type}")
    if "value" not in schema.names:
        raise Unreadable(VALUELESS)


def _rows(read: pa.Table, node: str) -> Rows:
    for name in {"node", *FLAGS, *NUMBERS}.difference(read.column_names):
        absent = pa.repeat(node, read.num_rows) if name == "node" else pa.nulls(read.num_rows)
        read = read.append_column(name, absent)
    table = dump_of(node)
    numbers = ", ".join(f'try_cast("{name}" as bigint) as "{name}"' for name in NUMBERS)
    flags = ", ".join(f"{name}::boolean as {name}" for name in FLAGS)
    made = selected(read, f"""
        select node, {numbers}, {flags}, value is null or try_cast(value as bigint) is not null as fits
        from given
    """)
    bounds = (pc.field(name) >= kind.ge for name, kind in table.fields.items() if isinstance(kind, IntType))
    good = keeps([*table.rules, pc.field("fits"), *bounds], made)
    places = np.flatnonzero(good)
    return Rows(columns=encoded(made.filter(pa.array(good))), places=places, before=places, line=_no_line,
                lines=len(good), all_places=len(good), broken=np.flatnonzero(~good))  # fmt: skip


def _no_line(place: int) -> bytes:
    raise NotImplementedError("a row of Parquet is no line")
