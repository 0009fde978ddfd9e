"""What an engine is asked before a cluster: why it cannot be used, which base the containers' image has, or
why none, and which faults it offers. (A real one: tests/integration/test_images.py, test_doctor.py.)"""

import io
import json
import os
import re
import shutil
import socketserver
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, DockerException, ImageNotFound
from golden_text import answered_as_written

from floodmark.harness.cluster.containers import ability_probe, engine_client, images
from floodmark.harness.cluster.containers.ability_probe import LIMIT, NAMES, abilities_of, offers
from floodmark.harness.errors import FloodmarkError

DOCKER = Path(__file__).resolve().parents[2] / "docker"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
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


# -- the image ---------------------------------------------------------------------------------------------


class Client:
    """The parts of a client that the module uses: images by name, a registry, a builder, a version."""

    def __init__(self, *present: str, registry: tuple[str, ...] = ()) -> None:
        self.present = {name: f"sha256:{name}" for name in present}
        self.registry = registry
        self.built: list[tuple[str, list[str], str]] = []  # tag, files of the context, base
        self.steps: Callable[[], Iterator[dict[str, str]]] = lambda: iter([{"stream": "Step 1\n"}])
        self.images = self
        self.api = self

    def get(self, name: str) -> Any:
        if name not in self.present:
            raise ImageNotFound(name)
        return type("Image", (), {"id": self.present[name]})

    def pull(self, name: str) -> None:
        if name not in self.registry:
            raise APIError("500", explanation="no such host")
        self.present[name] = f"sha256:{name}"

    def version(self) -> dict[str, str]:
        return {"Arch": "amd64"}

    def build(self, *, fileobj: io.BytesIO, tag: str, buildargs: dict[str, str], **_: Any) -> Any:
        with tarfile.open(fileobj=fileobj) as tar:
            self.built.append((tag, tar.getnames(), buildargs["BASE_IMAGE"]))
        yield from self.steps()
        self.present[tag] = f"sha256:{tag}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small docker/ and an empty cache."""
    context = tmp_path / "docker"
    for name in ("Dockerfile", "requirements.txt", "broker/__init__.py", "faults/delay.py"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).touch()
    monkeypatch.setenv("DOCKER_HOST", "unix:///engine.sock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "context_folder", lambda: context)
    return context


USUAL = {"vendor": 'echo w >"$1/kio-1.whl"', "base": "echo it is raining >&2; exit 1"}


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def what_is_built(folder: Path, patch: pytest.MonkeyPatch, line: str) -> str:
    """JSON: the images that are present, those of the registry, the base that is asked for, what the scripts
    and the build's steps do. The base and the wheels of the build, and what is said; or why there is none."""
    given = json.loads(line)
    patch.setenv(images.BASE_VARIABLE, given.get("asked", ""))
    for name in ("base", "vendor"):
        script(folder / f"{name}.sh", given.get(name, USUAL[name]))
    shutil.rmtree(folder.parent / "cache", ignore_errors=True)
    (folder / "made").unlink(missing_ok=True)
    engine, said = Client(*given.get("present", ()), registry=given.get("registry", ())), list[str]()
    engine.present |= {images.PLAIN.tag: "made"} if given.get("plain") else {}

    def steps() -> Iterator[dict[str, str]]:
        yield from given.get("steps", ())
        if "stops" in given:
            raise ConnectionResetError(104, given["stops"])

    engine.steps = steps
    try:
        images.tools_image(engine, said.append)  # type: ignore[arg-type]
        ((_, files, base),) = engine.built
        told = f"= on {base} with {len([name for name in files if name.endswith('.whl')])} wheel"
    except FloodmarkError as error:
        told = f"! {error}"
    said += [f"kept {path.name}" for path in (folder.parent / "cache").rglob("*.whl") if " 0 wheel" in told]
    said += [path.read_text().strip() for path in folder.glob("made")]
    told = "\n".join([told, *(f"= {one}" for one in said if not one.startswith("building the image"))])
    return re.sub(r"tools:\w+", "tools:TAG", told.replace(images.PLAIN.tag, "PLAIN")).replace("\n  ", " | ")


def test_which_base_an_image_is_built_on_or_why_none_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The one that is asked for, and no other; else one in the engine, else one of a registry, else a
    stand-in that the script makes. Wheels that cannot be fetched beforehand are the build's concern."""
    answered_as_written("images.txt", lambda line: what_is_built(folder, monkeypatch, line), request)


def test_a_wheel_has_no_dockerfile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Containers need a checkout, and the message states that."""
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path / "broker")]})
    monkeypatch.setattr(images.importlib.util, "find_spec", lambda _: spec)

    with pytest.raises(FloodmarkError, match="containers need a checkout of floodmark"):
        images.context_folder()


def test_requirements_are_pinned_as_everything_else() -> None:
    """That they are all that the broker needs, its image proves."""
    def pinned(path: Path) -> set[str]:
        return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}

    assert pinned(DOCKER / "requirements.txt") <= pinned(DOCKER.parent / "constraints.txt")


# -- what it can ------------------------------------------------------------------------------------------


def network(*, folder_seen: bool = True, seen: dict[str, Any] | None = None, **errors: str) -> dict[str, Any]:
    """An answer in which everything works except what is given."""
    names = ("cut", "reset", "loss", "netem", "queue", "clock")
    return {
        "can": {name: errors.get(name) for name in names},
        "seen": {"boot_id": BOOT_ID, "memory_limit": LIMIT, "monotonic_ns": 15, **(seen or {})},
        "folder_seen": folder_seen,
        "between_ns": (10, 20),
    }


def disks(**errors: str) -> dict[str, Any]:
    names = {"loops": "loops", "power_cut": "power_cut", "read_only": "read-only"}
    return {"can": {name: errors.get(word) for word, name in names.items()}, "seen": {}}


def meaning(line: str) -> str:
    """Which nemeses are offered, by what means, and what is missing, why, and what to do."""
    if line == "refused":
        answers: dict[str, Any] = {"refused": "rootless"}
        found = abilities_of({**answers, "folder_seen": False, "between_ns": (10, 20)}, answers)
    else:
        given = json.loads(line)
        of_disks = {name: given.pop(name) for name in ("loops", "power_cut", "read_only") if name in given}
        if given.get("seen", {}).get("memory_limit"):
            given["seen"]["memory_limit"] += LIMIT
        found = abilities_of(network(**given), disks(**of_disks))
    assert tuple(found) == NAMES
    means = [f"{name} by {one.how}" for name, one in found.items() if one.can and one.how]
    return "\n".join([
        f"= {'; '.join([', '.join(sorted(offers(found))) or 'nothing', *means])}",
        *(f"! {name}: {one.why} -> {one.todo}" for name, one in found.items() if not one.can)])


def test_what_the_answers_mean(request: pytest.FixtureRequest) -> None:
    answered_as_written("abilities.txt", meaning, request)


# -- the cache -----------------------------------------------------------------------------------------------


def test_abilities_are_cached_for_the_same_engine_alone(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not if a loop device is missing, because other runs may have used them all. An unreadable cache is
    ignored: half a file, or one of a version with other names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "floodmark" / "abilities.json"
    ability_probe._cache("this", abilities_of(network(), disks(loops="no device")))
    assert not file.exists()
    found = abilities_of(network(netem="unknown", reset="no REJECT"), disks())
    ability_probe._cache("this", found)
    assert ability_probe._cached("this") == found
    assert ability_probe._cached("that") is None
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    for text in ("", "{", "[]", '{"key": "this"}', '{"key": "this", "abilities": {"flying": {"can": true}}}',
                 '{"key": "this", "abilities": {"cut": {"may": true}}}'):
        file.write_text(text)
        assert ability_probe._cached("this") is None
