"""A cluster of real brokers, as processes or in containers, for the tests that play on one; and the engine's
view of it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from floodmark.harness import catalog
from floodmark.harness.client.client import Client
from floodmark.harness.client.settings import ClientSettings
from floodmark.harness.cluster.broker_cluster import BrokerCluster
from floodmark.harness.cluster.containers.engine_client import connect
from floodmark.harness.cluster.containers.engine_resources import LABEL_RUN, EngineResources
from floodmark.harness.cluster.containers.place import ContainersPlace
from floodmark.harness.op import Send, Type
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.schedule.views import View

WAIT_S = 120.0
NODES = ("n1", "n2", "n3")
SPECS = (
    PartitionSpec(key=0, topic="log", partition=0, replicas=("n1", "n2", "n3")),
    PartitionSpec(key=1, topic="log", partition=1, replicas=("n2", "n3", "n1")),
)
LONG = {"broker.session.timeout.ms": "60000"}  # sessions end only on request

T = TypeVar("T")


class Stage:
    """Plays stories on one cluster, one after the other in one event loop."""

    def __init__(self, folder: Path, nodes: int = 3, *, place: str = "containers", kafka: str | None = None,
                 links: str | None = None, trace: bool = True, **config: str) -> None:
        self.folder = folder
        made = catalog.cluster(place, folder, nodes, rules="kip-320", bugs=(), config=config, kafka=kafka,
                               links=links or ("proxied" if place == "local" else "direct"), trace=trace)
        assert isinstance(made, BrokerCluster)
        self.cluster = made
        self._runner = asyncio.Runner()
        self._values = iter(range(1_000_000))

    def play(self, story: Awaitable[T], timeout_s: float = 3 * WAIT_S) -> T:
        async def bounded() -> T:
            return await asyncio.wait_for(story, timeout_s)

        return self._runner.run(bounded())

    def close(self) -> None:
        try:
            self.play(self.cluster.stop())
        finally:
            self._runner.close()

    @property
    def place(self) -> ContainersPlace:
        assert isinstance(self.cluster.place, ContainersPlace)
        return self.cluster.place

    @property
    def lab(self) -> EngineResources:
        return self.place._lab

    async def begin(self, specs: Sequence[PartitionSpec] = SPECS) -> None:
        await self.cluster.start()
        await self.cluster.create(specs)

    # -- looks ---------------------------------------------------------------------------------------------

    async def seen(self, condition: Callable[[View], bool], what: str) -> View:
        """The first view for which the condition holds."""
        deadline = time.monotonic() + WAIT_S
        while not condition(look := await self.cluster.observe()):
            assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}; {look}"
            await asyncio.sleep(0.02)
        return look

    async def all_in_sync(self) -> View:
        """Waits until every ISR is full, with the incarnations that run now."""
        return await self.seen(
            lambda look: bool(look.partitions) and look.unfenced == set(self.cluster.nodes) and all(
                isr(look, spec.key) == set(spec.replicas) for spec in self.cluster.partitions),
            "every ISR to be full")

    async def as_in_the_beginning(self) -> View:
        """Mends everything and waits until every ISR is full and the preferred leaders lead."""
        assert await self.cluster.mend() == []
        await self.all_in_sync()
        await self.cluster.runs.elect([])
        preferred = {spec.key: spec.replicas[0] for spec in self.cluster.partitions}
        await self.seen(lambda look: {key: look.partitions[key].leader for key in preferred} == preferred,
                        "the preferred leaders to lead")
        return await self.all_in_sync()

    # -- records -------------------------------------------------------------------------------------------

    async def write(self, count: int, key: int = 0, *, batch: int = 1) -> list[int]:
        """Writes so many records by the client of record, `batch` in a request; returns their values, all
        acked."""
        client = self._client()
        values = [next(self._values) for _ in range(count)]
        try:
            for first in range(0, count, batch):
                sends = tuple(Send(partition=key, value=value) for value in values[first:first + batch])
                deadline = time.monotonic() + WAIT_S
                while (await client.send(sends)).type is not Type.OK:
                    assert time.monotonic() < deadline, f"waited {WAIT_S} s for an ack of {sends}"
        finally:
            await client.close()
        return values

    async def read(self, count: int, key: int = 0) -> list[int]:
        """The first so many different values that a client reads: write repeats what is not acked."""
        client = self._client()
        found: list[int] = []
        deadline = time.monotonic() + WAIT_S
        try:
            client.assign([key])
            while len(found) < count:
                assert time.monotonic() < deadline, f"waited {WAIT_S} s for {count} records; {found}"
                read = [one.value for one in (await client.poll()).reads or ()]
                found = [*dict.fromkeys([*found, *read])]
        finally:
            await client.close()
        return found[:count]

    def of_engine(self, container: str) -> dict[str, Any]:
        """The engine's description of a container."""
        return dict(self.lab.client.api.inspect_container(container))

    def _client(self) -> Client:
        keys = {spec.key: (spec.topic, spec.partition) for spec in self.cluster.partitions}
        return Client(ClientSettings(run_id="0" * 16, keys=keys), self.cluster.addresses, Random(1))


def isr(look: View, key: int = 0) -> set[str]:
    return set(look.partitions[key].isr)


@contextmanager
def begun(stage: "Stage", specs: Sequence[PartitionSpec]) -> Iterator["Stage"]:
    """The stage when its brokers are up; at the end nothing of the run is left on the engine."""
    run = stage.place.disks._lab.run
    try:
        stage.play(stage.begin(specs))
        yield stage
    finally:
        stage.close()
    assert left(run) == {}


def left(run: str) -> dict[str, list[str]]:
    """Everything on the engine with the run's label or with its number in its name; also loop devices."""
    wanted = {"label": f"{LABEL_RUN}={run}"}
    with closing(connect()) as client:
        found = {
            "containers": [one["Names"][0] for one in client.api.containers(all=True, filters=wanted)],
            "networks": [one["Name"] for one in client.api.networks(filters=wanted)],
            "volumes": [one["Name"] for one in client.api.volumes(filters={"name": run})["Volumes"] or ()],
            "devices": [str(path) for path in Path("/sys/block").glob("loop*/loop/backing_file")
                        if run in path.read_text()],
        }
    return {what: names for what, names in found.items() if names}
