"""The sieve inside Spark: folders go in, rows of what passes come out, in the columns of the checks' frames.

One task sieves one run. A run that is not sieved gives one row that says so, and is then parsed line by line.
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

from checkers.columns import FS, MISSING, NEMESIS_F, OK, TYPES, Blemished, Bools, Ints, Items
from checkers.findings import kept
from checkers.folder import Folder, open_folder
from checkers.sieve import Sieved, sieve
from checkers.masters import refuse_bare_workers
from checkers.survey import Survey

SIEVED_FROM_BYTES = 1 << 20  # in all; below this a worker's start costs more than the checks
SIEVED_UP_TO_BYTES = 3 << 30  # a worker needs between two and three times as much memory
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
    vouched: dict[int, frozenset[int]] = field(default_factory=dict)  # partitions that did not pass whole
    rows: int = 0
    passed: DataFrame | None = None


def sift(spark: SparkSession, folders: Sequence[Folder], sizes: Sequence[int], tasks: int) -> Sifted:
    """Sieves the folders, where there is enough of them for it to pay."""
    chosen = [
        run
        for run, size in enumerate(sizes)
        if size <= SIEVED_UP_TO_BYTES and folders[run].judged and isinstance(folders[run].path, Path)
    ]  # a far run is Spark's to read: a worker's Python sees only what is mounted there
    if sum(sizes[run] for run in chosen) < SIEVED_FROM_BYTES:
        return Sifted()
    if not chosen:
        return Sifted()
    paths = json.dumps([{"run": run, "path": str(folders[run].path.resolve())} for run in chosen])
    jobs = F.from_json(F.lit(paths), "array<struct<run:int,path:string>>")
    work = spark.range(0, len(chosen), 1, min(tasks, len(chosen))).select(
        F.get(jobs, F.col("id").cast("int")).alias("job")
    )
    passed = kept(work.select("job.run", "job.path").mapInArrow(sieve_batches, _COLUMNS))
    try:
        told = passed.where("what = 'survey'").select("run", "text").collect()
    except (PySparkException, Py4JError) as error:
        refuse_bare_workers(spark, error)
        return Sifted()  # a worker died: the slow way then
    sifted = Sifted(passed=passed)
    for row in told:
        said = json.loads(row["text"])
        sifted.rows += said.pop("rows")
        sifted.vouched[row["run"]] = frozenset(said.pop("vouched"))
        sifted.surveys[row["run"]] = Survey(**{**said, "partitions": set(said["partitions"])})
    return sifted


# -- inside a worker
# ------------------------------------------------------------------------------------------


def sieve_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """(run, path) rows to rows of _SCHEMA."""
    for batch in batches:
        for job in batch.to_pylist():
            yield from sieved_rows(job["run"], Path(job["path"]))


def sieved_rows(run: int, path: Path) -> Iterator[pa.RecordBatch]:
    folder = open_folder(path)
    try:
        sieved = sieve(folder)
    except Blemished:
        return
    rows = 0
    for told in (*history_rows(sieved), *entry_rows(sieved)):
        batch = batch_of(run, told)
        rows += batch.num_rows
        yield batch
    said = {
        **survey_of(folder, sieved),
        "rows": rows,
        "vouched": sorted(folder.partitions.keys() - sieved.whole),
    }
    yield batch_of(run, {"what": "survey", "text": pa.array([json.dumps(said)])})


def survey_of(folder: Folder, sieved: Sieved) -> dict[str, Any]:
    """What survey.Survey holds, of a run without a blemish."""
    history, sends = sieved.history, sieved.sends
    clients = history.f != NEMESIS_F
    kinds = np.bincount(history.type[clients], minlength=len(TYPES)).tolist()
    acked = (sends.type == OK) & ~np.isin(sends.process, np.array(folder.settle_processes, dtype=np.int64))
    items = (history.sends, history.reads, history.ends, history.held)
    return {
        "told_lines": len(history.time), "ok": kinds[1], "fail": kinds[2], "info": kinds[3],
        "acked": int(acked.sum()), "nemesis": [json.loads(line) for line in history.nemesis],
        "entries": {node: len(dump.offset) for node, dump in sieved.dumps.items()},
        "partitions": sorted({int(key) for one in items for key in np.unique(one.partition)}),
    }  # fmt: skip


def history_rows(sieved: Sieved) -> Iterator[dict[str, Any]]:
    """Sends and reads of what passes; of a partition that passes whole all else too, and every move of a
    process."""
    history = sieved.history
    for kind, items in (("send", history.sends), ("read", history.reads)):
        yield client_rows(sieved, kind, items, passing(sieved, items.partition, items.value, sieved.values))
    for kind, items in (("end", history.ends), ("held", history.held)):
        yield client_rows(sieved, kind, items, passing(sieved, items.partition, items.value, {}))
    moves = np.array([FS.index(name) for name in ("assign", "subscribe", "crash")])
    lines = np.flatnonzero(np.isin(history.f, moves)) if sieved.whole else np.zeros(0, dtype=np.int64)
    none = np.full(len(lines), MISSING)
    at_line = Items(line=lines, partition=none, value=none, offset=none)
    yield client_rows(sieved, "line", at_line, np.ones(len(lines), dtype=np.bool_))


def passing(sieved: Sieved, partition: Ints, value: Ints, odd: dict[int, Ints]) -> Bools:
    """Of rows by partition and value (or offset): those of whole partitions, and the odd ones of the
    others."""
    passes = np.isin(partition, np.array(sorted(sieved.whole), dtype=np.int64))
    for key, values in odd.items():
        if len(values):
            mine = np.flatnonzero(partition == key)
            passes[mine[np.isin(value[mine], values)]] = True
    return passes


def client_rows(sieved: Sieved, kind: str, items: Items, passes: Bools) -> dict[str, Any]:
    """Rows of the history frame."""
    history, which = sieved.history, np.flatnonzero(passes)
    line, partition, offset = items.line[which], items.partition[which], items.offset[which]
    position = which - np.searchsorted(items.line, line) + (kind != "line")
    return {
        "what": "history",
        "kind": kind,
        "block": np.zeros(len(which), dtype=np.int64),
        "at": line,
        "index": line,
        "pos": position.astype(np.int32),
        "time": history.time[line],
        "process": history.process[line],
        "type": pa.array(TYPES).take(pa.array(history.type[line])),
        "f": pa.array(FS).take(pa.array(history.f[line])),
        "partition": masked(partition, kind == "line"),
        "value": masked(items.value[which], kind not in ("send", "read")),
        "offset": pa.array(offset, mask=offset == MISSING),
        "whole": np.isin(partition, np.array([MISSING, *sorted(sieved.whole)])),
    }


def masked(values: Ints, absent: bool) -> pa.Array:
    return pa.nulls(len(values), pa.int64()) if absent else pa.array(values)


def entry_rows(sieved: Sieved) -> Iterator[dict[str, Any]]:
    """Rows of the entries frame."""
    for node, dump in sieved.dumps.items():
        which = np.flatnonzero(passing(sieved, dump.partition, dump.offset, sieved.offsets))
        told = dump.where(which)
        yield {
            "what": "entry", "node": node, "block": np.zeros(len(which), dtype=np.int64), "at": which,
            "partition": told.partition, "offset": told.offset, "epoch": told.epoch, "crc": told.crc,
            "value": pa.array(told.value, mask=~told.ours), "crc_ok": told.crc_ok, "aborted": told.aborted,
        }  # fmt: skip


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
            columns.append(pa.array(value, type=column.type) if not isinstance(value, pa.Array) else value)
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
