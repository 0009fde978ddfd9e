"""The one Spark session a judge works on: local, quiet, bound to loopback, its JVM chosen by the size of the
work.

Rules
1. Java is looked for before Spark is loaded; its absence or age is a FloodmarkError that says what to
install.
2. The size of the first work decides the JVM (it cannot be changed later); what a session can change, `suit`
sets.
3. Nobody's JVM is kept alive: it ends with this process.
"""

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pyspark import SparkContext
from pyspark.sql import SparkSession

from checkers import archive
from harness.errors import FloodmarkError

JAVA_AT_LEAST = 17
END_TIMEOUT_S = 120  # writing a class archive takes long
SMALL_BYTES = 48 << 20  # below this Spark spends its time compiling plans, not working
BIG_BYTES = 128 << 20  # below this the JVM spends its time compiling itself
_ADVICE = (
    f"the judge needs Java {JAVA_AT_LEAST} or newer (on Debian: apt-get install openjdk-17-jre-headless)"
)
# The first compiler only, one collector thread, no look for better code: half the time of a small folder,
# a fifth less of 120 MB that are trace for the most part, a third more of 140 MB that no sieve takes (as
# measured).
_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_BIG_JVM = "-XX:+UseParallelGC -XX:-UsePerfData"

_settings = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # a number out of range spoils its own line, never its neighbours
    "spark.sql.adaptive.enabled": "false",  # re-planning costs more than it finds in plans known beforehand
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # what is broadcast is said in the plan
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",  # no job only to list files
    "spark.sql.files.openCostInBytes": "65536",  # many small files in one task
    "spark.sql.inMemoryColumnarStorage.batchSize": "20000",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.log.level": "ERROR",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "false",
    "spark.sql.debug.maxToStringFields": "0",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # a stack trace for every column costs seconds
}


def session(work_bytes: int) -> SparkSession:
    """The process's Spark session, started if there is none yet."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    java = find_java()
    check_version(java)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = f"{_SMALL_JVM if work_bytes < BIG_BYTES else _BIG_JVM} {archive.options(java)}"
    builder = SparkSession.builder.master("local[*]").appName("floodmark")
    for key, value in _settings.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.driver.extraJavaOptions", options)
    with quiet() as said:
        try:
            return builder.getOrCreate()
        except Exception as error:  # py4j and pyspark each have their own
            said.seek(0)
            last = said.read().decode(errors="replace").strip().splitlines()[-3:]
            raise FloodmarkError(
                f"Spark does not start with {java}: {error} {' '.join(last)}; {_ADVICE}"
            ) from error


@contextmanager
def quiet() -> Iterator[IO[bytes]]:
    """What the JVM says on standard error, now and for as long as it lives, goes into a file without a
    name."""
    sys.stderr.flush()
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # pyspark prints each error as well
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def leave() -> None:
    """Ends Spark and its JVM, and waits for it."""
    running = SparkSession.getActiveSession()
    gateway = SparkContext._gateway
    if running is not None and gateway is not None:
        running.stop()
        process: subprocess.Popen[bytes] = gateway.proc
        assert process.stdin is not None
        process.stdin.close()  # the JVM ends when its standard input does
        process.wait(timeout=END_TIMEOUT_S)


def suit(spark: SparkSession, work_bytes: int) -> None:
    """Small work runs as one task without generated code, whose compiling would cost more than it saves."""
    small = work_bytes < SMALL_BYTES
    cores = str(os.cpu_count() or 1)
    spark.conf.set("spark.sql.shuffle.partitions", "1" if small else cores)
    spark.conf.set("spark.sql.codegen.wholeStage", "false" if small else "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if small else "FALLBACK")
    # Else Spark shuffles into one partition what is in one, where it guesses that to be too much for one.
    spark.conf.set("spark.sql.maxSinglePartitionBytes", "8191p" if small else "128m")


def find_java() -> Path:
    """The java that Spark would start: JAVA_HOME's, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if java.is_file():
            return java
        raise FloodmarkError(f"JAVA_HOME is {home}, but there is no bin/java in it; {_ADVICE}")
    on_path = shutil.which("java")
    if on_path is None:
        raise FloodmarkError(f"no java on PATH, and JAVA_HOME is not set; {_ADVICE}")
    return Path(on_path)


def check_version(java: Path) -> None:
    """FloodmarkError where this java is older than Spark can run on."""
    version = version_of(java)
    if version < JAVA_AT_LEAST:
        raise FloodmarkError(f"{java} is Java {version}; {_ADVICE}")


def version_of(java: Path) -> int:
    """The major version, from the release file of a JDK where there is one (quicker than starting it)."""
    release = java.resolve().parent.parent / "release"
    try:
        told = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = _say_version(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', told)
    if found is None:
        raise FloodmarkError(f"{java} does not say its version ({told.strip()[:80]!r}); {_ADVICE}")
    return int(found.group(1))


def _say_version(java: Path) -> str:
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FloodmarkError(f"{java} does not start: {error}; {_ADVICE}") from error
    return asked.stderr + asked.stdout
