"""What Spark is told when the judge starts it: keys, and how much of this machine's memory it may have.

Rules
1. What somebody says, by --conf, spark-submit or spark-defaults.conf, goes before what is said here; only
   what the answers stand on (workers.ITS_OWN) is the judge's alone: it sets that where it reads files.
2. Of executors nothing is said here: their memory and cores are the cluster's and its user's matter.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pyspark

HEAP, JVM_OPTIONS = "spark.driver.memory", "spark.driver.extraJavaOptions"
LEAST_HEAP_MB, USUAL_HEAP_MB, MOST_HEAP_MB = 512, 2048, 30 << 10  # above 30 GB every pointer takes 8 bytes
HEAP_MB_A_CORE = 512

# Every answer about a file that Spark reads stands on these.
CERTAIN = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
# Known to a context from its start.
STARTING = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What is shuffled are streams that Arrow has compressed.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.log.level": "ERROR",
    "spark.cleaner.referenceTracking.cleanCheckpoints": "false",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def chosen(configured: Mapping[str, str], *, loopback: bool) -> dict[str, str]:
    """All keys, of a context that is to start; `configured`: what somebody has said already."""
    return {**STARTING, **(LOOPBACK if loopback else {}), **configured}


def spark_defaults() -> dict[str, str]:
    """spark-defaults.conf, where spark-submit looks for it."""
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
    """The driver's heap: 2 GB, more where many cores work, never more than half of the memory."""
    wanted = min(max(USUAL_HEAP_MB, HEAP_MB_A_CORE * cores), MOST_HEAP_MB)
    return max(LEAST_HEAP_MB, min(wanted, memory_mb // 2))


def own_cores() -> int:
    """Those that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def own_memory_mb() -> int:
    """What there is, or what a container is allowed."""
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
