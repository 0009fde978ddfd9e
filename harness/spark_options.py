"""Reads --master and --conf: whose machines the judge's Spark works on."""

from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.harness.errors import UsageError

# What the judge's answers stand on; the judge sets them, whatever anybody else says.
ITS_OWN = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
)
# Keys of floodmark's own among Spark's: a run of no more bytes is judged by one task; what the tables of a
# unit may take of memory before they go to disk.
SMALL_BYTES = "spark.floodmark.smallBytes"
UNIT_MEMORY = "spark.floodmark.unitMemory"
UNITS = {SMALL_BYTES: "bytes", UNIT_MEMORY: "MB"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """master: as Spark writes it, None for this machine (or what spark-submit said). conf: Spark's keys."""

    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()


HERE = Workers()


def workers(master: str | None, conf: Sequence[str]) -> Workers:
    """The options as they were typed; UsageError where one cannot be."""
    pairs = [word.partition("=") for word in conf]
    for word, (key, equals, value) in zip(conf, pairs, strict=True):
        if not equals or not key.startswith("spark.") or key.strip() != key:
            raise UsageError(f"--conf takes KEY=VALUE with a key of Spark's (spark....), not {word!r}")
        if key == "spark.master":
            raise UsageError("--conf spark.master: say --master URL")
        if key in ITS_OWN:
            raise UsageError(f"--conf {key}: the judge sets it itself, for its answers stand on it")
        if key in UNITS and not value.isdecimal():
            raise UsageError(f"--conf {key} takes a number of {UNITS[key]}, not {value!r}")
    if master is not None and not master.strip():
        raise UsageError("--master takes a URL such as spark://host:7077, or local[*]")
    return Workers(master=master, conf=tuple((key, value) for key, _, value in pairs))
