"""Clocks and memory of brokers in containers, seen in what the brokers write and in the kernel's numbers."""

import asyncio
import datetime
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_stage import Stage, stage_of_one
from confluent_kafka import Producer

from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.place import HIGHEST, WHY, Clocks
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import CONTROLLER

pytestmark = pytest.mark.docker

WAIT_S = 30.0
HOUR_MS = 3_600_000
NEAR_S = 60.0  # how close a clock must be: far from an hour, with time for a busy machine
SPECS = (PartitionSpec(key=0, topic="log", partition=0, replicas=("n1",)),)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_of_one(tmp_path, SPECS) as one:
        yield one


def ahead_s(on: Stage, name: str) -> float:
    """How far ahead the clock was that stamped the last line of its log; now, if the line is new."""
    text = (on.folder / "work" / f"{name}.log").read_text()
    stamps = re.findall(r"^(\d{4}-\S+) ", text, re.MULTILINE)
    return datetime.datetime.fromisoformat(f"{stamps[-1]}+00:00").timestamp() - time.time()


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        await asyncio.sleep(0.02)


async def says_something(on: Stage, name: str) -> None:
    """Makes the living broker write a line: it learns that its session has ended."""
    log = on.folder / "work" / f"{name}.log"
    before = log.stat().st_size
    await on.cluster.runs.expire("n1")
    await until(lambda: log.stat().st_size > before, f"{name} to write into its log")


async def kernel_limit(on: Stage, name: str) -> int:
    """The kernel's limit of its memory, in bytes."""
    limit = await _memory(on, name, "memory/memory.limit_in_bytes", "memory.max")
    return HIGHEST if limit == "max" else int(limit)


async def kernel_usage(on: Stage, name: str) -> int:
    return int(await _memory(on, name, "memory/memory.usage_in_bytes", "memory.current"))


async def _memory(on: Stage, name: str, *files: str) -> str:
    """The first of these files that exists: of control groups v1, or v2."""
    cat = f"cd /sys/fs/cgroup; for file in {' '.join(files)}; do cat $file 2>/dev/null && exit; done"
    return (await on.lab.exec(on.lab.broker(name), ["sh", "-c", cat])).strip()


def produce(cluster: BrokerCluster, megabytes: int) -> None:
    """Produces so much, acked or not: the broker may die of it."""
    ((host, port),) = cluster.addresses().values()
    producer = Producer({"bootstrap.servers": f"{host}:{port}", "acks": "all", "log_level": 0,
                         "message.timeout.ms": 5000})
    for _ in range(megabytes):
        producer.produce("log", b"x" * 900_000, partition=0)
    producer.flush(10)


# -- clocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset_ms", [3 * HOUR_MS, -3 * HOUR_MS])
async def test_a_living_brokers_clock_jumps_and_only_that(stage: Stage, offset_ms: int) -> None:
    """Its log is stamped with the wrong time at once; its trace, by the monotonic clock, is not; no broker is
    fenced for it; a restart does not mend it, and mending does."""
    assert abs(ahead_s(stage, "n1")) < NEAR_S
    await stage.place.clocks.bump("n1", offset_ms)
    await says_something(stage, "n1")
    assert ahead_s(stage, "n1") == pytest.approx(offset_ms / 1000, abs=NEAR_S)
    assert abs(ahead_s(stage, CONTROLLER)) < NEAR_S

    times = [int(found) for found in re.findall(
        r'"time":(\d+)', (stage.folder / "work" / "n1.trace").read_text())]
    assert times == sorted(times)
    assert time.monotonic_ns() - times[-1] < NEAR_S * 1e9

    await stage.cluster.kill("n1")
    await stage.cluster.start_node("n1")
    assert ahead_s(stage, "n1") == pytest.approx(offset_ms / 1000, abs=NEAR_S)

    assert await stage.place.clocks.mend() == []
    await says_something(stage, "n1")
    assert abs(ahead_s(stage, "n1")) < NEAR_S
    assert stage.cluster.died() == []


async def test_the_controllers_clock_jumps_and_no_session_ends(stage: Stage) -> None:
    await stage.place.clocks.bump(CONTROLLER, HOUR_MS)
    await asyncio.sleep(1.0)  # some heartbeats
    assert (await stage.cluster.observe()).unfenced == {"n1"}
    await says_something(stage, CONTROLLER)
    assert ahead_s(stage, CONTROLLER) == pytest.approx(3600, abs=NEAR_S)


async def test_mending_looks_at_the_clock_itself(stage: Stage) -> None:
    """If the clock is still off, mending reports it; for a dead broker, that it will be off."""
    await stage.place.clocks.bump("n1", HOUR_MS)

    async def lazy(node: str, offset_ms: int) -> None:
        del node, offset_ms

    stage.place.clocks.bump = lazy  # type: ignore[method-assign]
    (line,) = await stage.place.clocks.mend()
    assert re.fullmatch(r"the clock of n1 is off by 3[56]\d{5} ms", line)
    await stage.cluster.kill("n1")
    assert await stage.place.clocks.mend() == ["the clock of n1 is off by 3600000 ms"]
    del stage.place.clocks.bump
    assert await stage.place.clocks.mend() == []


def test_a_cluster_without_the_library_says_so(tmp_path: Path) -> None:
    clocks = Clocks(EngineResources(tmp_path, ("n1",), clocks=False))

    with pytest.raises(FloodmarkError, match="n1 cannot be shifted: the cluster has no libfaketime"):
        asyncio.run(clocks.bump("n1", 5))
    assert asyncio.run(clocks.mend()) == []


# -- memory ----------------------------------------------------------------------------------------------


async def test_a_limit_that_suffices_is_in_force_and_lifted(stage: Stage) -> None:
    """The excuse ends with it; a limit that is left after mending is reported; one that no engine accepts is
    refused before it is set."""
    before = await kernel_limit(stage, "n1")
    with pytest.raises(FloodmarkError, match="n1 cannot be limited to 2 MB: 6 MB is the least"):
        await stage.place.limits.limit("n1", 2)
    await stage.place.limits.limit("n1", 256)
    assert await kernel_limit(stage, "n1") == 256 << 20
    assert stage.lab.excused == {("n1", WHY)}

    async def lazy(node: str) -> None:
        del node

    stage.place.limits._free = lazy  # type: ignore[method-assign]
    assert await stage.place.limits.mend() == ["the memory of n1 is limited to 256 MB"]
    del stage.place.limits._free

    assert await stage.place.limits.mend() == []
    assert await kernel_limit(stage, "n1") == before
    assert stage.lab.excused == set()
    stage.lab.client.api.kill(stage.lab.broker("n1"), "SIGABRT")
    await until(lambda: not stage.place.lives("n1"), "n1 to end")
    assert stage.cluster.died() == ["n1"]
    assert stage.place.faulted_exits == []


async def test_the_kernel_ends_a_broker_that_comes_to_need_more(stage: Stage) -> None:
    """No one sends a signal: what it must take in does not fit."""
    fits_mb = (await kernel_usage(stage, "n1") >> 20) + 2
    await stage.place.limits.limit("n1", fits_mb)
    assert stage.place.lives("n1")
    await asyncio.to_thread(produce, stage.cluster, 12)
    await until(lambda: not stage.place.lives("n1"), "n1 to end for lack of memory")
    assert [(one.node, one.name) for one in stage.place.faulted_exits] == [("n1", WHY)]
    assert stage.cluster.died() == []
    assert "lack of memory" in stage.place.last_words("n1")

    assert await stage.place.limits.mend() == []
    await stage.cluster.start_node("n1")
