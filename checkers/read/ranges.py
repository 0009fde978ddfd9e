"""Cuts a run's big files into ranges that are read independently, and reads the lines of one.

A range of JSON lines is a range of bytes, and has the lines that start in it; one of Parquet is a row group.
An empty file has no range.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.checkers.read.folder import Folder
from floodmark.harness.run_location import Place

Kind = Literal["history", "dump", "trace", "replicas"]
RANGE_BYTES = 1 << 24
AT_BITS = 32  # of `at`, the line's place in its range; above them the range's number
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """One range of one file: of bytes, or of Parquet one row group (start, and end is the next)."""

    run: int
    kind: Kind
    node: str | None  # of a dump: its node
    place: Place
    start: int
    end: int
    number: int  # among those of its file, from 0
    copy: Path | None = None  # of a history: Parquet with the same lines, cut at the same places

    @property
    def is_parquet(self) -> bool:
        return self.kind == "dump" and self.place.suffix == ".parquet"


def ranges_of(run: int, folder: Folder, range_bytes: int = RANGE_BYTES) -> Iterator[Range]:
    """The ranges of all big files that can be read."""
    if folder.history is not None:
        yield from cut(run, "history", None, folder.history, range_bytes)
    for node, dump in folder.dumps.items():
        yield from cut(run, "dump", node, dump, range_bytes)
    if folder.rows is not None:
        yield from cut(run, "replicas", None, folder.rows, range_bytes)
    if folder.trace is not None:
        yield from cut(run, "trace", None, folder.trace, range_bytes)


def cut(
    run: int, kind: Kind, node: str | None, place: Place, range_bytes: int = RANGE_BYTES
) -> Iterator[Range]:
    """The ranges of one file."""
    if kind == "dump" and place.suffix == ".parquet":
        size, step = _row_groups(place), 1
    else:
        size, step = place.stat().st_size, range_bytes
    for number, start in enumerate(range(0, size, step)):
        yield Range(run=run, kind=kind, node=node, place=place, start=start, end=min(start + step, size),
                    number=number)  # fmt: skip


def _row_groups(place: Place) -> int:
    """The number of row groups; one, which cannot be read, if the file is unreadable."""
    try:
        with place.open("rb") as file:
            return int(pq.read_metadata(file).num_row_groups)
    except (OSError, ValueError, pa.ArrowException):
        return 1


def bytes_of(one: Range) -> memoryview:
    """The lines that start in the range, all complete; they are not copied. Empty if none does."""
    with one.place.open("rb") as file:
        before = min(1, one.start)  # a line starts where the byte before is a line feed
        file.seek(one.start - before)
        size = one.end - one.start + before
        data = _read(file.read, size + _PIECE_BYTES)
        if len(data) < size:
            raise OSError(f"{one.place} is shorter than when its ranges were cut")
        first = data.find(b"\n", 0, size) + 1 if before else 0
        if before and not first:
            return memoryview(b"")
        end = data.find(b"\n", size - 1) + 1
        while not end and (more := _read(file.read, len(data))):
            searched, data = len(data), data + more
            end = data.find(b"\n", searched) + 1
    return memoryview(data)[first : end or None]


def _read(read: Callable[[int], bytes], size: int) -> bytes:
    """Read this many bytes, unless the file ends before."""
    pieces: list[bytes] = []
    while size > 0 and (piece := read(size)):
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
