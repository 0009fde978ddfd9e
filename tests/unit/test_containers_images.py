"""The image from which a cluster's containers run: its base, and what to do where it cannot be built.
(Its files, and when it is built again: tests/integration/test_images.py, with an engine.)"""

import ast
import io
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from floodmark.harness.cluster.containers import images
from floodmark.harness.errors import FloodmarkError

DOCKER = Path(__file__).resolve().parents[2] / "docker"


class Engine:
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
    """A small docker/ and an empty cache; scripts that fetch wheels and fail to make a base."""
    context = tmp_path / "docker"
    for name in ("Dockerfile", "requirements.txt", "broker/__init__.py", "faults/delay.py"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).touch()
    script(context / "vendor.sh", 'echo fetched "$2" >>"$(dirname "$0")/log"; echo w >"$1/kio-1.whl"')
    script(context / "base.sh", "echo it is raining >&2; exit 1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(images.BASE_VARIABLE, raising=False)
    monkeypatch.setattr(images, "context_folder", lambda: context)
    return context


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def ignore(_: str) -> None:
    """Prints nothing."""


@pytest.mark.parametrize(
    ("present", "registry", "requested", "base"),
    [
        ((images.OFFICIAL_BASE, images.PLAIN.tag), (), None, images.OFFICIAL_BASE),
        ((images.PLAIN.tag,), (images.OFFICIAL_BASE,), None, images.PLAIN.tag),
        ((), (images.OFFICIAL_BASE,), None, images.OFFICIAL_BASE),
        ((images.OFFICIAL_BASE, "mine:1"), (), "mine:1", "mine:1"),
        ((images.OFFICIAL_BASE,), ("mine:1",), "mine:1", "mine:1"),
    ],
)
def test_the_base_is_the_requested_one_or_the_nearest(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    present: tuple[str, ...],
    registry: tuple[str, ...],
    requested: str | None,
    base: str,
) -> None:
    """The requested one; else one in the engine; else one from a registry."""
    if requested:
        monkeypatch.setenv(images.BASE_VARIABLE, requested)
    engine = Engine(*present, registry=registry)

    images.tools_image(engine, ignore)  # type: ignore[arg-type]

    assert [on for _, _, on in engine.built] == [base]


def test_a_stand_in_is_made_where_no_registry_answers(folder: Path) -> None:
    """By the script, with the expected tag."""
    engine = Engine()
    script(folder / "base.sh", f'echo "$1 $DOCKER_HOST" >"{folder}/made"')

    assert images.base_image(engine, ignore) == images.PLAIN.tag  # type: ignore[arg-type]
    assert (folder / "made").read_text().split()[0] == images.PLAIN.tag
    assert (folder / "made").read_text().split()[1].startswith("unix://")


def test_without_a_base_the_error_states_what_to_do(folder: Path) -> None:
    """Why there is no stand-in, and the two solutions."""
    messages = list[str]()
    with pytest.raises(FloodmarkError) as error:
        images.tools_image(Engine(), messages.append)  # type: ignore[arg-type]

    assert "(it is raining)" in str(error.value)
    assert "docker load" in str(error.value)
    assert f"{images.BASE_VARIABLE}=IMAGE" in str(error.value)
    assert "(no such host)" in messages[-1]


def test_a_requested_base_that_is_not_available_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other is used in its place."""
    monkeypatch.setenv(images.BASE_VARIABLE, "mine:1")

    with pytest.raises(FloodmarkError, match=r"mine:1, which FLOODMARK_BASE_IMAGE asks for.*no such host"):
        images.tools_image(Engine(images.OFFICIAL_BASE), ignore)  # type: ignore[arg-type]


def test_without_wheels_the_build_continues(folder: Path) -> None:
    """And the failure leaves no file that the next run would take for a wheel."""
    engine, messages = Engine(images.OFFICIAL_BASE), list[str]()
    script(folder / "vendor.sh", 'echo half >"$1/half.whl"; echo no index >&2; exit 1')

    images.tools_image(engine, messages.append)  # type: ignore[arg-type]

    assert not any("wheels" in name for name in engine.built[0][1])
    assert messages[0] == "wheels could not be fetched beforehand (no index): the build fetches them itself"
    assert list((folder.parent / "cache/floodmark/wheels").iterdir()) == []


def test_a_failed_build_shows_its_last_output(folder: Path) -> None:
    """The error, and the lines before it; an engine that stops meanwhile is no error of requests."""
    engine = Engine(images.OFFICIAL_BASE)
    engine.steps = lambda: iter([{"stream": "Step 2 : RUN pip\nno wheel"}, {"error": "code 1"}])
    with pytest.raises(FloodmarkError) as error:
        images.tools_image(engine, ignore)  # type: ignore[arg-type]
    assert re.fullmatch(
        r"the image floodmark-tools:\w+ could not be built on python:3.11-slim-bookworm: code 1\n"
        r"  Step 2 : RUN pip\n  no wheel", str(error.value))

    def stops() -> Iterator[dict[str, str]]:
        yield {"stream": "Step 1"}
        raise ConnectionResetError(104, "Connection reset by peer")

    engine.steps = stops
    with pytest.raises(FloodmarkError, match="Connection reset by peer"):
        images.tools_image(engine, ignore)  # type: ignore[arg-type]


def test_a_wheel_has_no_dockerfile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Containers need a checkout, and the message states that."""
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path / "broker")]})
    monkeypatch.setattr(images.importlib.util, "find_spec", lambda _: spec)

    with pytest.raises(FloodmarkError, match="containers need a checkout of floodmark"):
        images.context_folder()


# -- the real docker/ ------------------------------------------------------------------------------------


def test_a_build_by_hand_has_the_same_context() -> None:
    """.dockerignore lets through what the harness packs, and the wheels."""
    lines = (DOCKER / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line[1:] for line in lines if line.startswith("!")}

    assert let_through | {"Dockerfile"} == {*images.GOES_IN, "wheels"}


def test_requirements_are_what_the_broker_imports() -> None:
    """And what those need; at the versions of constraints.txt."""
    pins, libraries = set(pinned(DOCKER / "requirements.txt")), {"crc32c", "kio", "msgspec", "orjson"}
    imported = {
        name.split(".")[0]
        for path in (DOCKER / "broker").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in imports(node)
    }

    assert imported - set(sys.stdlib_module_names) - {"floodmark"} == libraries
    assert {pin.partition("==")[0] for pin in pins} == libraries | {"typing_extensions"}
    assert pins <= set(pinned(DOCKER.parent / "constraints.txt"))


def imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def pinned(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
