"""The message for a user when no container engine can be used: each reason has its own sentence."""

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
    """Answers every request with its version."""

    daemon_threads = True
    version_info = GOOD


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(self.server.version_info).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


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


def refusal() -> str:
    with pytest.raises(FloodmarkError) as error:
        engine_client.connect()
    return str(error.value)


def test_a_current_engine_is_accepted(engine: Engine) -> None:
    """Without a message."""
    client = engine_client.connect()
    try:
        assert client.version()["Version"] == "20.10.24"
        assert client.api.timeout == engine_client.REQUEST_TIMEOUT_S
    finally:
        client.close()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ({"Version": "19.03.5", "ApiVersion": "1.40"}, "is too old: version 19.03.5, API 1.40; 20.10, API"),
        ({"Version": "1.9", "ApiVersion": "1.21"}, "is too old"),
        ({"Os": "windows"}, "runs containers of windows: switch it to Linux containers"),
    ],
)
def test_an_unsuitable_engine_is_refused(engine: Engine, version: dict[str, str], message: str) -> None:
    """Its version, and the required one."""
    engine.version_info = {**GOOD, **version}

    assert message in refusal()


def test_a_newer_engine_is_accepted(engine: Engine) -> None:
    """1.100 is more than 1.41: numbers, not text."""
    engine.version_info = {**GOOD, "ApiVersion": "1.100"}

    engine_client.connect().close()


def test_no_engine_at_the_address_of_docker_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message has the address, and states that DOCKER_HOST names it."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")

    message = refusal()

    assert message.startswith(
        f"no container engine answers at unix://{tmp_path}/none.sock: DOCKER_HOST names")
    assert "docker/engine.sh run --" in message


def test_no_engine_at_the_usual_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then DOCKER_HOST may be missing: contexts of the docker command are not read."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)

    message = engine_client.why_not(FileNotFoundError(2, "No such file"), engine_client.address())

    assert message.startswith("no container engine answers at unix:///var/run/docker.sock: start it")
    assert "set DOCKER_HOST, because the docker command's contexts are not read" in message


def test_a_refused_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as no engine."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")

    assert refusal().startswith("no container engine answers at tcp://127.0.0.1:1: DOCKER_HOST names")


@pytest.mark.parametrize("address", ["tcp://192.0.2.1:2375", "ssh://somebody@elsewhere"])
def test_an_engine_on_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Before anything is sent there."""
    monkeypatch.setenv("DOCKER_HOST", address)

    assert refusal().startswith(f"the container engine at {address} is on another machine")


@pytest.mark.parametrize("address", ["somewhere", "unix//x", "tcp://[::1"])
def test_a_malformed_address_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """The message shows the expected form."""
    monkeypatch.setenv("DOCKER_HOST", address)

    assert refusal() == f"DOCKER_HOST={address} is no engine's address: unix:///PATH is wanted"


def wrapped(error: Exception) -> DockerException:
    """As urllib3 and requests raise it: the cause in `args`, and in the context."""
    try:
        try:
            raise OSError(("Connection aborted.", error)) from error
        except OSError as aborted:
            raise DockerException(f"Error while fetching server API version: {aborted}") from aborted
    except DockerException as outer:
        return outer


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied"), "no permission to use the container engine at unix://x:"),
        (TimeoutError("timed out"), "the container engine at unix://x did not answer in 60 s:"),
        (FileNotFoundError(2, "No such file or directory"), "no container engine answers at unix://x:"),
        (APIError("500: full"), "the container engine at unix://x refused:"),
        (ValueError("odd"), "the container engine at unix://x cannot be used: Error while fetching"),
    ],
)
def test_the_innermost_error_decides(error: Exception, message: str) -> None:
    """The outermost error has few details."""
    assert engine_client.why_not(wrapped(error), "unix://x").startswith(message)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without permissions")
def test_no_permission(engine: Engine) -> None:
    """As another user, on a socket that is root's."""
    path = Path(os.environ["DOCKER_HOST"].removeprefix("unix://"))
    path.chmod(0o600)
    path.parent.chmod(0o755)
    # What it needs is imported before: another user may not read the files.
    code = ("import os; from floodmark.harness.cluster.containers.engine_client import connect; "
            "os.setuid(65534); connect()")

    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert "FloodmarkError: no permission to use the container engine at unix://" in ran.stderr
