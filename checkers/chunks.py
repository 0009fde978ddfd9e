"""Files of JSON lines as arrays: cut into chunks of whole lines, which several threads parse at once.

Rules
1. A chunk is parsed at one go. One that will not is halved, down to the lines that are at fault; each of
   these is either certainly no line of the format (it is counted) or the file is refused (Blemished).
2. Blank lines are no lines. A last line without its LF is a line.
3. Only so much of a file is in memory as the threads work at.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as pj

from checkers.plain import Law
from harness.places import Place

Ints = npt.NDArray[np.integer[Any]]  # of 32 bits where that is enough: sums of two stay in them
Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]

CHUNK_BYTES = 1 << 23
BROKEN_AT_MOST = 10_000  # lines of a file; beyond that the halving takes longer than reading line by line
_NARROW = 1 << 30


class Blemished(Exception):
    """Not for the sieve: this run goes to the checks whole."""


def refuse_if(broken: Any, why: str) -> None:
    if broken:
        raise Blemished(why)


@dataclass(slots=True, kw_only=True)
class Lines:
    """What came of a file: columns in pieces, in file order; `broken` lines gave nothing."""

    pieces: list[dict[str, npt.NDArray[Any]]] = field(default_factory=list)
    broken: int = 0

    def take(self, name: str, none: Any = np.int32) -> npt.NDArray[Any]:
        """One column whole; the pieces let go of theirs."""
        parts = [piece.pop(name) for piece in self.pieces]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=none)


Read = Callable[[bytes], dict[str, npt.NDArray[Any]]]
_Made = TypeVar("_Made")


def read_lines(path: Place, read: Read, law: Law, pool: Executor, ahead: int) -> Lines:
    """Every chunk of the file through `read`, at most `ahead` of them at once."""
    lines = Lines()
    for pieces in in_turn(lambda chunk: parsed(chunk, read, law), chunks_of(path), pool, ahead):
        note(lines, pieces)
    return lines


def in_turn(work: Callable[[bytes], _Made], chunks: Iterable[bytes], pool: Executor, ahead: int
            ) -> Iterator[_Made]:
    """What the work makes of each chunk, in order, at most `ahead` of them at once."""
    waiting = deque[Future[_Made]]()
    try:
        for chunk in chunks:
            waiting.append(pool.submit(work, chunk))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for each in waiting:
            each.cancel()


def note(lines: Lines, pieces: list[dict[str, npt.NDArray[Any]] | None]) -> None:
    for piece in pieces:
        if piece is None:
            lines.broken += 1
            refuse_if(lines.broken > BROKEN_AT_MOST, "too many broken lines")
        else:
            lines.pieces.append(piece)


def chunks_of(path: Place) -> Iterator[bytes]:
    """The file in chunks that end with a line."""
    with path.open("rb") as file:
        rest: list[bytes] = []
        while data := file.read(CHUNK_BYTES):
            cut = data.rfind(b"\n") + 1
            if cut:
                yield b"".join((*rest, data[:cut]))
                rest = []
            rest.append(data[cut:])
        last = b"".join(rest)
        if last:
            yield last + b"\n"


def parsed(chunk: bytes, read: Read, law: Law) -> list[dict[str, npt.NDArray[Any]] | None]:
    """The pieces of a chunk; None for a broken line."""
    pieces: list[dict[str, npt.NDArray[Any]] | None] = []
    parts = [chunk]
    while parts:
        part = parts.pop()
        try:
            pieces.append(read(part))
        except Blemished:
            cut = part.find(b"\n", len(part) // 2, len(part) - 1) + 1 or part.rfind(b"\n", 0, -1) + 1
            if cut:
                parts += [part[cut:], part[:cut]]
            elif part.strip(b" \n"):
                refuse_if(not is_broken(part[:-1], law), "a line that is another's matter")
                pieces.append(None)
                refuse_if(len(pieces) > 2 * BROKEN_AT_MOST, "too many broken lines")
    return pieces


def is_broken(line: bytes, law: Law) -> bool:
    """Whether no reader, however kind, can take this line for one of the format. frames.object_of takes what
    follows a comma for its own; of a name that comes twice nobody knows which counts."""
    try:
        text = line.decode().lstrip(" \t\r")
    except UnicodeDecodeError:
        return True
    refuse_if(text.startswith("\ufeff"), "a byte order mark")
    try:
        row, end = _DECODER.raw_decode(text)
    except (json.JSONDecodeError, RecursionError):
        return True
    rest = text[end:].strip()
    refuse_if(rest.startswith(","), "an object and something else")
    return bool(rest) or not isinstance(row, dict) or not law(row)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    refuse_if(len(row) < len(pairs), "a name that comes twice")
    return row


_DECODER = json.JSONDecoder(object_pairs_hook=once)


def table_of(chunk: bytes, schema: pa.Schema) -> pa.Table:
    """Every line as a row; Blemished where one is not exactly one object with fields of these types."""
    lines = chunk.count(b"\n")
    clean = chunk.startswith(b"{") and chunk.endswith(b"}\n") and chunk.count(b"}\n{") == lines - 1
    refuse_if(not clean, "lines that are not one object each")
    try:
        if not chunk.isascii():
            chunk.decode()  # Arrow takes any bytes for text
        table = pj.read_json(
            pa.BufferReader(chunk),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(chunk) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise Blemished(str(error)) from error
    refuse_if(table.num_rows != lines, "several objects on a line")
    return table


def narrow(column: npt.NDArray[Any]) -> Ints:
    """The same numbers in 32 bits, if all of them are far from the end of these."""
    fits = not len(column) or (column.min() >= -_NARROW and column.max() < _NARROW)
    narrowed: Ints = column.astype(np.int32 if fits else np.int64, copy=True)
    return narrowed
