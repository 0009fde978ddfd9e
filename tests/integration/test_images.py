"""The images: small, without rights, compiled, found again. (All other tests in containers use them: that
they start, and have the tools that make faults. test_compose.py builds one by hand.)
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import docker
from floodmark.harness.cluster.containers import engine_client, images

pytestmark = pytest.mark.docker

DOCKER = Path(__file__).resolve().parents[2] / "docker"
MEGABYTE = 1_000_000
ABOVE_BASE_MAX = 30 * MEGABYTE
FOUND_AGAIN_MAX_S = 2.0  # normally 0.03 s


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    made = engine_client.connect()
    yield made
    made.close()


@pytest.fixture(scope="module")
def broker(client: docker.DockerClient) -> str:
    return images.tools_image(client, print, "broker")


@pytest.fixture(scope="module")
def tools(client: docker.DockerClient) -> str:
    return images.tools_image(client, print)


def output(client: docker.DockerClient, image: str, script: str, *, user: str = "") -> str:
    """The output of a shell script in a new container, which is removed afterwards."""
    printed = client.containers.run(
        image, [script], entrypoint=["sh", "-euc"], user=user, network_mode="none", remove=True, stderr=True
    )
    return str(printed.decode())


def test_the_broker_is_small(client: docker.DockerClient, broker: str) -> None:
    """At most 30 MB above its base image."""
    base = client.images.get(images.base_image(client, print))
    above = client.images.get(broker).attrs["Size"] - base.attrs["Size"]

    assert 0 < above <= ABOVE_BASE_MAX


def test_the_broker_has_no_rights(client: docker.DockerClient, broker: str) -> None:
    """Not root; of the image's folders it may write /data and those that everyone may write; no compiler."""
    who, compilers, *writable = output(
        client,
        broker,
        """id -u
        command -v gcc cc make || echo none
        find / -xdev -type d -writable ! -path '/proc/*' ! -path '/sys/*' 2>/dev/null || true""",
    ).split()

    assert (who, compilers) == ("10001", "none")
    assert "/data" in writable
    assert set(writable) <= {"/data", "/tmp", "/var/tmp", "/run/lock", "/var/lock", "/dev/shm", "/dev/mqueue"}


def test_byte_code_is_complete(client: docker.DockerClient, broker: str) -> None:
    """A start compiles nothing: every module has its byte code, for this Python."""
    missing = output(
        client,
        broker,
        """cd /opt/floodmark
        tag=$(python -c 'import sys; print(sys.implementation.cache_tag)')
        find . -name '*.py' | while read -r path; do
          name=${path##*/}
          [ -e "${path%/*}/__pycache__/${name%.py}.$tag.pyc" ] || echo "$path"
        done""",
    )

    assert missing == ""


def test_found_again(client: docker.DockerClient, tools: str) -> None:
    """Building the same content again does nothing and prints nothing."""
    said = list[str]()
    begun = time.monotonic()

    assert images.tools_image(client, said.append) == tools
    assert time.monotonic() - begun < FOUND_AGAIN_MAX_S
    assert said == []


def test_a_change_is_another_image(
    client: docker.DockerClient, tools: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of the broker's code; and the changed code runs."""
    changed = copy(tmp_path)
    (changed / "broker" / "words_of_this_test.py").write_text("print('changed')\n", encoding="utf-8")
    monkeypatch.setattr(images, "context_folder", lambda: changed)
    name = images.tools_image(client, print)
    try:
        assert name != tools
        assert output(client, name, "python -m floodmark.broker.words_of_this_test") == "changed\n"
    finally:
        client.images.remove(name)


def copy(into: Path) -> Path:
    """docker/, as git would give it: without fetched wheels, and without byte code."""
    folder = into / "docker"
    folder.mkdir()
    names = [*images.GOES_IN, "vendor.sh", "wheels/.gitignore", ".dockerignore"]
    subprocess.run(
        f"tar -C {DOCKER} --exclude=__pycache__ -c {' '.join(names)} | tar -C {folder} -x", shell=True,
        check=True, timeout=60)
    return folder
