"""A temporary folder that Ctrl-C or SIGTERM never leaves behind, whenever they come.

tempfile.TemporaryDirectory makes the folder and then notes its name: a signal in between, whose handler
raises, leaves it for good. Here the name is chosen before the folder is made.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from floodmark.harness import runtime


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A context with a new, empty folder that only this user may enter. At the end it is removed with its
    contents, unless it was renamed. parent: default the system's temporary folder; OSError where that cannot
    be written."""
    folder = Path(parent or tempfile.gettempdir(), f"{prefix}{runtime.current.token_hex(8)}")
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:  # a signal may have ended the first
            shutil.rmtree(folder, ignore_errors=True)
