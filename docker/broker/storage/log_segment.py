"""Describes one segment: a `%020d.log` file and, in memory, where each of its batches begins.

Kafka's `.index` and `.timeindex` are not written: positions are computed when the log is opened, which reads
every batch anyway, and take 8 bytes a batch in memory (offset and position relative to the segment, 32 bits
each, as in Kafka's index). Kafka rebuilds missing index files when it opens such a directory.
"""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

SUFFIX = ".log"
_MAX_RELATIVE = (1 << 31) - 1


def segment_name(folder: str, base: int) -> str:
    return f"{folder}/{base:020d}{SUFFIX}"


def segment_base_offset(file_name: str) -> int | None:
    """The base offset in a segment's file name (without folder); None if it names no segment."""
    stem = file_name.removesuffix(SUFFIX)
    return int(stem) if len(stem) == 20 and file_name.endswith(SUFFIX) and stem.isdecimal() else None


def _new_column() -> "array[int]":
    return array("I")


@dataclass(slots=True, kw_only=True)
class LogSegment:
    """Mutable: `leo` is the offset after its last record, `size` where the next batch goes.

    Invariant: batch i begins at offset base + offsets[i] and byte positions[i]; both rise strictly, and the
    batch ends where the next begins (or at leo and size).
    """

    name: str
    base: int
    descriptor: int
    leo: int
    size: int = 0
    offsets: "array[int]" = field(default_factory=_new_column)
    positions: "array[int]" = field(default_factory=_new_column)

    def add_batch(self, base_offset: int, last_offset: int, length: int) -> None:
        """Note that a batch of `length` bytes was written at `size`."""
        self.offsets.append(base_offset - self.base)
        self.positions.append(self.size)
        self.leo = last_offset + 1
        self.size += length

    def has_room_for(self, last_offset: int, size: int, length: int, segment_bytes: int) -> bool:
        """Whether a batch of `length` bytes fits after `size` bytes: by segment_bytes (the first batch always
        fits) and by 32-bit relative offsets."""
        return size == 0 or (size + length <= segment_bytes and last_offset - self.base <= _MAX_RELATIVE)

    def position_of(self, offset: int) -> int | None:
        """The position of the batch that begins at `offset`, or the end for leo; None inside a batch."""
        if offset == self.leo:
            return self.size
        relative = offset - self.base
        at = bisect_left(self.offsets, relative)
        return self.positions[at] if at < len(self.offsets) and self.offsets[at] == relative else None

    def offset_at(self, position: int) -> int:
        """The offset up to which the first `position` bytes contain complete batches."""
        if position >= self.size:
            return self.leo
        at = bisect_right(self.positions, position) - 1
        return self.base + self.offsets[at] if at >= 0 else self.base

    def truncate_to(self, to: int, position: int) -> None:
        """Note that the segment was cut at offset `to`, which is at byte `position`."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:]
        self.leo, self.size = to, position

    def batch_range(self, start: int, end: int, max_bytes: int) -> tuple[int, int]:
        """The bytes (from, to) of the whole batches from the one that holds `start`, below `end`, at most
        max_bytes but at least one batch. Needs base <= start < leo."""
        first = bisect_right(self.offsets, start - self.base) - 1
        begin = self.positions[first]
        if end >= self.leo:
            stop, last = self.size, len(self.positions)
        else:
            last = bisect_right(self.offsets, end - self.base) - 1  # the batch that holds or begins at `end`
            stop = self.positions[last]
        if stop - begin > max_bytes:
            last = max(bisect_right(self.positions, begin + max_bytes) - 1, first + 1)
            stop = self.positions[last] if last < len(self.positions) else self.size
        return begin, stop
