"""Parses JSON lines into Arrow columns, one row for each good line; all other lines are counted.

DuckDB makes the columns: three times as fast as Arrow, but it would accept "7" and 7.2 as integers, and the
first of a name that comes twice. So it gets only usual lines (Table.usual), as floodmark writes them. msgspec
checks the others against their declaration, and writes their declared fields again.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import and_

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from floodmark.checkers.read.field_table import Table

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_BLANK = b" \t\r\n"
_LF = 10
_SAFE_DIGITS = 20  # an integer of 64 bits has no more
_HUGE = sys.float_info.max  # replaces invalid numbers in fields that no check uses
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The good lines of a piece of a file, in order. A place is a line's position, blank lines included."""

    columns: Mapping[str, pa.Array]  # those of the field table; texts are dictionaries
    places: Ints
    before: Ints  # how many lines, good or broken, come before each
    line: Callable[[int], bytes]  # the line at this place, unparsed
    lines: int  # good or broken
    all_places: int
    broken: Ints  # places of the broken lines


def rows_of(data: bytes | memoryview, table: Table) -> Rows:
    """Parse every line of the data; the last one may lack its line feed."""
    lines = _lines_of(data)
    usual = pc.match_substring_regex(lines, table.usual)
    others = np.flatnonzero(~usual.to_numpy(zero_copy_only=False))
    odd = [lines[place].as_py().strip(_BLANK) for place in others]
    kept, good = lines, np.ones(len(lines), dtype=np.bool_)
    if odd:
        written = pa.array([_written(line, table) for line in odd], lines.type)
        kept = pc.replace_with_mask(lines, pc.invert(usual), written)
        good[others] = written.is_valid()
    form = json.dumps(table.columns)
    made = selected(pa.table({"line": kept.view(pa.large_string())}),
                    f"select unnest(from_json(line, '{form}')) from given where line is not null")
    keeps_rules = keeps(table.rules, made)
    if not keeps_rules.all():
        good[good] = keeps_rules
        made = made.filter(pa.array(keeps_rules))
    places, blank = np.flatnonzero(good), others[[not line for line in odd]]
    good[blank] = True
    return Rows(
        columns=encoded(made),
        places=places,
        before=places - np.searchsorted(blank, places) if len(blank) else places,
        line=lambda place: lines[place].as_py().rstrip(b"\n"),
        lines=len(lines) - len(blank),
        all_places=len(lines),
        broken=np.flatnonzero(~good),
    )


def _lines_of(data: bytes | memoryview) -> pa.LargeBinaryArray:
    """The lines, each with its line feed; the bytes are not copied."""
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _LF) + 1
    if data and data[-1] != _LF:
        ends = np.append(ends, len(data))
    offsets = pa.py_buffer(np.concatenate((np.zeros(1, dtype=np.int64), ends)))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), [None, offsets, pa.py_buffer(data)])


def _written(line: bytes, table: Table) -> bytes | None:
    """The line's declared fields; None if it breaks their types, or is no JSON."""
    try:
        line.decode()
        return _ENCODER.encode(table.decode(line))
    except (msgspec.ValidationError, UnicodeDecodeError):
        return None
    except (msgspec.DecodeError, RecursionError):
        return _odd(line, table)


def _odd(line: bytes, table: Table) -> bytes | None:
    """The fields of a line that msgspec cannot read, and other readers can: with half of a surrogate pair, or
    very deep. Objects as deep as that have no declared fields."""
    try:
        return _ENCODER.encode(table.decode(as_json(line).encode()))
    except (ValueError, msgspec.MsgspecError):
        return None
    except RecursionError:
        form = json.dumps(dict.fromkeys(table.fields, "JSON"))
    try:
        found = database().cursor().execute(f"select to_json(from_json($1, '{form}'))", [line.decode()])
        return _ENCODER.encode(table.decode(found.fetchall()[0][0]))
    except (duckdb.Error, RecursionError, msgspec.MsgspecError):
        return None


def selected(given: pa.Table, statement: str) -> pa.Table:
    """What DuckDB makes of these rows, which the statement calls `given`; as many."""
    return database().cursor().sql(statement).to_arrow_table(batch_size=given.num_rows + 1)


def keeps(rules: Sequence[pc.Expression], table: pa.Table) -> Bools:
    """Which rows keep all of these rules."""
    rows = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    rule = reduce(and_, rules, pc.scalar(True))
    answer = acero.Declaration("project", acero.ProjectNodeOptions([rule], ["keeps"]), [rows])
    return pc.fill_null(answer.to_table(use_threads=False)["keeps"], False).to_numpy()  # type: ignore[no-any-return]


def encoded(table: pa.Table) -> dict[str, pa.Array]:
    """The columns, each as one array, and texts as dictionaries."""
    columns = {name: one_array(table[name]) for name in table.column_names}
    return {
        name: column.dictionary_encode() if column.type == pa.string() else column
        for name, column in columns.items()
    }


@cache
def database() -> duckdb.DuckDBPyConnection:
    """This process's database. Each cursor has its own tables, so that threads can parse in parallel."""
    return duckdb.connect(config={"threads": 1})


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without a copy where it is one already."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [
        pa.array([], type=column.type)
    ])


def as_json(line: bytes) -> str:
    """A good line, written so that every JSON reader accepts it."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        line = json.dumps(_DECODER.decode(line.decode()), ensure_ascii=False).encode(errors="replace")
    return line.strip(_BLANK).decode()


def _number(digits: str) -> int | float:
    if len(digits) <= _SAFE_DIGITS and digits.lstrip("-").isdigit():
        return int(digits)
    return min(max(float(digits), -_HUGE), _HUGE)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(parse_int=_number, parse_float=_number, parse_constant=_refused)
