"""Apache Kafka in containers, without an engine: its command and files inside the container, the folder that
a broker formats itself, images by name, and what is refused."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from floodmark.harness import catalog
from floodmark.harness.cluster.containers import place as containers_place
from floodmark.harness.cluster.containers.engine_resources import EngineResources
from floodmark.harness.cluster.containers.images import image_of
from floodmark.harness.cluster.kafka import kafka_system
from floodmark.harness.cluster.kafka.distribution import Distribution, is_image, version_of
from floodmark.harness.cluster.kafka.kafka_system import CONTROLLER_ID, KafkaSystem
from floodmark.harness.cluster.kafka.kraft import KRaft
from floodmark.harness.cluster.layout import Layout
from floodmark.harness.cluster.place import Place
from floodmark.harness.cluster.ports import Ports
from floodmark.harness.cluster.system import JavaSoftware
from floodmark.harness.commands.scenario import system_of
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import Clocks, ability
from floodmark.harness.schedule.views import CONTROLLER

IDS = {"n1": 1, "n2": 2, CONTROLLER: CONTROLLER_ID}
IMAGE = "apache/kafka:4.3.1"


class Engine:
    """An engine that only gives addresses."""

    def address(self, name: str) -> str:
        return f"198.19.0.{IDS.get(name, 1) + 10}"


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Layout]:
    def format_folder(_: KRaft, home: Path) -> None:
        (home / "meta.properties").write_text("version=1\nnode.id=100\ndirectory.id=template\n")
        (home / "bootstrap.checkpoint").write_text("features")

    monkeypatch.setattr(KRaft, "_format", format_folder)
    ports = Ports()
    yield containers_place.lay_out(
        cast(EngineResources, Engine()), tmp_path / "run", IDS, ports=ports, first_port=None, trace=True,
        software=system(None).software)
    ports.close()


def system(image: str | None) -> KafkaSystem:
    kafka = Distribution(version="4.3.1", form="kraft", classpath="/cache/libs/a.jar:/cache/libs/b.jar",
                         java=Path("/usr/bin/java"), image=image, needs_java=17)
    return KafkaSystem(kafka, KRaft(kafka, {}, IDS), IDS, power=cast(Any, None))


def attached(layout: Layout, image: str | None = None) -> KafkaSystem:
    runs = system(image)
    runs.attach(cast(Place, SimpleNamespace(layout=layout)))
    return runs


def test_every_path_of_a_command_is_inside_the_container(layout: Layout) -> None:
    """Java and jars are those of the image; it has no path of this machine."""
    runs = attached(layout)
    command = runs.command("n1")

    assert command[:2] == ["sh", "-c"]
    assert command[3:6] == ["/floodmark/n1.prepared", "/data", "java"]
    assert command[-4:] == ["-cp", "/opt/kafka/libs/a.jar:/opt/kafka/libs/b.jar", "kafka.Kafka",
                            "/floodmark/n1.properties"]
    assert "-Dlog4j2.configurationFile=/floodmark/log4j2.yaml" in command
    assert not any(str(layout.folder) in word or "/cache/" in word for word in command)
    assert runs.command(CONTROLLER)[0] == "java"  # its folder is mounted, and formatted


def test_it_listens_on_its_containers_address_and_an_image_by_name_has_its_jars(layout: Layout) -> None:
    command = attached(layout, IMAGE).command("n1")
    assert command[command.index("-cp") + 1] == "/opt/kafka/libs/*"
    keys = dict(line.split("=", 1) for line in layout.properties_of("n2").read_text().splitlines())

    assert keys["log.dirs"] == "/data"
    assert keys["listeners"] == "CLIENTS://0.0.0.0:9092,BROKERS://198.19.0.12:9090"
    assert keys["advertised.listeners"] == (
        f"CLIENTS://127.0.0.1:{layout.places['n2'].advertised[1]},BROKERS://198.19.0.12:9090")
    assert keys["controller.quorum.voters"] == "100@198.19.0.110:9092"
    its = dict(line.split("=", 1) for line in layout.properties_of(CONTROLLER).read_text().splitlines())
    assert its["advertised.listeners"] == "CONTROLLER://198.19.0.110:9092"


def test_a_broker_formats_only_an_unformatted_disk(layout: Layout, tmp_path: Path) -> None:
    """Once; existing files stay. The next empty disk gets another directory id."""
    runs = attached(layout)
    disk = tmp_path / "disk"
    disk.mkdir()

    def start() -> str:
        shell, _, script, *_ = runs.command("n1")
        result = subprocess.run(
            [shell, "-c", script, layout.prepared_for("n1"), disk, "echo", "Kafka", "starts"],
            capture_output=True, text=True, check=True, timeout=60)
        assert result.stdout == "Kafka starts\n", result.stderr
        return (disk / "meta.properties").read_text()

    first = start()
    assert "node.id=1\n" in first
    assert {path.name for path in disk.iterdir()} == {"meta.properties", "bootstrap.checkpoint"}
    (disk / "bootstrap.checkpoint").write_text("of Kafka")
    asyncio.run(runs.starting("n1"))
    assert start() == first
    assert (disk / "bootstrap.checkpoint").read_text() == "of Kafka"
    (disk / "meta.properties").unlink()
    second = start()
    assert second != first
    assert "node.id=1\n" in second


# -- images by their names ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "image"), [
    (IMAGE, True), ("kafka:3.9.2", True), ("registry.example.com:5000/a/kafka:4.3.1-rc1", True),
    ("4.3.1", False), ("./4.3.1", False), ("apache/kafka", False), ("apache/kafka:latest", False),
    ("/opt/kafka:4.3.1", False), ("../kafka:4.3.1", False),
])  # fmt: skip
def test_an_image_is_named_with_its_version(word: str, image: bool) -> None:
    """A folder begins with a slash or a dot; an image without a version is refused."""
    assert is_image(word) is image
    assert not image or version_of(word) in ("4.3.1", "3.9.2", "4.3.1-rc1")


def test_an_image_runs_only_in_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_system, "found", lambda _: system(IMAGE)._kafka)
    made: dict[str, Any] = {"rules": "kip-320", "bugs": (), "config": {}, "links": "direct", "kafka": IMAGE}

    with pytest.raises(UsageError, match=r"apache/kafka:4\.3\.1 is an image, which runs only in containers"):
        catalog.cluster("local", tmp_path, 3, **made)
    there = catalog.cluster("containers", tmp_path, 3, **made)
    assert there.system["image"] == IMAGE
    assert "libfaketime" in there.lacks[Clocks]
    assert "clock" in catalog.unsupported_nemeses(IMAGE, "kip-320")
    assert ability(there, Clocks) is None
    assert (system_of(IMAGE), system_of("apache/kafka:2.8.2")) == (system_of("4.3.1"), system_of("2.8.2"))


def test_jars_that_are_too_new_for_the_images_java_are_refused() -> None:
    software = JavaSoftware(version="9.0.0", java=Path("java"), jars=(), needs_java=25)

    with pytest.raises(FloodmarkError, match=r"needs Java 25, and the image is built with Java 17"):
        image_of(cast(Any, None), software, print)


def test_without_access_to_files_looks_omit_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_system, "found", lambda _: system(None)._kafka)
    made: dict[str, Any] = {"rules": "kip-320", "bugs": (), "config": {}, "links": "direct", "kafka": "4.3.1"}

    assert "epochs" in catalog.cluster("containers", tmp_path, 3, **made).not_shown
    assert "epochs" not in catalog.cluster("local", tmp_path, 3, **made).not_shown
