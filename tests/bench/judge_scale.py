"""One run judged on one worker and on two: what a second machine saves.

    make bench ARGS='--only judge --judge-rows scale --scale-ops 10000000 --repeat 1'

A standalone cluster of Spark on this machine stands for machines: each worker, with the JVM and the Python
processes of its executor, may use one core and no other (taskset), and has no more than that to do. The
driver, which only listens, is where it is put. Each row has the CPU seconds of the call and of the workers;
the verdicts must be the same, byte for byte but for timings.
"""

import os
import re
import tempfile
from pathlib import Path
from statistics import median

from judge_figures import Bench, Cost, checked, held_by, progress, real_like_folder
from standalone import standalone

MEMORY_MB = 1536  # of a worker, for its executor's JVM; its Python process has what it needs besides
CONF = (
    f"spark.executor.memory={MEMORY_MB - 512}m",
    "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.floodmark.smallBytes=1",  # a run that is too small to be divided is divided here as well
)
_TIMINGS = re.compile(r'"timings_s": \{[^}]*\}')


def bench_scale(bench: Bench, ops: int) -> None:
    folder = real_like_folder(bench, ops)
    print(f"scale out: {held_by([folder])}; each worker has one core", flush=True)
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("two workers with a core each need two cores")
    print("| workers | s | CPU s | resident | of the time on one |", flush=True)
    print("|---|---|---|---|---|", flush=True)
    found: dict[int, list[Cost]] = {}
    verdicts: set[str] = set()
    for workers in (1, 2):
        found[workers] = []
        for number in range(bench.repeat):
            progress(f"judging {folder.name} on {workers} of 2 workers, {number + 1} of {bench.repeat}")
            found[workers].append(judged_by(folder, workers))
            verdicts.add(_TIMINGS.sub("", (folder / "verdict.json").read_text()))
        costs = found[workers]
        took_s, alone_s = (median(cost.took_s for cost in some) for some in (costs, found[1]))
        cpu_s = median(cost.cpu_s or 0 for cost in costs)
        resident = median(cost.resident_bytes or 0 for cost in costs)
        cells = f"{took_s:.1f} | {cpu_s:.0f} | {resident / 1e9:.2f} GB | {took_s / alone_s:.2f}"
        print(f"| {workers} | {cells} |", flush=True)
    if len(verdicts) > 1:
        raise SystemExit("the verdicts differ: " + "\n".join(sorted(verdicts)))
    print("the same verdict, byte for byte but for timings", flush=True)
    bench.done_with([folder])


def judged_by(folder: Path, workers: int) -> Cost:
    """On a cluster of its own, which is up already when the clock starts."""
    conf = [word for pair in CONF for word in ("--conf", pair)]
    with (
        tempfile.TemporaryDirectory(prefix="floodmark-scale-") as name,
        standalone(Path(name), workers, f"{MEMORY_MB}m", pinned=True) as cluster,
    ):
        daemons = [daemon.process.pid for daemon in cluster.daemons]
        return checked([folder], ["--master", cluster.master, *conf], daemons)
