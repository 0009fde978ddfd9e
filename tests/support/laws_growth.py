"""Measures how much work the laws do: rows that DuckDB's operators pass on, and lines of Python that run.

Rules kept here: work is counted, by statement and by family, and is the same on any machine; a join that
compares each row with each costs their product, whatever it lets through.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pyarrow as pa

from floodmark.checkers import laws
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.unit import Family, Unit

EACH_WITH_EACH = ("NESTED_LOOP_JOIN", "BLOCKWISE_NL_JOIN", "CROSS_PRODUCT")
HOME = str(Path(laws.__file__).parent)


@dataclass(slots=True)
class Work:
    rows: Counter[str] = field(default_factory=Counter)  # statement, by its beginning -> rows
    lines: Counter[str] = field(default_factory=Counter)  # family -> lines of Python
    statements: list[str] = field(default_factory=list)

    def all(self) -> Counter[str]:
        return self.rows + self.lines


class CountedUnit(Unit):
    """A unit that counts the rows its statements pass on."""

    def __init__(self, db: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table], work: Work) -> None:
        self.work = work
        super().__init__(db, tables)
        db.execute("pragma enable_profiling = 'no_output'")

    def rows(self, select: str) -> pa.Table:
        self.statements.append(select)
        self._db.execute(f"create or replace temp table counted as {select}")
        self.count(select)
        return self._db.sql("from counted").to_arrow_table()

    def _run(self, statement: str) -> None:
        super()._run(statement)
        self.count(statement)

    def count(self, statement: str) -> None:
        profile = json.loads(self._db.get_profiling_information("json"))
        operators = profile.get("operator", ())  # making a view takes none
        self.work.rows[name_of(statement)] += sum(rows_of(one) for one in operators)


def name_of(statement: str) -> str:
    """The name of the table or of the finding that the statement makes, if any."""
    made = re.match(r"create temp table (\S+)|insert into found .*? select '(\S+)'", statement)
    return next(filter(None, made.groups())) if made else " ".join(statement.split())[:60]


def rows_of(operator: Mapping[str, Any]) -> int:
    below = operator.get("children", ())
    own = operator["intermediate_rows"]
    if operator["type"] in EACH_WITH_EACH:
        left, right = (one["intermediate_rows"] for one in below)
        own = max(own, left * right)
    return own + sum(rows_of(one) for one in below)


@contextmanager
def counted_lines(work: Work, family: str) -> Iterator[None]:
    """A context that counts the lines of the laws' modules that run in it."""

    def inside(frame: FrameType, event: str, arg: object) -> Any:
        work.lines[family] += event == "line"
        return inside

    def called(frame: FrameType, event: str, arg: object) -> Any:
        return inside if frame.f_code.co_filename.startswith(HOME) else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)


def work_of(tables: Mapping[str, pa.Table], families: Sequence[Family] = FAMILIES) -> Work:
    work = Work()
    with duckdb.connect(config={"threads": 1}) as db:
        unit = CountedUnit(db, tables, work)
        for family in families:
            with counted_lines(work, f"lines of {family.__name__}"):
                family(unit)
        work.statements = unit.statements
    return work


def grown(few: Work, many: Work, *, times: float, floor: int) -> dict[str, tuple[int, int]]:
    """The statements and families whose work grew more than so many times; work below the floor does not
    count."""
    before, after = few.all(), many.all()
    return {
        name: (before[name], size)
        for name, size in after.items()
        if size > floor and size > times * max(before[name], 1)
    }
