"""The sieve inside Spark: folders go in, rows of what passes come out, in the columns of the checks' frames.

Rules
1. One task sieves one run after another. A run that is not sieved gives no rows, and is parsed line by line.
2. Only what is in a run's files makes it one that is not sieved (Blemished). Any other failure in a worker is
   the judge's own, and is raised.
3. Runs are sieved side by side as far as the memory goes, and each with all cores that this leaves.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from checkers.chunks import Blemished, Ints
from checkers.columns import FS, MISSING, TYPES, History, Items
from checkers.facts import Seen
from checkers.findings import kept
from checkers.folder import Folder, open_folder
from checkers.masters import refuse_bare_workers
from checkers.settings import own_cores, own_memory_mb
from checkers.sieve import ITEMS, USED_AT_MOST, Sieved, may_be_sieved, sieve
from checkers.sieve_survey import survey_of, told_of
from checkers.survey import Survey

SIEVED_FROM_BYTES = 1 << 20  # in all; below this a worker's start costs more than the checks
SIEVED_UP_TO = 0.8  # of the machine's memory: a worker needs two thirds of its run's bytes
ROWS_AT_ONCE = 1 << 16
FINDINGS_A_ROW = 1_000
KINDS = dict(zip(ITEMS, ("send", "read", "end", "held"), strict=True))
_ENTRY = ("offset", "epoch", "crc", "crc_ok", "aborted")
_COLUMNS = (
    "what string, run int, node string, block bigint, at bigint, bad boolean, kind string, pos int, "
    "index bigint, time bigint, process bigint, type string, f string, partition bigint, value bigint, "
    "offset bigint, epoch bigint, ident bigint, text string, crc bigint, crc_ok boolean, aborted boolean, "
    "whole boolean"
)
_ARROW = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_()}
_SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in map(str.split, _COLUMNS.split(", "))])


@dataclass(slots=True, kw_only=True)
class Sifted:
    """What came of sieving: surveys of the runs that were, and the rows that passed."""

    surveys: dict[int, Survey] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)  # what of their partitions
    rows: int = 0
    passed: DataFrame | None = None


def is_near(folder: Folder) -> bool:
    """Whether a worker's Python can read its run: a far one is Spark's, Python sees only what is mounted."""
    return folder.judged and isinstance(folder.path, Path)


def is_for_the_sieve(folder: Folder) -> bool:
    """Whether its run may be sieved, and no partition of it passes whole for what run.json says of it."""
    return (
        is_near(folder)
        and len(folder.partitions) <= USED_AT_MOST
        and all(may_be_sieved(folder, key) for key in folder.partitions)
    )


def sift(spark: SparkSession, folders: Sequence[Folder], sizes: Sequence[int], tasks: int) -> Sifted:
    """Sieves the folders, where there is enough of them for it to pay."""
    most = SIEVED_UP_TO * (own_memory_mb() << 20)
    chosen = [
        run
        for run, size in enumerate(sizes)
        if size <= most and is_near(folders[run])
    ]
    if not chosen or sum(sizes[run] for run in chosen) < SIEVED_FROM_BYTES:
        return Sifted()
    tasks = min(tasks, len(chosen))
    threads = max(1, own_cores() // tasks)
    jobs = json.dumps([
        {"run": run, "path": str(folders[run].path.resolve()), "threads": threads} for run in chosen
    ])
    every = F.from_json(F.lit(jobs), "array<struct<run:int,path:string,threads:int>>")
    work = spark.range(0, len(chosen), 1, tasks).select(F.get(every, F.col("id").cast("int")).alias("job"))
    passed = kept(work.select("job.*").mapInArrow(sieve_batches, _COLUMNS))
    try:
        told = passed.where("what = 'survey'").select("run", "text").collect()
    except (PySparkException, Py4JError) as error:
        refuse_bare_workers(spark.sparkContext, error)
        raise
    sifted = Sifted(passed=passed)
    for row in told:
        said = json.loads(row["text"])
        sifted.rows += said.pop("rows")
        sifted.seen[row["run"]] = Seen(
            used=frozenset(said.pop("used")), whole=frozenset(said.pop("whole"))
        )
        sifted.surveys[row["run"]] = survey_of(said)
    return sifted


# -- inside a worker ----------------------------------------------------------------------------------------


def sieve_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Jobs to rows of _SCHEMA."""
    for batch in batches:
        for job in batch.to_pylist():
            yield from sieved_rows(job["run"], Path(job["path"]), job["threads"])


def sieved_rows(run: int, path: Path, threads: int) -> Iterator[pa.RecordBatch]:
    folder = open_folder(path)
    try:
        sieved = sieve(folder, threads)
    except Blemished:
        return
    rows = 0
    for told in (*history_rows(sieved), *entry_rows(sieved), *finding_rows(sieved)):
        batch = batch_of(run, told)
        rows += batch.num_rows
        yield batch
    said = {
        **told_of(folder, sieved),
        "rows": rows,
        "used": list(sieved.passed),
        "whole": sorted(sieved.whole),
    }
    yield batch_of(run, {"what": "survey", "text": pa.array([json.dumps(said)])})


def history_rows(sieved: Sieved) -> Iterator[dict[str, Any]]:
    """What passes; where a partition passes whole, every move of a process besides."""
    history, whole = sieved.history, np.array(sorted({MISSING} | sieved.whole))
    for name, kind in KINDS.items():
        items = getattr(history, name)
        for rows in sliced(*(passed.rows[name] for passed in sieved.passed.values())):
            position = rows - np.searchsorted(items.line, items.line[rows]) + 1
            yield client_rows(history, kind, items.where(rows), position, whole)
    for lines in sliced(sieved.moves.line if sieved.whole else whole[:0]):
        none = np.full(len(lines), MISSING)
        at_line = Items(line=lines, partition=none, value=none, offset=none)
        yield client_rows(history, "line", at_line, np.zeros(len(lines)), whole)


def sliced(*rows: Ints) -> Iterator[Ints]:
    """The rows in file order, so many at once."""
    ordered = np.sort(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64)
    for at in range(0, len(ordered), ROWS_AT_ONCE):
        yield ordered[at : at + ROWS_AT_ONCE]


def client_rows(history: History, kind: str, items: Items, position: Any, whole: Ints) -> dict[str, Any]:
    """Rows of the history frame."""
    line, offset = items.line, items.offset
    return {
        "what": "history",
        "kind": kind,
        "block": np.zeros(len(line), dtype=np.int64),
        "at": line,
        "index": history.indexes(line),
        "pos": position,
        "time": history.time[line],
        "process": history.process[line],
        "type": pa.array(TYPES).take(pa.array(history.type[line])),
        "f": pa.array(FS).take(pa.array(history.f[line])),
        "partition": masked(items.partition, kind == "line"),
        "value": masked(items.value, kind not in ("send", "read")),
        "offset": pa.array(offset.astype(np.int64), mask=offset == MISSING),
        "whole": np.isin(items.partition, whole),
    }


def masked(values: Ints, absent: bool) -> Any:
    return pa.nulls(len(values), pa.int64()) if absent else values


def entry_rows(sieved: Sieved) -> Iterator[dict[str, Any]]:
    """Rows of the entries frame."""
    for node, dump in sieved.dumps.items():
        partition = {key: len(passed.entries[node]) for key, passed in sieved.passed.items()}
        keys = np.repeat(list(partition.keys()), list(partition.values()))
        which = np.concatenate([passed.entries[node] for passed in sieved.passed.values()])
        for at in range(0, len(which), ROWS_AT_ONCE):
            rows = which[at : at + ROWS_AT_ONCE]
            yield {
                **{name: getattr(dump, name)[rows] for name in _ENTRY},
                "what": "entry", "node": node, "block": np.zeros(len(rows), dtype=np.int64), "at": rows,
                "partition": keys[at : at + ROWS_AT_ONCE],
                "value": pa.array(dump.value[rows].astype(np.int64), mask=~dump.ours[rows]),
            }  # fmt: skip


def finding_rows(sieved: Sieved) -> Iterator[dict[str, Any]]:
    """What was found of transactions, some findings a row."""
    for at in range(0, len(sieved.found), FINDINGS_A_ROW):
        told = [
            {name: value for name, value in found.items() if name != "run" and value is not None}
            for found in sieved.found[at : at + FINDINGS_A_ROW]
        ]
        yield {"what": "found", "text": pa.array([json.dumps(told)])}


def batch_of(run: int, told: dict[str, Any]) -> pa.RecordBatch:
    """Columns as a batch of _SCHEMA: a single word is the same in every row, what is not told is null."""
    size = next(len(column) for column in told.values() if not isinstance(column, str))
    told = {"run": np.full(size, run, dtype=np.int32), "bad": np.zeros(size, dtype=np.bool_), **told}
    columns = []
    for column in _SCHEMA:
        value = told.get(column.name)
        if value is None:
            columns.append(pa.nulls(size, column.type))
        elif isinstance(value, str):
            columns.append(pa.repeat(value, size))
        else:
            columns.append((value if isinstance(value, pa.Array) else pa.array(value)).cast(column.type))
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
