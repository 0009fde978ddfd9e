"""The message for a user when no container engine can be used: each reason has its own sentence."""

import json
import socketserver
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


@pytest.mark.parametrize(("version", "message"), [
    ({"Version": "19.03.5", "ApiVersion": "1.40"}, "is too old: version 19.03.5, API 1.40; 20.10, API"),
    ({"Version": "1.9", "ApiVersion": "1.21"}, "is too old"),
    ({"Os": "windows"}, "runs containers of windows: switch it to Linux containers"),
    ({}, None), ({"ApiVersion": "1.100"}, None),  # which is more than 1.41
])
def test_an_unsuitable_engine_is_refused(
        engine: Engine, version: dict[str, str], message: str | None) -> None:
    """Its version, and the required one."""
    engine.version_info = {**GOOD, **version}

    if message is None:
        engine_client.connect().close()
    else:
        assert message in refusal()


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


@pytest.mark.parametrize(("address", "message"), [
    ("tcp://127.0.0.1:1", "no container engine answers at tcp://127.0.0.1:1: DOCKER_HOST names"),
    ("tcp://192.0.2.1:2375", "the container engine at tcp://192.0.2.1:2375 is on another machine"),
    ("ssh://somebody@elsewhere", "the container engine at ssh://somebody@elsewhere is on another machine"),
    ("somewhere", "DOCKER_HOST=somewhere is no engine's address: unix:///PATH is wanted"),
    ("unix//x", "DOCKER_HOST=unix//x is no engine's address"),
    ("tcp://[::1", "DOCKER_HOST=tcp://[::1 is no engine's address"),
])
def test_an_address_where_no_engine_can_be_used_is_named(
        monkeypatch: pytest.MonkeyPatch, address: str, message: str) -> None:
    """Another machine's before anything is sent there."""
    monkeypatch.setenv("DOCKER_HOST", address)

    assert refusal().startswith(message)


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
