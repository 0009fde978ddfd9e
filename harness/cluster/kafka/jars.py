"""The jars of Apache Kafka by version, in the user's cache folder: fetched with Maven, kept with checksums.

    CACHE/floodmark/kafka/4.3.1/manifest.json        the SHA-256 of each jar
                                libs/*.jar

Rules
1. A version's folder gets its name when all of it is there (rename), its manifest included: a download that
   was killed leaves a folder of another name, which nobody takes for a version.
2. One download at a time, by a lock that ends with its process. Whoever waited finds the jars there.
3. Jars are held against their checksums at every use. What does not fit is fetched anew, and that is said.
4. A version that is there needs neither Maven nor a network.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from xml.etree import ElementTree

from floodmark.harness.errors import FloodmarkError, UsageError

Say = Callable[[str], None]

POM = Path(__file__).resolve().parents[3] / "docker" / "kafka" / "pom.xml"
SILENCE_S = 120.0  # so long may Maven say nothing
LOCK_TIMEOUT_S = 900.0
PROGRESS_EVERY_S = 3.0
MANIFEST = "manifest.json"
_COMING = ".coming-"
_TESTED = "tested."  # how the names of those properties begin
_COPY = ("org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies", "-DincludeScope=runtime")
_DOWNLOADED = re.compile(r"Downloaded from \S+ \S+ \((?P<size>[\d.]+) (?P<unit>[kMG]?B)")
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_NO_ARTIFACT = re.compile(r"(?:Could not find artifact|Failure to find) "
                          r"(?P<artifact>org\.apache\.kafka:[^: ]+):\S*?:(?P<version>[^: ]+)[ ,]")
_NO_NETWORK = re.compile(r"Could not transfer (?:artifact|metadata) \S+ from/to \S+ \((?P<url>[^)]+)\)")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def get(version: str, say: Say) -> tuple[Path, ...]:
    """The jars of a version, in order of their names; fetched where they are not there whole.

    Raises: UsageError where the version does not exist; FloodmarkError where it cannot be fetched.
    """
    folder = cache_folder() / version
    found = _kept(folder, say)
    if found is not None:
        return found
    with _one_at_a_time(folder.parent, say):
        found = _kept(folder, say)  # by whoever was waited for
        if found is None:
            _fetch(folder, version, say)
            found = _kept(folder, say)
    if found is None:
        raise FloodmarkError(f"the jars that were just put into {folder} are damaged: is the disk sound?")
    return found


def tested() -> tuple[str, ...]:
    """The versions that the tests run, lowest first, as the pom has them."""
    names = ((entry.tag.rpartition("}")[2], entry.text) for entry in _pom().iter())
    return tuple(text for name, text in names if name.startswith(_TESTED) and text)


def cache_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache.absolute() / "floodmark" / "kafka"


# -- what is there ------------------------------------------------------------------------------------------

def _kept(folder: Path, say: Say) -> tuple[Path, ...] | None:
    """The jars of this folder, each as its checksum says; None where there are none that can be used."""
    try:
        sums = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        paths = tuple(folder / "libs" / name for name in sorted(sums))
        for path in paths:
            if sha256(path) != sums[path.name]:
                say(f"{path} does not fit its checksum: Kafka {folder.name} is fetched anew")
                return None
    except FileNotFoundError as error:
        if folder.exists():
            say(f"{error.filename} is missing: Kafka {folder.name} is fetched anew")
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        say(f"{folder} cannot be used ({error}): Kafka {folder.name} is fetched anew")
        return None
    return paths


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _one_at_a_time(folder: Path, say: Say) -> Iterator[None]:
    """While jars are fetched; whoever comes second waits. Maven's own cache is shared by all versions."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise FloodmarkError(f"{folder} cannot be made ({error}): set XDG_CACHE_HOME elsewhere") from error
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with lock:
        waiting = False
        while not _locked(lock.fileno()):
            if time.monotonic() > deadline:
                raise FloodmarkError(f"another process has been fetching jars for {LOCK_TIMEOUT_S:g} s (it "
                                     f"locks {folder / '.lock'}): end it, or wait for it")
            if not waiting:
                say("another process is fetching jars of Kafka: waiting for it")
                waiting = True
            time.sleep(0.1)
        yield


def _locked(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -- fetching -----------------------------------------------------------------------------------------------

def _fetch(folder: Path, version: str, say: Say) -> None:
    """Puts the version's folder there, whole. The lock is ours: whatever lies there half-done is nobody's."""
    for left in folder.parent.glob(f"{_COMING}*"):
        shutil.rmtree(left, ignore_errors=True)
    coming = folder.parent / f"{_COMING}{secrets.token_hex(8)}"
    try:
        (coming / "libs").mkdir(parents=True)
        say(f"getting Kafka {version} with Maven, about 50 MB, to be kept in {folder}")
        _maven(version, coming / "libs", say)
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
        raise FloodmarkError(f"Kafka {version} cannot be kept in {folder} ({error}): make room there, or set "
                             f"XDG_CACHE_HOME elsewhere") from error
    finally:
        shutil.rmtree(coming, ignore_errors=True)


def _maven(version: str, target: Path, say: Say) -> None:
    """Has Maven copy the jars into the folder."""
    maven = shutil.which("mvn")
    if maven is None:
        raise FloodmarkError(f"the jars of Kafka {version} are fetched with Maven, and no mvn is on the "
                             f"PATH: install it (Debian: apt-get install maven), or give the folder of an "
                             f"unpacked distribution")
    _pom()
    profile = "log4j" if int(version.partition(".")[0]) < 4 else "log4j2"
    # -C: an artifact whose checksum does not fit is refused. -U: an earlier failure is not taken for lasting.
    call = [maven, "-B", "-C", "-U", "-f", str(POM), "-P", profile, f"-Dkafka.version={version}", *_COPY,
            f"-DoutputDirectory={target}"]
    lines = deque[str](maxlen=400)
    with _running(call) as process:
        progress = _Progress(say)
        for line in _lines_of(process):
            lines.append(_ESCAPES.sub("", line).strip())
            progress.take(lines[-1])
        code = process.wait(SILENCE_S)
    if code:
        raise _failure(version, list(lines))


@contextmanager
def _running(call: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, which ends with the block: mvn is a script that starts Java."""
    process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.STDOUT, errors="replace", start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout:
            process.stdout.close()


def _lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """What it prints. FloodmarkError once it has been silent for too long, after which it is killed."""
    assert process.stdout is not None
    silent = threading.Event()

    def give_up() -> None:
        silent.set()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    while True:
        timer = threading.Timer(SILENCE_S, give_up)
        timer.daemon = True
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if silent.is_set():
            raise FloodmarkError(f"Maven said nothing for {SILENCE_S:g} s: is the network slow, or a proxy "
                                 f"missing in ~/.m2/settings.xml?")
        if not line:
            return
        yield line


class _Progress:
    """Says every few seconds how far Maven is."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._said_s = time.monotonic()
        self._files = 0  # jars, and what Maven reads to know which jars
        self._bytes = 0.0

    def take(self, line: str) -> None:
        found = _DOWNLOADED.search(line)
        if found is None:
            return
        self._files += 1
        self._bytes += float(found["size"]) * _UNITS[found["unit"]]
        now = time.monotonic()
        if now - self._said_s >= PROGRESS_EVERY_S:
            self._say(f"  {self._files} files, {self._bytes / 1e6:.1f} MB")
            self._said_s = now


def _failure(version: str, lines: list[str]) -> FloodmarkError:
    """What Maven's last lines come to: what is wrong, and what to do."""
    errors = [line.removeprefix("[ERROR] ") for line in lines if line.startswith("[ERROR] ")]
    text = "\n".join(line for line in lines if line.startswith(("[ERROR]", "[WARNING]")))
    if (gone := _NO_NETWORK.search(text)) is not None:
        return FloodmarkError(f"Kafka {version} cannot be fetched, for Maven cannot reach {gone['url']}: "
                              f"mend the network or ~/.m2/settings.xml, or give the folder of an unpacked "
                              f"distribution")
    if (none := _NO_ARTIFACT.search(text)) is not None:
        why = (f"there is no Kafka {version} in Maven's repository"
               if none["artifact"].endswith(":kafka_2.13") else
               f"Kafka {version} is not whole in Maven's repository, {none['artifact']} is missing")
        return UsageError(f"{why}: choose another version (tested: {', '.join(tested())})")
    reason = errors[0] if errors else next((line for line in reversed(lines) if line), "it said nothing")
    return FloodmarkError(f"Kafka {version} cannot be fetched, for Maven failed: {reason[:500]}")


def _pom() -> ElementTree.Element:
    try:
        return ElementTree.parse(POM).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise FloodmarkError(f"the jars of Kafka are fetched by {POM}, which cannot be read ({error}): that "
                             f"needs a checkout of floodmark") from error
