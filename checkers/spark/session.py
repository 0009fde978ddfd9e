"""The one Spark context that a judge uses: quiet; on this machine, or on a cluster that the user named.

Rules
1. Java is found before Spark is loaded; if it is missing or too old, a FloodmarkError says what to install.
2. The JVM ends with this process.
3. If a context exists already, or spark-submit started this process, that one is used.
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
from typing import IO

from pyspark import SparkConf, SparkContext

from floodmark.checkers.spark import jvm, jvm_cds, settings, spark_master
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.spark_options import HERE, Workers

JAVA_AT_LEAST = 17
END_TIMEOUT_S = 120  # writing a class archive takes this long
_ADVICE = (
    f"the judge needs Java {JAVA_AT_LEAST} or newer (on Debian: apt-get install openjdk-17-jre-headless)"
)
# Only the first compiler, one collector thread: this JVM moves blobs and lives for seconds.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_COMPLAINT = re.compile(r"Error|Exception|Invalid|Unrecognized|Could not|.*Error:")
DAEMON = "floodmark.checkers.judge.daemon"
JUDGING = "floodmark.checkers.judge.many_runs"
# A worker is started by `python -m`, which would otherwise import a user's own folder called harness or
# checkers.
_IMPORTS_NOTHING_HERE = "spark.executorEnv.PYTHONSAFEPATH"
# Arrow's own allocator requests huge pages, which Linux clears at the first access: joining pieces took eight
# times as much kernel time. And the memory of a range is kept for the next one, not returned page by page
# (passes.free_memory does that, before a unit). With 1,000,000 ops the workers took 19.2 s of CPU instead
# of 22.4, and all processes together 1.9 GB instead of 2.0.
_WORKERS_ALLOCATOR = {
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(200 << 20),
}
LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # an environment variable; takes precedence over spark.local.dir
PREFIX = "floodmark-spark-"  # followed by the process id
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the programs it starts

_running: list[SparkContext] = []  # one, or none yet
_own: list["OwnJvm"] = []  # the JVM that we have started on this machine; one, or none


@dataclass(frozen=True, slots=True)
class OwnJvm:
    """scratch: its folders, which no other process uses. disposable: it writes nothing at its end (no event
    log, no class archive), so it may be killed."""

    scratch: tuple[str, ...]
    disposable: bool


def context(workers: Workers = HERE) -> SparkContext:
    """The process's Spark context, started if there is none yet. (A session, with its catalogue and its SQL,
    takes as long again to start: only files that Spark must read need one.)"""
    if not _running or jvm.is_stopped(_running[0]) or has_died(_running[0]):
        _running[:] = [jvm.context() or _started(workers)]
    asked, there = workers.master, _running[0].master
    if asked not in (None, there):
        raise UsageError(f"--master {asked}: Spark works for this process at {there} already")
    return _running[0]


def parts(spark: SparkContext) -> tuple[int, int]:
    """How many tasks of the present stages are done, and how many there are."""
    with suppress(Exception):  # the JVM has died, or is ending
        tracker = spark.statusTracker()
        stages = [stage for id_ in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(id_))]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return 0, 0


def cores(spark: SparkContext) -> int:
    """How many tasks run at once, as far as is known."""
    return max(1, spark.defaultParallelism)


def has_died(spark: SparkContext) -> bool:
    """Whether the JVM of this context has ended, or the context has stopped by itself. Then all references to
    it are dropped, so that `context` starts a new one. spark-submit's cannot be started again."""
    if jvm.works(spark):
        return False
    if jvm.process() is None:
        return _SUBMITTED not in os.environ
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")  # we know that the JVM has ended
        spark.stop()
    end_jvm(kill=True)
    return True


def stop_spark() -> None:
    """Stop Spark and its JVM, wait for it, and remove its folders. spark-submit's JVM is not stopped."""
    disposable = bool(_own) and _own[0].disposable  # an orderly end takes a JVM more than a second
    if _running and not (disposable and jvm.process()):
        _running.pop().stop()
    end_jvm(kill=disposable)


def end_jvm(*, kill: bool) -> None:
    """Wait until the JVM that this process has started ends, and remove its folders."""
    process = jvm.process()
    if process is not None:
        if kill:
            process.kill()
        if process.stdin is not None:
            process.stdin.close()  # a JVM ends when its standard input does
        process.wait(timeout=END_TIMEOUT_S)
        jvm.forget()
        _running.clear()
    while _own:
        for folder in _own.pop().scratch:
            shutil.rmtree(folder, ignore_errors=True)


def stop_spark_at_exit(pid: int) -> None:
    """Stop Spark at exit of the process that started the JVM, but not of processes forked from it."""
    if os.getpid() == pid and _own:
        stop_spark()


def _started(workers: Workers) -> SparkContext:
    folders: tuple[str, ...] = ()
    if _SUBMITTED in os.environ:
        if workers != HERE:
            raise UsageError("--master and --conf are spark-submit's here: give them before the program")
        jvm.launch()
        configured, java = dict(SparkConf().getAll()), None
        master = configured.get("spark.master", spark_master.LOCAL)
    else:
        java, _ = usable_java()
        configured = {**settings.spark_defaults(), **dict(workers.conf)}
        master = workers.master or spark_master.LOCAL
        folders = own_scratch(configured) if spark_master.is_local(master) else ()
        configured |= launch_environment(java, configured, folders)
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
    with quiet() as heard, given_to_spark(folders):
        try:
            return _context(keys, master)
        except FloodmarkError:
            raise
        except Exception as error:  # py4j and pyspark each raise their own
            raise _refused(error, heard, master, java) from error


def launch_environment(
    java: Path, configured: Mapping[str, str], folders: tuple[str, ...] = ()
) -> dict[str, str]:
    """The environment in which the JVM starts. folders: for its files on disk."""
    options = f"{_JVM} {jvm_cds.options(java)} {configured.get(settings.JVM_OPTIONS, '')}"
    if folders and " " not in folders[0]:
        options += f" -Djava.io.tmpdir={folders[0]}"
    heap = f"{settings.heap_mb(settings.own_cores(), settings.own_memory_mb())}m"
    return {settings.JVM_OPTIONS: options.strip(), settings.HEAP: configured.get(settings.HEAP, heap)}


def _context(keys: Mapping[str, str], master: str) -> SparkContext:
    """Make the context; on a cluster first check its master and then wait for its first worker. While the JVM
    makes it, Python imports the judge's modules. (Not before the JVM is forked: threads do not survive a
    fork.)"""
    conf = SparkConf(loadDefaults=False)
    for key, value in keys.items():
        conf.set(key, value)
    jvm.launch(conf)
    # No daemon: a process that ends while C++ code is being imported is aborted, and its exit code lost.
    Thread(target=import_module, args=(JUDGING,)).start()
    if not spark_master.is_local(master):
        spark_master.refuse_silent(master)
    made = SparkContext.getOrCreate(conf)
    jvm.silence_accumulators(made)
    if not spark_master.is_local(master):
        spark_master.await_worker(made, master)
    return made


def _refused(error: Exception, heard: IO[bytes], master: str, java: Path | None) -> FloodmarkError:
    """The error that says in a sentence why there is no context: the JVM's last words if it did not even
    start."""
    heard.seek(0)
    output = [line.strip() for line in heard.read().decode(errors="replace").splitlines() if line.strip()]
    words = spark_master.words_of(error)
    if not jvm.is_launched():
        words = " ".join(find_errors(output)) or words
    if "UnsupportedClassVersionError" in words:
        words += f"; {_ADVICE}"
    at = f"with {java}" if java is not None and spark_master.is_local(master) else f"at {master}"
    if "Could not parse Master URL" in words:
        return UsageError(f"--master {master}: Spark knows no such master")
    return FloodmarkError(f"Spark does not start {at}: {words}")


def find_errors(output: list[str]) -> list[str]:
    """The errors in the output of a JVM that did not start, or else its last lines."""
    errors = [line for line in output if _COMPLAINT.match(line)]
    return [line[:300] for line in (errors or output[-3:])][:2]


@contextmanager
def quiet() -> Iterator[IO[bytes]]:
    """Send the JVM's output, for as long as it lives, into a file without a name: on standard output it would
    mix with the verdicts."""
    sys.stdout.flush()
    sys.stderr.flush()
    for name in ("SQLQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they print each error as well, with a traceback
    logging.getLogger().addFilter(is_not_from_py4j)
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


def is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Drop py4j's tracebacks of calls that found the JVM dead, or that Ctrl-C or SIGTERM interrupted; it
    raises as well."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


# -- its scratch folders: Spark leaves files that it makes while it ends -------------------------------------


def own_scratch(configured: Mapping[str, str]) -> tuple[str, ...]:
    """New folders for the JVM that is about to start, which are removed when it ends, however it ends. They
    are where the user wants such files: SPARK_LOCAL_DIRS, else spark.local.dir, else the temporary folder.
    configured: Spark's keys so far."""
    named = os.environ.get(LOCAL_DIRS) or configured.get("spark.local.dir") or tempfile.gettempdir()
    parents = [Path(parent.strip()) for parent in named.split(",") if parent.strip()]
    for parent in parents:
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
    scratch = tuple(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent) for parent in parents)
    _own[:] = [OwnJvm(scratch, disposable=not configured and jvm_cds.BUILDING not in os.environ)]
    atexit.unregister(stop_spark_at_exit)
    atexit.register(stop_spark_at_exit, os.getpid())
    return scratch


def sweep(parent: Path) -> None:
    """Remove the folders of processes that were killed."""
    for left in parent.glob(f"{PREFIX}*-*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and has_ended(pid):
            shutil.rmtree(left, ignore_errors=True)


def has_ended(pid: str) -> bool:
    """Whether this process has ended, also if nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].startswith("Z")
    except OSError:
        return Path("/proc/self").exists()


@contextmanager
def given_to_spark(scratch: tuple[str, ...]) -> Iterator[None]:
    """Let a JVM that is started meanwhile use these folders."""
    before = os.environ.get(LOCAL_DIRS)
    if scratch:
        os.environ[LOCAL_DIRS] = ",".join(scratch)
    try:
        yield
    finally:
        os.environ.pop(LOCAL_DIRS, None)
        if before is not None:
            os.environ[LOCAL_DIRS] = before


# -- Java ---------------------------------------------------------------------------------------------------


def build_archive_for_next_start() -> bool:
    """If our JVM has started without a class archive, start to build one for the next time, without waiting.
    Returns whether it did."""
    if not (_running and spark_master.is_local(_running[0].master)) or _SUBMITTED in os.environ:
        return False
    try:
        return jvm_cds.build_in_background(find_java()) is not None
    except FloodmarkError:
        return False


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


def usable_java() -> tuple[Path, int]:
    """The java that Spark would start, and its version; FloodmarkError if it is too old for Spark."""
    java = find_java()
    version = version_of(java)
    if version < JAVA_AT_LEAST:
        raise FloodmarkError(f"{java} is Java {version}; {_ADVICE}")
    return java, version


def version_of(java: Path) -> int:
    """The major version, from the release file of a JDK if there is one (quicker than starting it)."""
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
