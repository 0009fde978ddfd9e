"""Times of a cluster in containers: up, a kill, a start, a cut, a power cut, a log read; and its throughput.

    make bench ARGS='--only containers --repeat 5'

Aims, on two quiet cores: up and ready 2.0 s, kill to exited 80 ms, start to ready 300 ms, three-node cut and
heal 200 ms each, power cut 1 s, 100 MB of logs 0.5 s.
"""

import asyncio
import shutil
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from floodmark.harness import catalog
from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.protocols import PartitionSpec

NODES = ("n1", "n2", "n3")
SPEC = PartitionSpec(key=0, topic="log", partition=0, replicas=NODES)
GRUDGE = {"n1": ["n2", "n3"], "n2": ["n1", "n3"], "n3": ["n1", "n2"]}  # each alone
LOG_MB = 100
# Not a partition's name: the broker ignores it.
FILL = ("dd", "if=/dev/urandom", "of=/data/filler", "bs=1M", f"count={LOG_MB}", "status=none")

Say = Callable[[str, Sequence[float], str], None]
Rate = Callable[[Path, str], float]  # folder, cluster -> acked op/s


def bench_containers(scratch: Path, repeat: int, say: Say, rate: Rate) -> None:
    """Times of single acts, then acked op/s against the local cluster, in turns."""
    print("containers: 3 brokers and a controller on this machine's engine", flush=True)
    times: dict[str, list[float]] = {}
    for number in range(repeat):
        folder = scratch / f"containers-{number}"
        for what, took_s in asyncio.run(_acts(folder)).items():
            times.setdefault(what, []).append(took_s)
        shutil.rmtree(folder, ignore_errors=True)
    for what, found in times.items():
        say(what, [1000 * took_s for took_s in found], "ms")
    rates: dict[str, list[float]] = {"local": [], "containers": []}
    for turn in range(repeat):
        for cluster in ("local", "containers") if turn % 2 else ("containers", "local"):
            rates[cluster].append(rate(scratch / "run", cluster))
    for cluster, found in rates.items():
        say(f"{cluster}, 20 processes: acked sends", found, "op/s")
    ratio = statistics.median(rates["containers"]) / statistics.median(rates["local"])
    print(f"  {'containers against local':<58}{ratio:>12,.2f}", flush=True)


async def _acts(folder: Path) -> dict[str, float]:
    """Seconds of each act, once, on one cluster."""
    cluster = catalog.cluster("containers", folder, 3, rules="kip-320", bugs=(), config={}, links="direct")
    assert isinstance(cluster, BrokerCluster)
    took: dict[str, float] = {}

    async def timed(what: str, act: Callable[[], Awaitable[object]]) -> None:
        begun_s = time.perf_counter()
        await act()
        took[what] = time.perf_counter() - begun_s

    try:
        await timed("up and ready", cluster.start)
        await cluster.create([SPEC])
        await timed("kill to exited", lambda: cluster.kill("n1"))
        await timed("start to ready", lambda: cluster.start_node("n1"))
        await timed("cut, each of three alone", lambda: cluster.place.cut(GRUDGE))
        await timed("heal", cluster.heal)
        await timed("power cut", lambda: cluster.power_cut("n2"))
        await cluster.start_node("n2")
        await asyncio.to_thread(_fill, folder)
        await timed(f"reading {LOG_MB} MB of logs", lambda: cluster.place.log_dir("n3"))
        await timed("down, all of it", cluster.stop)
    finally:
        await cluster.stop()
    return took


def _fill(folder: Path) -> None:
    """Puts LOG_MB into the volume of the n3 whose run folder this is."""
    mounted = f"volume={folder.resolve() / 'work'}"
    names = subprocess.run(("docker", "ps", "--filter", mounted, "--format", "{{.Names}}"), check=True,
                           capture_output=True, text=True).stdout.split()
    broker = next(name for name in names if name.endswith("-n3"))
    subprocess.run(("docker", "exec", broker, *FILL), check=True)
