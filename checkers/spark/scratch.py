"""The folder that a JVM of ours keeps its things in while it lives, and that goes when it ends, however it
ends: Spark takes away what it has made only where it is given the time, and not what it makes while it ends.

Rules
1. It lies where the user wants such things to lie: SPARK_LOCAL_DIRS, else spark.local.dir, else the temporary
   folder.
2. Its name says whose it is, so what a process that was killed left behind goes at the next start.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # of the environment; goes before spark.local.dir
PREFIX = "floodmark-spark-"  # and the process whose it is


def made(conf: Mapping[str, str]) -> tuple[str, ...]:
    """New folders, one in each that is named; conf: Spark's configuration so far."""
    named = os.environ.get(LOCAL_DIRS) or conf.get("spark.local.dir") or tempfile.gettempdir()
    parents = [Path(parent.strip()) for parent in named.split(",") if parent.strip()]
    for parent in parents:
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
    return tuple(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent) for parent in parents)


def sweep(parent: Path) -> None:
    """Takes away those of processes that are no more."""
    for left in parent.glob(f"{PREFIX}*-*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def given_to_spark(folders: tuple[str, ...]) -> Iterator[None]:
    """A JVM that is started meanwhile keeps its things there."""
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
