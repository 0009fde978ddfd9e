"""What `floodmark check` takes, process start to verdict: seconds, ops and lines a second, memory.

    make bench ARGS='--only judge --ops 10000,1000000'
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import big
import orjson
import psutil

SMALL_FOLDERS = 200
SAMPLE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """took_s: from start to exit; resident_bytes: the most that the process and its children held at once."""

    took_s: float
    resident_bytes: int


def bench_judge(scratch: Path, sizes: Sequence[int], repeat: int) -> None:
    """A row a size, as a table that fits a README."""
    print("judge: `floodmark check`, process start to verdict, all checks; medians", flush=True)
    print("| history | lines | dumps | s | ops/s | lines/s | resident |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for ops in sizes:
        folder = big.write(scratch / f"big-{ops}", ops=ops)
        row(f"{ops:,} ops", [folder], [checked([folder]) for _ in range(repeat)])
        shutil.rmtree(folder)
    folders = [big.write(scratch / f"small-{number}", ops=50) for number in range(SMALL_FOLDERS)]
    row(f"{SMALL_FOLDERS} folders of 50 ops", folders, [checked(folders) for _ in range(repeat)])


def row(what: str, folders: Sequence[Path], costs: Sequence[Cost]) -> None:
    lines = sum(orjson.loads((folder / "run.json").read_bytes())["history_lines"] for folder in folders)
    dumps = sum(dump.stat().st_size for folder in folders for dump in (folder / "logs").glob("*.jsonl"))
    took_s = statistics.median(cost.took_s for cost in costs)
    resident = statistics.median(cost.resident_bytes for cost in costs)
    spread = f"{min(cost.took_s for cost in costs):.1f} to {max(cost.took_s for cost in costs):.1f}"
    cells = (what, f"{lines:,}", f"{dumps / 1e6:,.0f} MB", f"{took_s:.1f} ({spread})",
             f"{lines / 2 / took_s:,.0f}", f"{lines / took_s:,.0f}", f"{resident / 1e9:.2f} GB")
    print(f"| {' | '.join(cells)} |", flush=True)


def checked(folders: Sequence[Path]) -> Cost:
    """One call on valid folders, watched."""
    command = [sys.executable, "-m", "harness", "check", *map(str, folders)]
    began_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=dict(os.environ)) as process:
        most = 0
        while process.poll() is None:
            most = max(most, resident(process.pid))
            time.sleep(SAMPLE_S)
        took_s = time.perf_counter() - began_s
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode != 0:
        raise SystemExit(f"check answered {process.returncode}:\n{said[-2000:]}")
    return Cost(took_s=took_s, resident_bytes=most)


def resident(pid: int) -> int:
    """Bytes that the process and all below it hold; shared pages count once a process."""
    try:
        top = psutil.Process(pid)
        family = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    held = 0
    for each in family:
        try:
            held += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return held
