"""What `floodmark campaign stats` takes, process start to exit, over traced folders like runs of 20 s: the
first time, when each history and trace is read, and the second, when what was kept is; and pandas beside it.

    make bench ARGS='--only stats --stats-folders 300 --folders DIR --repeat 1'

pandas reads the same two files of each folder in one process, and answers a part of the same questions: acked
writes, latency of acked sends, the longest time without an ack of a partition, elections, truncations. It is
nobody's requirement: where it is not installed, a sentence stands in its place.
"""

import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from statistics import median

import judge_figures
import real_like
from judge_figures import OPS_OF_20_S, Bench, Cost, progress, watched

from floodmark.harness.run import MEASURES

MEASURED = {0: "measured"}
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
    """A table that fits a README."""
    folders = [
        bench.folder(f"campaign-{number}", partial(real_like.write, ops=OPS_OF_20_S, seed=number, trace=True))
        for number in range(count)
    ]
    size = sum(path.stat().st_size for folder in folders
               for path in (folder / "history.jsonl", folder / "trace.jsonl"))
    print(f"stats: {count} folders, {judge_figures.held_by(folders)}, "
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
    if find_spec("pandas") is None:
        print("pandas is not installed: nothing stands beside it (pip install pandas)", flush=True)
    else:
        progress("reading with pandas")
        pandas = [sys.executable, "-c", _PANDAS, *map(str, folders)]
        row("pandas, a part of it", count, [watched(pandas, MEASURED) for _ in range(bench.repeat)])
    bench.done_with(folders)


def row(what: str, count: int, costs: Sequence[Cost]) -> None:
    """Medians."""
    took_s = median(cost.took_s for cost in costs)
    cpu_s = median(cost.cpu_s or 0 for cost in costs)
    resident = median(cost.resident_bytes or 0 for cost in costs)
    print(f"| {what} | {took_s:.1f} | {took_s / count:.3f} | {cpu_s:.0f} | {resident / 1e9:.2f} GB |",
          flush=True)
