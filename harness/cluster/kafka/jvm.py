"""The Java command of one Kafka process: memory, threads, logging, class path.

Log lines go to standard output, which the place keeps as the process's log. Each begins with its date and
time in UTC, to the millisecond, and its level.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from floodmark.harness.cluster.kafka.distribution import Distribution
from floodmark.harness.cluster.layout import ProcessAddresses

# A broker of a test needs little; the quick compiler alone, for no broker is long at work.
JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ActiveProcessorCount=2",
       "-Xss256k", "-XX:-UsePerfData", "-Djava.awt.headless=true", "-Duser.timezone=UTC")
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
    """The settings of both logging libraries: which one a version has, its jars say."""
    (folder / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
    (folder / "log4j2.yaml").write_text(_LOG4J2, encoding="utf-8")


def java_command(kafka: Distribution, place: ProcessAddresses, main: str, arguments: Sequence[Path], *,
                 logging: Path, flags: Sequence[str] = ()) -> list[str]:
    """logging: the folder that write_logging was given. Every path as the process sees it. The jars of an
    image by its name are its own."""
    seen = place.inside(logging)
    paths = (os.pathsep.join(map(place.inside, kafka.jars)) if kafka.image is None
             else str(Path(place.inside(kafka.jars[0].parent)) / "*"))
    return [place.inside(kafka.java), *JVM, *flags, f"-Dlog4j.configuration=file:{seen}/log4j.properties",
            f"-Dlog4j2.configurationFile={seen}/log4j2.yaml", "-cp", paths, main,
            *map(place.inside, arguments)]
