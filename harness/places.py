"""Where run folders lie: in this machine's file system, or in one that only Spark's Hadoop can read.

Rules
1. Whoever reads a run folder asks no more of it than a Place has; pathlib's Path is one.
2. What goes wrong in a far place is the OSError that a Path would give: nobody has to know which it is.
3. `scheme:/...` is an address, unless something in this machine's file system has that very name.
   file:///x is /x.
"""

import re
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, Self

from harness.errors import UsageError

LOCAL = "file"
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*)", re.DOTALL)


class HasSize(Protocol):
    @property
    def st_size(self) -> int: ...  # bytes


class Place(Protocol):
    """A file or folder, by its name: as much of pathlib's Path as reading a run takes."""

    @property
    def name(self) -> str: ...
    @property
    def suffix(self) -> str: ...
    def __truediv__(self, name: str, /) -> Self: ...
    def exists(self) -> bool: ...
    def is_file(self) -> bool: ...
    def is_dir(self) -> bool: ...
    def resolve(self) -> Self: ...
    def read_bytes(self) -> bytes: ...
    def open(self, mode: Literal["rb"], /) -> BinaryIO: ...
    def stat(self) -> HasSize: ...


class Far(Place, Protocol):
    """A place that is no Path."""

    def glob_folders(self) -> "list[Self]":
        """The folders that match this name, taken as a pattern."""
        ...

    def write_whole(self, data: bytes) -> None:
        """The file with all of this data, or as it was before, where its file system can do that."""
        ...


def scheme_of(word: str) -> str | None:
    """Of an address its scheme, in small letters; None of a path."""
    address = _ADDRESS.fullmatch(word)
    return None if address is None or Path(word).exists() else address["scheme"].lower()


def path_of(address: str) -> Path:
    """Of a file: address the path (no %20 or the like is undone in it, as Hadoop undoes none)."""
    found = _ADDRESS.fullmatch(address)
    assert found is not None, address
    rest = found["rest"]
    if not rest.startswith("//"):
        return Path(rest)
    host, slash, path = rest[2:].partition("/")
    if host not in ("", "localhost"):
        raise UsageError(f"{address}: a file: address names no host; write file:///{path}")
    return Path(slash + path)
