"""The message for a user when no container engine can be used: each reason has its own sentence."""

import json
import os
import socketserver
import tempfile
import threading
from collections.abc import Iterator

import pytest
from docker.errors import APIError, DockerException
from golden_text import answered_as_written

from floodmark.harness.cluster.containers import engine_client
from floodmark.harness.errors import FloodmarkError

GOOD = {"Version": "20.10.24", "ApiVersion": "1.41", "Os": "linux", "Arch": "amd64"}


class Engine(socketserver.ThreadingUnixStreamServer):
    """Answers every request with its version."""

    daemon_threads = True
    version_info = GOOD


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        body = json.dumps(self.server.version_info).encode()  # type: ignore[attr-defined]
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self.wfile.write(head.encode() + body)


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


CAUSES = {
    "permission": PermissionError(13, "Permission denied"), "time": TimeoutError("timed out"),
    "file": FileNotFoundError(2, "No such file"), "answer": APIError("500: full"), "value": ValueError("odd")}


def raise_wrapped(cause: str) -> None:
    """As urllib3 and requests raise it: the cause in `args`, and in the context."""
    try:
        raise OSError(("Connection aborted.", CAUSES[cause])) from CAUSES[cause]
    except OSError as aborted:
        raise DockerException(f"Error while fetching server API version: {aborted}") from aborted


def test_why_an_engine_cannot_be_used(
        engine: Engine, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """golden/engines.txt. A line is what the engine says of itself, in JSON, or an address, or `error`: the
    innermost error decides, because the outermost has few details."""
    socket = os.environ["DOCKER_HOST"]

    def tried(line: str) -> str:
        word, _, rest = line.partition(" ")
        monkeypatch.setenv("DOCKER_HOST", socket if word in ("engine", "error") else word)
        if word == "usual":
            monkeypatch.delenv("DOCKER_HOST")
        try:
            if word in ("usual", "error"):
                with engine_client.engine_errors():
                    raise_wrapped(rest)
            engine.version_info = {**GOOD, **json.loads(rest or "{}")}
            engine_client.connect().close()
        except FloodmarkError as error:
            return f"! {error}".replace(socket, "unix://SOCKET")
        return "= can be used"

    answered_as_written("engines.txt", tried, request)
