"""Compares the judge, with all its laws, with DuckDB alone and the two core verdicts (core_verdicts.py).

    make bench ARGS='--only duckdb --ops 1000000'

Cold is a process from start to exit, warm is every time after the first in one process. The folders are like
real runs (tests/support/real_like.py), once only as JSON lines and once also with the Parquet that `floodmark
run` and `check --keep-parquet` leave.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import core_verdicts
from judge_figures import Bench, checked, describe_contents, progress, real_like_folder, warm, watched


def bench_duckdb(bench: Bench, sizes: Sequence[int]) -> None:
    """Medians, and the judge's seconds as a multiple of DuckDB's."""
    print("the judge, all checks, beside DuckDB, the two core ones; s, medians", flush=True)
    print("| folder | files | the judge cold | DuckDB cold | ratio | the judge warm | DuckDB warm | ratio |",
          flush=True)  # fmt: skip
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for ops in sizes:
        folder = real_like_folder(bench, ops)
        without_parquet(folder)
        for form in ("json", "parquet"):
            if form == "parquet":
                as_parquet(folder)
            row(folder, form, bench.repeat)
        without_parquet(folder)
        bench.done_with([folder])


def row(folder: Path, form: str, repeat: int) -> None:
    progress(f"judging {folder.name} as {form}, and asking DuckDB of it")
    alone = [sys.executable, core_verdicts.__file__, str(folder), form]
    ours = median(checked([folder]).took_s for _ in range(repeat))
    theirs = median(watched([*alone, "1"], {0: ""}).took_s for _ in range(repeat))
    ours_warm = median(warm(folder, repeat))
    theirs_warm = median(core_verdicts.times_of(folder, form, repeat + 1)[1:])
    cells = (describe_contents([folder]), form, f"{ours:.1f}", f"{theirs:.1f}", f"{ours / theirs:.1f}",
             f"{ours_warm:.1f}", f"{theirs_warm:.1f}", f"{ours_warm / theirs_warm:.1f}")  # fmt: skip
    print(f"| {' | '.join(cells)} |", flush=True)


def as_parquet(folder: Path) -> None:
    """Writes the Parquet files that a run and a judge leave."""
    from floodmark.checkers.read.history_parquet import keep
    from floodmark.harness.parquet_dump import write_parquet

    for lines in (folder / "logs").glob("*.jsonl"):
        write_parquet(lines)
    keep(folder / "history.jsonl")


def without_parquet(folder: Path) -> None:
    for file in (*folder.glob("*.parquet"), *(folder / "logs").glob("*.parquet")):
        file.unlink()
