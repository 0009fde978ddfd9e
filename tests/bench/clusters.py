"""Figures of clusters that run: acked op/s and latency, the cost of the trace, the recorder alone, single
acts of a cluster in containers, and Apache Kafka beside the reference broker.

Aims of the containers, on two quiet cores: up and ready 2.0 s, kill to exited 80 ms, start to ready 300 ms,
three-node cut and heal 200 ms each, power cut 1 s, 100 MB of logs 0.5 s. Maven fetches the jars of a Kafka
that is not there yet; that time is not counted.
"""

import asyncio
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from rows import Figures, Options, Row

from floodmark.harness import catalog, history, trace
from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.commands.run import planned
from floodmark.harness.commands.scenario import Part, named, play, rows_of, system_of
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Outcome, Send, Type
from floodmark.harness.pipeline import record
from floodmark.harness.protocols import Cluster, PartitionSpec
from floodmark.harness.spec import RULES, RunSpec
from floodmark.nemesis.scenario import REFERENCE

NODES = ("n1", "n2", "n3")
SPECS = [PartitionSpec(key=key, topic="log", partition=key, replicas=NODES) for key in range(4)]
GRUDGE = {"n1": ["n2", "n3"], "n2": ["n1", "n3"], "n3": ["n1", "n2"]}  # each alone
LOG_MB = 100
# Not a partition's name: the broker ignores it.
FILL = ("dd", "if=/dev/urandom", "of=/data/filler", "bs=1M", f"count={LOG_MB}", "status=none")
SCENARIO = "double-failover-by-signals"  # every system plays it
ACKED = "acked sends, op/s"


def acked(folder: Path, seconds: float, processes: int = 20, **more: Any) -> tuple[float, list[float]]:
    """Acked send ops a second in the main phase, and each one's milliseconds. more: fields of the run."""
    shutil.rmtree(folder, ignore_errors=True)
    more = {"links": "direct", **more}
    spec = RunSpec(concurrency=processes, duration=seconds, seed=1, out=folder, **more)
    result = record(planned(spec))
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


def local(options: Options) -> Iterator[Row]:
    for links in ("direct", "proxied"):
        for processes in (1, 20):
            who = f"{links} links, {processes} process{'es' * (processes > 1)}"

            def measured(_: int, who: str = who, links: str = links, processes: int = processes) -> Figures:
                rate, times = acked(options.scratch / "run", options.seconds, processes, links=links)
                return {(who, ACKED): rate, (who, "p50, ms"): quantile(times, 0.50),
                        (who, "p99, ms"): quantile(times, 0.99)}

            yield Row(about=who, measured=measured)


def in_turns(turn: int, *names: str) -> Sequence[str]:
    return names if turn % 2 else names[::-1]


# -- the trace and the recorder -----------------------------------------------------------------------------


def traced(options: Options) -> Iterator[Row]:
    run = options.scratch / "run"

    def measured(turn: int) -> Figures:
        found: dict[tuple[str, str], float] = {}
        for who in in_turns(turn, "with a trace", "without"):
            found[who, ACKED] = acked(run, options.seconds, trace=who != "without")[0]
            if who != "without":
                found[who, "merged again, lines/s"] = merged(run / "trace.jsonl", options.scratch / "again")
        return dict(sorted(found.items(), reverse=True))

    yield Row(about="the same load in turns", measured=measured, against="without")


def merged(path: Path, raw: Path) -> float:
    """Lines a second of a merge of as many raw lines of one node."""
    lines = 0
    with raw.open("wb") as file:
        for line in map(orjson.loads, path.open("rb")):
            of_raw = {"node": 1, "seq": lines, "topic": "t", "partition": line.get("partition", 0), "isr": []}
            file.write(orjson.dumps(line | of_raw, option=orjson.OPT_APPEND_NEWLINE))
            lines += 1
    keys = {("t", key): key for key in range(4)}
    begun_s = time.perf_counter()
    for _ in trace.merge(trace.Raw(files={"n1": raw}, names={1: "n1"}, keys=keys), 0, []):
        pass
    return lines / (time.perf_counter() - begun_s)


def recorder(options: Options) -> Iterator[Row]:
    yield Row(about="the recorder", measured=lambda _: {
        ("invoke, write(2), complete", "op/s"): asyncio.run(recorded(options.scratch / "h.jsonl"))})


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


# -- single acts of a cluster -------------------------------------------------------------------------------

Act = Callable[[], Awaitable[object]]
Acts = Iterator[tuple[str, Act]]


async def timed(cluster: Cluster, acts: Acts) -> dict[str, float]:
    """Seconds of each act that has a name; the cluster is stopped at the end."""
    took: dict[str, float] = {}
    try:
        for what, act in acts:
            begun_s = time.perf_counter()
            await act()
            if what:
                took[what] = time.perf_counter() - begun_s
    finally:
        await cluster.stop()
    return took


def made(folder: Path, place: str, kafka: str | None = None) -> Cluster:
    return catalog.cluster(
        place, folder, len(NODES), rules=RULES[-1], bugs=(), config={}, links="direct", kafka=kafka)


def containers(options: Options) -> Iterator[Row]:
    """Times of single acts, then acked op/s against the local cluster, in turns."""
    def acts(turn: int) -> Figures:
        folder = options.scratch / f"containers-{turn}"
        cluster = made(folder, "containers")
        assert isinstance(cluster, BrokerCluster)
        took = asyncio.run(timed(cluster, iter([
            ("up and ready", cluster.start), ("", lambda: cluster.create(SPECS)),
            ("kill to exited", lambda: cluster.kill("n1")),
            ("start to ready", lambda: cluster.start_node("n1")),
            ("cut, each of three alone", lambda: cluster.place.cut(GRUDGE)), ("heal", cluster.heal),
            ("power cut", lambda: cluster.power_cut("n2")), ("", lambda: cluster.start_node("n2")),
            ("", lambda: asyncio.to_thread(fill, folder)),
            (f"reading {LOG_MB} MB of logs", lambda: cluster.place.log_dir("n3")),
            ("down, all of it", cluster.stop)])))
        shutil.rmtree(folder, ignore_errors=True)
        return {(what, "ms"): 1000 * took_s for what, took_s in took.items()}

    def rates(turn: int) -> Figures:
        return {(place, ACKED): acked(options.scratch / "run", options.seconds, cluster=place)[0]
                for place in in_turns(turn, "containers", "local")}

    yield Row(about="acts", measured=acts)
    yield Row(about="the same load in turns", measured=rates, against="local")


def fill(folder: Path) -> None:
    """Puts LOG_MB into the volume of the n3 whose run folder this is."""
    mounted = f"volume={folder.resolve() / 'work'}"
    names = subprocess.check_output(
        ("docker", "ps", "--filter", mounted, "--format", "{{.Names}}"), text=True).split()
    broker = next(name for name in names if name.endswith("-n3"))
    subprocess.run(("docker", "exec", broker, *FILL), check=True)


def kafka(options: Options) -> Iterator[Row]:
    """Seconds, and acked op/s at 1 and 20 processes; a system after the other in each turn."""
    systems: dict[str, str | None] = {REFERENCE: None, **{f"Kafka {one}": one for one in options.kafka}}

    def measured(turn: int) -> Figures:
        return {(who, what): figure for who, version in systems.items()
                for what, figure in of_system(options, version).items()}

    yield Row(about="one system after the other", measured=measured, against=REFERENCE)


def of_system(options: Options, version: str | None) -> dict[str, float]:
    folder = options.scratch / "system"
    cluster = made(folder / "cluster", "local", version)
    took = asyncio.run(timed(cluster, iter([
        ("start to ready, s", cluster.start), ("creation of 4 partitions, s", lambda: cluster.create(SPECS)),
        ("down, all of it, s", cluster.stop)])))
    for count in (1, 20):
        took[f"{count} at once: {ACKED}"] = acked(folder / "run", options.seconds, count, kafka=version)[0]
    took[f"{SCENARIO}, s"] = played(folder / "scenario", version)
    shutil.rmtree(folder, ignore_errors=True)
    return took


def played(folder: Path, kafka: str | None) -> float:
    """Seconds of the scenario under the newest rules, not judged."""
    (scenario,) = named(SCENARIO)
    *_, row = rows_of(scenario, RULES[-1], sample=True, system=system_of(kafka))
    (one,) = play([Part(scenario=scenario, row=row, kafka=kafka)], "local", folder, at_once=1)
    if one.why is not None:
        raise RuntimeError(f"{one.play.title}: {one.why}")
    return one.seconds
