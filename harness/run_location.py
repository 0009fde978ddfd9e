"""Opens run folders: in this machine's file system, or in one that only Spark's Hadoop can read.

Rules
1. Whoever reads a run folder asks no more of it than a Place has; pathlib's Path is one.
2. What goes wrong in a far place is the OSError that a Path would give: nobody has to know which it is.
3. `scheme:/...` is an address, unless something in this machine's file system has that very name.
   file:///x is /x.
4. What is written into a folder is written under a name that nobody can foresee, which nothing has, and takes
   its place by rename (replacing): no link that lies ready is written through.
5. A run folder may come from a stranger. Of it only regular files inside it are opened (open_inside): a pipe
   would be waited for for ever, a device never ends, a link may lead to any file of the reader's. The folder
   itself is what the reader named; it may be a link.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, Self

from floodmark.harness.errors import UsageError

LOCAL = "file"
BLOCK_BYTES = 1 << 24
NAME_BYTES_AT_MOST = 200  # file systems take 255, and an ending comes behind it
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


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A new file that takes the path's place when the block ends well, and is gone where it does not: whoever
    looks sees the file whole, or as it was before. A link at the path is replaced, not followed. durable:
    that holds over a loss of power, too, and what was written is on disk when the block has ended.

    Raises: OSError where it cannot be written.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    number = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            if durable:  # a rename may reach the disk before the data does
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, path)
        if durable:
            sync(path.parent)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Returns when this file's data, or this folder's names, are on disk. Raises: OSError."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():
            raise  # else a file system that has no such thing as a folder's data
    finally:
        os.close(number)


# -- folders of strangers -----------------------------------------------------------------------------------

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def open_inside(path: Place, folder: Place) -> BinaryIO:
    """A file of a run folder, to be read in bytes; OSError where it is no regular file inside the folder.

    Links inside the folder are followed as far as they stay in it. It never waits: not even for the writer of
    a pipe that takes a file's place this very moment.
    """
    if not (isinstance(path, Path) and isinstance(folder, Path)):
        return path.open("rb")  # far file systems have neither pipes nor devices, and refuse a link's escape
    real = regular_inside(path, folder)
    number = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        refuse_irregular(os.fstat(number).st_mode, path)
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_inside(path: Place, folder: Place, *, at_most: int) -> bytes:
    """The bytes of such a file; OSError also where there are more of them than may be."""
    with open_inside(path, folder) as file:
        refuse_larger(file, path, at_most)
        file.seek(0)
        return file.read()


def refuse_larger(file: BinaryIO, path: Place, at_most: int) -> None:
    """OSError where the file has more bytes than may be."""
    if file.seek(0, os.SEEK_END) > at_most:
        raise OSError(errno.EFBIG, f"larger than {at_most >> 20} MiB, the most that is read of it", str(path))


def read_at_most(file: BinaryIO, at_most: int) -> bytes | None:
    """All of a pipe, or of whatever else may have no end; None where that is more than so many bytes. (One
    read of so many would ask for all that memory first.)"""
    pieces, left = [], at_most
    while piece := file.read(min(left + 1, BLOCK_BYTES)):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            return None
    return b"".join(pieces)


def regular_inside(path: Path, folder: Path) -> Path:
    """The file itself, without links; OSError where that is no regular file inside the folder."""
    real = Path(os.path.realpath(path, strict=True))
    if not real.is_relative_to(os.path.realpath(folder)):
        raise OSError(errno.EPERM, "a link that leaves the folder, and only files inside it are opened",
                      str(path))
    refuse_irregular(real.lstat().st_mode, path)
    return real


def size_inside(path: Place, folder: Place) -> int:
    """How many bytes such a file has; OSError as above."""
    near = isinstance(path, Path) and isinstance(folder, Path)
    return (regular_inside(path, folder) if near else path).stat().st_size  # type: ignore[arg-type]


def refuse_irregular(mode: int, path: Path) -> None:
    """OSError for whatever is no regular file."""
    if not stat.S_ISREG(mode):
        kind = next((word for is_so, word in _KINDS if is_so(mode)), "something else")
        raise OSError(errno.EINVAL, f"{kind}, and only regular files are opened", str(path))


def is_regular_inside(path: Place, folder: Place) -> bool:
    """Whether there is such a file."""
    if not (isinstance(path, Path) and isinstance(folder, Path)):
        return path.is_file()
    try:
        regular_inside(path, folder)
    except OSError:
        return False
    return True


def is_safe_name(name: str) -> bool:
    """Whether a word from a folder may become part of a path, as a node's name does: one part, of characters
    that can be seen."""
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        return False
    return len(name.encode()) <= NAME_BYTES_AT_MOST


def is_named(path: Place) -> bool:
    """Whether the folder has that name, whatever stands behind it: a link to nothing is there too."""
    return os.path.lexists(path) if isinstance(path, Path) else path.exists()
