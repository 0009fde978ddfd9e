"""The doctor on this machine's engine: what it tries really happens, is remembered, and leaves nothing."""

import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import docker
from floodmark.harness.cluster.containers import ability_probe
from floodmark.harness.cluster.containers.ability_probe import (
    CLOCK,
    CUT,
    DELAY,
    FOLDER,
    LOOPS,
    LOSS,
    MEMORY,
    ONE_CLOCK,
    RATE,
    READ_ONLY,
    RESET,
    abilities_of,
    facts,
    probe,
)
from floodmark.harness.cluster.containers.engine_client import connect
from floodmark.harness.cluster.containers.engine_resources import LABEL_RUN
from floodmark.harness.cluster.containers.images import tools_image
from floodmark.harness.commands.doctor import examine_machine
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.verdict import EXIT_VALID

pytestmark = pytest.mark.docker

LATE_S = 120.0
BARE = {"network_mode": "none", "cap_drop": ["ALL"]}


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    one = connect()
    yield one
    one.close()


@pytest.fixture(scope="module")
def image(client: docker.DockerClient) -> str:
    return tools_image(client, print)


@pytest.fixture(autouse=True)
def _own_cache(image: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set after the image is there: building it may use the user's own cache."""
    assert image
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def run(client: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The label of the containers of one test; none of them is left at the end."""
    name = secrets.token_hex(4)
    monkeypatch.setattr(ability_probe, "secrets", SimpleNamespace(token_hex=lambda _: name))
    yield name
    assert left(client, name) == []


def left(client: docker.DockerClient, run: str) -> list[Any]:
    return list(client.api.containers(all=True, filters={"label": f"{LABEL_RUN}={run}"}))


def tried(client: docker.DockerClient, image: str, run: str, what: str,
          options: Mapping[str, Any]) -> dict[str, Any]:
    """One container's answer."""
    return dict(ability_probe._run_test(client, image, run, what, options))


def test_the_doctor_describes_this_engine(
        client: docker.DockerClient, image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What this machine can do is not ours to decide; but containers run on it, as this test does."""
    file = tmp_path / "doctor.json"

    assert examine_machine(cluster="containers", json_file=file) == EXIT_VALID
    output = capsys.readouterr().out
    assert "the containers cluster can run here" in output
    assert image in output
    assert facts(client).name.split(",", maxsplit=1)[0] in output
    findings = json.loads(file.read_text())
    assert None not in {row["containers"] for row in findings["faults"]}
    can = {row["fault"] for row in findings["faults"] if row["containers"]}
    assert {"kill", "stop", "pause", "cut", "power_cut", "expire", "elect", "disk wiped", "arm"} <= can


def test_a_container_without_rights_can_do_nothing_that_needs_them(
        client: docker.DockerClient, image: str, run: str) -> None:
    """Each no comes from the kernel. Whatever needs no right is still a yes."""
    network = {**tried(client, image, run, "network", BARE), "folder_seen": False,
               "between_ns": (0, 1 << 63)}
    found = abilities_of(network, tried(client, image, run, "disks", BARE))

    assert {name for name, ability in found.items() if not ability.can} == {
        FOLDER, CUT, RESET, LOSS, DELAY, RATE, LOOPS, READ_ONLY, MEMORY}
    assert {name for name, ability in found.items() if ability.can} == {ONE_CLOCK, CLOCK}
    assert "ermi" in found[CUT].why  # permission denied, or operation not permitted
    assert found[MEMORY].why == "a limit that was asked for is not in force"


def test_an_engine_that_is_silent_is_not_waited_for(
        client: docker.DockerClient, image: str, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that is late still removes its container."""
    monkeypatch.setattr(ability_probe, "PROBE_S", 0.0)

    with pytest.raises(FloodmarkError, match="waited 0 s for the containers that test"):
        probe(client, image, afresh=True)
    deadline = time.monotonic() + LATE_S
    while any(thread.name == "probe" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, f"waited {LATE_S} s for the last probe; {left(client, run)}"
        time.sleep(0.05)
