"""What `floodmark check` takes, process start to exit: seconds, CPU seconds, memory; runs as users have them.

    make bench ARGS='--only judge'
    make bench ARGS='--only judge --judge-rows runs,real --ops 10000,1000000,10000000 --folders DIR'

Rows (--judge-rows), in this order:

    runs      three folders that `floodmark run --nemesis all` has made: 30 s, 30 s without its trace, 2 min
    real      folders like those (tests/support/real_like.py) of --ops ops, without a trace
    damaged   the same of --damaged-ops ops, healthy, with transactions, and with each damage in turn; beside
              each how many times the healthy one's seconds it took
    small     200 small folders in one call
    session   one more traced folder of 30 s where a session of Spark runs already
    campaign  100 traced folders like a run of 20 s in one call; long, so only where it is asked for

No workload of floodmark's makes transactions, so that row is the generator's. With --folders the folders stay
there, and are taken from there by the next bench: that of another commit judges the same bytes.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import orjson
import psutil
import real_like

from harness.commands.run import RunOptions, planned, record

ROWS = ("runs", "real", "damaged", "small", "session", "campaign")
USUAL_ROWS = ROWS[:-1]
SMALL_FOLDERS, CAMPAIGN_FOLDERS = 200, 100
OPS_OF_20_S = 20_000
SAMPLE_S = 0.1
SEED = 21
# A run may be found valid, invalid or unknown here; only a judge that fails spoils the figure.
JUDGED = (0, 1, 3)

_WARM = """
import sys, time
from pathlib import Path
from checkers.judge.job import SparkJudge
from checkers.spark.session import leave
judge = SparkJudge()
judge.judge([Path(sys.argv[1])])
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    verdict, = judge.judge([Path(sys.argv[1])])
    print(time.perf_counter() - began)
    assert verdict.failure is None, verdict.failure
leave()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """took_s: from start to exit; cpu_s: of the process and all below it; resident_bytes: the most that they
    held at once."""

    took_s: float
    cpu_s: float
    resident_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where folders are made, whether they stay, and how often each is judged."""

    scratch: Path
    keep: bool
    repeat: int

    def folder(self, name: str, make: Callable[[Path], object]) -> Path:
        path = self.scratch / name
        if not (path / "run.json").exists():
            shutil.rmtree(path, ignore_errors=True)
            make(path)
        return path

    def done_with(self, folders: Iterable[Path]) -> None:
        for folder in () if self.keep else folders:
            shutil.rmtree(folder)

    def costs(self, folders: Sequence[Path]) -> list[Cost]:
        return [checked(folders) for _ in range(self.repeat)]


def bench_judge(
    scratch: Path, rows: Sequence[str], sizes: Sequence[int], damaged_ops: int, repeat: int, keep: Path | None
) -> None:
    """A table that fits a README."""
    bench = Bench(scratch=keep or scratch, keep=keep is not None, repeat=repeat)
    bench.scratch.mkdir(parents=True, exist_ok=True)
    print("judge: `floodmark check`, process start to exit, all checks; medians", flush=True)
    print("| folder | lines | of a trace | size | s | CPU s | resident | of the healthy |", flush=True)
    print("|---|---|---|---|---|---|---|---|", flush=True)
    if "runs" in rows:
        bench_runs(bench)
    if "real" in rows:
        bench_sizes(bench, sizes)
    if "damaged" in rows:
        bench_damages(bench, damaged_ops)
    if "small" in rows:
        bench_many(bench, "small", SMALL_FOLDERS, f"{SMALL_FOLDERS} folders of 50 ops", ops=50, trace=False)
    if "session" in rows:
        bench_session(bench)
    if "campaign" in rows:
        title = f"{CAMPAIGN_FOLDERS} traced runs of {OPS_OF_20_S:,} ops"
        bench_many(bench, "campaign", CAMPAIGN_FOLDERS, title, ops=OPS_OF_20_S, trace=True)


def bench_runs(bench: Bench) -> None:
    """What `floodmark run` leaves behind."""
    half = bench.folder("run-30s", lambda path: recorded(path, 30.0))
    untraced = bench.folder("run-30s-no-trace", lambda path: without_trace(half, path))
    long = bench.folder("run-2min", lambda path: recorded(path, 120.0))
    for title, folder in (("30 s", half), ("30 s, no trace", untraced), ("2 min", long)):
        row(f"run --nemesis all, {title}", [folder], bench.costs([folder]))
    bench.done_with([untraced, long])


def bench_sizes(bench: Bench, sizes: Sequence[int]) -> None:
    for ops in sizes:
        folder = bench.folder(f"real-{ops}", partial(real_like.write, ops=ops))
        row(f"like real, {ops:,} ops", [folder], bench.costs([folder]))
        bench.done_with([folder])


def bench_damages(bench: Bench, ops: int) -> None:
    """Each damage beside the healthy run of its size."""
    folder = bench.folder(f"real-{ops}", partial(real_like.write, ops=ops))
    healthy = bench.costs([folder])
    row(f"like real, {ops:,} ops", [folder], healthy)
    bench.done_with([folder])
    name = f"real-{ops}-transactions"
    folder = bench.folder(name, partial(real_like.write, ops=ops, transactions=True))
    row("the same, transactions", [folder], bench.costs([folder]), beside=healthy)
    bench.done_with([folder])
    for damage in real_like.DAMAGES:
        folder = bench.folder(f"real-{ops}-{damage}", partial(real_like.write, ops=ops, damage=damage))
        row(f"the same, {damage}", [folder], bench.costs([folder]), beside=healthy)
        bench.done_with([folder])


def bench_many(bench: Bench, name: str, count: int, title: str, *, ops: int, trace: bool) -> None:
    folders = [
        bench.folder(f"{name}-{number}", partial(real_like.write, ops=ops, seed=number, trace=trace))
        for number in range(count)
    ]
    row(title, folders, bench.costs(folders))
    bench.done_with(folders)


def bench_session(bench: Bench) -> None:
    """The first judgement of a process pays for Spark; this is each one after it."""
    folder = bench.folder("run-30s", lambda path: recorded(path, 30.0))
    done = subprocess.run(
        [sys.executable, "-c", _WARM, str(folder), str(bench.repeat)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    times = [float(line) for line in done.stdout.split()]
    costs = [Cost(took_s=took_s, cpu_s=float("nan"), resident_bytes=0) for took_s in times]
    row("run --nemesis all, 30 s, in a running session", [folder], costs)
    bench.done_with([folder])


# -- folders ----------------------------------------------------------------------------------------------


def recorded(folder: Path, seconds: float) -> None:
    """One run on loopback, not judged; its raw logs go, as those of a valid run do."""
    options = RunOptions(nemesis="all", duration=seconds, seed=SEED, out=folder)
    result = record(planned(options))
    shutil.rmtree(result.run.nodes_folder, ignore_errors=True)


def without_trace(folder: Path, to: Path) -> None:
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("trace.jsonl", "verdict*", "work"))


# -- figures ----------------------------------------------------------------------------------------------


def row(what: str, folders: Sequence[Path], costs: Sequence[Cost], beside: Sequence[Cost] = ()) -> None:
    """The medians and, of the seconds, the range."""
    lines = sum(orjson.loads((folder / "run.json").read_bytes())["history_lines"] for folder in folders)
    traced = sum(lines_in(folder / "trace.jsonl") for folder in folders)
    size = sum(path.stat().st_size for folder in folders for path in read_by_judge(folder))
    took_s = statistics.median(cost.took_s for cost in costs)
    spread = f"{min(cost.took_s for cost in costs):.1f} to {max(cost.took_s for cost in costs):.1f}"
    cpu_s = statistics.median(cost.cpu_s for cost in costs)
    resident = statistics.median(cost.resident_bytes for cost in costs)
    ratio = took_s / statistics.median(cost.took_s for cost in beside) if beside else None
    cells = (
        what, f"{lines:,}", f"{traced:,}" if traced else "-", f"{size / 1e6:,.0f} MB",
        f"{took_s:.1f} ({spread})", f"{cpu_s:.0f}" if cpu_s == cpu_s else "-",
        f"{resident / 1e9:.2f} GB" if resident else "-", f"{ratio:.2f}" if ratio else "",
    )  # fmt: skip
    print(f"| {' | '.join(cells)} |", flush=True)


def read_by_judge(folder: Path) -> list[Path]:
    return [*folder.glob("*.jsonl"), *(folder / "logs").glob("*.jsonl")]


def lines_in(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))


def checked(folders: Sequence[Path]) -> Cost:
    """One call on these folders, watched."""
    command = [sys.executable, "-m", "harness", "check", *map(str, folders)]
    began_s = time.perf_counter()
    with (
        tempfile.TemporaryFile() as output,  # a pipe would fill
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        family, most = Family(process.pid), 0
        while process.poll() is None:
            most = max(most, family.sampled())
            time.sleep(SAMPLE_S)
        took_s = time.perf_counter() - began_s
        output.seek(0)
        said = output.read()
    if process.returncode not in JUDGED:
        raise SystemExit(f"check answered {process.returncode}:\n{said[-2000:].decode(errors='replace')}")
    return Cost(took_s=took_s, cpu_s=family.cpu_s(), resident_bytes=most)


class Family:
    """A process and all below it: what they hold now, and the CPU seconds that each has used when last seen
    (what a process did after its last sample, at most SAMPLE_S, is missing)."""

    def __init__(self, pid: int) -> None:
        self._top = psutil.Process(pid)
        self._used: dict[tuple[int, float], float] = {}  # (pid, when it was made) -> CPU seconds

    def sampled(self) -> int:
        """Bytes that they hold; shared pages count once a process."""
        try:
            family = [self._top, *self._top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return 0
        return sum(map(self._one, family))

    def _one(self, process: psutil.Process) -> int:
        try:
            with process.oneshot():
                times = process.cpu_times()
                self._used[process.pid, process.create_time()] = times.user + times.system
                return int(process.memory_info().rss)
        except psutil.NoSuchProcess:
            return 0

    def cpu_s(self) -> float:
        return sum(self._used.values())
