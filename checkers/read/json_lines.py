"""Bytes of JSON lines to Arrow columns, one row a good line; whatever else is there is counted.

Theory of operation. Arrow parses many lines at one go, ten times as fast as anything else, and is lax: it
takes objects where it finds them, not line by line, NaN for a number and any bytes for a text. So it is given
lines only where each is seen to be framed by its own braces, and what it gives is compared with their number
(`parsed`); what breaks a type it refuses, all lines together. Then the lines are tried window by window, and
those of a window that is refused are read one by one. A line that is good all the same (a name comes twice,
half a surrogate pair, a word that is a number) is written anew, as Arrow takes it. In the end the field table
judges all rows at once, whichever way they came.

However many lines are broken, each is read at most five times by Arrow and three times by Python.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.json as pj

from checkers.read.field_table import Mask, Object, Table, Twice, validity, values, written

Ints = npt.NDArray[np.int64]

WINDOW = 512  # lines that are tried together, where all of them are not taken
_BLANK = b" \t\r"
_LF = 10
_NO_NUMBER = re.compile(rb"[:,\[\s-](?:NaN|Inf)")  # rapidjson takes these for numbers, and Arrow says nothing
_SAFE_DIGITS = 20  # of 64 bits no integer has more
_HUGE = sys.float_info.max  # stands for numbers that would be none, where nobody asks which they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The good lines of a piece of a file, in order. A place is a line's position, blank ones counted too."""

    columns: Mapping[str, pa.Array]  # those of the field table; texts are dictionaries
    places: Ints
    before: Ints  # how many lines, good or broken, stand before each
    line: Callable[[int], bytes]  # the line in this place, as it stands
    lines: int  # good or broken
    all_places: int
    broken: Ints  # places of the broken lines


def rows_of(data: bytes, table: Table) -> Rows:
    """Every line of the data; the last one may lack its line feed."""
    if data and not data.endswith(b"\n"):
        data += b"\n"
    blank = broken = np.zeros(0, dtype=np.int64)
    size = data.count(b"\n")
    read = parsed(data, table)
    places: Ints = np.arange(size)
    if read is None:
        data = data.replace(b"\r\n", b"\n")
        read, places, blank, broken = _sifted(data.split(b"\n")[:-1], table)
    columns = table.encoded(read)
    line = _lines_of(data)
    good = table.good(columns)
    _look_at_lines(table, columns, good, lambda row: line(int(places[row])))
    if not good.all():
        broken = np.sort(np.concatenate((broken, places[~good])))
        kept_rows = pa.array(np.flatnonzero(good))
        columns = {name: column.take(kept_rows) for name, column in columns.items()}
        places = places[good]
    before = places - np.searchsorted(blank, places) if len(blank) else places
    return Rows(columns=columns, places=places, before=before, line=line, lines=size - len(blank),
                all_places=size, broken=broken)  # fmt: skip


def _lines_of(data: bytes) -> Callable[[int], bytes]:
    ends: list[Ints] = []

    def line(place: int) -> bytes:
        if not ends:
            ends.append(np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _LF))
        first = int(ends[0][place - 1]) + 1 if place else 0
        return data[first : int(ends[0][place])]

    return line


# -- by Arrow -----------------------------------------------------------------------------------------------


def parsed(data: bytes, table: Table, *, sure: bool = False) -> pa.Table | None:
    """Every line as a row, in its place; None where one is not exactly one object with fields of these types.
    sure: each of them is known to be one object of JSON."""
    if not data:
        return table.schema.empty_table()
    lines = data.count(b"\n")
    # Between two objects of one line no line ends, and within one a line end is no JSON.
    if not (data.startswith(b"{") and data.endswith(b"}\n") and data.count(b"}\n{") == lines - 1):
        return None
    if not sure and (b"NaN" in data or b"Inf" in data) and _NO_NUMBER.search(data):
        return None
    try:
        if not data.isascii():
            data.decode()
        rows = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=table.schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return rows if rows.num_rows == lines else None


def _look_at_lines(
    table: Table, columns: dict[str, pa.Array], good: Mask, line: Callable[[int], bytes]
) -> None:
    """What columns do not tell, of the few lines of which it is asked: whether a null is named, whether an
    object is one."""
    for name in (each.name for each in table.fields if each.named):
        if not columns[name].null_count:
            continue
        key = f'"{name}":null'.encode()
        for row in np.flatnonzero(good & ~validity(columns[name])):
            text = line(int(row))
            # The quick look is enough for an object without objects in it.
            if not (key in text and text.count(b"{") == 1):
                good[row] = is_good_line(text, table)
    if any(isinstance(each.type, Object) for each in table.fields):
        for row in np.flatnonzero(good & (values(columns["process"], 0) < 0)):
            good[row] = is_good_line(line(int(row)), table)


# -- by Python ----------------------------------------------------------------------------------------------


def _sifted(lines: Sequence[bytes], table: Table) -> tuple[pa.Table, Ints, Ints, Ints]:
    """Those lines that are good, or that Arrow takes, and their places; the places of blank and broken ones.
    """
    tables: list[pa.Table] = []
    blank: list[int] = []
    broken: list[int] = []
    for first in range(0, len(lines), WINDOW):
        window = lines[first : first + WINDOW]
        rows = parsed(b"\n".join(window) + b"\n", table)
        if rows is None:
            rows, left_out = _one_by_one(window, table)
            for place, line in left_out:
                (broken if line else blank).append(first + place)
        tables.append(rows)
    kept = np.ones(len(lines), dtype=np.bool_)
    kept[blank + broken] = False
    places: list[Ints] = [np.flatnonzero(kept), *(np.array(each, dtype=np.int64) for each in (blank, broken))]
    return pa.concat_tables(tables), *places


_LeftOut = Sequence[tuple[int, bytes]]  # lines that give no row, each with its place among the others


def _one_by_one(lines: Sequence[bytes], table: Table) -> tuple[pa.Table, _LeftOut]:
    """Each line is read with no more care than it takes until Arrow takes what is left."""
    lines = [line.strip(_BLANK) for line in lines]
    for read in (_object_alone, _quickly, _carefully):
        taken = [read(line, table) for line in lines]
        rows = parsed(b"".join(line + b"\n" for line in taken if line is not None), table, sure=True)
        if rows is not None:
            left_out = [(place, line) for place, line in enumerate(lines) if taken[place] is None]
            return rows, left_out
    raise AssertionError("lines that are good, one by one, and that Arrow does not take together")


def _object_alone(line: bytes, table: Table) -> bytes | None:
    try:
        return line if isinstance(orjson.loads(line), dict) else None
    except orjson.JSONDecodeError:
        return _carefully(line, table)


def _quickly(line: bytes, table: Table) -> bytes | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return _carefully(line, table)
    return line if isinstance(row, dict) and table.is_good(row) else None


def _carefully(line: bytes, table: Table) -> bytes | None:
    """The line of a good row, as Arrow takes it; None of a broken one, and of a blank one."""
    try:
        row = _DECODER.decode(line.decode())
    except ValueError:
        return None
    except RecursionError:
        # Deeper than Python reads: what is so deep is a field that nobody knows, or breaks a type.
        return line if parsed(line + b"\n", table) is not None else None
    if not isinstance(row, dict) or not table.is_good(row):
        return None
    return orjson.dumps(written(table.fields, row))


def is_good_line(line: bytes, table: Table) -> bool:
    """The same of all that a line says, also where Arrow takes it."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            row = _DECODER.decode(line.decode())
        except (ValueError, RecursionError):
            return False
    return isinstance(row, dict) and table.is_good(row)


def as_json(line: bytes) -> str:
    """A good line, so that every reader of JSON takes it."""
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
