"""docker/compose.yaml as a person uses it: up, kcat, a broker killed, down; and the compose example of the
page about an own Kafka, as it stands there."""

import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import floodmark
from real_kafka import skip_without, software_of
from run_processes import wait_until

from floodmark.harness.cluster.containers import engine_client, images
from floodmark.harness.cluster.layout import Ports

ROOT = Path(__file__).resolve().parents[2]
KAFKA = "4.3.1"
UP_S = 300.0

pytestmark = [
    pytest.mark.docker,
    pytest.mark.kcat,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (Debian package kcat)"),
]


def output(*words: str, text: str = "", timeout_s: float = 120, **how: object) -> str:
    ran = subprocess.run(words, input=text, capture_output=True, text=True, timeout=timeout_s, check=False,
                         **how)  # type: ignore[call-overload]
    assert ran.returncode == 0, f"{words}: {ran.stdout}{ran.stderr}"
    return str(ran.stdout)


def composes() -> list[list[str]]:
    """The compose commands on this machine: Docker's plugin, Debian's program."""
    found = [
        words
        for words in (["docker", "compose"], ["docker-compose"])
        if shutil.which(words[0])
        and subprocess.run([*words, "version"], capture_output=True, timeout=60, check=False).returncode == 0
    ]
    if not found:
        pytest.skip("neither `docker compose` nor docker-compose is here")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Compose:
    """A compose project with its own name and ports."""

    words: Sequence[str]
    folder: Path
    mark: str
    ports: Sequence[int]
    environment: dict[str, str]

    def __call__(self, *arguments: str, timeout_s: float = 120) -> str:
        return output(*self.words, *arguments, cwd=self.folder, env={**os.environ, **self.environment},
                      timeout_s=timeout_s)

    def of_engine(self, kind: str, *words: str) -> list[str]:
        """What the engine lists of the project: containers, volumes or networks."""
        label = f"label=com.docker.compose.project={self.mark}"
        return output("docker", kind, "ls", "--filter", label, *words).splitlines()

    def remains(self) -> list[str]:
        return [*self.of_engine("container", "-aq"), *self.of_engine("volume", "-q"),
                *self.of_engine("network", "-q")]

    def kcat(self, port: int, *arguments: str, text: str = "") -> str:
        return output("kcat", "-b", f"127.0.0.1:{port}", *arguments, text=text)

    def read(self, port: int) -> list[str]:
        return sorted(self.kcat(port, "-t", "greetings", "-C", "-e", "-q").split())

    def brokers(self, port: int) -> list[str] | None:
        """The addresses in this broker's metadata; None: it does not answer, or a partition has no leader."""
        try:
            listed = self.kcat(port, "-L")
        except AssertionError:  # not listening yet
            return None
        return None if "leader -1" in listed else re.findall(r"broker \d+ at (\S+)", listed)

    def until_brokers(self, port: int, ports: Sequence[int], timeout_s: float = 60) -> None:
        wanted = [f"127.0.0.1:{each}" for each in ports]
        wait_until(f"{wanted} to be brokers", lambda: self.brokers(port) == wanted, timeout_s)


@contextmanager
def project(words: Sequence[str], folder: Path) -> Iterator[Compose]:
    """With three ports; in the end it is down."""
    mark, ports = f"fmtest{secrets.token_hex(4)}", Ports()
    one = Compose(words=words, folder=folder, mark=mark, ports=[ports.choose() for _ in range(3)],
                  environment={"COMPOSE_PROJECT_NAME": mark})
    try:
        yield one
    finally:
        one("down", "-v")
        ports.close()


def test_up_kcat_kill_down(tmp_path: Path) -> None:
    """With each compose on this machine, a copy of the folder with the wheels of ./vendor.sh, and the base
    image that this engine has."""
    with closing(engine_client.connect()) as client:
        base = images.base_image(client, print)
    for words in composes():
        folder = tmp_path / "-".join(words)
        shutil.copytree(ROOT / "docker", folder, ignore=shutil.ignore_patterns("__pycache__", "*.whl"))
        output(str(folder / "vendor.sh"))
        with project(words, folder) as compose:
            compose.environment.update(BASE_IMAGE=base, FLOODMARK_TAG=compose.mark, **{
                f"FLOODMARK_N{number}_PORT": str(port) for number, port in enumerate(compose.ports, 1)})
            try:
                as_a_person_would(compose)
            finally:
                compose("down", "-v", "--rmi", "all")


def as_a_person_would(compose: Compose) -> None:
    """Three brokers; records are read, also after one broker is killed, and after it is back; `down -v`
    leaves nothing. The ports are open to this machine only."""
    first, second, third = compose.ports
    compose("up", "--detach", "--build", timeout_s=UP_S)
    compose.until_brokers(second, compose.ports)
    compose.kcat(first, "-t", "greetings", "-P", text="one\ntwo\n")
    assert compose.read(third) == ["one", "two"]

    compose("kill", "n1")
    compose.until_brokers(second, [second, third])
    compose.kcat(second, "-t", "greetings", "-P", text="three\n")
    assert compose.read(third) == ["one", "three", "two"]

    compose("start", "n1")
    compose.until_brokers(first, compose.ports)
    assert compose.read(first) == ["one", "three", "two"]

    assert len(compose.remains()) == 4 + 4 + 1
    published = re.findall(r"\S+->", "\n".join(compose.of_engine("container", "--format", "{{.Ports}}")))
    assert sorted(published) == [f"127.0.0.1:{port}->" for port in compose.ports]
    wait_until("all to be healthy", lambda: all(
        "(healthy)" in status for status in compose.of_engine("container", "--format", "{{.Status}}")))
    compose("down", "-v")
    assert compose.remains() == []


# -- the example of an own Kafka --------------------------------------------------------------------------


def example(compose: Compose) -> None:
    """Writes compose.yaml and faults.toml of the page, with other ports and other names of containers."""
    page = (ROOT / "harness" / "TESTING_YOUR_OWN_KAFKA.md").read_text()
    found = re.search(r"```yaml\n(.*?)```\n\n```toml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    for name, text in zip(("compose.yaml", "faults.toml"), found.groups(), strict=True):
        for theirs, ours in zip(("19092", "29092", "39092"), compose.ports, strict=True):
            text = text.replace(theirs, str(ours))
        (compose.folder / name).write_text(re.sub(r"kafka-(n\d|\{node\})", rf"{compose.mark}-\1", text))


@pytest.mark.kafka
def test_the_page_of_an_own_kafka(tmp_path: Path) -> None:
    """With the image that floodmark builds of Kafka's jars, which no registry is asked for."""
    skip_without(KAFKA)
    folder = tmp_path / "run"
    with closing(engine_client.connect()) as client:
        image = images.image_of(client, software_of(KAFKA), print)
    with project(composes()[0], tmp_path) as compose:
        example(compose)
        compose.environment["KAFKA_IMAGE"] = image
        compose("up", "--detach")
        compose.until_brokers(compose.ports[0], compose.ports, UP_S)
        ran = floodmark("run", "--bootstrap", f"127.0.0.1:{compose.ports[0]}", "--nemesis",
                        "crash,restart,pause", "--faults", tmp_path / "faults.toml", "--i-may-break-this",
                        "--strict", "--duration", "20", "--interval", "3", "--seed", "2", "--partitions", "2",
                        "--rate", "200", "--out", folder)

    assert ran.code == 0, ran.err + ran.out
    struck = {json.loads(line)["f"] for line in (folder / "history.jsonl").read_text().splitlines()
              if '"fault"' in line}
    assert struck == {"kill", "stop", "start", "pause", "resume"}
    rows = [(folder / "logs" / f"{node}.jsonl").read_text().count("\n") for node in ("n1", "n2", "n3")]
    assert min(rows) > 0
