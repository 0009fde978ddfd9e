"""Measures how much work the laws do: rows that DuckDB's operators pass on, and lines of Python that run.

    python tests/support/laws_growth.py --records 5000 [SHAPE...]     how it and the time grow from n to 4n

Rules kept here: work is counted, by statement and by family, and is the same on any machine; a join that
compares each row with each costs their product, whatever it lets through. Time is only reported: it also
shows what no count shows, long lists inside a row and the inside of numpy.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import laws_shapes
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
    cpu_s: dict[str, float] = field(default_factory=dict)  # by family
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


def work_of(
    tables: Mapping[str, pa.Table], families: Sequence[Family] = FAMILIES, *, lines: bool = True
) -> Work:
    work = Work()
    with duckdb.connect(config={"threads": 1}) as db:
        unit = CountedUnit(db, tables, work)
        for family in families:
            name, began = family.__name__, time.process_time()
            if lines:
                with counted_lines(work, f"lines of {name}"):
                    family(unit)
            else:
                family(unit)
            work.cpu_s[name] = time.process_time() - began
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5_000)
    parser.add_argument("shapes", nargs="*", default=list(laws_shapes.SHAPES))
    asked = parser.parse_args()
    few, many = asked.records, 4 * asked.records
    healthy = None
    for name in asked.shapes:
        with tempfile.TemporaryDirectory() as root:
            works = [
                work_of(laws_shapes.tables(name, records=n, root=Path(root) / str(n)), lines=False)
                for n in (few, many)
            ]
        cpu_s = [sum(work.cpu_s.values()) for work in works]
        healthy = healthy or cpu_s[1]
        slow = {
            family: f"{works[0].cpu_s[family]:.2f} -> {s:.2f}"
            for family, s in works[1].cpu_s.items()
            if s > 0.2 and s > 6 * works[0].cpu_s[family]
        }
        rows = grown(*works, times=6, floor=20 * many)
        summary = f"{name:36} {cpu_s[0]:6.2f} -> {cpu_s[1]:6.2f} s, {cpu_s[1] / healthy:4.1f} of healthy"
        print(summary, slow or "", rows or "", flush=True)


if __name__ == "__main__":
    main()
