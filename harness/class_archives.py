"""Java's class-data archives (AppCDS): what those of Spark and of Apache Kafka have in common.

A JVM that starts with an archive of its classes starts quicker. Java ignores an archive of another JVM.
"""

from pathlib import Path

UNWANTED = "FLOODMARK_NO_CLASS_ARCHIVE"  # set in the environment: none is made unless asked
SUFFIX, FAILED_SUFFIX = ".jsa", ".failed"


def identity(java: Path) -> tuple[str, bytes]:
    """Which JVM this is: its real path, and its file `release`, empty if there is none."""
    real = java.resolve()
    try:
        return str(real), (real.parent.parent / "release").read_bytes()
    except OSError:
        return str(real), b""


def options(archive: Path) -> tuple[str, ...]:
    """The JVM options that use it; none if there is none. Silent, because a JVM that cannot use the archive
    would print that on standard output."""
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable") if archive.is_file() else ()
