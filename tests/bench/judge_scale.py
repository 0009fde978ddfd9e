"""Judges a big run on a cluster: how much a second worker saves, and a worker with too little memory.

    make bench ARGS='--only judge --judge-rows scale --scale-ops 3000000,10000000 --repeat 1'
    make bench ARGS='--only judge --judge-rows memory --memory-ops 10000000 --repeat 1'

A standalone cluster of Spark on this machine replaces several machines. For `scale` each worker, with the JVM
and the Python processes of its executor, may use one core and no other (taskset). The driver, which only
waits, may run anywhere. Each row has the CPU seconds of the call and of the workers, and its share of the
time on one worker. The verdicts must be the same, byte for byte except timings.

For `memory` one worker judges a run of which its Python process may hold a third: tables of a unit beyond the
limit go to disk. The row has the most memory of the process, and the most bytes of tables on disk at one
time; the verdict must be that of the same run without a limit.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from judge_figures import (
    Bench,
    Cost,
    below,
    checked,
    describe_contents,
    memory_of,
    progress,
    read_by_judge,
    real_like_folder,
)
from standalone import Standalone, standalone

from floodmark.harness.spark_options import SMALL_BYTES, UNIT_MEMORY

MEMORY_MB = 1536  # a worker's, for its executor's JVM; its Python process has what it needs besides
LEAST_HEAP_MB = 512  # Spark's minimum for an executor
CONF = (
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    f"{SMALL_BYTES}=1",  # a run that is too small to be divided is divided here as well
)
AIM = 0.65  # share of the time on one worker
SMALLER = 3  # the folder is so many times as big as what a worker's Python process may hold
# The memory of such a process without a row: Python, pyarrow, DuckDB, numpy; and a range while it is parsed.
EMPTY_MB = 186
_TIMINGS = re.compile(r'"timings_s": \{[^}]*\}')


def bench_scale(bench: Bench, sizes: Sequence[int]) -> None:
    """sizes: ops of each folder."""
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("two workers with a core each need two cores")
    for ops in sizes:
        folder = real_like_folder(bench, ops)
        print(f"scale out: {describe_contents([folder])}; each worker has one core", flush=True)
        print("| workers | s | CPU s | resident | of the time on one |", flush=True)
        print("|---|---|---|---|---|", flush=True)
        alone, verdict = scaled(bench, folder, 1)
        beside, other = scaled(bench, folder, 2, alone)
        refuse_different(verdict, other)
        share = beside / alone
        print(f"{share:.2f} of the time on one, aim {AIM}: {'met' if share <= AIM else 'MISSED'}; "
              "the same verdict, byte for byte but for timings", flush=True)  # fmt: skip
        bench.done_with([folder])


def scaled(bench: Bench, folder: Path, workers: int, alone_s: float | None = None) -> tuple[float, str]:
    """The median of the seconds on so many workers, with its share of those on one, and the verdict."""
    costs, verdicts = list[Cost](), list[str]()
    for number in range(bench.repeat):
        progress(f"judging {folder.name} on {workers} of 2 workers, {number + 1} of {bench.repeat}")
        with cluster_of(workers, MEMORY_MB, pinned=True) as cluster:
            costs.append(judged_by(cluster, folder, MEMORY_MB - 512))
        verdicts.append(verdict_in(folder))
        refuse_different(verdicts[0], verdicts[-1])
    took_s = median(cost.took_s for cost in costs)
    cpu_s = median(cost.cpu_s or 0 for cost in costs)
    resident = median(cost.resident_bytes or 0 for cost in costs)
    cells = f"{took_s:.1f} | {cpu_s:.0f} | {resident / 1e9:.2f} GB | {took_s / (alone_s or took_s):.2f}"
    print(f"| {workers} | {cells} |", flush=True)
    return took_s, verdicts[0]


def bench_memory(bench: Bench, ops: int, memory_mb: int | None) -> None:
    """memory_mb: the limit of a worker's Python process; None: a third of the folder's size."""
    folder = real_like_folder(bench, ops)
    size = sum(path.stat().st_size for path in read_by_judge(folder))
    may_hold = memory_mb or int(size / SMALLER / 1e6)
    unit_mb = max(16, (may_hold - EMPTY_MB) // 2)
    print(f"memory: {describe_contents([folder])}, {size / 1e6:,.0f} MB; one worker, whose Python process "
          f"may use {may_hold} MB, of that {unit_mb} MB for tables", flush=True)  # fmt: skip
    print("| limit | s | CPU s | Python's memory | executor's JVM | tables on disk | shuffled |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    verdicts = []
    for limit in (None, unit_mb):
        progress(f"judging {folder.name} on one worker, {f'{limit} MB' if limit else 'no limit'}")
        with cluster_of(1, MEMORY_MB) as cluster:
            held = Held(cluster=cluster)
            more = [] if limit is None else [f"{UNIT_MEMORY}={limit}"]
            cost = judged_by(cluster, folder, LEAST_HEAP_MB, more, held)
        verdicts.append(verdict_in(folder))
        cells = (f"{limit} MB" if limit else "none", f"{cost.took_s:.1f}", f"{cost.cpu_s or 0:.0f}",
                 *(f"{most / 1e6:,.0f} MB" for most in held.most()))  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    refuse_different(*verdicts)
    times = size / held.python
    print(f"the folder is {times:.1f} times Python's memory; the same verdict except timings", flush=True)
    bench.done_with([folder])


@dataclass(slots=True, kw_only=True)
class Held:
    """The memory and disk space of a cluster's workers: the most bytes of each at one time."""

    cluster: Standalone
    python: int = 0
    jvm: int = 0
    tables: int = 0
    shuffled: int = 0

    def most(self) -> tuple[int, ...]:
        return self.python, self.jvm, self.tables, self.shuffled

    def sample(self) -> None:
        resident = {"python": 0, "java": 0}
        for daemon in self.cluster.daemons:
            for process in below(psutil.Process(daemon.process.pid))[1:]:
                try:
                    name = "python" if process.name().startswith("python") else "java"
                    resident[name] += memory_of(process)
                except psutil.NoSuchProcess:
                    continue
        self.python, self.jvm = max(self.python, resident["python"]), max(self.jvm, resident["java"])
        on_disk = sizes_below(self.cluster.local)
        spilled = sum(size for path, size in on_disk if "floodmark-unit-" in path)
        self.tables = max(self.tables, spilled)
        self.shuffled = max(self.shuffled, sum(size for _, size in on_disk) - spilled)


def sizes_below(folder: Path) -> list[tuple[str, int]]:
    """Every file there that still exists, with the bytes that it takes on disk."""
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            try:
                found.append((path, os.stat(path).st_blocks * 512))
            except FileNotFoundError:
                continue
    return found


def refuse_different(*verdicts: str) -> None:
    if len(set(verdicts)) > 1:
        raise SystemExit("the verdicts differ: " + "\n".join(verdicts))


def verdict_in(folder: Path) -> str:
    return _TIMINGS.sub("", (folder / "verdict.json").read_text())


@contextmanager
def cluster_of(workers: int, memory_mb: int, *, pinned: bool = False) -> Iterator[Standalone]:
    """A cluster that is up when the clock starts."""
    with (
        tempfile.TemporaryDirectory(prefix="floodmark-scale-") as name,
        standalone(Path(name), workers, f"{memory_mb}m", pinned=pinned) as cluster,
    ):
        yield cluster


def judged_by(
    cluster: Standalone, folder: Path, heap_mb: int, conf: Sequence[str] = (), held: Held | None = None
) -> Cost:
    """Judges the folder on the cluster. heap_mb: for an executor's JVM."""
    pairs = (*CONF, f"spark.executor.memory={heap_mb}m", *conf)
    words = [word for pair in pairs for word in ("--conf", pair)]
    daemons = [daemon.process.pid for daemon in cluster.daemons]
    sample = held.sample if held else None
    return checked([folder], ["--master", cluster.master, *words], daemons, sample)
