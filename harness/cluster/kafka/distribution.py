"""Finds the Apache Kafka to run, by a version or a folder: its jars, and the Java to run them.

Rules
1. A string that begins like a version (4.3.1) is a version. One that ends in a colon and a version, as an
   image's name does (apache/kafka:4.3.1), is an image, which runs only in containers. Any other, such as
   ./4.3.1, is a folder.
2. The jars of a version come from the cache (jars.py), which verifies their checksums every time. A folder is
   used without such a check.
3. What is known to be missing (Java and its version, a Python package) is told before anything is fetched.
   The needed Java version is read from the jars too, from the class that will be started.
4. For an image the jars of its version are fetched too: folders are formatted on this machine.
"""

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from floodmark.harness.cluster.kafka import jars
from floodmark.harness.cluster.place import JavaSoftware
from floodmark.harness.errors import FloodmarkError, UsageError

Form = Literal["zookeeper", "kraft"]
Say = Callable[[str], None]

JAVA_TIMEOUT_S = 30.0
_OLDEST = (2, 4)
FIRST_TRACED = (2, 8)  # kafka_trace.py knows the log lines since then
_FIRST_KRAFT = (3, 3)  # the first release with KRaft declared ready for production
_VERSION = re.compile(r"\d+\.\d+(\.\d+)*([.-][0-9A-Za-z]+)*")
_IMAGE = re.compile(rf"[a-z0-9][a-z0-9._/:-]*:{_VERSION.pattern}")
_KAFKA_JAR = re.compile(r"(?P<name>(kafka|connect|trogdor)(-[a-z0-9]+)*(_2\.\d+)?)-(?P<version>\d.*)")
_CORE = re.compile(r"kafka_2\.\d+")  # the artifact with the broker; the number is Scala's version
_CLASSIFIERS = re.compile(r"-(sources|javadoc|scaladoc|test|test-sources)$")
_MAIN_CLASS = "kafka/Kafka.class"
_JAVA_OF_4 = 17  # Kafka 4.0 and newer (KIP-1013)
_JAVA_1_OF_CLASSES = 44  # a class file's major version is Java's and 44


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution(JavaSoftware):
    """One Apache Kafka, ready to be started: `java -cp CLASSPATH kafka.Kafka FILE`."""

    form: Form

    @property
    def classpath(self) -> str:
        return os.pathsep.join(map(str, self.jars))


def distribution(version_or_dir: str, say: Say = lambda line: None) -> Distribution:
    """A version that is not in the cache is fetched first, with progress to `say`. UsageError for a version
    or a folder that does not exist; FloodmarkError for what this machine or the folder lacks."""
    java = find_java()
    version, paths = named(version_or_dir)
    form = form_of(version)
    java_is = java_version(java)
    _refuse_old_java(java, java_is, version, _JAVA_OF_4 if re.fullmatch(r"4[.\d]+", version) else 0)
    if form == "zookeeper" and find_spec("kazoo") is None:
        raise FloodmarkError(f"Kafka {version} needs ZooKeeper, and for that the Python package kazoo: "
                             "pip install 'floodmark[kafka]'")
    paths = paths or jars.get(version, say)
    if refused := [path for path in paths if os.pathsep in str(path)]:
        raise FloodmarkError(f"{refused[0]} cannot be on a class path, because its name contains "
                             f"{os.pathsep}: move it elsewhere")
    if form == "zookeeper" and not any(path.name.startswith("zookeeper-") for path in paths):
        raise FloodmarkError(f"Kafka {version} needs ZooKeeper, and {paths[0].parent} has no "
                             f"zookeeper-*.jar: unpack the distribution again")
    needed = needed_java(paths)
    _refuse_old_java(java, java_is, version, needed)
    return Distribution(version=version, form=form, jars=paths, java=java, needs_java=needed,
                        image=version_or_dir if is_image(version_or_dir) else None)


def named(version_or_dir: str) -> tuple[str, tuple[Path, ...]]:
    """The version, and the jars of an unpacked folder. UsageError for a version that is too old."""
    word = version_of(version_or_dir) if is_image(version_or_dir) else version_or_dir
    version, paths = (word, ()) if is_version(word) else _unpacked(Path(word))
    if release_of(version) < _OLDEST:
        raise UsageError(f"Kafka {version} is too old: floodmark goes down to 2.8, the oldest from whose log "
                         "a trace is made; 2.4 to 2.7 run without a trace; older ones are published for "
                         "Scala 2.12 only, and floodmark fetches those for 2.13")
    return version, paths


def is_version(word: str) -> bool:
    return _VERSION.fullmatch(word) is not None


def is_image(word: str) -> bool:
    return _IMAGE.fullmatch(word) is not None


def version_of(word: str) -> str:
    """The version of an image (behind the colon), or of a version itself."""
    return word.rpartition(":")[2]


def form_of(version: str) -> Form:
    return "zookeeper" if release_of(version) < _FIRST_KRAFT else "kraft"


def release_of(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _unpacked(folder: Path) -> tuple[str, tuple[Path, ...]]:
    if not folder.is_dir():
        raise UsageError(f"{folder} is neither a version of Kafka nor a folder: give a version, such as "
                         f"{jars.tested()[-1]}, or the folder of an unpacked distribution")
    paths = tuple(sorted(folder.absolute().glob("libs/*.jar")))
    versions: dict[str, set[str]] = {}  # of each of Kafka's artifacts
    for path in paths:
        if match := _KAFKA_JAR.fullmatch(_CLASSIFIERS.sub("", path.stem)):
            versions.setdefault(match["name"], set()).add(match["version"])
    cores = sorted(name for name in versions if _CORE.fullmatch(name))
    if not cores:
        raise FloodmarkError(f"{folder} is no unpacked distribution of Kafka: it has no "
                             f"libs/kafka_2.*.jar: give the folder that kafka_2.13-VERSION.tgz unpacks to")
    distinct = sorted({version for found in versions.values() for version in found})
    if mixed := next((names for names in (distinct, cores) if len(names) > 1), None):
        raise FloodmarkError(f"{folder}/libs mixes jars of {' and '.join(mixed)}: unpack one distribution of "
                             f"Kafka into a new folder, and give that")
    if not is_version(distinct[0]):
        raise FloodmarkError(f"{folder}/libs has jars of Kafka {distinct[0]}, which is no version")
    return distinct[0], paths


def find_java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(Path(home) / "bin" / "java" if home else "java")
    if found is None:
        where = f"JAVA_HOME is {home}, and has no bin/java" if home else "no java is on the PATH"
        raise FloodmarkError(f"Apache Kafka needs Java, and {where}: install one (Debian: apt-get install "
                             f"openjdk-17-jre-headless), or set JAVA_HOME")
    return Path(found)


def java_version(java: Path) -> int:
    """The major version of that Java: 17 for 17.0.15, 8 for 1.8.0_402."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S,
                              check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FloodmarkError(f"{java} -version cannot be run ({error}): install another Java, or set "
                             f"JAVA_HOME") from error
    match = re.search(r'version "(?:1\.)?(\d+)', printed.stderr + printed.stdout)
    if match is None:
        raise FloodmarkError(f"{java} -version names no version: install another Java, or set JAVA_HOME")
    return int(match[1])


def needed_java(paths: tuple[Path, ...]) -> int:
    core = next(path for path in paths if _CORE.match(path.name) and not _CLASSIFIERS.search(path.stem))
    try:
        with zipfile.ZipFile(core) as archive, archive.open(_MAIN_CLASS) as file:
            head = file.read(8)  # the magic, the minor version, the major version
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise FloodmarkError(f"{core} cannot be read ({error}): get that distribution again") from error
    return int.from_bytes(head[6:8], "big") - _JAVA_1_OF_CLASSES


def _refuse_old_java(java: Path, found: int, version: str, needed: int) -> None:
    if found < needed:
        raise FloodmarkError(f"Kafka {version} needs Java {needed} or newer, and {java} is Java {found}: "
                             f"install a newer one (Debian: apt-get install openjdk-17-jre-headless), or set "
                             f"JAVA_HOME")
