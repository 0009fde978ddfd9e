"""docker/compose.yaml as a person uses it: up, kcat, a broker killed, down; and the compose example of the
page about an own Kafka, as it stands there."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import floodmark
from docker.errors import ImageNotFound
from real_kafka import skip_without, software_of

import docker
from floodmark.harness.cluster.containers import engine_client, images

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
KAFKA = "4.3.1"
READY_TIMEOUT_S = 60
BUILD_TIMEOUT_S = 300


pytestmark = [
    pytest.mark.docker,
    pytest.mark.kcat,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian package kcat)"),
]


def composes() -> list[list[str]]:
    """The compose commands on this machine: Docker's plugin, Debian's program."""
    return [
        words
        for words in (["docker", "compose"], ["docker-compose"])
        if shutil.which(words[0])
        and subprocess.run([*words, "version"], capture_output=True, timeout=60, check=False).returncode == 0
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compose:
    """A compose project with its own name, image tag and ports."""

    words: Sequence[str]
    folder: Path
    environment: dict[str, str]
    ports: Sequence[int]

    def __call__(self, *arguments: str, timeout_s: int = 120) -> str:
        ran = subprocess.run(
            [*self.words, *arguments], cwd=self.folder, env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert ran.returncode == 0, f"{arguments}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def kcat(self, port: int, *arguments: str, text: str = "") -> str:
        ran = subprocess.run(
            ["kcat", "-b", f"127.0.0.1:{port}", *arguments], input=text, capture_output=True, text=True,
            timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def brokers(self, port: int) -> list[str]:
        """The addresses in this broker's metadata; none if a partition has no leader."""
        output = self.kcat(port, "-L")
        return [] if "leader -1" in output else re.findall(r"broker \d+ at (\S+)", output)

    def until_brokers(self, port: int, wanted: Sequence[int], timeout_s: float = READY_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        seen: object = None
        while time.monotonic() < deadline:
            try:
                seen = self.brokers(port)
            except AssertionError as error:  # not listening yet
                seen = error
            if seen == [f"127.0.0.1:{each}" for each in wanted]:
                return
            time.sleep(0.1)
        raise AssertionError(f"{wanted} wanted, seen in the end: {seen}")


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def project(words: Sequence[str], into: Path) -> Iterator[Compose]:
    """A copy of the folder with the wheels of ./vendor.sh, on the base image that this engine has."""
    folder = into / "-".join(words)
    shutil.copytree(DOCKER, folder, ignore=shutil.ignore_patterns("__pycache__", "*.whl"))
    subprocess.run([folder / "vendor.sh"], check=True, timeout=120)
    mark = f"fmtest{secrets.token_hex(4)}"
    ports = free_ports(3)
    with closing(engine_client.connect()) as client:
        environment = {
            "COMPOSE_PROJECT_NAME": mark,
            "FLOODMARK_TAG": mark,
            "BASE_IMAGE": images.base_image(client, print),
            **{f"FLOODMARK_N{number}_PORT": str(port) for number, port in enumerate(ports, 1)},
        }
        try:
            yield Compose(words=words, folder=folder, environment=environment, ports=ports)
        finally:
            remove(client, mark)


def remains(client: docker.DockerClient, mark: str) -> list[str]:
    """Everything of the project in the engine."""
    of_project = {"label": f"com.docker.compose.project={mark}"}
    return [
        *(each.name for each in client.containers.list(all=True, filters=of_project)),
        *(each.name for each in client.volumes.list(filters=of_project)),
        *(each.name for each in client.networks.list(filters=of_project)),
    ]


def remove(client: docker.DockerClient, mark: str) -> None:
    of_project = {"label": f"com.docker.compose.project={mark}"}
    for container in client.containers.list(all=True, filters=of_project):
        container.remove(force=True)
    for volume in client.volumes.list(filters=of_project):
        volume.remove()
    for network in client.networks.list(filters=of_project):
        network.remove()
    with suppress(ImageNotFound):
        client.images.remove(f"floodmark-broker:{mark}")


def test_up_kcat_kill_down(tmp_path: Path) -> None:
    """With each compose on this machine."""
    found = composes()
    if not found:
        pytest.skip("neither `docker compose` nor docker-compose is here")
    for words in found:
        with project(words, tmp_path) as compose:
            as_a_person_would(compose)


def as_a_person_would(compose: Compose) -> None:
    """Three brokers; records are read, also after one broker is killed, and after it is back; `down -v`
    leaves nothing. The ports are open to this machine only."""
    first, second, third = compose.ports
    mark = compose.environment["COMPOSE_PROJECT_NAME"]
    compose("up", "--detach", "--build", timeout_s=BUILD_TIMEOUT_S)
    compose.until_brokers(second, compose.ports)
    compose.kcat(first, "-t", "greetings", "-P", text="one\ntwo\n")
    assert sorted(compose.kcat(third, "-t", "greetings", "-C", "-e", "-q").split()) == ["one", "two"]

    compose("kill", "n1")
    compose.until_brokers(second, [second, third])
    compose.kcat(second, "-t", "greetings", "-P", text="three\n")
    assert sorted(compose.kcat(third, "-t", "greetings", "-C", "-e", "-q").split()) == ["one", "three", "two"]

    compose("start", "n1")
    compose.until_brokers(first, compose.ports)
    assert sorted(compose.kcat(first, "-t", "greetings", "-C", "-e", "-q").split()) == ["one", "three", "two"]

    client = engine_client.connect()
    with closing(client):
        assert len(remains(client, mark)) == 4 + 4 + 1
        assert published(client, mark) == {("127.0.0.1", str(port)) for port in compose.ports}
        until_healthy(client, mark)
        compose("down", "-v")
        assert remains(client, mark) == []


def published(client: docker.DockerClient, mark: str) -> set[tuple[str, str]]:
    """Address and port of everything that is reachable from outside."""
    of_project = {"label": f"com.docker.compose.project={mark}"}
    return {
        (binding["HostIp"], binding["HostPort"])
        for container in client.containers.list(filters=of_project)
        for bindings in container.ports.values()
        for binding in bindings or ()
    }


def until_healthy(client: docker.DockerClient, mark: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    of_project = {"label": f"com.docker.compose.project={mark}"}
    while True:
        states = {each.name: each.health for each in client.containers.list(filters=of_project)}
        if set(states.values()) == {"healthy"} and len(states) == 4:
            return
        assert time.monotonic() < deadline, f"not healthy in {READY_TIMEOUT_S} s: {states}"
        time.sleep(0.2)


# -- the example of an own Kafka --------------------------------------------------------------------------

def example(mark: str, ports: Sequence[int], folder: Path) -> None:
    """Writes compose.yaml and faults.toml of the page, with other ports and other names of containers."""
    page = (ROOT / "harness" / "TESTING_YOUR_OWN_KAFKA.md").read_text()
    found = re.search(r"```yaml\n(.*?)```\n\n```toml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    for name, text in zip(("compose.yaml", "faults.toml"), found.groups(), strict=True):
        for theirs, ours in zip(("19092", "29092", "39092"), ports, strict=True):
            text = text.replace(theirs, str(ours))
        (folder / name).write_text(re.sub(r"kafka-(n\d|\{node\})", rf"{mark}-\1", text))


@pytest.mark.kafka
def test_the_page_of_an_own_kafka(tmp_path: Path) -> None:
    """With the image that floodmark builds of Kafka's jars, which no registry is asked for."""
    skip_without(KAFKA)
    if not (found := composes()):
        pytest.skip("neither `docker compose` nor docker-compose is here")
    mark, ports, folder = f"fmtest{secrets.token_hex(4)}", free_ports(3), tmp_path / "run"
    example(mark, ports, tmp_path)
    with closing(engine_client.connect()) as client:
        image = images.image_of(client, software_of(KAFKA), print)
        compose = Compose(words=found[0], folder=tmp_path, ports=ports,
                          environment={"COMPOSE_PROJECT_NAME": mark, "KAFKA_IMAGE": image})
        try:
            compose("up", "--detach")
            compose.until_brokers(ports[0], ports, BUILD_TIMEOUT_S)
            ran = floodmark("run", "--bootstrap", f"127.0.0.1:{ports[0]}", "--nemesis", "crash,restart,pause",
                            "--faults", tmp_path / "faults.toml", "--i-may-break-this", "--strict",
                            "--duration", "20", "--interval", "3", "--seed", "2", "--partitions", "2",
                            "--rate", "200", "--out", folder)
        finally:
            remove(client, mark)

    assert ran.code == 0, ran.err + ran.out
    struck = {json.loads(line)["f"] for line in (folder / "history.jsonl").read_text().splitlines()
              if '"fault"' in line}
    assert struck == {"kill", "stop", "start", "pause", "resume"}
    rows = [(folder / "logs" / f"{node}.jsonl").read_text().count("\n") for node in ("n1", "n2", "n3")]
    assert min(rows) > 100
