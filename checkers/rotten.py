"""Dumps in Parquet that begin and end well and are rotten in between: looked for where Spark fails on a run.

A dump's lines, where they stand beside it, are as good; else the dump is damaged like any other.
"""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from checkers import session
from checkers.folder import Folder, damage_dump, torn_tail, unreadable
from checkers.masters import words_of
from checkers.read.parquet import FLAGS, NUMBERS

Flaw = Callable[[Path], str | None]  # why a file cannot be read as a dump; None if it can


def set_aside(folder: Folder, flaw: Flaw) -> bool:
    """Takes such dumps away from the folder, which says so; whether there was one."""
    found = False
    for node, dump in sorted(folder.dumps.items()):
        if not isinstance(dump, Path) or dump.suffix != ".parquet":
            continue
        why = flaw(dump)
        if why is None:
            continue
        found = True
        lines = dump.with_suffix(".jsonl")
        if unreadable(lines, folder.path) is None and not torn_tail(lines):
            folder.dumps[node] = lines
        else:
            del folder.dumps[node]
            damage_dump(folder, node, f"logs/{dump.name} cannot be read: {why}")
    return found


def flaw(dump: Path) -> str | None:
    """As Arrow reads it."""
    try:
        with pq.ParquetFile(dump) as file:
            for field in file.schema_arrow:
                if not (pa.types.is_null(field.type) or is_right(field)):
                    return f"its column {field.name} is of type {field.type}"
            for _ in file.iter_batches():
                pass
    except (OSError, ValueError, pa.ArrowException) as error:  # what a decoder meets it may call anything
        return (str(error).splitlines() or ["damaged"])[0]
    return None


def flaw_to(spark: SparkSession, dump: Path) -> str | None:
    """As Spark does, which stumbles over headers that Arrow passes over."""
    try:
        spark.read.parquet(dump.absolute().as_uri()).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JError) as error:
        if session.has_died(spark.sparkContext):
            raise  # that says nothing of the dump
        return words_of(error)
    return None


def is_right(field: pa.Field) -> bool:
    """Of the type that the format's column has; other columns are nobody's business."""
    if field.name in NUMBERS:
        return bool(pa.types.is_integer(field.type))
    return field.name not in FLAGS or bool(pa.types.is_boolean(field.type))
