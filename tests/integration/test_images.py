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
ABOVE_BASE_MAX = 30_000_000
FOUND_AGAIN_MAX_S = 2.0  # normally 0.03 s


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    made = engine_client.connect()
    yield made
    made.close()


def output(client: docker.DockerClient, image: str, script: str) -> str:
    """The output of a shell script in a new container, which is removed afterwards."""
    printed = client.containers.run(
        image, [script], entrypoint=["sh", "-euc"], network_mode="none", remove=True, stderr=True
    )
    return str(printed.decode())


def test_the_broker_is_small_has_no_rights_and_compiles_nothing(client: docker.DockerClient) -> None:
    """At most 30 MB above its base image, not root, no compiler; of the image's folders it may write /data
    and those that everyone may write. Every module has its byte code, for this Python."""
    broker = images.tools_image(client, print, "broker")
    base = client.images.get(images.base_image(client, print))
    assert 0 < client.images.get(broker).attrs["Size"] - base.attrs["Size"] <= ABOVE_BASE_MAX

    who, compilers, *writable = output(client, broker, """
        id -u
        command -v gcc cc make || echo none
        find / -xdev -type d -writable ! -path '/proc/*' ! -path '/sys/*' 2>/dev/null || true""").split()
    assert (who, compilers) == ("10001", "none")
    assert "/data" in writable
    assert set(writable) <= {"/data", "/tmp", "/var/tmp", "/run/lock", "/var/lock", "/dev/shm", "/dev/mqueue"}

    assert output(client, broker, """
        cd /opt/floodmark
        tag=$(python -c 'import sys; print(sys.implementation.cache_tag)')
        find . -name '*.py' | while read -r path; do
          name=${path##*/}
          [ -e "${path%/*}/__pycache__/${name%.py}.$tag.pyc" ] || echo "$path"
        done""") == ""


def test_the_same_content_is_found_again_and_a_change_is_another_image(
        client: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Building again does nothing and prints nothing; changed code of the broker runs."""
    tools, said = images.tools_image(client, print), list[str]()
    begun = time.monotonic()
    assert images.tools_image(client, said.append) == tools
    assert time.monotonic() - begun < FOUND_AGAIN_MAX_S
    assert said == []

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
