"""Spark's master: which machines work, whether they answer, and what a worker must have.

Rules
1. A missing master is reported within seconds if its port can be tested, and else as soon as Spark gives up
   (a minute); a master that gives no worker, after WORKER_S. Nothing is retried after that.
2. If workers are other machines, a run on this machine's file system must be at a path at which they see it
   too.
"""

import os
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from floodmark.checkers.spark import jvm
from floodmark.harness.errors import FloodmarkError, UsageError

LOCAL = "local[*]"
DIAL_MS = 5_000
WORKER_S = 180.0  # a busy cluster, or one that starts machines for us, takes long
_STANDALONE = re.compile(r"spark://([^/,\s]+:\d+)(,[^/,\s]+:\d+)*")
# The error of a Python that lacks a package, or of a machine without that Python.
_BARE = re.compile(
    r"((?:ModuleNotFound|Import)Error: .*|Cannot run program .*|.*PYTHON_VERSION_MISMATCH.*"
    r"|.*PACKAGE_NOT_INSTALLED.*)"
)


def is_local(master: str | None) -> bool:
    return master is not None and re.fullmatch(r"local(\[[^\]]*\])?", master) is not None


def on_loopback(master: str) -> bool:
    """Whether everything is on this machine, and no other machine must reach the driver."""
    hosts = [host for host, _ in addresses(master)]
    near = all(host in ("localhost", "::1") or host.startswith("127.") for host in hosts)
    return is_local(master) or (bool(hosts) and near)


def addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of each master of a standalone cluster."""
    if _STANDALONE.fullmatch(master) is None:
        return []
    split = [word.rpartition(":") for word in master.removeprefix("spark://").split(",")]
    return [(host.strip("[]"), int(port)) for host, _, port in split]


def refuse_odd(master: str) -> None:
    """UsageError for an invalid master."""
    if not re.match(r"local|spark://|yarn$|k8s://", master):
        raise UsageError(f"--master {master}: Spark knows spark://HOST:PORT, yarn, k8s://..., and local[*]")
    if master.startswith("spark://") and _STANDALONE.fullmatch(master) is None:
        raise UsageError(f"--master {master}: a standalone master is spark://HOST:PORT")
    if master.startswith("local") and not is_local(master) and not master.startswith("local-cluster["):
        raise UsageError(f"--master {master}: this machine is local[*], or local[N] for N cores")


def refuse_silent(master: str) -> None:
    """FloodmarkError if no master of a standalone cluster accepts a connection."""
    refusals = []
    for host, port in addresses(master):
        dialled = jvm.java_net().Socket()
        try:
            dialled.connect(jvm.java_net().InetSocketAddress(host, port), DIAL_MS)
            return
        except (PySparkException, Py4JError) as error:
            refusals.append(f"{host}:{port}: {words_of(error)}")
        finally:
            dialled.close()
    if refusals:
        raise FloodmarkError(
            f"no Spark master answers at {master} ({'; '.join(refusals)}); is it up, and its "
            "port open to this machine?"
        )


def await_worker(spark: SparkContext, master: str, wait_s: float = WORKER_S) -> None:
    """Return when the cluster has done one small job; FloodmarkError if it has not in time."""
    failed: list[Exception] = []

    def job() -> None:
        try:
            spark.parallelize([0], 1).count()
        except (PySparkException, Py4JError) as error:
            failed.append(error)

    asked = threading.Thread(target=job, daemon=True)
    asked.start()
    asked.join(wait_s)
    if asked.is_alive():
        spark.cancelAllJobs()
        raise FloodmarkError(
            f"{master} answers, but gave no worker within {wait_s:.0f} s: it has none with enough memory and "
            "cores free, or its workers cannot dial this machine (--conf spark.executor.memory=..., "
            "spark.cores.max=..., spark.driver.host=...)"
        )
    if failed:
        refuse_bare_workers(spark, failed[0])
        raise FloodmarkError(f"{master} cannot work: {words_of(failed[0])}")


def refuse_bare_workers(spark: SparkContext, error: Exception) -> None:
    """FloodmarkError if a cluster's worker lacks what the judge's Python functions need."""
    found = _BARE.search(str(error))
    if found is not None and not is_local(spark.master):
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        raise FloodmarkError(
            f"a worker cannot run floodmark's Python code ({found[1].strip()[:200]}): {python} must be there "
            "on every worker, with floodmark and its packages; PYSPARK_PYTHON names another one"
        ) from error


def words_of(error: BaseException) -> str:
    """The JVM's error in one line: the message of the innermost cause."""
    java = getattr(error, "java_exception", None)
    messages = [str(error)] if java is None else list(_causes(java))
    lines = [line.strip() for message in messages[-1:] for line in message.splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _causes(java: Any) -> Iterator[str]:
    """The causes, from the outermost to the innermost."""
    for _ in range(20):
        name = str(java.getClass().getSimpleName())
        message = java.getMessage()
        yield name if message is None else str(message)
        java = java.getCause()
        if java is None:
            return
