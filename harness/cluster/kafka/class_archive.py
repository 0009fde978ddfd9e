"""Builds the Java command of a Kafka process: memory, logging, class path, and a class-data archive (Java's
AppCDS), which it makes and finds: with one Kafka starts quicker. Log lines go to standard output; each begins
with date and time in UTC, with milliseconds, and the level.

    CACHE/floodmark/kafka/archives/4.3.1-KEY.jsa        45 MB

Rules
1. The name's KEY is a hash of the Java, the class path, and each jar's size and time: with any other, Java
   would ignore the archive.
2. One that is missing is made before the first cluster starts (class_archive.sh, some seconds),
   once: one process makes it, others start without it meanwhile. If it fails it leaves a note, and is not
   tried again until `floodmark kafka get` asks for it. Kafka starts without an archive too.
3. It gets its name when it is complete. Only the newest few are kept.
4. The image of Apache Kafka for containers has an archive of its own (docker/kafka/Dockerfile).
"""

import hashlib
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from floodmark.harness import user_cache
from floodmark.harness.cluster.kafka import jars
from floodmark.harness.cluster.kafka.distribution import Distribution
from floodmark.harness.cluster.layout import ProcessAddresses
from floodmark.harness.cluster.ports import Ports
from floodmark.harness.run_location import temporary_folder

SCRIPT = Path(__file__).with_suffix(".sh")
TIMEOUT_S = 180.0
KEPT = 8


def path_of(kafka: Distribution) -> Path:
    stamps = [jar.exists() and (jar.stat().st_size, jar.stat().st_mtime_ns) for jar in kafka.jars]
    identity = (*user_cache.java_identity(kafka.java), kafka.classpath, stamps)
    key = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    return jars.cache_folder() / "archives" / f"{kafka.version}-{key}{user_cache.SUFFIX}"


def options(kafka: Distribution) -> tuple[str, ...]:
    return user_cache.archive_options(path_of(kafka))


def make(kafka: Distribution, say: Callable[[str], None], *, again: bool = False) -> None:
    """With progress to `say`; an image's Kafka needs none here. again: even if that has failed before."""
    if kafka.image is not None:
        return
    archive = path_of(kafka)
    failed = archive.with_suffix(user_cache.FAILED_SUFFIX)
    if archive.is_file() or user_cache.UNWANTED in os.environ or (failed.is_file() and not again):
        return
    try:
        with user_cache.alone(archive.parent / ".lock") as may_make:
            if not may_make or archive.is_file():
                return
            say(f"making a class-data archive, with which Kafka {kafka.version} starts quicker (once)")
            if (why := _made(kafka, archive)) is not None:
                failed.write_text(f"{why}\n", encoding="utf-8")
                say(f"no class-data archive: {why} (Kafka starts without it)")
                return
        failed.unlink(missing_ok=True)
        user_cache.keep_newest(archive, f"*{user_cache.SUFFIX}", KEPT)
    except OSError as error:
        say(f"no class-data archive: {error} (Kafka starts without it)")


def _made(kafka: Distribution, archive: Path) -> str | None:
    """Runs the script; why there is no archive, or None."""
    with temporary_folder(".making-", archive.parent) as folder, closing(Ports()) as ports:
        out = folder / archive.name
        call = ["sh", str(SCRIPT), str(out), str(ports.choose()), str(ports.choose()), str(kafka.java),
                kafka.classpath]
        with jars.running(call) as process:
            try:
                printed, _ = process.communicate(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return f"{SCRIPT} took longer than {TIMEOUT_S:g} s"
        if process.returncode or not out.is_file():
            lines = [line for line in printed.splitlines() if line.strip()]
            summary = [lines[0].rstrip(":"), lines[-1][-300:]] if lines else [f"{SCRIPT} printed nothing"]
            return ": ".join(dict.fromkeys(summary))
        os.replace(out, archive)
    return None


# A test's broker needs little memory, and only the fast compiler, because it does not run long.
JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ActiveProcessorCount=2",
       "-Xss256k", "-XX:-UsePerfData", "-Djava.awt.headless=true", "-Duser.timezone=UTC")
IMAGE_OPTIONS = "classes.options"  # beside libs/, see docker/kafka/Dockerfile
_PATTERN = "[%d{yyyy-MM-dd HH:mm:ss,SSS}] %p %m (%c)%n"
_LOG4J = f"""log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern={_PATTERN}
"""
_LOG4J2 = f"""Configuration:
  Appenders:
    Console:
      name: out
      PatternLayout:
        pattern: '{_PATTERN}'
  Loggers:
    Root:
      level: INFO
      AppenderRef:
      - ref: out
"""


def write_logging(folder: Path) -> None:
    """Writes the settings of both logging libraries: a version's jars have one of them."""
    (folder / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
    (folder / "log4j2.yaml").write_text(_LOG4J2, encoding="utf-8")


def java_command(kafka: Distribution, place: ProcessAddresses, main: str, arguments: Sequence[Path], *,
                 logging: Path, flags: Sequence[str] = ()) -> list[str]:
    """With every path as the process sees it; a named image has its jars. logging: as of write_logging."""
    paths = (os.pathsep.join(map(place.inside, kafka.jars)) if kafka.image is None
             else str(Path(place.inside(kafka.jars[0].parent)) / "*"))
    libs, folder = kafka.jars[0].parent, place.inside(logging)
    inside = Path(place.inside(libs))
    # The image that is built from Kafka's jars has a file with the options of its class-data archive.
    archive = (options(kafka) if inside == libs
               else [] if kafka.image is not None else [f"@{inside.parent / IMAGE_OPTIONS}"])
    return [place.inside(kafka.java), *JVM, *archive, *flags,
            f"-Dlog4j.configuration=file:{folder}/log4j.properties",
            f"-Dlog4j2.configurationFile={folder}/log4j2.yaml",
            "-cp", paths, main, *map(place.inside, arguments)]
