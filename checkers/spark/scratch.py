"""The temporary folder of our JVM, which is removed when the JVM ends, however it ends.

Spark removes its own files only if it has the time, and not those that it makes while it ends.

Rules
1. It is where the user wants such files: SPARK_LOCAL_DIRS, else spark.local.dir, else the temporary folder.
2. Its name contains the process id, so the next start removes the folders of killed processes.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # an environment variable; takes precedence over spark.local.dir
PREFIX = "floodmark-spark-"  # followed by the process id


def made(conf: Mapping[str, str]) -> tuple[str, ...]:
    """Make a new folder in each configured place; conf: Spark's configuration so far."""
    named = os.environ.get(LOCAL_DIRS) or conf.get("spark.local.dir") or tempfile.gettempdir()
    parents = [Path(parent.strip()) for parent in named.split(",") if parent.strip()]
    for parent in parents:
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
    return tuple(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent) for parent in parents)


def sweep(parent: Path) -> None:
    """Remove the folders of processes that have ended."""
    for left in parent.glob(f"{PREFIX}*-*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def given_to_spark(folders: tuple[str, ...]) -> Iterator[None]:
    """Let a JVM that is started meanwhile use them."""
    before = os.environ.get(LOCAL_DIRS)
    if folders:
        os.environ[LOCAL_DIRS] = ",".join(folders)
    try:
        yield
    finally:
        if folders:
            os.environ.pop(LOCAL_DIRS)
        if before is not None:
            os.environ[LOCAL_DIRS] = before


def remove(folders: tuple[str, ...]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
