"""Parses JSON lines into Arrow columns, one row for each good line; all other lines are counted.

Theory of operation. DuckDB parses JSON three times as fast as Arrow does and ten times as fast as Python, and
is lax: it accepts "7" and 7.2 as integers, null where a number is too big, the first of a name that comes
twice. So it gets only usual lines, which every reader parses alike (Table.usual): lines written like a sample
from all over the piece, with the same field order and the same undeclared fields. Python decides which of the
other lines are good, and rewrites them.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from floodmark.checkers.read.field_table import Table, Twice, one_array

Ints = npt.NDArray[np.int64]

_BLANK = b" \t\r\n"
_LF = 10
_SAMPLE = 100  # sample lines of a piece, and as many chosen by position in bytes
_LONG = 1 << 16  # bytes; a longer line is not used as a sample
# rapidjson accepts these as numbers, without a word from Arrow
_NO_NUMBER = re.compile(rb"[:,\[\s-](?:NaN|Inf)")
_SAFE_DIGITS = 20  # an integer of 64 bits has no more
_HUGE = sys.float_info.max  # replaces invalid numbers in fields that no check uses


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


def rows_of(data: bytes, table: Table) -> Rows:
    """Parse every line of the data; the last one may lack its line feed."""
    lines = _lines_of(data)
    usual = pc.match_substring_regex(lines, table.usual(_sample(lines)))
    is_usual = usual.to_numpy(zero_copy_only=False)
    others = np.flatnonzero(~is_usual)
    odd = [lines[place].as_py().strip(_BLANK) for place in others]
    kept, good = lines, np.ones(len(lines), dtype=np.bool_)
    if odd:
        written = pa.array([as_usual(line, table) for line in odd], lines.type)
        kept = pc.replace_with_mask(lines, pc.invert(usual), written)
        good = kept.is_valid().to_numpy(zero_copy_only=False)
    columns = table.encoded(_parsed(kept, table))
    # Python has checked the others.
    keeps = ~is_usual[good] | table.keeps_rules(columns)
    if not keeps.all():
        good[np.flatnonzero(good)[~keeps]] = False
        columns = {name: column.filter(pa.array(keeps)) for name, column in columns.items()}
    places = np.flatnonzero(good)
    blank = others[[not line for line in odd]]
    good[blank] = True
    return Rows(
        columns=columns,
        places=places,
        before=places - np.searchsorted(blank, places) if len(blank) else places,
        line=lambda place: lines[place].as_py().rstrip(b"\n"),
        lines=len(lines) - len(blank),
        all_places=len(lines),
        broken=np.flatnonzero(~good),
    )


def _lines_of(data: bytes) -> pa.LargeBinaryArray:
    """The lines, each with its line feed; the bytes are not copied."""
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _LF) + 1
    if data and not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    offsets = pa.py_buffer(np.concatenate((np.zeros(1, dtype=np.int64), ends)))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends), [None, offsets, pa.py_buffer(data)])


def _sample(lines: pa.LargeBinaryArray) -> list[Any]:
    """Parsed sample lines, without those that are no JSON. If there are few long lines, some of them are
    included."""
    bounds = np.frombuffer(lines.buffers()[1], dtype=np.int64)
    by_lines, by_bytes = (np.arange(_SAMPLE) * size // _SAMPLE for size in (len(lines), bounds[-1]))
    places = np.union1d(by_lines, np.searchsorted(bounds, by_bytes, side="right") - 1)
    sample = []
    for place in places[: len(lines)].tolist():
        if bounds[place + 1] - bounds[place] <= _LONG:
            with suppress(orjson.JSONDecodeError):
                sample.append(orjson.loads(lines[place].as_py()))
    return sample


def _parsed(lines: pa.LargeBinaryArray, table: Table) -> pa.Table:
    """A row for each of these lines, which are usual or rewritten by as_usual."""
    asked = pa.table({"line": lines.view(pa.large_string())})  # noqa: F841 (the statement names it)
    form = json.dumps(_form(pa.struct(list(table.schema))))
    select = f"select from_json(line, '{form}') as row from asked where line is not null"
    rows = _database().cursor().sql(select).to_arrow_table(batch_size=len(lines) + 1)
    return pa.Table.from_arrays(one_array(rows["row"]).flatten(), names=table.schema.names)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """This process's database. A statement uses a cursor of its own, so that threads can parse in
    parallel."""
    return duckdb.connect(config={"threads": 1})


def _form(kind: pa.DataType) -> Any:
    """A type in the form that DuckDB's from_json expects."""
    if pa.types.is_struct(kind):
        return {each.name: _form(each.type) for each in kind}
    if pa.types.is_list(kind):
        return [_form(kind.value_type)]
    return {pa.int64(): "BIGINT", pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN"}[kind]


# -- lines that are not usual -------------------------------------------------------------------------------


def as_usual(line: bytes, table: Table) -> bytes | None:
    """A good line's columns, written as a usual line; None for a broken one."""
    try:
        row = _DECODER.decode(line.decode())
    except ValueError:
        return None
    except RecursionError:
        row = _very_deep(line, table)
    good = isinstance(row, dict) and table.is_good(row)
    return orjson.dumps(table.as_columns(row)) if good else None


def _very_deep(line: bytes, table: Table) -> dict[str, Any] | None:
    """The columns of an object deeper than Python can parse. They are enough to check it, because a value
    that deep is an undeclared field, or breaks a type."""
    if _NO_NUMBER.search(line):
        return None
    options = pj.ParseOptions(explicit_schema=table.schema, unexpected_field_behavior="ignore")
    blocks = pj.ReadOptions(use_threads=False, block_size=len(line) + 1)
    try:
        [row] = pj.read_json(pa.BufferReader(line), read_options=blocks, parse_options=options).to_pylist()
    except (pa.ArrowException, ValueError):
        return None
    return {name: value for name, value in row.items() if value is not None}


def as_json(line: bytes) -> str:
    """A good line, written so that every JSON reader accepts it."""
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        line = json.dumps(_DECODER.decode(line.decode()), ensure_ascii=False).encode(errors="replace")
    return line.strip(_BLANK).decode()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) == len(pairs):
        return row
    twice, last = Twice(row), {name: at for at, (name, _) in enumerate(pairs)}
    twice.before = [pair for at, pair in enumerate(pairs) if last[pair[0]] != at]
    return twice


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _SAFE_DIGITS else _HUGE


def _float(digits: str) -> float:
    return min(max(float(digits), -_HUGE), _HUGE)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_refused
)
