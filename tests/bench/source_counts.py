"""Prints the seconds of `count()` of each table of Spark's format "floodmark", and of spark.read.json of the
lines of each file, after one small job of both readers: FOLDER SMALL-FOLDER MASTER."""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from floodmark.checkers import tables
from floodmark.checkers.spark import session
from floodmark.harness.spark_options import Workers

folder, small = Path(sys.argv[1]), Path(sys.argv[2])
session.context(Workers(master=sys.argv[3]))
spark = SparkSession.builder.getOrCreate()
tables.register(spark)


def count(name: str, of: Path) -> None:
    """Of a table, or of a file."""
    if name in tables.SCHEMAS:
        spark.read.format("floodmark").option("table", name).load(str(of)).count()
    else:
        spark.read.json(str(of / name)).count()


names = [*tables.SCHEMAS, *(str(file.relative_to(folder)) for file in sorted(folder.rglob("*.jsonl")))]
count(names[0], small)
count(names[-1], small)
for name in names:
    began_s = time.perf_counter()
    count(name, folder)
    took_s = time.perf_counter() - began_s
    print(name, took_s, flush=True)
    print(f"    {name}: {took_s:.1f} s", file=sys.stderr)
