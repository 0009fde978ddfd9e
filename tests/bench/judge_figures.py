"""What `floodmark check` takes, process start to exit: seconds, CPU seconds, memory; runs as users have them.

    make bench ARGS='--only judge'
    make bench ARGS='--only judge --judge-rows runs,real --ops 10000,1000000,10000000 --folders DIR'

Rows (--judge-rows), in this order:

    runs      folders that `floodmark run --nemesis all` has made: 30 s, 30 s without its trace, 2 min; and
              one like that of 30 s with transactions, which is the generator's: no workload makes any
    real      folders like those (tests/support/real_like.py) of --ops ops, without a trace
    damaged   the same of --damaged-ops ops, with transactions and with each damage in turn; beside each how
              many times the seconds of the healthy one it took
    small     small folders in one call (--small-folders)
    session   one more traced folder of 30 s where a session of Spark runs already
    campaign  traced folders like a run of 20 s in one call (--campaign-folders)
    scale     folders of --scale-ops ops on one worker and on two; long, so only where it is asked for
    memory    a folder of --memory-ops ops on a worker whose memory is a third of it; likewise

With --folders the folders stay there, and are taken from there by the next bench: that of another commit
judges the same bytes. A folder of 1,000,000 ops has 1 GB.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import duckdb
import psutil
import real_like

from floodmark.harness.commands.run import planned
from floodmark.harness.pipeline import record
from floodmark.harness.spec import RunSpec

ROWS = ("runs", "real", "damaged", "small", "session", "campaign", "scale", "memory")
USUAL_ROWS = ROWS[:-2]
OPS_OF_20_S, OPS_OF_30_S = 20_000, 30_000
SAMPLE_S = 0.1
MEMORY_EVERY = 5  # samples: shared pages take some milliseconds a process to count
SEED = 21
# A run may be valid, invalid or unknown here; only a failure of the judge spoils the figure.
JUDGED = {0: "valid", 1: "invalid", 3: "unknown"}
_HELD = """select count(*) filter (process >= 0 and type = 'invoke') as ops,
    count(*) filter (process >= 0 and type = 'fail') as failed,
    count(*) filter (process >= 0 and type = 'info') as unanswered,
    count(*) filter (f = 'txn' and type = 'invoke') as transactions,
    count(*) filter (process < 0) as faults
    from read_json(?, format = 'newline_delimited', columns = {
        type: 'varchar', f: 'varchar', process: 'bigint'})"""
_RECORDS = """select sum(most)::bigint from (
    select max(leo - log_start) as most from read_json(?, format = 'newline_delimited', filename = true,
        columns = {"partition": 'bigint', log_start: 'bigint', leo: 'bigint'})
    group by filename, "partition")"""

_WARM = """
import sys, time
from pathlib import Path
from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.spark.session import stop_spark
judge = SparkJudge()
judge.judge([Path(sys.argv[1])])
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    verdict, = judge.judge([Path(sys.argv[1])])
    print(time.perf_counter() - began)
    assert verdict.failure is None, verdict.failure
stop_spark()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """took_s: from start to exit; cpu_s: of the process and its descendants; resident_bytes: their most
    memory at one time; verdict: the worst of the call."""

    took_s: float
    cpu_s: float | None = None
    resident_bytes: int | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The folder of the bench's folders, whether they are kept, and how often each is judged."""

    scratch: Path
    keep: bool
    repeat: int

    def folder(self, name: str, make: Callable[[Path], object]) -> Path:
        path = self.scratch / name
        if not (path / "run.json").exists():
            progress(f"making {name}")
            shutil.rmtree(path, ignore_errors=True)
            make(path)
        return path

    def done_with(self, folders: Iterable[Path]) -> None:
        for folder in () if self.keep else folders:
            shutil.rmtree(folder)

    def costs(self, folders: Sequence[Path]) -> list[Cost]:
        found = []
        for number in range(self.repeat):
            progress(f"judging {folders[0].name}{' and others' * (len(folders) > 1)}, "
                     f"{number + 1} of {self.repeat}")  # fmt: skip
            found.append(checked(folders))
        return found


def bench_judge(
    bench: Bench, rows: Sequence[str], *, sizes: Sequence[int], damaged_ops: int, small: int, campaign: int
) -> None:
    """Prints a table that fits a README. sizes: ops of each folder; small, campaign: folders in one call."""
    print("judge: `floodmark check`, process start to exit, all checks; medians", flush=True)
    print("| folder | what it holds | size | verdict | s | CPU s | resident | of the healthy |", flush=True)
    print("|---|---|---|---|---|---|---|---|", flush=True)
    if "runs" in rows:
        bench_runs(bench)
    costs = {ops: bench_size(bench, ops) for ops in sizes} if "real" in rows else {}
    if "damaged" in rows:
        bench_damages(bench, damaged_ops, costs.get(damaged_ops) or bench_size(bench, damaged_ops))
    if "small" in rows:
        bench_many(bench, "small", small, f"{small} folders in one call", ops=50, trace=False)
    if "session" in rows:
        bench_session(bench)
    if "campaign" in rows:
        title = f"{campaign} traced folders like a run of 20 s in one call"
        bench_many(bench, "campaign", campaign, title, ops=OPS_OF_20_S, trace=True)


def bench_runs(bench: Bench) -> None:
    """Folders that `floodmark run` leaves, and one with transactions."""
    half = bench.folder("run-30s", lambda path: recorded(path, 30.0))
    untraced = bench.folder("run-30s-no-trace", lambda path: without_trace(half, path))
    long = bench.folder("run-2min", lambda path: recorded(path, 120.0))
    txn = bench.folder("like-run-30s-transactions",
                       partial(real_like.write, ops=OPS_OF_30_S, trace=True, transactions=True))  # fmt: skip
    titles = {"run --nemesis all, 30 s": half, "the same without its trace": untraced,
              "run --nemesis all, 2 min": long, "like the first, with transactions": txn}  # fmt: skip
    for title, folder in titles.items():
        row(title, [folder], bench.costs([folder]))
    bench.done_with([untraced, long, txn])


def bench_size(bench: Bench, ops: int) -> list[Cost]:
    folder = real_like_folder(bench, ops)
    costs = bench.costs([folder])
    row(f"like real, {ops:,} ops", [folder], costs)
    bench.done_with([folder])
    return costs


def bench_damages(bench: Bench, ops: int, healthy: Sequence[Cost]) -> None:
    """Each damage, compared with the healthy run of its size. Transactions have more bytes an op, so they are
    compared with a healthy run of as many bytes."""
    name = f"real-{ops}-transactions"
    folder = bench.folder(name, partial(real_like.write, ops=ops, transactions=True))
    plain = real_like_folder(bench, ops)
    as_large = bench_size(bench, int(ops * size_of([folder]) / size_of([plain])))
    row(f"like real, {ops:,} ops, transactions", [folder], bench.costs([folder]), beside=as_large)
    bench.done_with([folder, plain])
    for damage in real_like.DAMAGES:
        folder = bench.folder(f"real-{ops}-{damage}", partial(real_like.write, ops=ops, damage=damage))
        row(f"like real, {ops:,} ops, {damage}", [folder], bench.costs([folder]), beside=healthy)
        bench.done_with([folder])


def bench_many(bench: Bench, name: str, count: int, title: str, *, ops: int, trace: bool) -> None:
    folders = [
        bench.folder(f"{name}-{number}", partial(real_like.write, ops=ops, seed=number, trace=trace))
        for number in range(count)
    ]
    row(title, folders, bench.costs(folders))
    bench.done_with(folders)


def bench_session(bench: Bench) -> None:
    """The first judgement of a process also starts Spark; this is each one after it."""
    folder = bench.folder("run-30s", lambda path: recorded(path, 30.0))
    progress(f"judging {folder.name} {1 + bench.repeat} times in one session")
    costs = [Cost(took_s=took_s) for took_s in warm(folder, bench.repeat)]
    row("run --nemesis all, 30 s, in a running session", [folder], costs)
    bench.done_with([folder])


def warm(folder: Path, times: int) -> list[float]:
    """The seconds of so many judgements of this folder, in a process that has judged it once before."""
    ran = subprocess.run([sys.executable, "-c", _WARM, str(folder), str(times)],
                         capture_output=True, text=True, check=False)  # fmt: skip
    if ran.returncode:
        raise SystemExit(f"the judge failed:\n{ran.stderr[-2000:]}")
    return [float(line) for line in ran.stdout.split()]


def progress(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


# -- folders ----------------------------------------------------------------------------------------------


def real_like_folder(bench: Bench, ops: int) -> Path:
    return bench.folder(f"real-{ops}", partial(real_like.write, ops=ops))


def recorded(folder: Path, seconds: float) -> None:
    """One run on loopback, not judged; its raw logs are removed, as those of a valid run are."""
    options = RunSpec(nemesis="all", duration=seconds, seed=SEED, out=folder)
    result = record(planned(options))
    shutil.rmtree(result.run.nodes_folder, ignore_errors=True)


def without_trace(folder: Path, to: Path) -> None:
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("trace.jsonl", "verdict*", "work"))


# -- figures ----------------------------------------------------------------------------------------------


def row(what: str, folders: Sequence[Path], costs: Sequence[Cost], beside: Sequence[Cost] = ()) -> None:
    """The medians and the range of the seconds; for many folders also the seconds of each."""
    took = [cost.took_s for cost in costs]
    seconds = f"{median(took):.1f} ({min(took):.1f} to {max(took):.1f})"
    if len(folders) > 1:
        seconds += f", {median(took) / len(folders):.2f} a folder"
    cpu_s = [cost.cpu_s for cost in costs if cost.cpu_s is not None]
    resident = [cost.resident_bytes for cost in costs if cost.resident_bytes is not None]
    cells = (
        what, describe_contents(folders), f"{size_of(folders) / 1e6:,.0f} MB", costs[0].verdict, seconds,
        f"{median(cpu_s):.0f}" if cpu_s else "-",
        f"{median(resident) / 1e9:.2f} GB" if resident else "-",
        f"{median(took) / median(cost.took_s for cost in beside):.2f}" if beside else "",
    )  # fmt: skip
    print(f"| {' | '.join(cells)} |", flush=True)


def describe_contents(folders: Sequence[Path]) -> str:
    """`32,000 ops (271 failed, 94 without an answer), 18 faults, 53,900 records, 236,000 lines of trace`."""
    ops, failed, unanswered, transactions, faults = counted(_HELD, folders, "history.jsonl")
    (records,) = counted(_RECORDS, folders, "replicas.jsonl")
    counts = f"{ops:,} ops ({failed:,} failed, {unanswered:,} without an answer), {faults:,} faults, "
    counts += f"{transactions:,} transactions, " if transactions else ""
    counts += f"{records:,} records"
    traced = sum(lines_in(folder / "trace.jsonl") for folder in folders)
    return f"{counts}, {traced:,} lines of trace" if traced else counts


def counted(select: str, folders: Sequence[Path], name: str) -> tuple[int, ...]:
    row = duckdb.execute(select, [[str(folder / name) for folder in folders]]).fetchone()
    assert row is not None
    return row


def read_by_judge(folder: Path) -> list[Path]:
    return [*folder.glob("*.jsonl"), *(folder / "logs").glob("*.jsonl")]


def size_of(folders: Sequence[Path]) -> int:
    """Bytes of the files that the judge reads."""
    return sum(path.stat().st_size for folder in folders for path in read_by_judge(folder))


def lines_in(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))


def checked(
        folders: Sequence[Path], words: Sequence[str] = (), beside: Sequence[int] = (),
        sample: Callable[[], object] | None = None) -> Cost:
    """One call on these folders, measured. words: further words of its command line. beside: processes that
    work for it, which count with what they use from now on. sample: called with every sample."""
    command = [sys.executable, "-m", "floodmark.harness", "check", *words, *map(str, folders)]
    try:
        return watched(command, JUDGED, beside, sample)
    except SystemExit as failed:
        errors = [folder / "judge-error.txt" for folder in folders]
        messages = [path.read_text(errors="replace") for path in errors if path.exists()]
        raise SystemExit("\n".join([str(failed), *messages])) from failed


def watched(
        command: Sequence[str], codes: Mapping[int, str], beside: Sequence[int] = (),
        sample: Callable[[], object] | None = None) -> Cost:
    began_s = time.perf_counter()
    with (
        tempfile.TemporaryFile() as output,  # a pipe would fill
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        family, most, samples = Family([process.pid, *beside]), 0, 0
        while process.poll() is None:
            family.sample_cpu()
            if samples % MEMORY_EVERY == 0:
                most = max(most, family.memory())
            samples += 1
            if sample is not None:
                sample()
            time.sleep(SAMPLE_S)
        took_s = time.perf_counter() - began_s
        output.seek(0)
        said = output.read()
    if process.returncode not in codes:
        raise SystemExit(f"{command} answered {process.returncode}:\n{said[-2000:].decode(errors='replace')}")
    return Cost(took_s=took_s, cpu_s=family.cpu_s(), resident_bytes=most, verdict=codes[process.returncode])


class Family:
    """Processes and their descendants: their memory now, and the CPU seconds that each has used since this
    object was made, when last seen (its work after the last sample, at most SAMPLE_S, is missing)."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._tops = [psutil.Process(pid) for pid in pids]
        self._used: dict[tuple[int, float], float] = {}  # (pid, when it was made) -> CPU seconds
        self._before = 0.0
        self.sample_cpu()
        self._before = self.cpu_s()

    def sample_cpu(self) -> None:
        for process in self._every():
            with suppress(psutil.NoSuchProcess), process.oneshot():
                times = process.cpu_times()
                self._used[process.pid, process.create_time()] = times.user + times.system

    def memory(self) -> int:
        """Their memory in bytes, a page that several share counted once."""
        total = 0
        for process in self._every():
            with suppress(psutil.NoSuchProcess):
                total += memory_of(process)
        return total

    def _every(self) -> Iterator[psutil.Process]:
        return (process for top in self._tops for process in below(top))

    def cpu_s(self) -> float:
        return sum(self._used.values()) - self._before


def memory_of(process: psutil.Process) -> int:
    """Its resident bytes, each shared page divided by the number of processes that share it (PSS)."""
    try:
        return int(process.memory_full_info().pss)
    except (psutil.AccessDenied, AttributeError):  # another user's process; a system without PSS
        return int(process.memory_info().rss)


def below(top: psutil.Process) -> list[psutil.Process]:
    """This process and its descendants; none if it has ended."""
    try:
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
