"""What `floodmark check`, `campaign stats` and Spark's format take, process start to exit: seconds, CPU
seconds, memory; on runs as users have them, by this machine or by workers of a standalone cluster of Spark.

With --keep the folders stay there. One of 1,000,000 ops has 1 GB. Where a run is judged in two ways, the
verdicts must be the same, byte for byte except timings. A worker of `scale`, with the JVM and the Python
processes of its executor, may use one core and no other (taskset); the driver, which only waits, any.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import duckdb
import psutil
import real_like
from rows import Figures, Options, Row
from standalone import Standalone, standalone

from floodmark.harness.commands.run import planned
from floodmark.harness.pipeline import record
from floodmark.harness.run import MEASURES
from floodmark.harness.spark_options import SMALL_BYTES, UNIT_MEMORY
from floodmark.harness.spec import RunSpec

OPS_OF_20_S, OPS_OF_30_S = 20_000, 30_000
SAMPLE_S = 0.1
MEMORY_EVERY = 5  # samples: shared pages take some milliseconds a process to count
SEED = 21
FLOODMARK = [sys.executable, "-m", "floodmark.harness"]
# A run may be valid, invalid or unknown here; only a failure of the judge spoils the figure.
JUDGED = {0: "valid", 1: "invalid", 3: "unknown"}
DIFFERENT = 10  # folders of `stats`; the others are these again by other names (hard links)
MEMORY_MB = 1536  # a worker's, for its executor's JVM; its Python process has what it needs besides
CONF = ("spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        f"{SMALL_BYTES}=1")  # a run that is too small to be divided is divided here as well
# The memory of such a process without a row: Python, pyarrow, DuckDB, numpy; and a range while it is parsed.
EMPTY_MB = 186
_TIMINGS = re.compile(r'"timings_s": \{[^}]*\}')
_HELD = """select count(*) filter (process >= 0 and type = 'invoke') as ops,
    count(*) filter (process >= 0 and type = 'fail') as failed,
    count(*) filter (process >= 0 and type = 'info') as unanswered,
    count(*) filter (f = 'txn' and type = 'invoke') as transactions,
    count(*) filter (process < 0) as faults
    from read_json(?, format = 'newline_delimited', columns = {
        type: 'varchar', f: 'varchar', process: 'bigint'})"""

_WARM = """
import sys, time
from pathlib import Path
from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.spark.session import stop_spark
judge = SparkJudge()
judge.judge([Path(sys.argv[1])])
began = time.perf_counter()
verdict, = judge.judge([Path(sys.argv[1])])
print(time.perf_counter() - began)
assert verdict.failure is None, verdict.failure
stop_spark()
"""


# -- folders ------------------------------------------------------------------------------------------------


@contextmanager
def folders(options: Options, makers: Mapping[str, Callable[[Path], object]]) -> Iterator[list[Path]]:
    """The folders of these names, made unless they are there; removed at the end unless they are kept."""
    found = []
    for name, make in makers.items():
        found.append((options.kept or options.scratch) / name)
        if not (found[-1] / "run.json").exists():
            print(f"  making {name}", file=sys.stderr, flush=True)
            shutil.rmtree(found[-1], ignore_errors=True)
            found[-1].parent.mkdir(parents=True, exist_ok=True)
            make(found[-1])
    yield found
    for folder in () if options.kept else found:
        shutil.rmtree(folder)


def like(ops: int, **more: object) -> dict[str, Callable[[Path], object]]:
    """A folder like a real one."""
    name = "-".join(("like", str(ops), *(f"{key}-{value}" for key, value in more.items())))
    return {name: partial(real_like.write, ops=ops, **more)}  # type: ignore[arg-type]


def recorded(folder: Path, seconds: float) -> None:
    """One run on loopback, not judged; its raw logs are removed, as those of a valid run are."""
    result = record(planned(RunSpec(nemesis="all", duration=seconds, seed=SEED, out=folder)))
    shutil.rmtree(result.run.nodes_folder, ignore_errors=True)


def read_by_judge(several: Iterable[Path]) -> list[Path]:
    return [file for folder in several for file in (*folder.glob("*.jsonl"), *folder.glob("logs/*.jsonl"))]


def described(several: Sequence[Path]) -> str:
    """`32,000 ops (271 failed, 94 unanswered), 0 transactions, 18 faults, 100 MB`."""
    row = duckdb.execute(_HELD, [[str(folder / "history.jsonl") for folder in several]]).fetchone()
    assert row is not None
    ops, failed, unanswered, transactions, faults = row
    size = sum(file.stat().st_size for file in read_by_judge(several))
    return (f"{ops:,} ops ({failed:,} failed, {unanswered:,} unanswered), {transactions:,} transactions, "
            f"{faults:,} faults, {size / 1e6:,.0f} MB")


def row(
    who: str, several: Sequence[Path], command: Sequence[str] = (*FLOODMARK, "check"), against: str = "",
    codes: Mapping[int, str] = JUDGED,
) -> Row:
    """A call on these folders, and of many the seconds of each."""
    def measured(_: int) -> Figures:
        found = watched([*command, *map(str, several)], codes)
        return {(who, what): figure for what, figure in found.items()} | (
            {(who, "s a folder"): found["s"] / len(several)} if several[1:] else {})

    return Row(about=f"{who}: {described(several)}", measured=measured, against=against)


# -- rows ---------------------------------------------------------------------------------------------------


def runs(options: Options) -> Iterator[Row]:
    half = {"run-30s": partial(recorded, seconds=30.0)}
    with folders(options, half) as found:
        yield row("run --nemesis all, 30 s", found)
        without = {"run-30s-no-trace": lambda to: shutil.copytree(
            found[0], to, ignore=shutil.ignore_patterns("trace.jsonl", "verdict*", "work"))}
        with folders(options, without) as untraced:
            yield row("the same without its trace", untraced)
    for who, makers in (("run --nemesis all, 2 min", {"run-2min": partial(recorded, seconds=120.0)}),
                        ("like 30 s, with transactions", like(OPS_OF_30_S, trace=True, transactions=True))):
        with folders(options, makers) as found:
            yield row(who, found)


def real(options: Options) -> Iterator[Row]:
    for ops in options.ops or (10_000, 1_000_000):
        with folders(options, like(ops)) as found:
            yield row(f"like real, {ops:,} ops", found)


def damaged(options: Options) -> Iterator[Row]:
    """Transactions have more bytes an op: they are measured against a healthy run of as many bytes."""
    for ops in options.ops or (1_000_000,):
        healthy = f"like real, {ops:,} ops"
        with folders(options, like(ops)) as found:
            yield row(healthy, found)
            size = sum(file.stat().st_size for file in read_by_judge(found))
        for damage in real_like.DAMAGES:
            with folders(options, like(ops, damage=damage)) as found:
                yield row(f"{healthy}, {damage}", found, against=healthy)
        with folders(options, like(ops, transactions=True)) as found:
            as_many = int(ops * sum(file.stat().st_size for file in read_by_judge(found)) / size)
            with folders(options, like(as_many)) as plain:
                yield row(f"like real, {as_many:,} ops", plain)
            yield row(f"{healthy}, transactions", found, against=f"like real, {as_many:,} ops")


def many(options: Options, count: int, ops: int, **more: object) -> Iterator[Row]:
    every = {name: make for seed in range(options.folders or count)
             for name, make in like(ops, seed=seed, **more).items()}
    with folders(options, every) as found:
        yield row(f"{len(found)} folders in one call", found)


small = partial(many, count=200, ops=50)
campaign = partial(many, count=100, ops=OPS_OF_20_S, trace=True)


def session(options: Options) -> Iterator[Row]:
    """The first judgement of a process also starts Spark; this is one after it."""
    who = "run --nemesis all, 30 s, in a session"
    with folders(options, {"run-30s": partial(recorded, seconds=30.0)}) as (folder,):
        yield Row(about=who, measured=lambda _: {(who, "s"): float(
            subprocess.check_output([sys.executable, "-c", _WARM, str(folder)], text=True))})


def stats(options: Options) -> Iterator[Row]:
    """The first time each history and trace is read, the second time what was kept of them."""
    count = options.folders or 100
    made = {name: make for seed in range(min(count, DIFFERENT))
            for name, make in like(OPS_OF_20_S, seed=seed, trace=True).items()}
    with folders(options, made) as first:
        again = {f"again-{at}": partial(link_of, first[at % DIFFERENT]) for at in range(DIFFERENT, count)}
        with folders(options, again) as others:
            found = [*first, *others]
            nothing, kept = (row(f"{count} folders, {what} kept", found, (*FLOODMARK, "campaign", "stats"),
                                 f"{count} folders, nothing kept", {0: "measured"})
                             for what in ("nothing", "all"))

            def measured(turn: int) -> Figures:
                for folder in found:
                    (folder / MEASURES).unlink(missing_ok=True)
                return {**nothing.measured(turn), **kept.measured(turn)}

            yield Row(about=nothing.about, measured=measured, against=nothing.against)


def link_of(folder: Path, path: Path) -> None:
    """The same run by another name: its files are the same, files written next to them are not."""
    shutil.copytree(folder, path, copy_function=os.link, ignore=shutil.ignore_patterns(MEASURES))


def source(options: Options) -> Iterator[Row]:
    """In local mode, and on a standalone cluster of two workers."""
    script = Path(__file__).with_name("source_counts.py")
    for ops in options.ops or (10_000, 1_000_000):
        with folders(options, like(100, trace=True) | like(ops, trace=True)) as (warm_up, folder):
            for who, workers in (("local[*]", 0), ("two workers", 2)):
                words = [sys.executable, str(script), str(folder), str(warm_up)]
                yield Row(about=f"{who}: {described([folder])}",
                          measured=partial(counted, who, workers, words))


def counted(who: str, workers: int, words: Sequence[str], _: int) -> Figures:
    with cluster_of(workers, 2048) as cluster:
        lines = subprocess.check_output([*words, cluster.master or who], text=True).splitlines()
    return {(f"{name}, {who}", "s"): float(took_s) for name, took_s in (line.split() for line in lines)}


# -- by workers ---------------------------------------------------------------------------------------------


def scale(options: Options) -> Iterator[Row]:
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("two workers with a core each need two cores")
    for ops in options.ops or (3_000_000, 10_000_000):
        with folders(options, like(ops)) as (folder,):
            verdicts: set[str] = set()
            whos = f"{ops:,} ops, one worker", f"{ops:,} ops, two workers"
            for count, who in enumerate(whos, 1):
                yield Row(about=f"{who}: {described([folder])}", against=whos[0], measured=partial(
                    by_workers, who, folder, verdicts, count, MEMORY_MB - 512, ()))


def memory(options: Options) -> Iterator[Row]:
    """A third of the folder's size; tables of a unit beyond it go to disk."""
    for ops in options.ops or (10_000_000,):
        with folders(options, like(ops)) as (folder,):
            size = sum(file.stat().st_size for file in read_by_judge([folder]))
            unit_mb = max(64, ((options.memory_mb or int(size / 3e6)) - EMPTY_MB) // 2)
            verdicts: set[str] = set()
            for who, conf in (("no limit", ()), (f"{unit_mb} MB for tables", (f"{UNIT_MEMORY}={unit_mb}",))):
                yield Row(about=f"{who}: {described([folder])}", against="no limit",
                          measured=partial(by_workers, who, folder, verdicts, 1, 512, conf))


def by_workers(
    who: str, folder: Path, verdicts: set[str], workers: int, heap_mb: int, conf: Sequence[str], _: int
) -> Figures:
    """heap_mb: for an executor's JVM. verdicts: those on the folder so far."""
    pairs = (*CONF, f"spark.executor.memory={heap_mb}m", *conf)
    with cluster_of(workers, MEMORY_MB) as cluster:
        held = Held(cluster=cluster)
        words = [word for pair in pairs for word in ("--conf", pair)]
        found = watched([*FLOODMARK, "check", "--master", cluster.master, *words, str(folder)], JUDGED,
                        [daemon.process.pid for daemon in cluster.daemons], held.sample)
    verdicts.add(_TIMINGS.sub("", (folder / "verdict.json").read_text()))
    if len(verdicts) > 1:
        raise SystemExit("the verdicts differ: " + "\n".join(verdicts))
    return {(who, what): figure for what, figure in {**found, **held.most}.items()}


@contextmanager
def cluster_of(workers: int, memory_mb: int) -> Iterator[Standalone]:
    """A cluster that is up when the clock starts; none without workers."""
    with tempfile.TemporaryDirectory(prefix="floodmark-scale-") as name:
        if not workers:
            yield Standalone(folder=Path(name))
            return
        with standalone(Path(name), workers, f"{memory_mb}m", pinned=True) as cluster:
            yield cluster


@dataclass(slots=True, kw_only=True)
class Held:
    """The memory and disk space of a cluster's workers: the most MB of each at one time."""

    cluster: Standalone
    most: dict[str, float] = field(default_factory=dict)

    def sample(self) -> None:
        now = dict.fromkeys(("Python's, MB", "JVMs', MB", "tables on disk, MB", "shuffled, MB"), 0.0)
        for daemon in self.cluster.daemons:
            for process in below(psutil.Process(daemon.process.pid))[1:]:
                with suppress(psutil.NoSuchProcess):
                    python = process.name().startswith("python")
                    now["Python's, MB" if python else "JVMs', MB"] += memory_of(process) / 1e6
        for path in (Path(at, name) for at, _, names in os.walk(self.cluster.local) for name in names):
            with suppress(FileNotFoundError):
                spilled = "floodmark-unit-" in str(path)
                now["tables on disk, MB" if spilled else "shuffled, MB"] += path.stat().st_blocks * 512 / 1e6
        self.most = {what: max(mb, self.most.get(what, 0.0)) for what, mb in now.items()}


# -- a process ----------------------------------------------------------------------------------------------


def watched(
    command: Sequence[str], codes: Mapping[int, str], beside: Sequence[int] = (),
    sample: Callable[[], object] = lambda: None,
) -> dict[str, float]:
    """Seconds, CPU seconds, and the most memory at one time of a command that answers one of these codes.
    beside: processes that work for it, which count with what they use from now on. sample: called with every
    sample."""
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
            sample()
            time.sleep(SAMPLE_S)
        took_s = time.perf_counter() - began_s
        output.seek(0)
        said = output.read()
    if process.returncode not in codes:
        raise SystemExit(f"{command} answered {process.returncode}:\n{said[-2000:].decode(errors='replace')}")
    return {"s": took_s, "CPU s": family.cpu_s(), "resident, GB": most / 1e9}


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
