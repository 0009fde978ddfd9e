"""Describes this machine's container engine, and which of our images it has; nothing is built or fetched.

Everything here blocks; a caller with an event loop uses a thread.
"""

import os
import shutil
import threading
from dataclasses import dataclass

from docker.errors import DockerException

import docker
from floodmark.harness.cluster.containers.engine_client import engine_errors
from floodmark.harness.cluster.containers.images import (
    BASE_VARIABLE,
    OFFICIAL_BASE,
    found_base,
    found_image,
)

REGISTRY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    name: str  # and version
    storage: str  # the storage driver, and the version of control groups
    tools: str | None  # the image that clusters run from; None: it is not built
    base: str | None  # the image it is built on; None: it is not in the engine
    wanted_base: str  # the name of the base image to use
    base_available: bool | None  # whether it can be fetched or made; None: not asked
    base_why_not: str = ""  # the registry's answer


def facts(client: docker.DockerClient) -> Facts:
    """The facts. A registry is asked only if the base image is missing; it has REGISTRY_S to answer."""
    with engine_errors():
        about, version = client.info(), client.version()
        base = found_base(client)
        wanted = base or os.environ.get(BASE_VARIABLE) or OFFICIAL_BASE
        said = None if base else _registry(client, wanted)
        return Facts(
            name=f"Docker {version.get('Version', '?')}, API {version.get('ApiVersion', '?')}",
            storage=f"{about.get('Driver', '?')}, control groups v{about.get('CgroupVersion', '1')}",
            tools=found_image(client, "tools"),
            base=base,
            wanted_base=wanted,
            base_available=None if base else said is None or _can_make_stand_in(),
            base_why_not=said or "",
        )


def _can_make_stand_in() -> bool:
    """Whether docker/base.sh has what it needs."""
    programs = all(map(shutil.which, ("apt-get", "docker")))
    return programs and os.getuid() == 0 and not os.environ.get(BASE_VARIABLE)


def _registry(client: docker.DockerClient, name: str) -> str | None:
    """Why the registry does not have the image; None: it has."""
    answers: list[str | None] = []

    def ask() -> None:
        try:
            client.images.get_registry_data(name)
            answers.append(None)
        except (DockerException, OSError) as error:
            answers.append(str(getattr(error, "explanation", None) or error).strip())

    asking = threading.Thread(target=ask, name="ask the registry", daemon=True)
    asking.start()
    asking.join(REGISTRY_S)
    return answers[0] if answers else f"no answer in {REGISTRY_S:g} s"
