"""Finds the images that a cluster's containers run from, or builds them once.

Rules
1. An image's tag is a hash of everything in it (the files under docker/, the base image): only a change
   builds again. Older images stay; `docker image prune -a --filter label=org.floodmark.image` removes those
   that no container uses. Two runs at once build only once, by a lock in the cache folder.
2. The engine builds by its own API: neither the docker command nor BuildKit is needed. The base is
   OFFICIAL_BASE, from the engine or a registry. A machine that reaches none makes a base of Debian's packages
   (docker/base.sh; it needs Debian, root and the docker command). The broker's libraries are fetched before,
   as wheels, so that the build needs no network.
3. Everything here blocks; a caller with an event loop uses a thread.
4. The image of Apache Kafka is built from the jars on this machine, on the same base, with Debian's Java
   (docker/kafka/Dockerfile). A named image (apache/kafka:4.3.1) is used without changes. The fault tools run
   in other containers, from the tools' image.
"""

import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from docker.errors import ImageNotFound

import docker
from floodmark.harness.cluster.broker_cluster import JavaSoftware
from floodmark.harness.cluster.containers.engine_client import address, engine_errors, refusal_of
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run_location import temporary_folder
from floodmark.harness.user_cache import cache_folder, one_at_a_time

OFFICIAL_BASE = "python:3.11-slim-bookworm"
BASE_VARIABLE = "FLOODMARK_BASE_IMAGE"
DOCKERFILE = "Dockerfile"
ARCHIVE_SCRIPT = Path(__file__).parents[1] / "kafka" / "class_archive.sh"
GOES_IN = ("Dockerfile", "requirements.txt", "broker", "faults")  # wheels follow from requirements.txt

JAVA = 17  # of Debian 12
BASE_S = 300
WHEELS_S = 120
_PULL_TIMEOUT_S = 300.0
_STEP_TIMEOUT_S = 600  # for one step of a build without any output

Say = Callable[[str], None]
Files = Mapping[str, tuple[bytes, bool]]  # name in the context -> content, and whether it is executable


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A base that docker/base.sh makes: its tag, and additional packages of Debian. It has no apt."""

    tag: str
    packages: tuple[str, ...] = ()


PLAIN = StandIn(tag="floodmark-base:1")
WITH_JAVA = StandIn(tag="floodmark-base-java:1", packages=(f"openjdk-{JAVA}-jre-headless",))


def tools_image(client: docker.DockerClient, say: Say, target: str = "tools") -> str:
    """The tag of the image with broker and fault tools; target broker: with the broker alone. What is missing
    is built, with progress to `say`."""
    folder = context_folder()
    return built(client, target, context_files(folder), say, besides=lambda: wheels(client, folder, say))


def context_folder() -> Path:
    """The folder docker/ of a checkout, found by the package `broker`. FloodmarkError without a checkout."""
    found = importlib.util.find_spec("floodmark.broker")
    places = list(found.submodule_search_locations or ()) if found else []
    for place in places:
        folder = Path(place).resolve().parent
        if (folder / DOCKERFILE).is_file():
            return folder
    raise FloodmarkError(
        "containers need a checkout of floodmark: there is no Dockerfile beside the package `broker` "
        f"({places[0] if places else 'which is not installed'}); in a checkout: pip install -e .")


def context_files(folder: Path) -> Files:
    files: dict[str, tuple[bytes, bool]] = {}
    for top in (folder / name for name in GOES_IN):
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            inside = path.relative_to(folder)
            hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
            if path.is_file() and not hidden:
                files[inside.as_posix()] = path.read_bytes(), os.access(path, os.X_OK)
    return files


def tag_of(files: Files, base_id: str) -> str:
    digest = hashlib.sha256(base_id.encode())
    for name, (content, program) in sorted(files.items()):
        digest.update(f"\0{name}\0{program}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def built(client: docker.DockerClient, target: str, files: Files, say: Say, *, stand_in: StandIn = PLAIN,
          besides: Callable[[], Files] = dict) -> str:
    """Found or built as floodmark-TARGET. besides: makes further files for the build, by these."""
    with engine_errors("images: "):
        if found := found_image(client, target, files, stand_in):
            return found
        with one_at_a_time(cache_folder() / "images.lock", "building the images", say):
            base = base_image(client, say, stand_in)
            name = _name(client, target, files, base)
            if not _id(client, name):  # another run may have built it meanwhile
                context = _packed({**files, **besides()})
                say(f"building the image {name} on {base}: once, about half a minute")
                _build(client, context, base=base, target=target, name=name)
    return name


def found_image(client: docker.DockerClient, target: str, files: Files | None = None,
                stand_in: StandIn = PLAIN) -> str | None:
    """The image of this target for these files, or the present ones, if the engine has it."""
    base = found_base(client, stand_in)
    name = base and _name(client, target, context_files(context_folder()) if files is None else files, base)
    return name if name and _id(client, name) else None


def _name(client: docker.DockerClient, target: str, files: Files, base: str) -> str:
    return f"floodmark-{target}:{tag_of(files, _id(client, base) or '')}"


def _id(client: docker.DockerClient, name: str) -> str | None:
    try:
        return str(client.images.get(name).id)
    except ImageNotFound:
        return None


def base_image(client: docker.DockerClient, say: Say, stand_in: StandIn = PLAIN) -> str:
    if found := found_base(client, stand_in):
        return found
    wanted = os.environ.get(BASE_VARIABLE) or OFFICIAL_BASE
    if (why := _pull(client, wanted, say)) is None:
        return wanted
    if os.environ.get(BASE_VARIABLE):
        raise FloodmarkError(
            f"the image {wanted}, which {BASE_VARIABLE} asks for, is not in the engine, and no registry "
            f"has it ({why}): load it (docker load), or unset {BASE_VARIABLE}")
    say(f"{wanted} is not available ({why}); making {stand_in.tag} of Debian's packages instead: once, 20 s")
    if (why := make_stand_in(context_folder() / "base.sh", stand_in)) is None:
        return stand_in.tag
    raise FloodmarkError(
        f"there is no base image: {wanted} is not in the engine, no registry has it, and no stand-in can "
        f"be made ({why}). Load it (docker load), or name one there with Python 3.11: {BASE_VARIABLE}=IMAGE")


def _pull(client: docker.DockerClient, image: str, say: Say) -> str | None:
    """None, or why no registry has it."""
    say(f"fetching the image {image}")
    return refusal_of(lambda: client.images.pull(image), _PULL_TIMEOUT_S)


def found_base(client: docker.DockerClient, stand_in: StandIn = PLAIN) -> str | None:
    """A stand-in is used even if a registry has the base now, or the images would be built again."""
    wanted = os.environ.get(BASE_VARIABLE)
    names = (wanted,) if wanted else (OFFICIAL_BASE, stand_in.tag)
    return next((name for name in names if _id(client, name)), None)


def _packed(files: Files) -> io.BytesIO:
    """The same files give the same bytes, so that the engine can use its cache."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, (content, program) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if program else 0o644
            tar.addfile(entry, io.BytesIO(content))
    packed.seek(0)
    return packed


def _build(client: docker.DockerClient, context: io.BytesIO, *, base: str, target: str, name: str) -> None:
    said: deque[str] = deque(maxlen=15)
    for step in client.api.build(
            fileobj=context, custom_context=True, target=target, tag=name, buildargs={"BASE_IMAGE": base},
            rm=True, forcerm=True, decode=True, timeout=_STEP_TIMEOUT_S):
        said.extend(f"  {line}" for line in str(step.get("stream", "")).splitlines() if line.strip())
        if "error" in step:
            raise FloodmarkError("\n".join((
                f"the image {name} could not be built on {base}: {str(step['error']).strip()}", *said)))


def image_of(client: docker.DockerClient, software: JavaSoftware, say: Say) -> str:
    """The tag of the image with this software. It is fetched or built if missing, with progress to `say`."""
    if (name := software.image) is not None:
        with engine_errors("images: "):
            why = None if _id(client, name) else _pull(client, name, say)
        if why is None:
            return name
        raise FloodmarkError(
            f"the image {name} is not in the engine, and no registry has it ({why}): load it (docker load), "
            f"or have one built from Kafka's jars: --kafka {software.version}")
    if software.needs_java > JAVA:
        raise FloodmarkError(f"Kafka {software.version} needs Java {software.needs_java}, and the image is "
                             f"built with Java {JAVA}: run it with --cluster local")
    folder = context_folder() / "kafka"
    files = {DOCKERFILE: ((folder / DOCKERFILE).read_bytes(), False),
             ARCHIVE_SCRIPT.name: (ARCHIVE_SCRIPT.read_bytes(), True)}
    files |= {f"libs/{jar.name}": (jar.read_bytes(), False) for jar in software.jars}
    return built(client, "kafka", files, say, stand_in=WITH_JAVA)


# -- without a registry --------------------------------------------------------------------------------------


def can_make_stand_in() -> bool:
    return all(map(shutil.which, ("apt-get", "docker"))) and os.getuid() == 0


def make_stand_in(script: Path, stand_in: StandIn) -> str | None:
    """Returns None, or why that failed."""
    return _failure([script, stand_in.tag, *stand_in.packages], {"DOCKER_HOST": address()}, BASE_S)


def wheels(client: docker.DockerClient, folder: Path, say: Callable[[str], None]
           ) -> dict[str, tuple[bytes, bool]]:
    """The broker's libraries for the engine's machine; none: the build gets them from the package index."""
    vendored = folder / "wheels"
    if not any(vendored.glob("*.whl")):
        machine = str(client.version().get("Arch", ""))
        wanted = hashlib.sha256((folder / "requirements.txt").read_bytes()).hexdigest()[:12]
        vendored = cache_folder() / "wheels" / f"{wanted}-{machine}"
        if not vendored.is_dir():
            vendored.parent.mkdir(parents=True, exist_ok=True)
            with temporary_folder(".fetching-", vendored.parent) as scratch:
                why = _failure([folder / "vendor.sh", scratch, machine], {"PYTHON": sys.executable}, WHEELS_S)
                if why is not None:
                    say(f"wheels could not be fetched beforehand ({why}): the build fetches them itself")
                    return {}
                scratch.rename(vendored)
    return {f"wheels/{wheel.name}": (wheel.read_bytes(), False) for wheel in sorted(vendored.glob("*.whl"))}


def _failure(argv: list[str | Path], environment: dict[str, str], timeout_s: float) -> str | None:
    """Runs a script; returns None, or why it failed: its last line."""
    try:
        ran = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                             env={**os.environ, **environment}, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = ran.stderr.strip().splitlines() or ["it printed nothing"]
    return lines[-1] if ran.returncode else None
