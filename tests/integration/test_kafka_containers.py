"""Apache Kafka in containers: what a look shows, a full disk, and runs from images."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_stage import NODES, SPECS, Stage, begun, connect, isr
from command_line import floodmark
from real_kafka import skip_without, software_of

from floodmark.harness.cluster.containers import images

pytestmark = [pytest.mark.docker, pytest.mark.kafka]
NEW, OLD = "4.3.1", "3.9.2"


VERSIONS = [NEW, *([OLD] if os.environ.get("FLOODMARK_ALL_CASES") else [])]


@pytest.fixture(scope="module", params=VERSIONS)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three brokers; in the end nothing of them is left on the engine."""
    skip_without(request.param)
    with begun(Stage(tmp_path_factory.mktemp("kafka") / "run", kafka=request.param), SPECS) as stage:
        yield stage


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


def test_a_full_disk_ends_it_and_that_is_no_death_of_its_own(stage: Stage) -> None:
    async def story() -> None:
        await stage.as_in_the_beginning()
        volumes = stage.place.disks
        await volumes.harm("n3", "full")
        await stage.seen(lambda look: "n3" not in isr(look) or "n3" not in look.running, "n3 to fail")
        await volumes.repair("n3")
        assert await stage.cluster.mend() == []
        await stage.all_in_sync()
        assert stage.cluster.died() == []

    async def write_on() -> None:
        while True:
            await stage.write(50)

    async def both() -> None:
        """A broker that writes nothing does not find its disk full."""
        writing = asyncio.ensure_future(write_on())
        try:
            await story()
        finally:
            writing.cancel()

    stage.play(both())


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
