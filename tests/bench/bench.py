"""Measures the cluster, the recorder and the judge, and prints the figures. `make bench`, on an idle machine.

    make bench ARGS='--only cluster,trace,recorder,judge,stats,source,containers,kafka --seconds 8'

Every figure is a median over --repeat runs, with its range. Nothing here passes or fails.
"""

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import engine
import judge_figures
import judge_scale
import kafka_figures
import orjson
import source_figures
import stats_figures

from floodmark.harness import history, trace
from floodmark.harness.commands.run import planned
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Outcome, Send, Type
from floodmark.harness.pipeline import record
from floodmark.harness.spec import RunSpec

PARTS = ("cluster", "trace", "recorder", "judge", "stats", "source", "containers", "kafka")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--ops", default="10000,1000000")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--judge-rows", default=",".join(judge_figures.USUAL_ROWS))
    parser.add_argument("--damaged-ops", type=int, default=1_000_000)
    parser.add_argument("--small-folders", type=int, default=200)
    parser.add_argument("--campaign-folders", type=int, default=100)
    parser.add_argument("--stats-folders", type=int, default=100)
    parser.add_argument("--scale-ops", default="3000000,10000000")
    parser.add_argument("--memory-ops", type=int, default=10_000_000)
    parser.add_argument("--memory-mb", type=int, help="of a worker's Python process")
    parser.add_argument("--kafka", default="2.8.2,3.9.2,4.3.1", metavar="VERSIONS")
    parser.add_argument("--folders", type=Path, help="where the judge's folders are kept, or found")
    options = parser.parse_args()
    parts = [part for part in PARTS if part in options.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name:
        scratch = Path(name)
        folders = judge_figures.Bench(
            scratch=options.folders or scratch, keep=options.folders is not None, repeat=options.repeat)
        folders.scratch.mkdir(parents=True, exist_ok=True)
        if "cluster" in parts:
            bench_cluster(scratch, options.seconds, options.repeat)
        if "trace" in parts:
            bench_trace(scratch, options.seconds, options.repeat)
        if "recorder" in parts:
            bench_recorder(scratch, options.repeat)
        if "judge" in parts:
            rows = options.judge_rows.split(",")
            if not {"scale", "memory"}.issuperset(rows):
                judge_figures.bench_judge(
                    folders, rows, sizes=sizes_of(options.ops), damaged_ops=options.damaged_ops,
                    small=options.small_folders, campaign=options.campaign_folders)
            if "scale" in rows:
                judge_scale.bench_scale(folders, sizes_of(options.scale_ops))
            if "memory" in rows:
                judge_scale.bench_memory(folders, options.memory_ops, options.memory_mb)
        if "stats" in parts:
            stats_figures.bench_stats(folders, options.stats_folders)
        if "source" in parts:
            source_figures.bench_source(folders, sizes_of(options.ops))
        if "containers" in parts:
            engine.bench_containers(
                scratch, options.repeat, say,
                lambda folder, cluster: acked(folder, "direct", 20, options.seconds, cluster=cluster)[0])
        if "kafka" in parts:
            kafka_figures.bench_kafka(
                scratch, options.kafka.split(","), options.repeat, say,
                lambda folder, processes, kafka: acked(
                    folder, "direct", processes, options.seconds, kafka=kafka)[0])


def sizes_of(words: str) -> list[int]:
    return [int(ops) for ops in words.split(",")]


def say(what: str, values: Sequence[float], unit: str) -> None:
    """One row: the median and the range."""
    spread = f"({min(values):,.4g} to {max(values):,.4g}, {len(values)} runs)"
    print(f"  {what:<58}{statistics.median(values):>12,.4g} {unit:<6} {spread}", flush=True)


# -- the cluster ------------------------------------------------------------------------------------------


def bench_cluster(scratch: Path, seconds: float, repeat: int) -> None:
    """Acked op/s and latency: 1 and 20 processes, links direct and proxied."""
    print("cluster: 3 brokers, 4 partitions, acks=all, min.insync.replicas=2, workload log", flush=True)
    for links in ("direct", "proxied"):
        for concurrency in (1, 20):
            runs = [acked(scratch / "run", links, concurrency, seconds) for _ in range(repeat)]
            title = f"{links}, {concurrency} process{'es' if concurrency > 1 else ''}"
            say(f"{title}: acked sends", [rate for rate, _ in runs], "op/s")
            say(f"{title}: p50", [quantile(times, 0.50) for _, times in runs], "ms")
            say(f"{title}: p99", [quantile(times, 0.99) for _, times in runs], "ms")


def acked(
    folder: Path, links: str, concurrency: int, seconds: float, *, trace: bool = True,
    cluster: str = "local", kafka: str | None = None,
) -> tuple[float, list[float]]:
    """Acked send ops a second in the main phase, and each one's milliseconds."""
    shutil.rmtree(folder, ignore_errors=True)
    options = RunSpec(
        cluster=cluster, kafka=kafka, links=links, concurrency=concurrency, duration=seconds, seed=1,
        out=folder, trace=trace)
    result = record(planned(options))
    begun: dict[int, int] = {}
    done: list[tuple[int, int]] = []
    for op in history.read(result.run.history_path):
        if op.f == "send" and op.type is Type.INVOKE:
            begun[op.process] = op.time
        elif op.f == "send" and op.type is Type.OK and op.process < 1_000_000:
            done.append((begun[op.process], op.time))
    first, last = min(start for start, _ in done), max(end for _, end in done)
    return len(done) / ((last - first) / 1e9), [(end - start) / 1e6 for start, end in done]


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# -- the trace --------------------------------------------------------------------------------------------


def bench_trace(scratch: Path, seconds: float, repeat: int) -> None:
    """The same load with and without a trace, in turns: the cost of the trace in throughput, and the speed of
    its merge."""
    print("trace: 3 brokers, 4 partitions, acks=all, links direct, 20 processes", flush=True)
    rates: dict[bool, list[float]] = {True: [], False: []}
    merges: list[float] = []
    for turn in range(repeat):
        for traced in (True, False) if turn % 2 else (False, True):
            rates[traced].append(acked(scratch / "run", "direct", 20, seconds, trace=traced)[0])
            if traced:
                merges.append(merged(scratch / "run" / "trace.jsonl", scratch / "again.trace"))
    say("without: acked sends", rates[False], "op/s")
    say("with: acked sends", rates[True], "op/s")
    pairs = zip(rates[False], rates[True], strict=True)
    say("cost, of each pair", [100 * (1 - traced / plain) for plain, traced in pairs], "%")
    medians = statistics.median(rates[True]) / statistics.median(rates[False])
    print(f"  {'cost, of the medians':<58}{100 * (1 - medians):>12,.4g} %", flush=True)
    say("merged again: lines", merges, "/s")


def merged(path: Path, raw: Path) -> float:
    """Lines a second of a merge of as many raw lines of one node."""
    lines = 0
    with raw.open("wb") as file:
        for line in map(orjson.loads, path.open("rb")):
            here = {"node": 1, "seq": lines, "topic": "t", "partition": line.get("partition", 0)}
            state_line = {**line, **here, "isr": []}
            file.write(orjson.dumps(state_line, option=orjson.OPT_APPEND_NEWLINE))
            lines += 1
    keys = {("t", key): key for key in range(4)}
    begun_s = time.perf_counter()
    for _ in trace.merge(trace.Raw(files={"n1": raw}, names={1: "n1"}, keys=keys), 0, []):
        pass
    return lines / (time.perf_counter() - begun_s)


# -- the recorder -----------------------------------------------------------------------------------------


def bench_recorder(scratch: Path, repeat: int) -> None:
    """Ops recorded a second with a client that answers at once: the cost of the harness itself."""
    print("recorder: 20 processes, a client that does nothing", flush=True)
    say(
        "invoke, write(2), complete", [asyncio.run(recorded(scratch / "h.jsonl")) for _ in range(repeat)],
        "op/s")


async def recorded(path: Path, processes: int = 20, each: int = 5_000) -> float:
    path.unlink(missing_ok=True)
    recorder = Recorder(path)

    async def process(number: int) -> None:
        for index in range(each):
            send = Send(partition=0, value=number * each + index)
            invoked = recorder.invoke(number, Intent(f="send", sends=(send,)))
            await recorder.written()
            recorder.complete(invoked, Outcome(type=Type.OK, sends=(send,)))

    begun_s = time.perf_counter()
    await asyncio.gather(*map(process, range(processes)))
    recorder.close()
    return processes * each / (time.perf_counter() - begun_s)


if __name__ == "__main__":
    main()
