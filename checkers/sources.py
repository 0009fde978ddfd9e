"""The big files of the runs as Spark is told of them: linked into a tree, or each by its own address.

Theory of operation. On this machine every file is linked under a name that Spark reads `run` and `node`
from: the quickest way, for Spark lists one folder, and no row has to be told whose it is. Links are of no use
to a machine that does not see this one's scratch folder, and a far file cannot be linked: these are named to
Spark one by one, and each row finds its run by the file it came from (one scan of all, as of the tree).

Rules
1. A row whose file nobody named is an error, never a row less.
2. A file that Spark would pass over in silence (its name begins with _ or .) is a damaged dump, and said.
"""

import re
import tempfile
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from checkers.folder import Folder, damage_dump
from harness.places import Place

KINDS = ("history", "lines", "parquet", "trace")
_KEYS = {"run": "int", "node": "string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file that is named to Spark."""

    place: Place
    run: int
    node: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """All files of one kind."""

    tree: Path
    named: list[File] = field(default_factory=list)

    @property
    def linked(self) -> bool:
        return any(self.tree.iterdir())

    def __bool__(self) -> bool:
        return bool(self.named) or self.linked


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    history: Source
    lines: Source  # dumps
    parquet: Source  # dumps too
    trace: Source


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="floodmark-judge-")


def sources_of(folders: Sequence[Folder], root: Path, sieved: Container[int], *, link: bool) -> Sources:
    """Every file that must be parsed; those of this machine under links in the root, if links can be used."""
    made = Sources(**{kind: Source(tree=root / kind) for kind in KINDS})
    for kind in KINDS:
        (root / kind).mkdir()
    for run, folder in enumerate(folders):
        if not folder.judged:
            continue
        linking = link and isinstance(folder.path, Path)
        if folder.trace:
            add(made.trace, folder.trace, run, None, "trace.jsonl", link=linking)
        if run in sieved:
            continue
        if folder.history:
            add(made.history, folder.history, run, None, "history.jsonl", link=linking)
        refuse_valueless(folder)
        if not linking:
            refuse_hidden(folder)
        for node, dump in folder.dumps.items():
            kind = "parquet" if dump.suffix == ".parquet" else "lines"
            add(getattr(made, kind), dump, run, node, f"dump.{kind}", link=linking)
    return made


def refuse_hidden(folder: Folder) -> None:
    """Dumps that Spark does not see when they are named to it."""
    for node, dump in list(folder.dumps.items()):
        if dump.name.startswith(("_", ".")):
            del folder.dumps[node]
            damage_dump(
                folder,
                node,
                f"logs/{dump.name}: Spark reads no file of such a name where it lies; "
                "judge a copy on this machine, without a cluster",
            )


def refuse_valueless(folder: Folder) -> None:
    """Dumps in Parquet without the column of values: Spark would take every record for somebody else's. (It
    misses the other columns in every row.)"""
    for node, dump in list(folder.dumps.items()):
        if dump.suffix == ".parquet" and not has_values(dump):
            del folder.dumps[node]
            damage_dump(folder, node, f"logs/{dump.name}: it has no column value")


def has_values(dump: Place) -> bool:
    try:
        with dump.open("rb") as file:
            return "value" in pq.read_schema(file).names
    except (OSError, ValueError, pa.ArrowException):
        return True  # rotten: Spark will say so


def add(source: Source, place: Place, run: int, node: str | None, name: str, *, link: bool) -> None:
    if not link:
        source.named.append(File(place=place, run=run, node=node))
        return
    assert isinstance(place, Path)
    folder = source.tree / f"run={run}" / (f"node={quote(node, safe='')}" if node is not None else "")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(place.resolve())


# -- as frames --------------------------------------------------------------------------------------------


def scan(spark: SparkSession, source: Source, form: str, columns: str, keys: Sequence[str]) -> DataFrame:
    """The rows of all files: the columns, the keys (run, node), and where each stood: `block` (the split of
    its file) and `at`, which rises within it. Blank lines of a text are no rows."""
    told = ", ".join(f"{key} {_KEYS[key]}" for key in keys)
    scans = []
    if source.linked:
        tree = _reader(spark, form).schema(f"{columns}, {told}").load(str(source.tree))
        scans.append(_rows(tree, form).select("*", *_where()))
    if source.named:
        scans.append(_named(spark, source.named, form, columns, keys))
    if not scans:
        return spark.createDataFrame([], f"{columns}, {told}").select("*", *_where())
    return reduce(DataFrame.unionByName, scans)


def _reader(spark: SparkSession, form: str) -> DataFrameReader:
    reader = spark.read.format(form)
    return reader.option("lineSep", "\n") if form == "text" else reader


def _rows(files: DataFrame, form: str) -> DataFrame:
    return files.where(F.trim("value") != "") if form == "text" else files


def _where() -> tuple[Column, Column]:
    return F.input_file_block_start().alias("block"), F.monotonically_increasing_id().alias("at")


def _named(
    spark: SparkSession, files: Sequence[File], form: str, columns: str, keys: Sequence[str]
) -> DataFrame:
    """The files read where they lie. Each row is told its keys by a join with the list of files, which every
    task has as a hash table."""
    rows = [
        {"address": flat(uri_of(spark, file.place)), "run": file.run, "node": file.node} for file in files
    ]
    # As one JSON literal: rows of Python's would have Spark start a Python worker to read them.
    told = F.lit(orjson.dumps(rows).decode())
    owners = F.inline(F.from_json(told, "array<struct<address:string,run:int,node:string>>"))
    owned = spark.range(0, 1, 1, 1).select(owners).hint("broadcast")
    scanned = (
        _reader(spark, form)
        .schema(columns)
        .option("recursiveFileLookup", "true")  # else a folder called run=7 would be taken for a column
        .load([literally(address_of(file.place)) for file in files])
    )
    address = F.regexp_replace(F.input_file_name(), "^file:/+", "file:/").alias("address")
    stood = _rows(scanned, form).select("*", address, *_where())
    lost = F.raise_error(F.concat(F.lit("nobody named the file "), F.col("address"))).cast("int")
    own = {"run": F.coalesce("run", lost).alias("run"), "node": F.col("node")}
    return stood.join(owned, "address", "left").select(
        *scanned.columns, *(own[key] for key in keys), "block", "at"
    )


def address_of(place: Place) -> str:
    return f"file:{place.resolve()}" if isinstance(place, Path) else str(place)


def uri_of(spark: SparkSession, place: Place) -> str:
    """The address as input_file_name tells it."""
    jvm = spark._jvm
    assert jvm is not None
    return str(jvm.org.apache.hadoop.fs.Path(address_of(place)).toUri().toString())


def flat(uri: str) -> str:
    return re.sub("^file:/+", "file:/", uri)


def literally(address: str) -> str:
    """Spark takes a path for a pattern: what has a meaning there is given as itself."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", address)
