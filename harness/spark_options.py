"""Reads --master and --conf: where the judge's Spark runs."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from floodmark.harness.errors import UsageError

# The judge's results depend on these keys, so the judge sets them itself.
ITS_OWN = (
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
)
# floodmark's own keys among Spark's. SMALL_BYTES: a run of at most so many bytes is judged by one task.
# UNIT_MEMORY: how much memory the tables of a unit may use before they are written to disk.
SMALL_BYTES = "spark.floodmark.smallBytes"
UNIT_MEMORY = "spark.floodmark.unitMemory"
UNITS = {SMALL_BYTES: "bytes", UNIT_MEMORY: "MB"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Where Spark runs. master: None for this machine (or spark-submit's). conf: Spark's keys."""

    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()


HERE = Workers()
# What is done while Spark works; it is given a function that counts the parts that are done, and all of them.
Watch = Callable[[Callable[[], tuple[int, int]]], AbstractContextManager[None]]


def workers(master: str | None, conf: Sequence[str]) -> Workers:
    """Read the options as the user typed them; UsageError where one is not valid."""
    pairs = [option.partition("=") for option in conf]
    for option, (key, equals, value) in zip(conf, pairs, strict=True):
        if not equals or not key.startswith("spark.") or key.strip() != key:
            raise UsageError(f"--conf takes KEY=VALUE with a key of Spark's (spark....), not {option!r}")
        if key == "spark.master":
            raise UsageError("--conf spark.master: use --master URL")
        if key in ITS_OWN:
            raise UsageError(f"--conf {key}: the judge sets it itself, because its results depend on it")
        if key in UNITS and not value.isdecimal():
            raise UsageError(f"--conf {key} takes a number of {UNITS[key]}, not {value!r}")
    if master is not None and not master.strip():
        raise UsageError("--master takes a URL such as spark://host:7077, or local[*]")
    return Workers(master=master, conf=tuple((key, value) for key, _, value in pairs))
