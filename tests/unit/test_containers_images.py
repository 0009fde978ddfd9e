"""The image from which a cluster's containers run: its base, and what to do where it cannot be built.
(Its files, and when it is built again: tests/integration/test_images.py, with an engine.)"""

import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound
from golden_text import answered_as_written

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
    engine, said = Engine(*given.get("present", ()), registry=given.get("registry", ())), list[str]()
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
