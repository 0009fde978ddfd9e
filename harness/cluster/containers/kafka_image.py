"""Finds or builds the image that Apache Kafka's processes run from in containers.

Rules
1. The image is built from the jars on this machine (kafka/distribution.py), on the base of the reference
   broker's image, with Debian's Java (docker/kafka/Dockerfile). Its tag is a hash of their content.
2. The stand-in for that base has no apt, so there is a second stand-in with Java for this image.
3. A named image (apache/kafka:4.3.1) is used without changes: its jars are in /opt/kafka/libs, java is on its
   PATH. The fault tools run in other containers, from the tools' image.
"""

from pathlib import Path

import docker
from floodmark.harness.cluster.containers import images
from floodmark.harness.cluster.containers.engine_client import engine_errors
from floodmark.harness.cluster.system import JavaSoftware
from floodmark.harness.errors import FloodmarkError

DOCKERFILE = "Dockerfile"
ARCHIVE_SCRIPT = Path(__file__).parents[1] / "kafka" / "class_archive.sh"
JAVA = 17  # of Debian 12
STAND_IN = images.StandIn(tag="floodmark-base-java:1", packages=(f"openjdk-{JAVA}-jre-headless",))


def image_of(client: docker.DockerClient, software: JavaSoftware, say: images.Say) -> str:
    """The tag of the image with this software. It is fetched or built if missing, with progress to `say`."""
    if software.image is not None:
        return _named(client, software.image, say)
    if software.needs_java > JAVA:
        raise FloodmarkError(f"Kafka {software.version} needs Java {software.needs_java}, and the image is "
                             f"built with Java {JAVA}: run it with --cluster local")
    folder = images.context_folder() / "kafka"
    files = {DOCKERFILE: ((folder / DOCKERFILE).read_bytes(), False),
             ARCHIVE_SCRIPT.name: (ARCHIVE_SCRIPT.read_bytes(), True)}
    files |= {f"libs/{jar.name}": (jar.read_bytes(), False) for jar in software.jars}
    return images.built(client, "kafka", files, say, stand_in=STAND_IN)


def _named(client: docker.DockerClient, name: str, say: images.Say) -> str:
    with engine_errors("images: "):
        if images.is_there(client, name):
            return name
        say(f"fetching the image {name}")
        why = images.pull(client, name)
        if why is None:
            return name
    version = name.rpartition(":")[2]
    raise FloodmarkError(f"the image {name} is not in the engine, and no registry has it ({why}): load it "
                         f"(docker load), or have one built from Kafka's jars: --kafka {version}")
