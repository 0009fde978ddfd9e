"""Makes every write to a log directory, and notes after each what a power cut would leave of it.

The model of a power cut (durability_side_file.py stores the notes)
- Appended bytes are lost back to the last fsync of their file. Bytes that were fsynced are never lost.
- A new file is durable, and empty, when `create` returns: it fsyncs the directory. So is a new directory.
- A truncation below the durable length is fsynced before `truncate` returns (Kafka leaves that to the
  system): the bytes that were cut off never come back under the records of a later epoch. A truncation above
  it removes only bytes that a power cut would have removed anyway, and is not fsynced.
- A file is replaced in four steps: write a new file, fsync it, rename it, fsync the directory. A power cut
  before the last step brings the old file back, never a mixture.
- An unlink is durable when `remove` returns; while it runs a power cut may have it either way, newest name
  first.
- Not modelled: torn sectors among the bytes that were not fsynced (the reader cuts at the first bad batch in
  any case); writeback by the operating system (a real power cut may keep more, never less); a disk that says
  it has synced and has not.

A SIGKILL may come between a write and its note. So an operation that shrinks a file is noted before it is
done, and one that extends it after: the notes never claim more than is true. A file that was never noted is
made durable at the next start.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from floodmark.broker import runtime
from floodmark.broker.storage.durability_side_file import DurabilitySideFile

LOCK = ".lock"  # as Kafka has it
_TMP = ".tmp"


class DiskError(Exception):
    """A disk operation failed; the text says which file, what was tried, and the system's error. The process
    must stop then: nobody knows the state of the page cache (a failed fsync does not fail twice); what is
    durable is still known."""


class LogDirectory:
    """A log directory, locked for one process. Names are relative to it, with '/' between parts."""

    def __init__(self, root: Path, lock: int, durable: DurabilitySideFile | None) -> None:
        self.root = root
        self._lock = lock
        self._durable = durable

    @classmethod
    def open(cls, log_dir: Path, durable_path: Path | None) -> "LogDirectory":
        """Create the directory where it is missing, lock it, open or create the side file (None: nothing is
        noted) and fit its notes to the existing files. Raises DiskError, which names the folder if another
        process has locked it."""
        with _raising_disk_error("open", log_dir):
            log_dir.mkdir(parents=True, exist_ok=True)
            lock = os.open(log_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise DiskError(f"{log_dir} is in use by another process (it holds {LOCK})") from error
        try:
            with _raising_disk_error("open the side file", durable_path or log_dir):
                files = cls(
                    log_dir, lock, None if durable_path is None else DurabilitySideFile.open(durable_path)
                )
                files._remove_unneeded_copies()
                files._adopt_existing_files()
        except BaseException:
            os.close(lock)
            raise
        return files

    def path(self, name: str) -> Path:
        return self.root / name

    def list_folder(self, folder: str) -> list[str]:
        """The file names in a folder of the directory, sorted; none when it is missing."""
        try:
            return sorted(os.listdir(self.root / folder))
        except FileNotFoundError:
            return []

    def make_folder(self, name: str) -> None:
        """Create a folder, durable when this returns; do nothing when it exists."""
        with _raising_disk_error("make", self.path(name)):
            self.path(name).mkdir(exist_ok=True)
            _sync_folder(self.root)

    def create(self, name: str) -> int:
        """Create an empty file, durable when this returns; returns its descriptor."""
        path = self.path(name)
        with _raising_disk_error("create", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            _sync_folder(path.parent)
        self._note_durable_length(name, 0)
        return descriptor

    def open_file(self, name: str) -> int:
        """Open an existing file for reading and writing; returns its descriptor."""
        path = self.path(name)
        with _raising_disk_error("open", path):
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def durable_length(self, name: str) -> int:
        """How many bytes of the file are known to be durable; 0 without a side file."""
        note = None if self._durable is None else self._durable.get(name)
        return 0 if note is None else note.length

    def write(self, name: str, descriptor: int, data: bytes, at: int) -> None:
        """Write all of `data` at the file's end, which is `at`; on DiskError the file ends at `at` again."""
        runtime.current.before_effect("write")
        try:
            written = os.pwrite(descriptor, data, at)
            while written < len(data):
                written += os.pwrite(descriptor, memoryview(data)[written:], at + written)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, at)
            raise _disk_error("write to", self.path(name), error) from error

    def sync(self, name: str, descriptor: int, length: int) -> None:
        """fdatasync the file, and note that its `length` bytes are durable."""
        runtime.current.before_effect("fsync")
        with _raising_disk_error("fsync", self.path(name)):
            os.fdatasync(descriptor)
        self._note_durable_length(name, length)

    def truncate(self, name: str, descriptor: int, to: int) -> None:
        """Cut the file at `to`, which is not after its end; durable, where it cuts durable bytes."""
        was_durable = self._durable is None or to < self.durable_length(name)
        if was_durable:
            self._note_durable_length(name, to)
        runtime.current.before_effect("truncate")
        with _raising_disk_error("truncate", self.path(name)):
            os.ftruncate(descriptor, to)
            if was_durable:
                os.fdatasync(descriptor)

    def remove(self, names: Iterable[str]) -> None:
        """Unlink in the order given; durable when this returns. Missing names do not matter."""
        folders = set()
        for name in names:
            path = self.path(name)
            if self._durable is not None:
                self._durable.remove_note(name)
            with _raising_disk_error("remove", path), contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            folders.add(path.parent)
        for folder in sorted(folders):
            with _raising_disk_error("fsync", folder):
                _sync_folder(folder)

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder; durable when this returns. A missing one does not matter."""
        with _raising_disk_error("remove", self.path(name)), contextlib.suppress(FileNotFoundError):
            self.path(name).rmdir()
            _sync_folder(self.root)

    def replace(self, name: str, data: bytes) -> None:
        """Replace the file by one with this content, atomically; durable when this returns."""
        path = self.path(name)
        fresh = path.with_name(path.name + _TMP)
        runtime.current.before_effect("write")
        with _raising_disk_error("write", path):
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                written = 0
                while written < len(data):
                    written += os.write(descriptor, data[written:])
                runtime.current.before_effect("fsync")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            runtime.current.before_effect("write")
            kept = self._keep_durable_copy(name, path)
            os.replace(fresh, path)
            _sync_folder(path.parent)
            self._note_durable_length(name, len(data))
            if kept is not None:
                kept.unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock the directory and close the side file; safe to call twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._durable is not None:
            self._durable.close()

    def _note_durable_length(self, name: str, length: int) -> None:
        if self._durable is not None:
            with _raising_disk_error("note in", self._durable.path):
                self._durable.note(name, length)

    def _keep_durable_copy(self, name: str, path: Path) -> Path | None:
        """Keep the durable copy of a file that is about to be replaced; returns the kept copy's path."""
        durable = self._durable
        note = None if durable is None else durable.get(name)
        if durable is None or note is None:
            return None
        if note.kept:
            return durable.kept_folder / str(note.kept)
        number, kept = durable.allocate_kept_copy()
        durable.kept_folder.mkdir(exist_ok=True)
        _link_or_copy(path, kept)
        durable.note(name, note.length, kept=number)
        return kept

    def _remove_unneeded_copies(self) -> None:
        """Delete kept copies that no note names: a killed process may have left them. (A temporary file that
        it left is overwritten by the next one of that name.)"""
        durable = self._durable
        if durable is not None and durable.kept_folder.is_dir():
            notes = (durable.get(name) for name in durable.names())
            needed = {str(note.kept) for note in notes if note is not None}
            for path in sorted(durable.kept_folder.iterdir()):
                if path.name not in needed:
                    path.unlink()

    def _adopt_existing_files(self) -> None:
        """Fit the notes to the files: make those without a note durable and note them (in a new side file
        that is all), and drop the notes of files that are gone."""
        durable = self._durable
        if durable is None:
            return
        existing = {path.relative_to(self.root).as_posix(): path
                 for path in sorted(self.root.rglob("*"))
                 if path.is_file() and path.name != LOCK and path.suffix != _TMP}
        for name in durable.names():
            note = durable.get(name)
            if note is not None and not note.kept and name not in existing:
                durable.remove_note(name)
        unnoted = {name: path for name, path in sorted(existing.items()) if durable.get(name) is None}
        lengths = {name: _sync_file(path) for name, path in unnoted.items()}
        folders = {path.parent for path in unnoted.values()} | ({self.root} if durable.is_adopting else set())
        for folder in sorted(folders):
            _sync_folder(folder)
        for name, length in lengths.items():
            durable.note(name, length)
        if durable.is_adopting:
            durable.finish_adopting()


@contextlib.contextmanager
def _raising_disk_error(action: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _disk_error(action, path, error) from error


def _disk_error(action: str, path: Path, error: OSError) -> DiskError:
    why = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        why = f"no room ({why})"
    return DiskError(f"cannot {action} {path}: {why}")


def _sync_folder(folder: Path) -> None:
    _sync_file(folder, flags=os.O_RDONLY | os.O_DIRECTORY)


def _sync_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """fsync a file by its path; returns its size."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        runtime.current.before_effect("fsync")
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _link_or_copy(source: Path, target: Path) -> None:
    """Link the file where the file system can, else copy it (the side file may be on another one)."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        target.write_bytes(source.read_bytes())
