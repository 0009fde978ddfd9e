"""Measures the cluster, the recorder and the judge, and prints the figures. `make bench`, on an idle machine.

    make bench ARGS='--only cluster,judge --repeat 5'
    make bench ARGS='--only real,damaged --ops 10000,1000000 --keep DIR'

Each part of PARTS is some rows; each row is measured --repeat times. What is printed is the median with its
range, and how many times that of another row it is, where it is measured against one. Nothing here passes or
fails. `judge` is all rows of `floodmark check` that take minutes; scale and memory, which take long, must be
asked for, and so must containers and kafka, which need an engine or fetch jars.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import clusters
import judging
from rows import Options, Row

# name -> what makes its rows, and what is measured. The command is `make bench ARGS='--only NAME'`.
Part = tuple[Callable[[Options], Iterator[Row]], str]
PARTS: Mapping[str, Part] = {
    "cluster": (clusters.local, "3 brokers, 4 partitions, acks=all, min.insync.replicas=2, workload log"),
    "trace": (clusters.traced, "the same with direct links and 20 processes, with and without a trace"),
    "recorder": (clusters.recorder, "ops recorded by 20 processes, with a client that answers at once"),
    "runs": (judging.runs, "check of folders that `floodmark run --nemesis all` has made"),
    "real": (judging.real, "check of folders like those (tests/support/real_like.py) of --ops ops, no trace"),
    "damaged": (judging.damaged, "the same of --ops ops with each damage, or with transactions"),
    "small": (judging.small, "check of --folders small folders in one call"),
    "campaign": (judging.campaign, "check of --folders traced folders like a run of 20 s in one call"),
    "session": (judging.session, "a traced folder of 30 s where a session of Spark runs already"),
    "stats": (judging.stats, "`campaign stats` of --folders traced folders like runs of 20 s"),
    "source": (judging.source, "count() of each table of Spark's format, and spark.read.json of each file"),
    "containers": (clusters.containers, "3 brokers and a controller on this machine's engine, and its acks"),
    "kafka": (clusters.kafka, "Apache Kafka beside the reference broker"),
    "scale": (judging.scale, "check of --ops ops by two workers of Spark with a core each, and by one"),
    "memory": (judging.memory, "check of --ops ops by a worker whose Python may use a third of its bytes"),
}
JUDGE = ("runs", "real", "damaged", "small", "campaign", "session")
USUAL = ("cluster", "trace", "recorder", "judge", "stats", "source", "containers", "kafka")


def main() -> None:
    parts = "\n".join(f"  {name:<11} {about}" for name, (_, about) in PARTS.items())
    parser = argparse.ArgumentParser(
        description=f"{(__doc__ or '').splitlines()[0]}\n\n{parts}\n  {'judge':<11} {', '.join(JUDGE)}",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(USUAL), metavar="PARTS")
    parser.add_argument("--repeat", type=int, default=3, help="how often each row is measured")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load")
    parser.add_argument("--ops", type=sizes, help="of each folder, with commas", metavar="N,...")
    parser.add_argument("--folders", type=int, help="in one call", metavar="N")
    parser.add_argument("--memory-mb", type=int, help="what the Python process of a worker may use")
    parser.add_argument("--kafka", default="2.8.2,3.9.2,4.3.1", metavar="VERSIONS")
    parser.add_argument("--keep", type=Path, help="where folders are kept: the bench of another commit then "
                                                  "judges the same bytes", metavar="DIR")
    asked = parser.parse_args()
    names = [name for word in asked.only.split(",") for name in (JUDGE if word == "judge" else (word,))]
    if unknown := {*names} - {*PARTS}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name:
        options = Options(
            scratch=Path(name), kept=asked.keep, seconds=asked.seconds, ops=asked.ops, folders=asked.folders,
            memory_mb=asked.memory_mb, kafka=asked.kafka.split(","))
        for part in names:
            make, about = PARTS[part]
            print(f"{part}: {about}", flush=True)
            measure(make(options), asked.repeat)


def sizes(words: str) -> list[int]:
    return [int(ops) for ops in words.split(",")]


def measure(rows: Iterator[Row], repeat: int) -> None:
    """Prints each figure of the rows."""
    medians: dict[tuple[str, str], float] = {}
    for row in rows:
        found: dict[tuple[str, str], list[float]] = {}
        for turn in range(repeat):
            print(f"  {row.about}: {turn + 1} of {repeat}", file=sys.stderr, flush=True)
            for key, figure in row.measured(turn).items():
                found.setdefault(key, []).append(figure)
        for (who, what), figures in found.items():
            middle = medians[who, what] = statistics.median(figures)
            beside = medians.get((row.against, what)) if who != row.against else None
            print(f"  {who:<58} {what:<28} {middle:>10,.4g} ({min(figures):,.4g} to {max(figures):,.4g})"
                  + (f", {middle / beside:.2f} of {row.against}" if beside else ""), flush=True)


if __name__ == "__main__":
    main()
