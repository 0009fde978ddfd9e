"""Finds lines of a run's big files without reading all of a file, if the order of its lines allows that.

Rules
1. Lines in the order of a key are found by binary search: a look-up reads a few dozen blocks, whatever the
   file's size. Lines without the key are skipped. In a file that is not in order a line may not be found, but
   a line that is found is a right one.
2. Line numbers (from 1) are counted once a file, a block at a time; the next question costs one block.
3. A search reads forward in blocks and ends when its budget of bytes is used up.
4. A file that is missing or cannot be read has no lines.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

from floodmark.harness.run_location import Place, open_inside

BLOCK_BYTES = 1 << 18
KEYLESS = 8  # lines in a row without the key, after which the search gives up at this place

Key = TypeVar("Key", int, tuple[int, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A line and the byte it begins at."""

    begin: int
    line: bytes

    @property
    def end(self) -> int:
        return self.begin + len(self.line)


@dataclass(slots=True, kw_only=True)
class Budget:
    """How many bytes searches may still read."""

    left: int


@dataclass(slots=True)
class LineFile:
    """A file of lines that is read on demand."""

    path: Place
    folder: Place  # it may be untrusted: the file must be inside it
    _feeds: list[int] = field(default_factory=lambda: [0])  # line feeds before each block counted so far
    _counted: bool = False  # every block was counted

    def first_at_or_above(self, key_of: Callable[[bytes], Key | None], wanted: Key) -> Found | None:
        """The first line whose key is `wanted` or higher."""
        try:
            with open_inside(self.path, self.folder) as file:
                low, high = 0, self.size()
                while low < high:
                    middle = (low + high) // 2
                    found = keyed(file, middle, high, key_of)
                    if found is None or found[1] >= wanted:
                        high = middle
                    else:
                        low = found[0].end
                last = keyed(file, low, self.size(), key_of)
                return last[0] if last is not None and last[1] >= wanted else None
        except OSError:
            return None

    def size(self) -> int:
        try:
            with open_inside(self.path, self.folder) as file:
                return file.seek(0, os.SEEK_END)
        except OSError:
            return 0

    def lines_from(self, begin: int, end: int) -> Iterator[Found]:
        """Yields the lines that begin at bytes `begin` to `end`; a line must begin at `begin`."""
        try:
            with open_inside(self.path, self.folder) as file:
                file.seek(begin)
                while begin < end and (line := file.readline()):
                    yield Found(begin=begin, line=line)
                    begin += len(line)
        except OSError:
            return

    def spaced(self) -> bool:
        """Whether the first line has a space after its colons."""
        first = next(self.lines_from(0, 1), None)
        return first is not None and b'": ' in first.line

    def line_after(self, at: int) -> int:
        """Where the first line at or after this byte begins."""
        try:
            with open_inside(self.path, self.folder) as file:
                return start_after(file, at)
        except OSError:
            return at

    # -- by number ------------------------------------------------------------------------------------------

    def numbered(self, number: int) -> Found | None:
        """The line with that number, from 1."""
        feeds, begin = number - 1, 0
        if feeds < 0 or (feeds and not self._count(lambda: self._feeds[-1] >= feeds)):
            return None
        try:
            with open_inside(self.path, self.folder) as file:
                if feeds:
                    block = bisect_left(self._feeds, feeds) - 1
                    begin = block * BLOCK_BYTES
                    file.seek(begin)
                    begin += after_feed(file.read(BLOCK_BYTES), feeds - self._feeds[block])
                    file.seek(begin)
                line = file.readline()
                return Found(begin=begin, line=line) if line else None
        except OSError:
            return None

    def number_of(self, begin: int) -> int | None:
        """The number of the line that begins there."""
        block = begin // BLOCK_BYTES
        if not self._count(lambda: len(self._feeds) > block):
            return None
        try:
            with open_inside(self.path, self.folder) as file:
                file.seek(block * BLOCK_BYTES)
                return self._feeds[block] + file.read(begin - block * BLOCK_BYTES).count(b"\n") + 1
        except OSError:
            return None

    def _count(self, enough: Callable[[], bool]) -> bool:
        """Counts further blocks until `enough` is true; False if the file ends before, or cannot be read."""
        if enough() or self._counted:
            return enough()
        try:
            with open_inside(self.path, self.folder) as file:
                file.seek((len(self._feeds) - 1) * BLOCK_BYTES)
                while not enough() and (block := file.read(BLOCK_BYTES)):
                    self._feeds.append(self._feeds[-1] + block.count(b"\n"))
                self._counted = not enough()
        except OSError:
            return False
        return enough()

    # -- by content -----------------------------------------------------------------------------------

    def containing(self, needle: bytes, budget: Budget, begin: int = 0) -> Iterator[Found]:
        """Yields the lines from `begin` on (the begin of a line) that contain these bytes, within the
        budget."""
        rest = b""
        try:
            with open_inside(self.path, self.folder) as file:
                file.seek(begin)
                while budget.left > 0 and (block := file.read(BLOCK_BYTES)):
                    budget.left -= len(block)
                    text = rest + block
                    cut = text.rfind(b"\n") + 1 or len(text)
                    yield from search_within(text[:cut], needle, begin)
                    rest, begin = text[cut:], begin + cut
                yield from search_within(rest, needle, begin)
        except OSError:
            return


def search_within(text: bytes, needle: bytes, begin: int) -> Iterator[Found]:
    """Yields the lines of a piece of a file that contain the needle; the piece begins at byte `begin`."""
    at = text.find(needle)
    while at >= 0:
        start = text.rfind(b"\n", 0, at) + 1
        end = text.find(b"\n", at) + 1 or len(text)
        yield Found(begin=begin + start, line=text[start:end])
        at = text.find(needle, end)


def after_feed(block: bytes, number: int) -> int:
    """The index after the block's line feed with this number, from 1."""
    at = -1
    for _ in range(number):
        at = block.index(b"\n", at + 1)
    return at + 1


def start_after(file: BinaryIO, at: int) -> int:
    if at <= 0:
        return 0
    file.seek(at - 1)
    return at - 1 + len(file.readline())


def keyed(
    file: BinaryIO, at: int, end: int, key_of: Callable[[bytes], Key | None]
) -> tuple[Found, Key] | None:
    """The first line with a key between two bytes, and the key."""
    begin = start_after(file, at)
    file.seek(begin)
    for _ in range(KEYLESS):
        line = file.readline()
        if not line or begin >= end:
            return None
        key = key_of(line)
        if key is not None:
            return Found(begin=begin, line=line), key
        begin += len(line)
    return None
