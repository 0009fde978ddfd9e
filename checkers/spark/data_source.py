"""Spark's format "floodmark" (checkers/tables.py registers it).

A table whose rows are lines of a file is read in the judge's ranges, each by a task of its own. The others,
such as `partitions`, follow from the whole run: one task reads all of it, for each run.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from floodmark.checkers.judge.layout import RunWork
from floodmark.checkers.read.facts import DumpFacts
from floodmark.checkers.read.folder import Special, open_folder
from floodmark.checkers.read.ranges import RANGE_BYTES, Kind, Range
from floodmark.checkers.read.tables import LISTS, read_range
from floodmark.checkers.tables import SCHEMAS, open_runs, tables_of, with_folder
from floodmark.harness.errors import UsageError
from floodmark.harness.run_location import Place

_OF_LINES: dict[str, Kind] = {
    **dict.fromkeys([*LISTS.values(), "moves", "empty_polls", "lines"], "history"),
    "entries": "dump", "trace": "trace",
}  # fmt: skip
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What to read of a run: these ranges, or all of it where there are none."""

    number: int
    name: str  # of the folder, as `folder` shows it
    path: Place
    special: Special
    ranges: Sequence[Range] = ()
    size: int  # bytes, about


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads: a piece of a big run, or many small runs."""

    works: Sequence[Work]


class RunTables(DataSource):
    """One of the tables, of all runs that the path names."""

    @classmethod
    def name(cls) -> str:
        return "floodmark"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMAS[self._table()])

    def reader(self, schema: StructType) -> "Reader":
        several = json.loads(self.options.get("paths", "[]")) or [self.options.get("path", "")]
        return Reader(self._table(), several)

    def _table(self) -> str:
        asked: str = self.options.get("table", "")
        if asked not in SCHEMAS:
            raise UsageError(f"option table: {asked!r} is none of {', '.join(SCHEMAS)}")
        return asked


class Reader(DataSourceReader):
    def __init__(self, table: str, paths: Sequence[str]) -> None:
        self._table, self._paths = table, paths

    def partitions(self) -> Sequence[Part]:
        parts: list[list[Work]] = []
        filled = RANGE_BYTES
        for work in self._works():
            if filled + work.size > RANGE_BYTES:
                parts.append([])
                filled = 0
            parts[-1].append(work)
            filled += work.size
        return [Part(works) for works in parts] or [Part(())]  # for none PySpark would make one of its own

    def _works(self) -> Iterator[Work]:
        kind = _OF_LINES.get(self._table)
        for number, (name, folder) in enumerate(open_runs(self._paths)):
            run = RunWork.of(number, folder)
            whole = Work(number=number, name=name, path=folder.path, special=folder.special, size=run.size)
            if kind is None:
                yield whole
                continue
            of_nodes: dict[str | int, list[Range]] = {}  # Parquet that cannot be read is replaced as a whole
            for at, one in enumerate(one for one in run.ranges if one.kind == kind):
                of_nodes.setdefault(one.node if one.is_parquet and one.node else at, []).append(one)
            for ranges in of_nodes.values():
                size = sum(RANGE_BYTES if one.is_parquet else one.end - one.start for one in ranges)
                yield replace(whole, ranges=ranges, size=size)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        for work in partition.works:
            for table in _tables_of(self._table, work):
                yield from table.cast(SCHEMAS[self._table]).to_batches(max_chunksize=_BATCH_ROWS)


def _tables_of(name: str, work: Work) -> Iterator[pa.Table]:
    parsed = [read_range(one, work.special) for one in work.ranges]
    flawed = [one.facts.node for one in parsed if isinstance(one.facts, DumpFacts) and one.facts.flaw]
    if parsed and not flawed:
        yield from (with_folder(one.tables[name], {work.number: work.name}) for one in parsed)
        return
    table = tables_of({work.number: (work.name, open_folder(work.path))}).get(name)
    if table is not None:
        yield table.filter(pc.is_in(table["node"], pa.array(flawed[:1]))) if flawed else table
