"""Finds the Apache Kafka to run, by a version or a folder: its jars, which Maven puts into the user's cache,
the Java to run them, and a class-data archive (Java's AppCDS), with which it starts quicker.

    CACHE/floodmark/kafka/4.3.1/manifest.json        the SHA-256 of each jar
                                libs/*.jar
                          archives/4.3.1-KEY.jsa     45 MB

Rules
1. A string that begins like a version (4.3.1) is a version. One that ends in a colon and a version, as an
   image's name does (apache/kafka:4.3.1), is an image, which runs only in containers. Any other, such as
   ./4.3.1, is a folder.
2. What is known to be missing (Java and its version, a Python package) is told before anything is fetched.
   The needed Java version is read from the jars too, from the class that will be started.
3. For an image the jars of its version are fetched too: folders are formatted on this machine.
4. A version's folder, or an archive, gets its name when it is complete: a killed download leaves a folder of
   another name. Only one download runs at a time, by a lock that ends with its process. Waiting processes
   find the jars then.
5. The checksums of cached jars are verified at every use. A version with a wrong one is fetched again, with a
   message. A cached version needs neither Maven nor a network. A folder is used without such a check.
6. An archive's KEY is a hash of the Java, the class path, and each jar's size and time: with any other, Java
   would ignore the archive. Only the newest few are kept.
7. An archive that is missing is made before the first cluster starts (class_archive.sh, some seconds), once:
   one process makes it, others start without it meanwhile. If it fails it leaves a note, and is not tried
   again until `floodmark kafka get` asks for it. Kafka starts without an archive too. The image of Apache
   Kafka for containers has one of its own (docker/kafka/Dockerfile).
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from select import select
from typing import Literal
from xml.etree import ElementTree

from floodmark.harness import user_cache
from floodmark.harness.cluster.broker_cluster import JavaSoftware
from floodmark.harness.cluster.layout import Ports
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.run_location import temporary_folder

MetadataMode = Literal["zookeeper", "kraft"]
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

    mode: MetadataMode

    @property
    def classpath(self) -> str:
        return os.pathsep.join(map(str, self.jars))


def distribution(version_or_dir: str, say: Say = lambda line: None) -> Distribution:
    """A version that is not in the cache is fetched first, with progress to `say`. UsageError for a version
    or a folder that does not exist; FloodmarkError for what this machine or the folder lacks."""
    java = find_java()
    version, paths = named(version_or_dir)
    mode = mode_of(version)
    java_is = java_version(java)
    _refuse_old_java(java, java_is, version, _JAVA_OF_4 if re.fullmatch(r"4[.\d]+", version) else 0)
    if mode == "zookeeper" and find_spec("kazoo") is None:
        raise FloodmarkError(f"Kafka {version} needs ZooKeeper, and for that the Python package kazoo: "
                             "pip install 'floodmark[kafka]'")
    paths = paths or get_jars(version, say)
    if refused := [path for path in paths if os.pathsep in str(path)]:
        raise FloodmarkError(f"{refused[0]} cannot be on a class path, because its name contains "
                             f"{os.pathsep}: move it elsewhere")
    if mode == "zookeeper" and not any(path.name.startswith("zookeeper-") for path in paths):
        raise FloodmarkError(f"Kafka {version} needs ZooKeeper, and {paths[0].parent} has no "
                             f"zookeeper-*.jar: unpack the distribution again")
    needed = needed_java(paths)
    _refuse_old_java(java, java_is, version, needed)
    return Distribution(version=version, mode=mode, jars=paths, java=java, needs_java=needed,
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


def mode_of(version: str) -> MetadataMode:
    return "zookeeper" if release_of(version) < _FIRST_KRAFT else "kraft"


def release_of(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _unpacked(folder: Path) -> tuple[str, tuple[Path, ...]]:
    if not folder.is_dir():
        raise UsageError(f"{folder} is neither a version of Kafka nor a folder: give a version, such as "
                         f"{versions_tested()[-1]}, or the folder of an unpacked distribution")
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


# -- jars --------------------------------------------------------------------------------------------------

POM = Path(__file__).with_name("pom.xml")
SILENCE_S = 120.0  # how long Maven may print nothing
PROGRESS_EVERY_S = 3.0
MANIFEST = "manifest.json"
_COMING = ".coming-"
_TESTED = "tested."  # begins the names of those properties
_COPY = ("org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies", "-DincludeScope=runtime")
_DOWNLOADED = re.compile(r"Downloaded from \S+ \S+ \((?P<size>[\d.]+) (?P<unit>[kMG]?B)")
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_NO_ARTIFACT = re.compile(r"(?:Could not find artifact|Failure to find) "
                          r"(?P<artifact>org\.apache\.kafka:[^: ]+):\S*?:(?P<version>[^: ]+)[ ,]")
_NO_NETWORK = re.compile(r"Could not transfer (?:artifact|metadata) \S+ from/to \S+ \((?P<url>[^)]+)\)")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def get_jars(version: str, say: Say) -> tuple[Path, ...]:
    """The jars of a version, in order of their names; fetched if they are not complete. UsageError if the
    version does not exist; FloodmarkError if it cannot be fetched."""
    folder = cache_folder() / version
    if (found := _cached(folder, say)) is not None:
        return found
    # All share Maven's own cache.
    with user_cache.one_at_a_time(folder.parent / ".lock", "fetching jars of Kafka", say):
        found = _cached(folder, say)  # another process may have fetched them meanwhile
        if found is None:
            _fetch(folder, version, say)
            found = _cached(folder, say)
    if found is None:
        raise FloodmarkError(f"the jars that were just put into {folder} are damaged: is the disk sound?")
    return found


def versions_tested() -> tuple[str, ...]:
    names = ((entry.tag.rpartition("}")[2], entry.text) for entry in _pom().iter())
    return tuple(text for name, text in names if name.startswith(_TESTED) and text)


def cache_folder() -> Path:
    return user_cache.cache_folder() / "kafka"


def _cached(folder: Path, say: Say) -> tuple[Path, ...] | None:
    """The jars of this folder if all checksums are right; else None."""
    try:
        sums = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        paths = tuple(folder / "libs" / name for name in sorted(sums))
        for path in paths:
            if sha256(path) != sums[path.name]:
                say(f"{path} has a wrong checksum: Kafka {folder.name} is fetched again")
                return None
    except FileNotFoundError as error:
        if folder.exists():
            say(f"{error.filename} is missing: Kafka {folder.name} is fetched again")
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        say(f"{folder} cannot be used ({error}): Kafka {folder.name} is fetched again")
        return None
    return paths


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(folder: Path, version: str, say: Say) -> None:
    """The caller has the lock: unfinished folders belong to no process and are removed."""
    for left in folder.parent.glob(f"{_COMING}*"):
        shutil.rmtree(left, ignore_errors=True)
    coming = folder.parent / f"{_COMING}{secrets.token_hex(8)}"
    try:
        (coming / "libs").mkdir(parents=True)
        _copy_jars(version, coming / "libs", say)
        sums = {path.name: sha256(path) for path in sorted((coming / "libs").glob("*.jar"))}
        if f"kafka_2.13-{version}.jar" not in sums:
            raise FloodmarkError(f"Maven gave no kafka_2.13-{version}.jar, though it reported no error: try "
                                 f"again, or give the folder of an unpacked distribution")
        text = json.dumps({"version": version, "sha256": sums}, indent=1)
        (coming / MANIFEST).write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        coming.rename(folder)
    except OSError as error:
        raise FloodmarkError(f"Kafka {version} cannot be stored in {folder} ({error}): make room there, or "
                             f"set XDG_CACHE_HOME elsewhere") from error
    finally:
        shutil.rmtree(coming, ignore_errors=True)


def _copy_jars(version: str, target: Path, say: Say) -> None:
    if (maven := shutil.which("mvn")) is None:
        raise FloodmarkError(f"the jars of Kafka {version} are fetched with Maven, and no mvn is on the "
                             f"PATH: install it (Debian: apt-get install maven), or give the folder of an "
                             f"unpacked distribution")
    say(f"getting Kafka {version} with Maven, about 50 MB, into {cache_folder() / version}")
    _pom()
    profile = "log4j" if int(version.partition(".")[0]) < 4 else "log4j2"
    # -C: refuse an artifact with a wrong checksum. -U: try again after an earlier failure.
    call = [maven, "-B", "-C", "-U", "-f", str(POM), "-P", profile, f"-Dkafka.version={version}", *_COPY,
            f"-DoutputDirectory={target}"]
    lines = deque[str](maxlen=400)
    files, size_bytes, reported_s = 0, 0.0, time.monotonic()  # jars, and the files that tell Maven which jars
    with running(call) as process:
        for line in _lines_of(process):
            lines.append(_ESCAPES.sub("", line).strip())
            if (found := _DOWNLOADED.search(lines[-1])) is not None:
                files += 1
                size_bytes += float(found["size"]) * _UNITS[found["unit"]]
                if time.monotonic() - reported_s >= PROGRESS_EVERY_S:
                    say(f"  {files} files, {size_bytes / 1e6:.1f} MB")
                    reported_s = time.monotonic()
        code = process.wait(SILENCE_S)
    if code:
        raise _failure(version, list(lines))


@contextmanager
def running(call: list[str]) -> Iterator[subprocess.Popen[str]]:
    """In a group of its own, which is killed at the block's end: mvn is a script that starts Java."""
    process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.STDOUT, errors="replace", start_new_session=True)
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()


def _lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yields the lines that the process prints. FloodmarkError if it prints nothing for too long."""
    assert process.stdout is not None
    rest = b""
    while select([process.stdout], [], [], SILENCE_S)[0]:
        data = os.read(process.stdout.fileno(), 65536)
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in (lines if data else [rest]))
        if not data:
            return
    raise FloodmarkError(f"Maven printed nothing for {SILENCE_S:g} s: is the network slow, or a proxy "
                         "missing in ~/.m2/settings.xml?")


def _failure(version: str, lines: list[str]) -> FloodmarkError:
    """The error from Maven's last lines: what is wrong, and what to do."""
    errors = [line.removeprefix("[ERROR] ") for line in lines if line.startswith("[ERROR] ")]
    text = "\n".join(line for line in lines if line.startswith(("[ERROR]", "[WARNING]")))
    if (gone := _NO_NETWORK.search(text)) is not None:
        return FloodmarkError(f"Kafka {version} cannot be fetched: Maven cannot reach {gone['url']}: "
                              f"fix the network or ~/.m2/settings.xml, or give the folder of an unpacked "
                              f"distribution")
    if (none := _NO_ARTIFACT.search(text)) is not None:
        why = (f"there is no Kafka {version} in Maven's repository"
               if none["artifact"].endswith(":kafka_2.13") else
               f"Kafka {version} is incomplete in Maven's repository, {none['artifact']} is missing")
        return UsageError(f"{why}: choose another version (tested: {', '.join(versions_tested())})")
    reason = errors[0] if errors else next((line for line in reversed(lines) if line), "it printed nothing")
    return FloodmarkError(f"Kafka {version} cannot be fetched, Maven failed: {reason[:500]}")


def _pom() -> ElementTree.Element:
    try:
        return ElementTree.parse(POM).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise FloodmarkError(f"the jars of Kafka are fetched by {POM}, which cannot be read ({error}): "
                             "install floodmark again") from error


# -- class-data archives -----------------------------------------------------------------------------------

SCRIPT = Path(__file__).with_name("class_archive.sh")
ARCHIVE_TIMEOUT_S = 180.0
ARCHIVES_KEPT = 8


def archive_of(kafka: Distribution) -> Path:
    stamps = [jar.exists() and (jar.stat().st_size, jar.stat().st_mtime_ns) for jar in kafka.jars]
    identity = (*user_cache.java_identity(kafka.java), kafka.classpath, stamps)
    key = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    return cache_folder() / "archives" / f"{kafka.version}-{key}{user_cache.ARCHIVE_SUFFIX}"


def archive_options(kafka: Distribution) -> tuple[str, ...]:
    return user_cache.archive_options(archive_of(kafka))


def make_archive(kafka: Distribution, say: Callable[[str], None], *, again: bool = False) -> None:
    """With progress to `say`; an image's Kafka needs none here. again: even if that has failed before."""
    if kafka.image is not None:
        return
    archive = archive_of(kafka)
    failed = archive.with_suffix(user_cache.FAILED_SUFFIX)
    if archive.is_file() or user_cache.NO_CLASS_ARCHIVE in os.environ or (failed.is_file() and not again):
        return
    try:
        with user_cache.try_lock(archive.parent / ".lock") as may_make:
            if not may_make or archive.is_file():
                return
            say(f"making a class-data archive, with which Kafka {kafka.version} starts quicker (once)")
            if (why := _made(kafka, archive)) is not None:
                failed.write_text(f"{why}\n", encoding="utf-8")
                say(f"no class-data archive: {why} (Kafka starts without it)")
                return
        failed.unlink(missing_ok=True)
        user_cache.keep_newest(archive, f"*{user_cache.ARCHIVE_SUFFIX}", ARCHIVES_KEPT)
    except OSError as error:
        say(f"no class-data archive: {error} (Kafka starts without it)")


def _made(kafka: Distribution, archive: Path) -> str | None:
    """Runs the script; why there is no archive, or None."""
    with temporary_folder(".making-", archive.parent) as folder, closing(Ports()) as ports:
        out = folder / archive.name
        call = ["sh", str(SCRIPT), str(out), str(ports.choose()), str(ports.choose()), str(kafka.java),
                kafka.classpath]
        with running(call) as process:
            try:
                printed, _ = process.communicate(timeout=ARCHIVE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return f"{SCRIPT} took longer than {ARCHIVE_TIMEOUT_S:g} s"
        if process.returncode or not out.is_file():
            lines = [line for line in printed.splitlines() if line.strip()]
            summary = [lines[0].rstrip(":"), lines[-1][-300:]] if lines else [f"{SCRIPT} printed nothing"]
            return ": ".join(dict.fromkeys(summary))
        os.replace(out, archive)
    return None
