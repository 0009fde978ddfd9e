"""Builds the Java command of a Kafka process: memory, threads, logging, class path.
Log lines go to standard output, which becomes the process's log. Each begins with date and time in UTC, with
milliseconds, and the level.
"""

from collections.abc import Sequence
from pathlib import Path

from floodmark.harness.cluster.kafka.distribution import Distribution

# A test's broker needs little memory, and only the fast compiler, because it does not run long.
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
    """Writes the settings of both logging libraries: a version's jars have one of them."""
    (folder / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
    (folder / "log4j2.yaml").write_text(_LOG4J2, encoding="utf-8")


def java_command(kafka: Distribution, main: str, arguments: Sequence[str], *, logging: Path,
                 flags: Sequence[str] = ()) -> list[str]:
    """The command. logging: the folder of write_logging, as the process sees it."""
    return [str(kafka.java), *JVM, *flags, f"-Dlog4j.configuration=file:{logging / 'log4j.properties'}",
            f"-Dlog4j2.configurationFile={logging / 'log4j2.yaml'}", "-cp", kafka.classpath, main, *arguments]
