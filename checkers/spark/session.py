"""The one Spark context a judge works on: quiet; on this machine, or on a cluster that its user named.

Rules
1. Java is looked for before Spark is loaded; its absence or age is a FloodmarkError that says what to
install.
2. Nobody's JVM is kept alive: it ends with this process.
3. Where a context is there already, or spark-submit has started us, that is the one.
"""

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import IO, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, SQLContext

from floodmark.checkers.spark import jvm_cds, scratch, settings, spark_master
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.spark_options import HERE, Workers

JAVA_AT_LEAST = 17
END_TIMEOUT_S = 120  # writing a class archive takes long
_ADVICE = (
    f"the judge needs Java {JAVA_AT_LEAST} or newer (on Debian: apt-get install openjdk-17-jre-headless)"
)
# The first compiler only, one collector thread: this JVM moves blobs and lives for seconds.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_COMPLAINT = re.compile(r"Error|Exception|Invalid|Unrecognized|Could not|.*Error:")
DAEMON = "floodmark.checkers.judge.daemon"
JUDGING = "floodmark.checkers.judge.many_runs"
# A worker is started by `python -m`, which would import a user's own folder called harness or checkers.
_IMPORTS_NOTHING_HERE = "spark.executorEnv.PYTHONSAFEPATH"
# Arrow's own allocator asks for huge pages, which Linux clears when they are first touched: putting pieces
# together took eight times as much of the kernel's time. And what a range took is kept for the next one, not
# given back page by page (two_passes.give_back_memory does, before a unit). Of 1,000,000 ops the workers took
# 19.2 s of CPU instead of 22.4, and all processes together 1.9 GB instead of 2.0.
_WORKERS_ALLOCATOR = {
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(200 << 20),
}
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # in the environment of what spark-submit starts

_running: list[SparkContext] = []  # one, or none yet
_own: list["OwnJvm"] = []  # the JVM of this machine that we have started; one, or none


@dataclass(frozen=True, slots=True)
class OwnJvm:
    """scratch: its folders, which nobody else uses. disposable: nobody waits for what it would do at its end
    (write its event log, or a class archive), so it may be killed."""

    scratch: tuple[str, ...]
    disposable: bool


def context(workers: Workers = HERE) -> SparkContext:
    """The process's Spark context, started if there is none yet. (A session, with its catalogue and its SQL,
    takes as long again to start: only files that Spark must read need one.)"""
    if not _running or _running[0]._jsc is None or has_died(_running[0]):
        theirs = SparkContext._active_spark_context
        _running[:] = [_started(workers) if theirs is None else theirs]
    asked, there = workers.master, _running[0].master
    if asked not in (None, there):
        raise UsageError(f"--master {asked}: Spark works for this process at {there} already")
    return _running[0]


def has_died(spark: SparkContext) -> bool:
    """Whether the JVM of this context is gone, or the context has ended by itself (as it does when the JVM
    runs out of memory). All of it is let go of then, so that `context` starts another one. spark-submit's
    cannot be started again."""
    try:
        if not spark._jsc.sc().isStopped():
            return False
    except (PySparkException, Py4JError, AttributeError, OSError):
        pass
    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return _SUBMITTED not in os.environ
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")  # that the JVM is gone is known
        spark.stop()
    process.kill()
    process.wait(timeout=END_TIMEOUT_S)
    if process.stdin is not None:
        process.stdin.close()
    let_go(gateway)
    while _own:
        scratch.remove(_own.pop().scratch)
    return True


def let_go(gateway: Any) -> None:
    """Forgets a JVM that is gone: the next who asks for a context gets one."""
    with suppress(Exception):
        gateway.shutdown()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    _running.clear()


def _started(workers: Workers) -> SparkContext:
    folders: tuple[str, ...] = ()
    if _SUBMITTED in os.environ:
        if workers != HERE:
            raise UsageError("--master and --conf are spark-submit's here: give them before the program")
        SparkContext._ensure_initialized()
        configured, java = dict(SparkConf().getAll()), None
        master = configured.get("spark.master", spark_master.LOCAL)
    else:
        java = find_java()
        check_version(java)
        configured = {**settings.spark_defaults(), **dict(workers.conf)}
        master = workers.master or spark_master.LOCAL
        folders = own_scratch(configured) if spark_master.is_local(master) else ()
        configured |= launching(java, configured, folders)
        if spark_master.is_local(master):
            configured.setdefault("spark.python.daemon.module", DAEMON)
            configured = {_IMPORTS_NOTHING_HERE: "1", **_WORKERS_ALLOCATOR, **configured}
    spark_master.refuse_odd(master)
    near = spark_master.on_loopback(master)
    if spark_master.is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if near:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    keys = {**settings.chosen(configured, loopback=near), "spark.master": master}
    keys.setdefault("spark.app.name", "floodmark")
    with quiet() as heard, scratch.given_to_spark(folders):
        try:
            return _context(keys, master)
        except FloodmarkError:
            raise
        except Exception as error:  # py4j and pyspark each have their own
            raise _refused(error, heard, master, java) from error


def launching(java: Path, configured: Mapping[str, str], folders: tuple[str, ...] = ()) -> dict[str, str]:
    """What the JVM must be told when it starts. folders: for what it keeps on disk."""
    options = f"{_JVM} {jvm_cds.options(java)} {configured.get(settings.JVM_OPTIONS, '')}"
    if folders and " " not in folders[0]:
        options += f" -Djava.io.tmpdir={folders[0]}"
    heap = f"{settings.heap_mb(settings.own_cores(), settings.own_memory_mb())}m"
    return {settings.JVM_OPTIONS: options.strip(), settings.HEAP: configured.get(settings.HEAP, heap)}


def _context(keys: Mapping[str, str], master: str) -> SparkContext:
    """The context; of a cluster its master is asked first, and its first worker awaited. While the JVM makes
    it, Python imports what the judge needs next. (Not before the JVM is forked: a thread would be too.)"""
    conf = SparkConf(loadDefaults=False)
    for key, value in keys.items():
        conf.set(key, value)
    SparkContext._ensure_initialized(conf=conf)
    Thread(target=import_module, args=(JUDGING,), daemon=True).start()
    if not spark_master.is_local(master):
        spark_master.refuse_silent(SparkContext._jvm, master)
    made = SparkContext.getOrCreate(conf)
    accumulators: Any = getattr(made, "_accumulatorServer", None)
    if accumulators is not None:  # it prints a traceback when the JVM dies; has_died finds that out
        accumulators.handle_error = lambda *_: None
    if not spark_master.is_local(master):
        spark_master.await_worker(made, master)
    return made


def _refused(error: Exception, heard: IO[bytes], master: str, java: Path | None) -> FloodmarkError:
    """Why there is no context, in a sentence: the JVM's last words where it did not even start."""
    heard.seek(0)
    output = [line.strip() for line in heard.read().decode(errors="replace").splitlines() if line.strip()]
    words = spark_master.words_of(error)
    if SparkContext._jvm is None:
        words = " ".join(complaints_of(output)) or words
    if "UnsupportedClassVersionError" in words:
        words += f"; {_ADVICE}"
    at = f"with {java}" if java is not None and spark_master.is_local(master) else f"at {master}"
    if "Could not parse Master URL" in words:
        return UsageError(f"--master {master}: Spark knows no such master")
    return FloodmarkError(f"Spark does not start {at}: {words}")


def complaints_of(output: list[str]) -> list[str]:
    """What a JVM that did not start complains of: its errors, or else its last words."""
    errors = [line for line in output if _COMPLAINT.match(line)]
    return [line[:300] for line in (errors or output[-3:])][:2]


@contextmanager
def quiet() -> Iterator[IO[bytes]]:
    """What the JVM says, now and for as long as it lives, goes into a file without a name: on standard output
    it would stand among the verdicts."""
    sys.stdout.flush()
    sys.stderr.flush()
    for name in ("SQLQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print each error as well, with a traceback
    logging.getLogger().addFilter(not_of_py4j)
    kept = {number: os.dup(number) for number in (1, 2)}
    with tempfile.TemporaryFile() as output:
        for number in kept:
            os.dup2(output.fileno(), number)
        try:
            yield output
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in kept.items():
                os.dup2(copy, number)
                os.close(copy)


def not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j prints a traceback of each call that found the JVM dead, or that Ctrl-C or SIGTERM broke off; it
    raises it as well."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def leave() -> None:
    """Ends Spark and its JVM, waits for it, and takes away its folders. spark-submit's JVM is not ours to
    end."""
    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = None if gateway is None else gateway.proc
    own = _own.pop() if _own else OwnJvm(scratch=(), disposable=False)
    if process is not None and own.disposable:
        process.kill()  # to end in good order takes it more than a second
    elif _running:
        _running.pop().stop()
    if process is not None:
        assert process.stdin is not None
        process.stdin.close()  # a JVM ends when its standard input does
        process.wait(timeout=END_TIMEOUT_S)
        let_go(gateway)
    scratch.remove(own.scratch)


def own_scratch(configured: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of the JVM that is to start, which is ours to end from now on. configured: Spark's keys so
    far."""
    disposable = not configured and jvm_cds.BUILDING not in os.environ
    _own[:] = [OwnJvm(scratch=scratch.made(configured), disposable=disposable)]
    atexit.unregister(leave_at_exit)
    atexit.register(leave_at_exit, os.getpid())
    return _own[0].scratch


def leave_at_exit(pid: int) -> None:
    """Of the process that has started the JVM, and of none that was forked from it."""
    if os.getpid() == pid and _own:
        leave()


def quicken() -> bool:
    """Where our JVM has started without a class archive, one is made for the next; nobody waits for it.
    Whether that has begun."""
    if not (_running and works_here(_running[0])) or _SUBMITTED in os.environ:
        return False
    try:
        return jvm_cds.build_behind(find_java()) is not None
    except FloodmarkError:
        return False


def works_here(spark: SparkContext) -> bool:
    """Whether the tasks run in this very machine, and see its scratch folder."""
    return spark_master.is_local(spark.master)


def cores(spark: SparkContext) -> int:
    """How many tasks run at once, as far as is known."""
    return max(1, spark.defaultParallelism)


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
        text = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _say_version(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    if found is None:
        raise FloodmarkError(f"{java} does not say its version ({text.strip()[:80]!r}); {_ADVICE}")
    return int(found.group(1))


def _say_version(java: Path) -> str:
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = error.strerror if isinstance(error, OSError) else "no answer within 30 s"
        raise FloodmarkError(f"{java} does not start: {why}; {_ADVICE}") from error
    return asked.stderr + asked.stdout
