"""Losses planted by hand in the logs of stock Apache Kafka: found, and explained from Kafka's own lines.

One run with three partitions. Each loses records in another way while its leader is down and is the only
member of the ISR: half of the log is cut off; the folder is emptied; a batch in the middle is replaced by the
next one. No fault is recorded, so nothing permits the losses.
"""

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from here import judge
from real_kafka import skip_without

from floodmark.checkers.judge.report import as_json
from floodmark.harness import catalog, runner
from floodmark.harness.client.client import wire_clients
from floodmark.harness.protocols import WorkloadSettings
from floodmark.harness.record_batches import HEADER, frame
from floodmark.harness.schedule.entry import Entry
from floodmark.harness.schedule.moments import Ack, After
from floodmark.harness.spec import RunPlan, RunSpec

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]
VERSION = "4.3.1"
RUN_ID = "00c0ffee00c0ffee"
SEGMENT = "00000000000000000000.log"
SCHEDULE = (
    Entry(f="kill", nodes=("n2", "n3"), moment=Ack(partition=2, count=60)),
    Entry(f="kill", nodes=("n1",), moment=After(after_ns=5_000_000_000)),
    Entry(f="start", nodes=("n1",), moment=After(after_ns=1_000_000_000)),
    Entry(f="start", nodes=("n2", "n3"), moment=After(after_ns=3_000_000_000)),
)


def plan_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunPlan:
    cluster: Any = catalog.cluster(
        "local", folder, 3, rules="kip-320", bugs=(), links="direct", kafka=VERSION,
        config={"min.insync.replicas": "2"})
    monkeypatch.setattr(cluster, "start_node", planting(cluster.start_node, folder / "nodes" / "n1"))
    partitions = runner.spread(cluster.nodes, "log", 3, 3)
    settings = WorkloadSettings(
        run_id=RUN_ID, seed=5, partitions=partitions, addresses=cluster.addresses, acks="all", concurrency=6,
        first_value=0, clients=wire_clients(cluster.addresses))
    return RunPlan(
        spec=RunSpec(out=folder, seed=5, duration=1.0, concurrency=6, rate=60.0, links="direct"),
        run_id=RUN_ID, version="0", commit="0", cluster=cluster, partitions=partitions, schedule=SCHEDULE,
        settle_timeout_s=120.0, schedule_runner=catalog.schedule_runner(cluster, partitions),
        workload=catalog.workload("log", settings))


def planting(start: Callable[[str], Awaitable[None]], log_dir: Path) -> Callable[[str], Awaitable[None]]:
    """Starts nodes; n1, once, with the losses planted."""
    done: list[str] = []

    async def start_node(node: str) -> None:
        if node == "n1" and not done:
            done.append(node)
            cut_end(log_dir / "log-0" / SEGMENT)
            shutil.rmtree(log_dir / "log-1")
            replace_batch(log_dir / "log-2" / SEGMENT)
        await start(node)

    return start_node


def batches(data: bytes) -> list[tuple[int, int]]:
    """The position of each batch, and its size."""
    found, at = [], 0
    while (header := frame(data, at)) is not None and header.size:
        found.append((at, header.size))
        at += header.size
    return found


def cut_end(path: Path) -> None:
    data = path.read_bytes()
    placed = batches(data)
    path.write_bytes(data[:placed[len(placed) // 2][0]])


def replace_batch(path: Path) -> None:
    """Replaces it by the next batch, of the same size, at its own offset."""
    data = bytearray(path.read_bytes())
    placed = batches(bytes(data))
    at, size = next(one for one, after in pairwise(placed[5:]) if one[1] == after[1])
    base = HEADER.unpack_from(data, at)[0]
    data[at:at + size] = data[at + size:at + 2 * size]
    data[at:at + 8] = base.to_bytes(8, "big")
    path.write_bytes(data)


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in file.read_bytes().splitlines()]


def lost_by_partition(folder: Path) -> dict[int, int]:
    """Acked values that the leader's log lacks at their offsets; n1 leads all partitions at the end."""
    rows = lines_of(folder / "logs" / "n1.jsonl")
    stored = {(row["partition"], row["offset"]): row["value"] for row in rows}
    acked = [(send["partition"], send["offset"], send["value"])
             for op in lines_of(folder / "history.jsonl")
             if op["type"] == "ok" and op["f"] == "send" for send in op["sends"]]
    lost = Counter(partition for partition, offset, value in acked
                   if stored.get((partition, offset)) != value)
    return dict(lost)


def test_three_losses_planted_in_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without(VERSION)
    folder = tmp_path / "run"
    asyncio.run(runner.carry_out(plan_of(folder, monkeypatch), lambda progress: None))
    check(folder)


def check(folder: Path) -> None:
    """All losses are found; and Kafka's own lines show which broker lacked the records and which one cut
    them."""
    verdict: Any = as_json(judge([folder])[0])
    found = [(one["class"], one["count"]) for one in verdict["findings"] if one["name"] == "lost-write"]
    lost, trace = lost_by_partition(folder), lines_of(folder / "trace.jsonl")
    assert found == [("bug", sum(lost.values()))], verdict
    assert lost.keys() == {0, 1, 2}
    assert lost[2] < min(lost[0], lost[1]), "one batch alone"
    for partition in (0, 1):
        begins = next(line for line in reversed(trace) if line["event"] == "become_leader"
                      and line["node"] == "n1" and line["partition"] == partition)
        cuts = [line for line in trace if line["event"] == "truncate" and line["partition"] == partition]
        assert {line["node"] for line in cuts} == {"n2", "n3"}
        for line in cuts:
            assert line["to"] <= begins["leo"] < line["from"], "who lacked it, who cut it"
            assert line["time"] > begins["time"]
