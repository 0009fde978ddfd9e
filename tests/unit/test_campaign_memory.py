"""How much memory a run of a campaign has: of all its processes together."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from docker.errors import APIError

from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.place import MemoryLimits
from floodmark.harness.commands.campaign_processes import resident_bytes, with_memory_watched
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.protocols import Cluster

MB = 1 << 20
GROUP = """
import subprocess, sys
child = "data = bytearray(b'x' * (40 << 20)); print(flush=True); input()"
pipe = subprocess.PIPE
children = [subprocess.Popen([sys.executable, "-c", child], stdin=pipe, stdout=pipe) for _ in range(3)]
for child in children:
    child.stdout.readline()
print(flush=True)
input()
"""


def test_a_process_counts_with_all_its_descendants() -> None:
    """Three grandchildren of 40 MB each: the largest alone would be 40."""
    before = resident_bytes(os.getpid())
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", GROUP], stdin=pipe, stdout=pipe) as group:
        assert group.stdout is not None
        group.stdout.readline()
        assert 120 * MB < resident_bytes(group.pid) < 300 * MB
        assert resident_bytes(os.getpid()) > before + 110 * MB
        group.kill()


class Elsewhere:
    """A cluster whose processes are no descendants; the first question comes before it is up."""

    lacks: Mapping[type, str] = {}
    abilities: Sequence[object] = ()

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answers = iter([None, 7 << 40])

    async def resident_bytes(self) -> int:
        found = next(self.answers, 0)
        if found is None:
            raise FloodmarkError("the cluster was not started")
        self.asked.set()
        return found


def test_the_most_is_kept_with_what_the_cluster_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.harness.commands.campaign_processes.SAMPLE_S", 0.0)

    async def out() -> int:
        cluster, most = Elsewhere(), [0]
        assert await with_memory_watched(cast(Cluster, cluster), cluster.asked.wait(), most)
        return most[0]

    assert asyncio.run(out()) >= 1 * MB


def test_containers_count_without_files_that_the_kernel_could_drop() -> None:
    """One that does not run has nothing."""
    def stats(name: str, **_: Any) -> Mapping[str, Any]:
        if name == "c-n2":
            raise APIError("no such container")
        return {"memory_stats": {"usage": 900 * MB, "stats": {"inactive_file": 400 * MB}}}

    async def call(_: str, fn: Any, *args: Any) -> Any:
        return fn(*args)

    lab = SimpleNamespace(names=("n1", "n2", "controller"), call=call, broker=lambda name: f"c-{name}",
                          client=SimpleNamespace(api=SimpleNamespace(stats=stats)))
    assert asyncio.run(MemoryLimits(cast(EngineResources, lab)).resident_bytes()) == 1000 * MB
