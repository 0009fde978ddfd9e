"""Opens files of run folders, in this machine's file system or in one that only Spark's Hadoop can read.

Rules
1. Code that reads a run folder uses only the methods of Place; pathlib's Path has them all.
2. Errors in a far file system are the OSErrors that a Path would raise, so readers treat both alike.
3. `scheme:/...` is an address, unless this machine's file system has a file of exactly that name. file:///x
   is /x.
4. A file is first written under a random new name and then renamed (`replacing`), so a link that somebody
   placed in the folder is never written through.
5. A run folder may come from an untrusted source. Only regular files inside it are opened (open_inside): a
   pipe would block for ever, a device never ends, a link may point to any file of the reader's. The folder
   itself was named by the reader; it may be a link.
"""

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, Self

from floodmark.harness import runtime
from floodmark.harness.errors import UsageError

LOCAL = "file"
BLOCK_BYTES = 1 << 24
NAME_BYTES_AT_MOST = 200  # file systems allow 255, and a suffix follows
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*)", re.DOTALL)


class Place(Protocol):
    """A file or folder, by its path: the methods of pathlib's Path that reading a run needs."""

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
    def stat(self) -> Any: ...  # with its st_size in bytes


class Far(Place, Protocol):
    """A place in another file system, which is not a Path."""

    def glob_folders(self) -> "list[Self]": ...  # the folders that match this path, read as a pattern
    def write_whole(self, data: bytes) -> None: ...  # as run.write_whole, if its file system can do that


def scheme_of(word: str) -> str | None:
    """The scheme of an address, in lower case; None for a path."""
    address = _ADDRESS.fullmatch(word)
    return None if address is None or Path(word).exists() else address["scheme"].lower()


def path_of(address: str) -> Path:
    """The path of a `file:` address. As in Hadoop, %20 and the like are not decoded."""
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
    """Open a new file that replaces `path` when the block ends without an error, and is deleted otherwise;
    OSError. Readers see the complete file or the old one. A link at the path is replaced, not followed.
    durable: also after a power cut; the data are on disk when the block has ended."""
    new_file = path.with_name(f".{path.name}.{runtime.current.token_hex(8)}")
    number = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
            if durable:  # a rename may reach the disk before the data does
                file.flush()
                os.fsync(file.fileno())
        os.replace(new_file, path)
        if durable:
            sync(path.parent)
    except BaseException:
        new_file.unlink(missing_ok=True)
        raise


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A context with a new, empty folder that only this user may enter. At the end it is removed with its
    contents, unless it was renamed. parent: default the system's temporary folder; OSError where that cannot
    be written.

    Ctrl-C and SIGTERM never leave it behind. tempfile.TemporaryDirectory makes the folder and then notes its
    name: a signal in between, whose handler raises, leaves it for good. Here the name is chosen first."""
    folder = Path(parent or tempfile.gettempdir(), f"{prefix}{runtime.current.token_hex(8)}")
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:  # a signal may have ended the first
            shutil.rmtree(folder, ignore_errors=True)


def sync(path: Path) -> None:
    """Return when this file's data, or this folder's entries, are on disk. Raises: OSError."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():
            raise  # otherwise: this file system cannot sync folders
    finally:
        os.close(number)


# -- files of untrusted folders -----------------------------------------------------------------------------

_KINDS = {"p": "a pipe", "s": "a socket", "c": "a device", "b": "a device", "d": "a folder"}  # as in ls -l


def open_inside(path: Place, folder: Place) -> BinaryIO:
    """Open a file of a run folder for reading bytes; OSError where it is not a regular file inside the
    folder. Links may lead to others inside. It never blocks, even if a pipe replaces the file just now."""
    if not (isinstance(path, Path) and isinstance(folder, Path)):
        return path.open("rb")  # far file systems have no pipes and no devices, and refuse links that leave
    real = regular_inside(path, folder)
    number = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        refuse_irregular(os.fstat(number).st_mode, path)
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_inside(path: Place, folder: Place, *, at_most: int) -> bytes:
    """Read the bytes of such a file; OSError also where it has more than `at_most`."""
    with open_inside(path, folder) as file:
        refuse_larger(file, path, at_most)
        file.seek(0)
        return file.read()


def refuse_larger(file: BinaryIO, path: Place, at_most: int) -> None:
    """Raise OSError where the file has more than `at_most` bytes."""
    if file.seek(0, os.SEEK_END) > at_most:
        raise OSError(errno.EFBIG, f"larger than {at_most >> 20} MiB, the limit for this file", str(path))


def read_text(path: Path, what: str, *, at_most: int) -> str:
    """Read a file that a user names, which may be endless, such as a pipe; UsageError. It reads piece by
    piece: a single large read would allocate all of that memory first."""
    pieces, left = [], at_most
    try:
        with path.open("rb") as file:
            while piece := file.read(min(left + 1, BLOCK_BYTES)):
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    raise UsageError(f"{what} {path} is larger than {at_most >> 20} MiB")
        return b"".join(pieces).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{what} {path} cannot be read: {why}") from error


def regular_inside(path: Path, folder: Path) -> Path:
    """The path with all links resolved; OSError where that is not a regular file inside the folder."""
    real = Path(os.path.realpath(path, strict=True))
    if not real.is_relative_to(os.path.realpath(folder)):
        raise OSError(errno.EPERM, "a link that leaves the folder, and only files inside it are opened",
                      str(path))
    refuse_irregular(real.lstat().st_mode, path)
    return real


def refuse_irregular(mode: int, path: Path) -> None:
    """Raise OSError for anything that is not a regular file."""
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.filemode(mode)[0], "something else")
        raise OSError(errno.EINVAL, f"{kind}, and only regular files are opened", str(path))


def is_regular_inside(path: Place, folder: Place) -> bool:
    """Whether there is a regular file of this path inside the folder."""
    if not (isinstance(path, Path) and isinstance(folder, Path)):
        return path.is_file()
    try:
        regular_inside(path, folder)
    except OSError:
        return False
    return True


def is_safe_name(name: str) -> bool:
    """Whether a name in a run folder, as a node's, is one printable component of a path."""
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        return False
    return len(name.encode()) <= NAME_BYTES_AT_MOST


def is_named(path: Place) -> bool:
    """Whether the folder has an entry of this name, even a link to nothing."""
    return os.path.lexists(path) if isinstance(path, Path) else path.exists()
