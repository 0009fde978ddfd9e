"""Caches the jars of Apache Kafka by version in the user's cache folder: fetched with Maven, with checksums.

    CACHE/floodmark/kafka/4.3.1/manifest.json        the SHA-256 of each jar
                                libs/*.jar

Rules
1. A version's folder gets its name when it is complete: a killed download leaves a folder of another name.
2. Only one download runs at a time, by a lock that ends with its process. Waiting processes find the jars
   then.
3. The jars' checksums are verified at every use. A version with a wrong one is fetched again, with a message.
4. A cached version needs neither Maven nor a network.
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
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from xml.etree import ElementTree

from floodmark.harness import user_cache
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.user_cache import one_at_a_time

Say = Callable[[str], None]

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


def get(version: str, say: Say) -> tuple[Path, ...]:
    """The jars of a version, in order of their names; fetched if they are not complete. UsageError if the
    version does not exist; FloodmarkError if it cannot be fetched."""
    folder = cache_folder() / version
    found = _cached(folder, say)
    if found is not None:
        return found
    with one_at_a_time(folder.parent / ".lock", "fetching jars of Kafka", say):  # all share Maven's own cache
        found = _cached(folder, say)  # another process may have fetched them meanwhile
        if found is None:
            _fetch(folder, version, say)
            found = _cached(folder, say)
    if found is None:
        raise FloodmarkError(f"the jars that were just put into {folder} are damaged: is the disk sound?")
    return found


def tested() -> tuple[str, ...]:
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
    maven = shutil.which("mvn")
    if maven is None:
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
        return UsageError(f"{why}: choose another version (tested: {', '.join(tested())})")
    reason = errors[0] if errors else next((line for line in reversed(lines) if line), "it printed nothing")
    return FloodmarkError(f"Kafka {version} cannot be fetched, Maven failed: {reason[:500]}")


def _pom() -> ElementTree.Element:
    try:
        return ElementTree.parse(POM).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise FloodmarkError(f"the jars of Kafka are fetched by {POM}, which cannot be read ({error}): "
                             "install floodmark again") from error
