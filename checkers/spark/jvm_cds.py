"""Builds and uses a class-data archive for the judge's JVM, which halves the start of Spark.

    python -m floodmark.checkers.spark.jvm_cds        builds it if it is missing: half a minute, 70 MB

`session` uses it if it is there. The first `floodmark check` without one starts to build it when it ends
(`build_in_background`), except under CI, whose machines are new each time.

Rules
1. The file's name contains the versions of Java and Spark, their places and when Spark was installed: another
   JVM looks for another file.
2. It is renamed into place only after its JVM has ended well; a JVM that cannot use it runs without it.
3. Only the newest few of these files are kept: every new environment makes one.
4. One process builds at a time. If it fails it leaves a note, and nobody tries again without being asked.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark

from floodmark.harness import user_cache
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.user_cache import (
    ARCHIVE_SUFFIX,
    FAILED_SUFFIX,
    archive_options,
    cache_folder,
    java_identity,
    keep_newest,
    try_lock,
)

BUILDING = "FLOODMARK_CLASS_ARCHIVE"  # set in the environment of the process that builds: the path to write
UNWANTED = ("CI", user_cache.NO_CLASS_ARCHIVE)  # set in the environment: nothing is built unless asked
BUILD_TIMEOUT_S = 900  # enough for a busy machine
KEPT = 3
_SCRATCH = ".building-"
_TINY_RUN = {"format": 1, "nodes": ["n1"], "partitions": {"0": {"replicas": ["n1"]}}}


def archive_path(java: Path) -> Path:
    """The path of the archive for this JVM and this Spark."""
    real, release = java_identity(java)
    spark = Path(pyspark.__file__).parent
    try:
        installed = str((spark / "jars").stat().st_mtime_ns)
    except OSError:
        installed = ""
    identity = (real.encode(), release, str(spark).encode(), installed.encode())
    key = hashlib.sha256(b"\0".join(identity)).hexdigest()[:16]
    return cache_folder() / f"spark-{pyspark.__version__}-{key}{ARCHIVE_SUFFIX}"


def options(java: Path) -> str:
    """The JVM options: to use the archive, to write it, or none."""
    to_write = os.environ.get(BUILDING)
    if to_write:
        return f"-XX:ArchiveClassesAtExit={to_write}"
    archive = archive_path(java)
    # Spark splits the options at blanks, so a path with a blank is not used.
    return " ".join(archive_options(archive)) if " " not in str(archive) else ""


def build_in_background(java: Path) -> subprocess.Popen[bytes] | None:
    """Start to build it, if there is none yet, in a background process of low priority; the caller need not
    wait."""
    archive = archive_path(java)
    there = archive.is_file() or archive.with_suffix(FAILED_SUFFIX).is_file()
    if there or any(name in os.environ for name in (*UNWANTED, BUILDING)):
        return None
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "floodmark.checkers.spark.jvm_cds", "--behind"],
            cwd=archive.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


def lower_priority() -> None:
    """Give this process and its children the lowest priority."""
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def build(java: Path) -> Path:
    """Judge a tiny run in a process of its own, whose JVM writes the archive at its end."""
    archive = archive_path(java)
    failed = archive.with_suffix(FAILED_SUFFIX)
    for left in archive.parent.glob(f"{_SCRATCH}*"):  # left by a builder that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=_SCRATCH) as scratch:
        fresh = Path(scratch) / "classes.jsa"
        # Of a run without ops: what laws find in others, Python finds, and not the JVM.
        (Path(scratch) / "run.json").write_text(json.dumps(_TINY_RUN), encoding="utf-8")
        child = subprocess.run(
            [sys.executable, "-m", "floodmark.checkers.spark.jvm_cds", "--child", scratch],
            env={**os.environ, BUILDING: str(fresh)},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if child.returncode != 0 or not fresh.is_file():
            why = child.stderr.strip()[-300:]
            failed.write_text(f"{why}\n")
            raise FloodmarkError(f"the class archive was not built: {why}")
        os.replace(fresh, archive)
    failed.unlink(missing_ok=True)
    keep_newest(archive, f"spark-*{ARCHIVE_SUFFIX}", KEPT)
    return archive


def main() -> None:
    from floodmark.checkers.spark.session import find_java, stop_spark  # it imports this module

    if sys.argv[1:2] == ["--child"]:
        from floodmark.checkers.judge.job import SparkJudge

        SparkJudge().judge([Path(sys.argv[2])])
        stop_spark()
        return
    if sys.argv[1:2] == ["--behind"]:
        lower_priority()
    try:
        java = find_java()
        archive = archive_path(java)
        with try_lock(archive.parent / "archive.lock") as may_build:
            if may_build and not archive.is_file():
                print(f"making {archive}: the judge then starts quicker (half a minute, once)", flush=True)
                build(java)
    except (FloodmarkError, OSError, subprocess.TimeoutExpired) as error:
        print(f"floodmark: no class archive: {error} (the judge works without it)", file=sys.stderr)


if __name__ == "__main__":
    main()
