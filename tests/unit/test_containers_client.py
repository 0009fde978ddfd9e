"""What a user is told when no container engine can be used: each reason has its own sentence."""

import json
import os
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from docker.errors import APIError, DockerException

from floodmark.harness.cluster.containers import engine_client
from floodmark.harness.errors import FloodmarkError

GOOD = {"Version": "20.10.24", "ApiVersion": "1.41", "Os": "linux", "Arch": "amd64"}


class Engine(socketserver.ThreadingUnixStreamServer):
    """Answers everything with what an engine says of its version."""

    daemon_threads = True
    about = GOOD


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(self.server.about).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/engine.sock"
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        with Engine(path, Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            yield server
            server.shutdown()
            thread.join()


def refused() -> str:
    with pytest.raises(FloodmarkError) as error:
        engine_client.connect()
    return str(error.value)


def test_an_engine_of_today(engine: Engine) -> None:
    """Nothing to say."""
    client = engine_client.connect()
    try:
        assert client.version()["Version"] == "20.10.24"
        assert client.api.timeout == engine_client.REQUEST_TIMEOUT_S
    finally:
        client.close()


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"Version": "19.03.5", "ApiVersion": "1.40"}, "is too old: version 19.03.5, API 1.40; 20.10, API"),
        ({"Version": "1.9", "ApiVersion": "1.21"}, "is too old"),
        ({"Os": "windows"}, "runs containers of windows: switch it to Linux containers"),
    ],
)
def test_an_engine_that_will_not_do(engine: Engine, about: dict[str, str], why: str) -> None:
    """Its version, and the one wanted."""
    engine.about = {**GOOD, **about}

    assert why in refused()


def test_a_newer_engine_is_welcome(engine: Engine) -> None:
    """1.100 is more than 1.41: numbers, not text."""
    engine.about = {**GOOD, "ApiVersion": "1.100"}

    engine_client.connect().close()


def test_no_engine_where_docker_host_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The address, and that it was DOCKER_HOST that named it."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")

    told = refused()

    assert told.startswith(f"no container engine answers at unix://{tmp_path}/none.sock: DOCKER_HOST names")
    assert "docker/engine.sh run --" in told


def test_no_engine_where_it_usually_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then DOCKER_HOST may be what is lacking: contexts of the docker command are not read."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)

    told = engine_client.why_not(FileNotFoundError(2, "No such file"), engine_client.address())

    assert told.startswith("no container engine answers at unix:///var/run/docker.sock: start it")
    assert "set DOCKER_HOST, because the docker command's contexts are not read" in told


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection refused is no engine either."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")

    assert refused().startswith("no container engine answers at tcp://127.0.0.1:1: DOCKER_HOST names")


@pytest.mark.parametrize("where", ["tcp://192.0.2.1:2375", "ssh://somebody@elsewhere"])
def test_an_engine_elsewhere(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Refused before anything is sent there."""
    monkeypatch.setenv("DOCKER_HOST", where)

    assert refused().startswith(f"the container engine at {where} is on another machine")


@pytest.mark.parametrize("where", ["somewhere", "unix//x", "tcp://[::1"])
def test_no_address(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """And what one looks like."""
    monkeypatch.setenv("DOCKER_HOST", where)

    assert refused() == f"DOCKER_HOST={where} is no engine's address: unix:///PATH is wanted"


def wrapped(error: Exception) -> DockerException:
    """As it comes through urllib3 and requests: the cause in `args`, and in the context."""
    try:
        try:
            raise OSError(("Connection aborted.", error)) from error
        except OSError as aborted:
            raise DockerException(f"Error while fetching server API version: {aborted}") from aborted
    except DockerException as outer:
        return outer


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (PermissionError(13, "Permission denied"), "no permission to use the container engine at unix://x:"),
        (TimeoutError("timed out"), "the container engine at unix://x did not answer in 60 s:"),
        (FileNotFoundError(2, "No such file or directory"), "no container engine answers at unix://x:"),
        (APIError("500: full"), "the container engine at unix://x refused:"),
        (ValueError("odd"), "the container engine at unix://x cannot be used: Error while fetching"),
    ],
)
def test_what_lies_beneath_decides(error: Exception, why: str) -> None:
    """The outermost error says little."""
    assert engine_client.why_not(wrapped(error), "unix://x").startswith(why)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_no_permission(engine: Engine) -> None:
    """As another user, on a socket that is root's."""
    path = Path(os.environ["DOCKER_HOST"].removeprefix("unix://"))
    path.chmod(0o600)
    path.parent.chmod(0o755)
    # What it needs is imported before: another user may not read the files.
    asks = ("import os; from floodmark.harness.cluster.containers.engine_client import connect; "
            "os.setuid(65534); connect()")

    ran = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, text=True, timeout=60, check=False
    )

    assert "FloodmarkError: no permission to use the container engine at unix://" in ran.stderr
