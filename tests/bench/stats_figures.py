"""Times of `floodmark campaign stats`, process start to exit, over traced folders like runs of 20 s; and
pandas.

The first time each history and trace is read, the second time what was kept of them.

    make bench ARGS='--only stats --stats-folders 300 --repeat 1'

DIFFERENT folders are made; the others are these again by other names (hard links), so that 300 of them, 9 GB
to read, are made in a minute.

pandas reads the same two files of each folder in one process, and answers a part of the same questions: acked
writes, latency of acked sends, the longest time without an ack of a partition, elections, truncations. It
reads PANDAS_FOLDERS of them, and one alone; the time for all is computed from both. It is not a requirement:
if it is not installed, a sentence is printed in its place.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import judge_figures
import real_like
from judge_figures import OPS_OF_20_S, Bench, Cost, progress, watched

from floodmark.harness.run import MEASURES

MEASURED = {0: "measured"}
DIFFERENT = 10
PANDAS_FOLDERS = 20
_PANDAS = """
import sys
import pandas as pd
for folder in sys.argv[1:]:
    lines = pd.read_json(f"{folder}/history.jsonl", lines=True)
    lines = lines[lines.process >= 0]
    following = lines.sort_values(["process", "index"]).groupby("process").shift(-1)
    answered = (lines.type == "invoke") & (following.type == "ok") & (lines.f == "send")
    latency = (following.time - lines.time)[answered]
    acks = lines[(lines.type == "ok") & lines.f.isin(["send", "txn"])].explode("sends")
    acks = acks.dropna(subset=["sends"])
    acks = acks.assign(partition=acks.sends.str["partition"])
    gap = acks.sort_values("time").groupby("partition").time.diff().max()
    trace = pd.read_json(f"{folder}/trace.jsonl", lines=True)
    cut = trace[trace.event == "truncate"]
    print(len(acks), gap, *latency.quantile([0.5, 0.99, 0.999]), (trace.event == "elect").sum(),
          (cut["from"] > cut["to"]).sum() if len(cut) else 0)
"""


def bench_stats(bench: Bench, count: int) -> None:
    """Prints a table that fits a README."""
    folders = folders_of(bench, count)
    size = sum(path.stat().st_size for folder in folders
               for path in (folder / "history.jsonl", folder / "trace.jsonl"))
    different = min(count, DIFFERENT)
    held = judge_figures.describe_contents(folders[:different])
    print(f"stats: {count} folders, {different} of them different ({held}), "
          f"{size / 1e6:,.0f} MB of history and trace", flush=True)
    print("| what | s | s a folder | CPU s | resident |\n|---|---|---|---|---|", flush=True)
    stats = [sys.executable, "-m", "floodmark.harness", "campaign", "stats", *map(str, folders)]
    first, second = [], []
    for number in range(bench.repeat):
        progress(f"measuring, {number + 1} of {bench.repeat}")
        for folder in folders:
            (folder / MEASURES).unlink(missing_ok=True)
        first.append(watched(stats, MEASURED))
        second.append(watched(stats, MEASURED))
    row("campaign stats, nothing kept", count, first)
    row("campaign stats, all kept", count, second)
    beside_pandas(bench, folders)
    bench.done_with(folders)


def folders_of(bench: Bench, count: int) -> list[Path]:
    made = [
        bench.folder(f"campaign-{number}", partial(real_like.write, ops=OPS_OF_20_S, seed=number, trace=True))
        for number in range(min(count, DIFFERENT))
    ]
    return made + [bench.folder(f"again-{number}", partial(link_of, made[number % DIFFERENT]))
                   for number in range(DIFFERENT, count)]


def link_of(folder: Path, path: Path) -> None:
    """The same run by another name: its files are the same, files written next to them are not."""
    shutil.copytree(folder, path, copy_function=os.link, ignore=shutil.ignore_patterns(MEASURES))


def beside_pandas(bench: Bench, folders: Sequence[Path]) -> None:
    if find_spec("pandas") is None:
        print("pandas is not installed: there is no comparison (pip install pandas)", flush=True)
        return
    few = folders[:PANDAS_FOLDERS]
    progress(f"reading {len(few)} folders with pandas")
    one, some = ([watched([sys.executable, "-c", _PANDAS, *map(str, named)], MEASURED)
                  for _ in range(bench.repeat)] for named in (few[:1], few))
    if len(few) == len(folders):
        row("pandas, a part of it", len(folders), some)
        return
    row(f"pandas, a part of it, {len(few)} folders", len(few), some)
    row("pandas, all of them (reckoned)", len(folders), [
        reckoned(first, then, len(few), len(folders)) for first, then in zip(one, some, strict=True)])


def reckoned(one: Cost, some: Cost, few: int, count: int) -> Cost:
    """The cost of so many folders, from the cost of one and of a few: the start counts once."""
    def all_of(first: float, then: float) -> float:
        return first + (count - 1) * (then - first) / (few - 1)

    return Cost(took_s=all_of(one.took_s, some.took_s), cpu_s=all_of(one.cpu_s or 0, some.cpu_s or 0),
                resident_bytes=some.resident_bytes)


def row(what: str, count: int, costs: Sequence[Cost]) -> None:
    """Prints the medians."""
    took_s = median(cost.took_s for cost in costs)
    cpu_s = median(cost.cpu_s or 0 for cost in costs)
    resident = median(cost.resident_bytes or 0 for cost in costs)
    print(f"| {what} | {took_s:.1f} | {took_s / count:.3f} | {cpu_s:.0f} | {resident / 1e9:.2f} GB |",
          flush=True)
