"""The tables of run folders for questions of your own: as a DuckDB database, or as a data source of Spark.

    db = tables.open("histories/runs/latest")
    db.sql("select partition, count(*) from sends where type = 'ok' group by all")

    tables.register(spark)
    spark.read.format("floodmark").option("table", "sends").load("nights/*/runs/*")

They are the tables that the laws use (laws/tables.py; checkers/README.md has them on one page), each with
`folder` behind `run`, and `reasons`: why checks are unknown in a run, among it the lines that no table has.

Rules
1. A line that breaks the format is in no table; `reasons` counts such lines and names the first.
2. A folder that cannot be judged has rows in `reasons` only. If none can be read, that is an error.
"""

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.judge.passes import all_tables
from floodmark.checkers.judge.verdicts import unknown_of
from floodmark.checkers.laws.tables import TABLES, TEXT
from floodmark.checkers.read.folder import Folder, open_folder
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.run import real_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDER = pa.field("folder", TEXT)
SCHEMAS: Mapping[str, pa.Schema] = {
    **{name: schema.insert(1, _FOLDER) for name, schema in TABLES.items()},
    "reasons": pa.schema([("run", pa.int32()), _FOLDER, ("checks", pa.list_(TEXT)), ("reason", TEXT)]),
}


Runs = Sequence[tuple[str, Folder]]  # as they were named


def open(folders: str | Path | Sequence[str | Path]) -> duckdb.DuckDBPyConnection:
    """A database in memory with the tables of these folders; a folder may be a pattern. UsageError if there
    is none; FloodmarkError if none can be read."""
    several = [folders] if isinstance(folders, str | Path) else folders
    made = tables_of(dict(enumerate(open_runs([str(folder) for folder in several]))))
    db = duckdb.connect()
    for name, schema in SCHEMAS.items():
        db.register(name, made.get(name, schema.empty_table()))
    return db


def register(spark: "SparkSession") -> None:
    """Make the format "floodmark" known to Spark. Its workers must have floodmark installed and see the
    folders."""
    from floodmark.checkers.spark.data_source import RunTables

    spark.dataSource.register(RunTables)


def open_runs(paths: Sequence[str]) -> Runs:
    """The folders that the paths and patterns name, each once and by its own name (`latest` is a link to
    another); a run's number is its place here."""
    named = [real_folder(Path(name)) for path in paths for name in _named_by(path)]
    runs = [(str(folder), open_folder(folder)) for folder in {one.resolve(): one for one in named}.values()]
    if not any(folder.judged for _, folder in runs):
        why = "; ".join(f"{name}: {folder.reasons[0][1]}" for name, folder in runs[:3])
        raise FloodmarkError(f"no run can be read: {why}")
    return runs


def _named_by(path: str) -> Sequence[str]:
    found = [path] if Path(path).exists() else sorted(filter(os.path.isdir, glob.glob(path)))
    if not found:
        raise UsageError(f"{path} does not exist" + " (and matches no folder)" * glob.has_magic(path))
    return found


def tables_of(runs: Mapping[int, tuple[str, Folder]]) -> dict[str, pa.Table]:
    """The tables of these runs, by their numbers; those of which they have nothing may be missing."""
    made, read = all_tables([RunWork.of(number, one) for number, (_, one) in runs.items() if one.judged])
    reasons = []
    for number, (_, folder) in runs.items():
        folder = read[number].folder if number in read else folder
        reasons += [{"run": number, "checks": one.names, "reason": one.reason}
                    for one in unknown_of(folder.reasons, traced=folder.trace is not None)]  # fmt: skip
    made["reasons"] = pa.Table.from_pylist(reasons, schema=SCHEMAS["reasons"].remove(1))
    names = {number: name for number, (name, _) in runs.items()}
    return {table: with_folder(rows, names) for table, rows in made.items() if table in SCHEMAS}


def with_folder(table: pa.Table, names: Mapping[int, str]) -> pa.Table:
    """The table with the column `folder`: each run's name."""
    codes = pc.index_in(table["run"].combine_chunks(), pa.array(list(names), pa.int32()))
    return table.add_column(1, "folder", pa.DictionaryArray.from_arrays(codes, pa.array([*names.values()])))
