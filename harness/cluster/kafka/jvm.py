"""Builds the Java command of a Kafka process: memory, threads, class-data archive, logging, class path.
Log lines go to standard output, which becomes the process's log. Each begins with date and time in UTC, with
milliseconds, and the level.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from floodmark.harness.cluster.kafka import class_archive
from floodmark.harness.cluster.kafka.distribution import Distribution
from floodmark.harness.cluster.layout import ProcessAddresses

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


def logging_options(folder: str) -> list[str]:
    return [f"-Dlog4j.configuration=file:{folder}/log4j.properties",
            f"-Dlog4j2.configurationFile={folder}/log4j2.yaml"]


def java_command(kafka: Distribution, place: ProcessAddresses, main: str, arguments: Sequence[Path], *,
                 logging: Path, flags: Sequence[str] = ()) -> list[str]:
    """The command, with every path as the process sees it. logging: the folder of write_logging. If
    kafka.image is set, the jars are those of the image."""
    paths = (os.pathsep.join(map(place.inside, kafka.jars)) if kafka.image is None
             else str(Path(place.inside(kafka.jars[0].parent)) / "*"))
    libs = kafka.jars[0].parent
    inside = Path(place.inside(libs))
    # The image that is built from Kafka's jars has a file with the options of its class-data archive.
    archive = (class_archive.options(kafka) if inside == libs
               else [] if kafka.image is not None else [f"@{inside.parent / IMAGE_OPTIONS}"])
    return [place.inside(kafka.java), *JVM, *archive, *flags,
            *logging_options(place.inside(logging)), "-cp", paths, main, *map(place.inside, arguments)]

