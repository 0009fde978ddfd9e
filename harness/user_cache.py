"""The user's cache folder, file locks, and what the class-data archives of Kafka and of Spark have in common.

A lock is a file that the kernel unlocks however its process ends; the file stays, otherwise two processes
could lock two files of the same name.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from floodmark.harness.errors import FloodmarkError

LOCK_TIMEOUT_S = 900.0
# Java's class-data archives (AppCDS): a JVM starts quicker with one, and ignores one of another JVM.
NO_CLASS_ARCHIVE = "FLOODMARK_NO_CLASS_ARCHIVE"  # set in the environment: none is made unless asked
ARCHIVE_SUFFIX, FAILED_SUFFIX = ".jsa", ".failed"  # the latter: a note that making it failed


def cache_folder() -> Path:
    """The folder; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "floodmark"


@contextmanager
def try_lock(lock: Path) -> Iterator[bool]:
    """Yields whether it took the lock, which it then holds to the end. OSError where it cannot be made."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        yield _acquire(file.fileno())


@contextmanager
def one_at_a_time(lock: Path, doing: str, say: Callable[[str], None]) -> Iterator[None]:
    """Holds the lock; waits for another's, and says so once. doing: `fetching the jars`."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise FloodmarkError(f"{lock.parent} cannot be made ({error}): set XDG_CACHE_HOME elsewhere"
                             ) from error
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with file:
        waiting = False
        while not _acquire(file.fileno()):
            if time.monotonic() > deadline:
                raise FloodmarkError(f"another process has been {doing} for {LOCK_TIMEOUT_S:g} s (it locks "
                                     f"{lock}): end it, or wait for it")
            if not waiting:
                say(f"another process is {doing}: waiting for it")
                waiting = True
            time.sleep(0.1)
        yield


def _acquire(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def keep_newest(path: Path, pattern: str, most: int) -> None:
    """Removes the oldest files of the pattern in this file's folder, but not it, until `most` are left."""
    others = [other for other in path.parent.glob(pattern) if other != path]
    by_age = sorted(others, key=lambda other: other.stat().st_mtime_ns, reverse=True)
    for old in by_age[most - 1:]:
        old.unlink(missing_ok=True)


def java_identity(java: Path) -> tuple[str, bytes]:
    """Which JVM this is: its real path, and its file `release`, empty if there is none."""
    real = java.resolve()
    try:
        return str(real), (real.parent.parent / "release").read_bytes()
    except OSError:
        return str(real), b""


def archive_options(archive: Path) -> tuple[str, ...]:
    """The JVM options that use it, if it is there, and print nothing where the JVM cannot."""
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable") if archive.is_file() else ()
