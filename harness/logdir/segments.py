"""Finds a partition's log segments, and the batches in them.

A tail of the last segment that is not a batch is torn; the log ends before it. For a node that was not
running, so is a last batch with a wrong CRC, because recovery would remove it. Before another segment no
tail is torn: nobody knows what stood there, and the log cannot be read.

The log cleaner writes a file with the suffix .cleaned; when it is complete it has the suffix .swap until it
replaces the segments that it was made from. A broker that was killed in between replaces them at its next
start. So a .swap counts, and the segments that begin inside it do not. A .swap that begins at or after a
.cleaned one is of an incomplete split: the broker deletes it (KAFKA-6264).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.record_batches import MAGIC, MAGIC_AT, frame, last_offset, size_of

SUFFIX = ".log"
WINDOW_BYTES = 4 << 20  # read at a time; more for a larger batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    base_offset: int
    path: Path


def segments_of(folder: Path) -> list[Segment]:
    """The segments of a log, ordered by base offset; none where there is no such folder."""
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FloodmarkError(f"the log folder {folder} cannot be read: {error}") from error
    segments = _named(paths, SUFFIX)
    cleaned = [int(path.name[:20]) for path in paths
               if path.suffix == ".cleaned" and path.name[:20].isdecimal()]
    for swapped in _named(paths, SUFFIX + ".swap"):
        if cleaned and swapped.base_offset >= min(cleaned):
            continue
        end, _ = end_of(swapped, running=True)
        segments = [one for one in segments if not swapped.base_offset <= one.base_offset < end]
        segments = [*(one for one in segments if one.base_offset != swapped.base_offset), swapped]
    return sorted(segments, key=lambda segment: segment.base_offset)


def why_no_log(folder: Path) -> str | None:
    """By its names and how each segment begins (zeros if preallocated); None: it may be a partition's."""
    segments = segments_of(folder)
    if not segments:
        return f"it has no {folder.name}/*{SUFFIX}"
    for segment in segments:
        with _reading(segment), segment.path.open("rb") as file:
            head = file.read(MAGIC_AT + 1)
        if len(head) > MAGIC_AT and any(head) and (head[MAGIC_AT] > MAGIC or not (
                0 <= int.from_bytes(head[:8], "big") - segment.base_offset < 1 << 32)):
            return f"{folder.name}/{segment.path.name} does not begin as a log does"
    return None


def _named(paths: Sequence[Path], suffix: str) -> list[Segment]:
    return [Segment(base_offset=int(stem), path=path) for path in paths
            if path.name.endswith(suffix) and (stem := path.name.removesuffix(suffix)).isdecimal()]


def batches_of(segment: Segment, *, is_last: bool = True, drop_bad_last: bool = False
               ) -> Iterator[tuple[bytes, int, int]]:
    """As (window, position, size), up to bytes that are no batch; refused if a segment follows."""
    with _reading(segment), segment.path.open("rb") as file:
        data, at = file.read(WINDOW_BYTES), 0
        left = segment.path.stat().st_size - len(data)
        while (size := size_of(data, at)) is not None:
            if size and at + size <= len(data):
                if is_last and drop_bad_last and left <= 0 and frame(data, at + size) is None and not (
                        (header := frame(data, at)) is not None and header.crc_ok):
                    return
                yield data, at, size
                at += size
                continue
            more = file.read(max(WINDOW_BYTES, size)) if size <= left + len(data) - at else b""
            if not more:
                break
            left -= len(more)
            data, at = data[at:] + more, 0
    if not is_last and (torn := left + len(data) - at) > 0:
        refuse(segment.path, f"its last {torn} bytes are no batch, and another segment follows")


@contextmanager
def _reading(segment: Segment) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        refuse(segment.path, str(error))


def end_of(segment: Segment, *, running: bool) -> tuple[int, int]:
    """The LEO by this segment, if it is the last, and the number of its torn bytes."""
    leo, valid_bytes = segment.base_offset, 0
    for data, at, size in batches_of(segment, drop_bad_last=not running):
        leo = last_offset(data, at) + 1
        valid_bytes += size
    with _reading(segment):
        return leo, segment.path.stat().st_size - valid_bytes


def refuse(path: Path, why: str) -> NoReturn:
    raise FloodmarkError(f"the log segment {path} cannot be read: {why}")
