"""The configuration of Spark when the judge starts it: keys, and how much of this machine's memory it may
use.

Rules
1. Keys given by --conf, spark-submit or spark-defaults.conf take precedence over those here; only the keys on
   which the answers depend (workers.ITS_OWN) are fixed: the judge sets them where it reads files.
2. Nothing is set about executors: their memory and cores are the business of the cluster and its user.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pyspark

HEAP, JVM_OPTIONS = "spark.driver.memory", "spark.driver.extraJavaOptions"
LEAST_HEAP_MB, USUAL_HEAP_MB, MOST_HEAP_MB = 512, 2048, 30 << 10  # above 30 GB every pointer takes 8 bytes
HEAP_MB_A_CORE = 512

# The answers about files that Spark reads depend on these.
CERTAIN = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
# Set when a context starts.
STARTING = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The shuffled streams are compressed by Arrow already.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.log.level": "ERROR",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "false",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def chosen(configured: Mapping[str, str], *, loopback: bool) -> dict[str, str]:
    """All keys of a context that is about to start; `configured`: the keys that somebody has set already."""
    return {**STARTING, **(LOOPBACK if loopback else {}), **configured}


def spark_defaults() -> dict[str, str]:
    """The keys of spark-defaults.conf, where spark-submit looks for it."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    file = Path(os.environ.get("SPARK_CONF_DIR") or f"{home}/conf") / "spark-defaults.conf"
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = [re.split(r"\s*[=:\s]\s*", line.strip(), maxsplit=1) for line in lines if not comment(line)]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0].startswith("spark.")}


def comment(line: str) -> bool:
    return line.lstrip()[:1] in ("", "#", "!")


# -- this machine -----------------------------------------------------------------------------------------


def heap_mb(cores: int, memory_mb: int) -> int:
    """The driver's heap: 2 GB, more if many cores work, never more than half of the memory."""
    wanted = min(max(USUAL_HEAP_MB, HEAP_MB_A_CORE * cores), MOST_HEAP_MB)
    return max(LEAST_HEAP_MB, min(wanted, memory_mb // 2))


def own_cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def own_memory_mb() -> int:
    """The machine's memory, or the container's limit."""
    limits = []
    try:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError):
        pass
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(file).read_text(encoding="ascii")))
        except (OSError, ValueError):  # none, or `max`
            continue
    return min(limits, default=4 << 30) >> 20
