"""Times of `floodmark campaign stats`, process start to exit, over traced folders like runs of 20 s.

The first time each history and trace is read, the second time what was kept of them.

    make bench ARGS='--only stats --stats-folders 300 --repeat 1'

DIFFERENT folders are made; the others are these again by other names (hard links), so that 300 of them, 9 GB
to read, are made in a minute.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

import judge_figures
import real_like
from judge_figures import OPS_OF_20_S, Bench, Cost, progress, watched

from floodmark.harness.run import MEASURES

MEASURED = {0: "measured"}
DIFFERENT = 10


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


def row(what: str, count: int, costs: Sequence[Cost]) -> None:
    """Prints the medians."""
    took_s = median(cost.took_s for cost in costs)
    cpu_s = median(cost.cpu_s or 0 for cost in costs)
    resident = median(cost.resident_bytes or 0 for cost in costs)
    print(f"| {what} | {took_s:.1f} | {took_s / count:.3f} | {cpu_s:.0f} | {resident / 1e9:.2f} GB |",
          flush=True)
