"""The one door to a log directory: every create, fsync, truncation, rename and unlink goes through it and is noted.

(being written: signatures are final)
"""

from collections.abc import Iterable
from pathlib import Path

from broker.durable import Durable


class DiskError(Exception):
    """The disk refused: what was tried on which file, and the system's word (full, I/O error, ...). After it the
    process must stop: what is in the page cache is unknown (a later fsync may lie), what is durable is not."""


class Files:
    """A log directory, locked (`.lock`, as Kafka does) for one process. Names are relative to it, with '/'."""

    @classmethod
    def open(cls, log_dir: Path, durable_path: Path | None) -> "Files":
        """Makes the directory where missing, takes the lock (DiskError names the folder if somebody has it),
        opens or makes the side file (key floodmark.durable) and adopts what it does not know yet."""
        raise NotImplementedError

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """Replaces a small file whole: tmp, fsync, rename, directory fsync. sync=False leaves out both fsyncs:
        a power cut then brings the previous durable copy back."""
        raise NotImplementedError

    def remove(self, names: Iterable[str], *, sync: bool = True) -> None: ...
    def close(self) -> None: ...
