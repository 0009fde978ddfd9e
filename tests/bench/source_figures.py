"""Seconds of `count()` of each table of Spark's format "floodmark", beside spark.read.json of the lines of
each file: in local mode, and on a standalone cluster of two workers.

    make bench ARGS='--only source --ops 1000000'

Each table is counted --repeat times, after one small job of both readers; the medians are printed.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

import real_like
from judge_figures import Bench
from standalone import standalone

from floodmark.checkers import tables
from floodmark.harness.spark_options import Workers

SMALL_OPS = 100


def bench_source(bench: Bench, sizes: Sequence[int]) -> None:
    small = bench.folder(f"traced-{SMALL_OPS}", partial(real_like.write, ops=SMALL_OPS, trace=True))
    for ops in sizes:
        folder = bench.folder(f"traced-{ops}", partial(real_like.write, ops=ops, trace=True))
        command = [sys.executable, __file__, str(folder), str(small), str(bench.repeat)]
        subprocess.run([*command, "local[*]"], check=True)
        place = bench.scratch / "standalone"
        place.mkdir(exist_ok=True)
        with standalone(place, 2, "2g") as cluster:
            subprocess.run([*command, cluster.master], check=True)
        bench.done_with([folder])
    bench.done_with([small])


def count(folder: Path, small: Path, repeat: int, master: str) -> None:
    """Prints a table that fits a README."""
    from pyspark.sql import SparkSession

    from floodmark.checkers.spark import session

    session.context(Workers(master=master))
    spark = SparkSession.builder.getOrCreate()
    tables.register(spark)

    def rows_of(name: str, of: Path) -> int:
        return spark.read.format("floodmark").option("table", name).load(str(of)).count()

    def lines_of(name: str, of: Path) -> int:
        return spark.read.json(str(of / name)).count()

    print(f"{folder.name}, {master}\n| what | rows | s |\n|---|---|---|", flush=True)
    files = [str(file.relative_to(folder)) for file in sorted(folder.rglob("*.jsonl"))]
    asked = [(rows_of, name) for name in tables.SCHEMAS] + [(lines_of, name) for name in files]
    for ask, name in (asked[0], asked[-1]):
        ask(name, small)
    for ask, name in asked:
        rows, times = 0, []
        for _ in range(repeat):
            began_s = time.perf_counter()
            rows = ask(name, folder)
            times.append(time.perf_counter() - began_s)
        print(f"| {name} | {rows:,} | {median(times):.1f} |", flush=True)


if __name__ == "__main__":
    count(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
