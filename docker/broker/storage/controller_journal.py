"""Stores the controller's records: an append-only file of JSON lines, fsynced before anything rests on it.

Rules
1. One line is one `append`, a JSON array of its records: a crash leaves all of them or none.
2. A last line without its newline is an append that never returned: it is cut off when the file is opened.
3. Any other line that is no array of objects is an error that names the line: to guess could make the
   controller assign an epoch or a producer id twice.
4. A write or fsync that fails leaves the file in doubt: the controller must stop and read it again at its
   next start.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from floodmark.broker import runtime


class JournalError(Exception):
    """The journal cannot be read or written; the text names file, line and cause."""


class Journal:
    """An open journal. `records` are those that it had when it was opened, oldest first."""

    def __init__(self, path: Path, descriptor: int, records: tuple[Mapping[str, Any], ...],
                 torn_bytes: int) -> None:
        self.path = path
        self.records = records
        self.torn_bytes = torn_bytes  # of a last line that was cut off at open
        self._descriptor = descriptor
        self._failed = False

    @classmethod
    def open(cls, path: Path) -> "Journal":
        """Open or create the file, and lock it for this process. Raises JournalError."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(f"cannot open {path}: {error.strerror}") from error
        try:
            return cls(path, descriptor, *_recover(path, descriptor))
        except BaseException:
            os.close(descriptor)
            raise

    def append(self, records: Iterable[Mapping[str, object]]) -> None:
        """Write the records as one line; they are durable when it returns."""
        line = json.dumps(list(records), separators=(",", ":")).encode() + b"\n"
        if self._failed:
            raise JournalError(f"{self.path}: an earlier write failed, open it again")
        runtime.current.before_effect("write")
        try:
            written = 0
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            runtime.current.before_effect("fsync")
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._failed = True
            raise JournalError(f"cannot write to {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _recover(path: Path, descriptor: int) -> tuple[tuple[Mapping[str, Any], ...], int]:
    """Cut off a torn last line and read the records: (records, bytes cut off)."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise JournalError(f"{path} is in use by another process") from error
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    records: list[Mapping[str, Any]] = []
    for number, line in enumerate(content[:complete].splitlines(), start=1):
        records.extend(_parse_line(path, number, line))
    try:
        if complete < len(content):
            os.ftruncate(descriptor, complete)
        # A killed process may have left lines in the page cache only: make them durable before they are used.
        os.fsync(descriptor)
        _sync_directory(path.parent)
    except OSError as error:
        raise JournalError(f"cannot write to {path}: {error.strerror}") from error
    return tuple(records), len(content) - complete


def _parse_line(path: Path, number: int, line: bytes) -> list[Mapping[str, Any]]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise JournalError(f"{path}, line {number}: not JSON ({error})") from error
    if not isinstance(value, list) or not all(isinstance(record, dict) for record in value):
        raise JournalError(f"{path}, line {number}: not an array of records")
    return value


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
