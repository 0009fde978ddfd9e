"""Reads files of Hadoop's file systems (hdfs://, s3a://) through Spark, because Python's open() cannot.

Rules
1. Spark only cuts a file into ranges and reads them. It returns the bytes as they are, with blank lines and
   invalid UTF-8; they are parsed like those of any range.
2. A file that Spark returns and that was not requested is an error; no row is ever left out.
3. A Parquet dump goes to one task, up to 2 GB.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.read.ranges import RANGE_BYTES, Range
from floodmark.checkers.spark.hadoop import literally, uri_of
from floodmark.checkers.spark.jvm import map_in_arrow
from floodmark.checkers.spark.settings import CERTAIN

LEAST_RANGE_BYTES = 1 << 16  # a range's number in its file is its start divided by this
_KEYS = {
    **CERTAIN,
    "spark.sql.files.maxPartitionBytes": str(RANGE_BYTES),
    "spark.sql.files.openCostInBytes": str(1 << 20),  # so that ranges are not smaller than this
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",  # no extra job to list the files
}
_BOM = b"\xef\xbb\xbf"  # Hadoop's line reader skips it
_RANGE = StructType().add("uri", "string").add("start", "long").add("data", "binary")

Read = tuple[Range, bytes]  # the bytes of a range of lines, or of a complete Parquet file


def far_ranges(spark: SparkContext, works: Iterable[RunWork]) -> "RDD[Read]":
    """Every range of these runs, with the bytes to parse."""
    lines: dict[str, list[Range]] = {}
    parquet: dict[str, list[Range]] = {}
    for work in works:
        for one in work.ranges:
            (parquet if one.is_parquet else lines).setdefault(uri_of(str(one.place)), []).append(one)
    session = own_session()
    read: RDD[Read] = spark.parallelize([], 1)
    if lines:
        rows = map_in_arrow(_lines_of(session, _paths(lines)), _packed, _RANGE)  # one row for each range
        read = read.union(rows.rdd.map(partial(_range_of, lines, _with_bom(lines))))
    if parquet:
        files = _reader(session, "binaryFile").load(_paths(parquet))
        contents = files.select(F.input_file_name().alias("uri"), F.col("content").alias("data"))
        read = read.union(contents.rdd.flatMap(partial(_groups_of, parquet)))
    return read


def own_session() -> SparkSession:
    """A session of its own, so that the settings of other sessions are not changed."""
    ours = SparkSession.builder.getOrCreate().newSession()
    for key, value in _KEYS.items():
        ours.conf.set(key, value)
    return ours


def _reader(session: SparkSession, form: str) -> DataFrameReader:
    # otherwise Spark would take a folder called run=7 for a column
    return session.read.format(form).option("recursiveFileLookup", "true")


def _paths(files: Mapping[str, Sequence[Range]]) -> list[str]:
    return [literally(str(ranges[0].place)) for ranges in files.values()]


def _with_bom(files: Mapping[str, Sequence[Range]]) -> frozenset[str]:
    """The files that begin with a byte order mark."""
    found = set()
    for uri, ranges in files.items():
        with ranges[0].place.open("rb") as file:
            if file.read(len(_BOM)) == _BOM:
                found.add(uri)
    return frozenset(found)


def _lines_of(session: SparkSession, paths: list[str]) -> DataFrame:
    """One row for each line: the file, the start of its range, the line's bytes without the line feed."""
    text = _reader(session, "text").option("lineSep", "\n").load(paths)
    return text.select(
        F.input_file_name().alias("uri"),
        F.input_file_block_start().alias("start"),
        F.col("value").cast("binary").alias("data"),
    )


# -- in a worker --------------------------------------------------------------------------------------------


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join the lines of a range, which follow one another in one batch or several."""
    current: tuple[str, int] | None = None
    data = io.BytesIO()
    for batch in batches:
        for uri, start, lines in _lines_by_range(batch):
            if current is not None and current != (uri, start):
                yield _row(*current, data)
                data = io.BytesIO()
            current = uri, start
            data.write(b"\n".join(lines.to_pylist()) + b"\n")
    if current is not None:
        yield _row(*current, data)


def _lines_by_range(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.Array]]:
    """The lines of a batch by their range."""
    uris, starts, at = batch["uri"].dictionary_encode(), batch["start"], 0
    keys = list(zip(uris.indices.to_pylist(), starts.to_pylist(), strict=True))
    while at < len(keys):
        end = len(keys) if keys[-1] == keys[at] else next(
            other for other in range(at, len(keys)) if keys[other] != keys[at]
        )  # fmt: skip
        yield uris[at].as_py(), keys[at][1], batch["data"].slice(at, end - at)
        at = end


def _row(uri: str, start: int, data: io.BytesIO) -> pa.RecordBatch:
    columns = [
        pa.array([uri], pa.string()),
        pa.array([start], pa.int64()),
        pa.array([data.getvalue()], pa.binary()),
    ]
    return pa.record_batch(columns, names=_RANGE.names)


def _range_of(files: Mapping[str, Sequence[Range]], with_bom: frozenset[str], row: Row) -> Read:
    [file] = files[row.uri]
    data = bytes(row.data)
    if row.start == 0 and row.uri in with_bom:
        data = _BOM + data
    return replace(file, start=row.start, number=row.start // LEAST_RANGE_BYTES), data


def _groups_of(files: Mapping[str, Sequence[Range]], row: Row) -> Iterator[Read]:
    data = bytes(row.data)
    return ((one, data) for one in files[row.uri])
