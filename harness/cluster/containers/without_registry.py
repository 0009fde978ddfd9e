"""What the images are built from on a machine that reaches no registry of containers: a base image made of
Debian's packages (docker/base.sh; it needs Debian, root and the docker command), and the broker's libraries
as wheels, so that the build needs no network.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import docker
from floodmark.harness.cluster.containers.engine_client import address
from floodmark.harness.run_location import temporary_folder
from floodmark.harness.user_cache import cache_folder

JAVA = 17  # of Debian 12
BASE_S = 300
WHEELS_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A base that docker/base.sh makes: its tag, and additional packages of Debian. It has no apt."""

    tag: str
    packages: tuple[str, ...] = ()


PLAIN = StandIn(tag="floodmark-base:1")
WITH_JAVA = StandIn(tag="floodmark-base-java:1", packages=(f"openjdk-{JAVA}-jre-headless",))


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
