"""Apache Kafka in containers: each fault there that processes on loopback cannot have, and a run.

Waits are for conditions: a busy machine is slow and no failure.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_stage import NODES, SPECS, Stage, begun, connect
from command_line import floodmark
from real_kafka import skip_without, software_of

from floodmark.harness.cluster.containers import images
from floodmark.harness.cluster.kafka.kafka_system import KafkaSystem
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER, View

pytestmark = [pytest.mark.docker, pytest.mark.kafka]
NEW, OLD = "4.3.1", "3.9.2"


VERSIONS = [NEW, *([OLD] if os.environ.get("FLOODMARK_ALL_CASES") else [])]


@pytest.fixture(scope="module", params=VERSIONS)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three brokers; in the end nothing of them is left on the engine."""
    skip_without(request.param)
    with begun(Stage(tmp_path_factory.mktemp("kafka") / "run", kafka=request.param), SPECS) as stage:
        yield stage


def in_isr(node: str) -> Any:
    return lambda look: node in look.partitions[0].isr


async def test_it_is_seen_as_it_is_on_loopback(stage: Stage) -> None:
    """LEO, HW and log start come by the wire; a running broker's epochs are only in its files: unknown."""
    await stage.all_in_sync()
    await stage.write(10)
    look = await stage.seen(lambda look: {look.replicas[node, 0].hw for node in NODES} == {10}, "HW 10")
    for node in NODES:
        own = look.replicas[node, 0]
        assert (own.leo, own.log_start, own.clean) == (10, 0, True)
    await stage.seen(lambda look: look.replicas["n2", 0].checkpointed_hw == 10, "n2 to have noted that")
    assert "epochs" in stage.cluster.not_shown
    assert not {"leo", "hw", "log_start", "clean", "checkpointed_hw"} & stage.cluster.not_shown


async def test_cuts_are_by_direction_and_clients_cut_are_not_the_harness(stage: Stage) -> None:
    """A node that hears nobody leaves the ISR; the harness reaches a broker that clients do not reach."""
    await stage.as_in_the_beginning()
    one = stage.cluster
    await one.place.cut({"n3": ["n1", "n2", CONTROLLER]})
    await stage.seen(lambda look: not in_isr("n3")(look), "n3, which hears nobody, to leave the ISR")
    await one.place.heal()
    await stage.all_in_sync()
    await one.place.cut({"n1": [CLIENTS], CLIENTS: ["n1"]})
    look = await stage.all_in_sync()
    assert ("n1", 0) in look.replicas, "clients do not reach it, and the harness does"
    await one.place.heal()
    await stage.write(1)


async def test_the_power_cut_is_the_disks(stage: Stage) -> None:
    """Unsynced records are lost, and are fetched again from the other replicas."""
    await stage.as_in_the_beginning()
    await stage.write(20)
    leo = (await stage.all_in_sync()).replicas["n1", 0].leo
    value = await stage.cluster.power_cut("n1")
    assert value["how"] == "disk"
    assert value["lost_records"] > 0
    assert value["keep"][0] < leo
    await stage.cluster.start_node("n1")
    await stage.seen(lambda look: ("n1", 0) in look.replicas and look.replicas["n1", 0].leo == leo,
                     "n1 to have it all again")
    await stage.all_in_sync()


def test_a_full_disk_ends_it_and_that_is_no_death_of_its_own(stage: Stage) -> None:
    async def story() -> None:
        await stage.as_in_the_beginning()
        volumes = stage.place.disks
        await volumes.harm("n3", "full")
        await stage.seen(lambda look: not in_isr("n3")(look) or "n3" not in look.running, "n3 to fail")
        await volumes.repair("n3")
        assert await stage.cluster.mend() == []
        await stage.all_in_sync()
        assert stage.cluster.died() == []

    with_writes(stage, story())


def with_writes(stage: Stage, story: Any) -> None:
    """While clients write: a broker that writes nothing does not find its disk full."""

    async def both() -> None:
        writing = asyncio.ensure_future(_write_on(stage))
        try:
            await story
        finally:
            writing.cancel()

    stage.play(both())


async def _write_on(stage: Stage) -> None:
    while True:
        await stage.write(50)


def test_frozen_what_is_seen_is_what_the_logs_hold(stage: Stage) -> None:
    """The last story: nothing moves any more."""

    async def story() -> View:
        await stage.as_in_the_beginning()
        await stage.write(3)
        await stage.all_in_sync()
        runs = stage.cluster.runs
        assert isinstance(runs, KafkaSystem)
        return await runs.freeze()

    frozen = stage.play(story())
    leos = {frozen.replicas[node, 0].leo for node in NODES}
    assert len(leos) == 1
    assert {frozen.replicas[node, 0].checkpointed_hw for node in NODES} <= {*range(max(leos) + 1)}
    assert frozen.replicas["n1", 0].epochs


def test_a_run_from_an_image_by_its_name(tmp_path: Path) -> None:
    """As apache/kafka:4.3.1 would be taken: jars and Java are the image's."""
    skip_without(NEW)
    client = connect()
    name = f"floodmark-test/kafka:{NEW}"
    try:
        made = client.images.get(images.image_of(client, software_of(NEW), print))
        made.tag(name)
        folder = tmp_path / "run"
        ran = floodmark("run", "--cluster", "containers", "--kafka", name, "--nemesis", "crash,cut,power",
                        "--duration", "15", "--interval", "3", "--seed", "5", "--rate", "300", "--strict",
                        "--out", folder)
        assert ran.code == 0, ran.err + ran.out
        about = json.loads((folder / "run.json").read_text())
        assert about["system"]["image"] == name
        assert about["settled"] is True
    finally:
        client.images.remove(name, noprune=True)
        client.close()


def test_an_image_that_no_registry_has_is_reported(tmp_path: Path) -> None:
    skip_without(NEW)
    ran = floodmark("run", "--cluster", "containers", "--kafka", f"floodmark-test/none:{NEW}", "--duration",
                    "3", "--out", tmp_path / "run")
    assert ran.code == 4
    assert f"the image floodmark-test/none:{NEW} is not in the engine, and no registry has it" in ran.err
    assert f"--kafka {NEW}" in ran.err
