"""Apache Kafka beside the reference broker: how long a cluster takes to start, how much the recorded workload
gets through, how long a scenario takes.

    make bench ARGS='--only kafka --kafka 2.8.2,4.3.1'

The systems take turns, so that a busy minute of the machine meets all of them. Maven fetches the jars of a
version that is not there yet; that time is not counted.
"""

import asyncio
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from floodmark.harness import catalog
from floodmark.harness.commands.scenario import Part, named, play, rows_of, system_of
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.spec import RULES
from floodmark.nemesis.scenario import REFERENCE

NODES = ("n1", "n2", "n3")
SPECS = [PartitionSpec(key=key, topic="log", partition=key, replicas=NODES) for key in range(4)]
SCENARIO = "double-failover-by-signals"  # every system plays it

Say = Callable[[str, Sequence[float], str], None]
Rate = Callable[[Path, int, str | None], float]  # folder, processes, Kafka's version -> acked op/s


def bench_kafka(scratch: Path, versions: Sequence[str], repeat: int, say: Say, rate: Rate) -> None:
    """For the reference broker and for each version: seconds, and acked op/s at 1 and 20 processes."""
    print("kafka: 3 brokers on this machine, 4 partitions, acks=all, min.insync.replicas=2, workload log",
          flush=True)
    systems: dict[str, str | None] = {REFERENCE: None, **{f"Kafka {one}": one for one in versions}}
    figures: dict[tuple[str, str], dict[str, list[float]]] = {}  # title and unit -> system -> figures

    def note(name: str, title: str, unit: str, figure: float) -> None:
        figures.setdefault((title, unit), {}).setdefault(name, []).append(figure)
        print(f"    round {turn + 1} of {repeat}: {name}, {title}: {figure:,.4g} {unit}", flush=True)

    for turn in range(repeat):
        for name, kafka in systems.items():
            folder = scratch / f"kafka-{turn}"
            for what, took_s in asyncio.run(start_and_stop(folder / "cluster", kafka)).items():
                note(name, what, "s", took_s)
            for processes in (1, 20):
                figure = rate(folder / f"run-{processes}", processes, kafka)
                note(name, f"acked sends, {processes} process{'es' if processes > 1 else ''}", "op/s", figure)
            note(name, f"{SCENARIO}, not judged", "s", played(folder / "scenario", kafka))
            shutil.rmtree(folder, ignore_errors=True)
    for (title, unit), of_systems in figures.items():
        for name, found in of_systems.items():
            say(f"{title}: {name}", found, unit)
            if name != REFERENCE:
                ratio = statistics.median(found) / statistics.median(of_systems[REFERENCE])
                print(f"  {'against the reference broker':<58}{ratio:>12,.2f}", flush=True)


async def start_and_stop(folder: Path, kafka: str | None) -> dict[str, float]:
    """Seconds until a cluster is ready, until its partitions have leaders, and until it is gone."""
    cluster = catalog.cluster("local", folder, len(NODES), rules=RULES[-1], bugs=(), config={},
                              links="direct", kafka=kafka)
    try:
        began_s = time.perf_counter()
        await cluster.start()
        ready_s = time.perf_counter()
        await cluster.create(SPECS)
        created_s = time.perf_counter()
    finally:
        stopping_s = time.perf_counter()
        await cluster.stop()
    return {"start to ready": ready_s - began_s, "creation of 4 partitions": created_s - ready_s,
            "down, all of it": time.perf_counter() - stopping_s}


def played(folder: Path, kafka: str | None) -> float:
    """Seconds of the scenario under the newest rules."""
    (scenario,) = named(SCENARIO)
    *_, row = rows_of(scenario, RULES[-1], sample=True, system=system_of(kafka))
    (one,) = play([Part(scenario=scenario, row=row, kafka=kafka)], "local", folder, at_once=1)
    if one.why is not None:
        raise RuntimeError(f"{one.play.title}: {one.why}")
    return one.seconds
