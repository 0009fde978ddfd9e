"""One unit of work: a DuckDB database with the tables of tables.py, and the findings that laws add to it.

    unit = Unit(tables, memory_mb=2048, spill=Path("/tmp/x"))
    unit.make("values", "select ...")                    a table that several laws use
    unit.find("lost-write", "select run, ... where ...")  every row is a finding

A law never checks whether anything is wrong before it runs: the same statements run on every folder, and
damage costs nothing extra. Planning a statement takes longer than running it on a small run, so those are
left out that join a table which is empty: the laws of the trace where no run has one (families.py), the last
steps of completeness.py where no partition is suspected. `statements` keeps the statements that ran.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa

from floodmark.checkers.laws.finding_names import If, unknown_if
from floodmark.checkers.laws.permits import DOUBT
from floodmark.checkers.laws.tables import FINDINGS, TABLES

Family = Callable[["Unit"], None]  # a family of laws: makes tables and findings


class Unit:
    """The database of one unit; its columns may be dictionaries, and missing tables are empty."""

    def __init__(self, db: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> None:
        self._db = db
        self.statements: list[str] = []
        self._loaded: dict[str, pa.Table] = {}
        self._grown: set[str] = set()  # tables made by `append`
        # An ASOF join never compares each row with each: DuckDB does where it expects few rows on the left,
        # and what laws look for is rare until a run is broken.
        self._db.execute("set asof_loop_join_threshold = 0")
        for name, schema in TABLES.items():
            self.load(name, tables.get(name, schema.empty_table()))
        self.load("findings", FINDINGS.empty_table())
        self._db.execute("create temp table found as select * from findings")

    def load(self, name: str, table: pa.Table) -> None:
        """Make the Arrow table available under this name."""
        self._db.register(name, table)
        self._loaded[name] = table

    def has(self, name: str) -> bool:
        """Whether a table of this name was loaded, or made by `append`."""
        return name in self._loaded or name in self._grown

    def is_empty(self, name: str) -> bool:
        """Whether the table has no rows."""
        return not self._db.execute(f'select 1 from "{name}" limit 1').fetchall()

    def append(self, name: str, rows: pa.Table) -> None:
        """Append rows to a table of the database itself, which compresses them (at a checkpoint, many at
        once): a tenth of what Arrow takes. They go to disk if memory is short."""
        self._db.register("added", rows)
        if name in self._grown:
            self._db.execute(f'insert into "{name}" from added')
        else:
            self._grown.add(name)
            self._db.unregister(name)
            self._db.execute(f'create table "{name}" as from added')
        self._db.execute("checkpoint compressed")
        self._db.unregister("added")

    def make(self, name: str, select: str) -> None:
        """Make a table from this SELECT, computed once; it spills to disk where memory is short. An Arrow
        table of this name is replaced."""
        if self._loaded.pop(name, None) is not None:
            self._db.unregister(name)
        self._run(f'create temp table "{name}" as {select}')

    def extend(self, name: str, select: str) -> None:
        """Add rows to a table made by `make`."""
        self._run(f'insert into "{name}" {select}')

    def cut(self, column: str, rows: int, *tables: str) -> list[str]:
        """Conditions on a column of integers, exactly one of which holds for each value; each selects about
        this many rows of these tables together. They are computed from a sample (one hash in 64), which is
        precise enough."""
        total = sum(len(self._db.table(name)) for name in tables)
        slices = -(-total // rows)
        if slices < 2:
            return ["true"]
        some = " union all ".join(
            f'select "{column}" as one from {name} where hash("{column}") % 64 = 0' for name in tables
        )
        bounds = ", ".join(str(number / slices) for number in range(1, slices))
        ((numbers,),) = self._db.sql(f"select quantile_disc(one, [{bounds}]) from ({some})").fetchall()
        ends = sorted(set(numbers or ()))
        if not ends:
            return ["true"]
        return [
            f'"{column}" < {ends[0]}',
            *(f'"{column}" >= {low} and "{column}" < {high}' for low, high in pairwise(ends)),
            f'"{column}" >= {ends[-1]}',
        ]

    def view(self, name: str, select: str) -> None:
        """Name this SELECT; it is computed wherever the name is used, as far as it is needed."""
        self._run(f'create temp view "{name}" as {select}')

    def find(self, name: str, select: str) -> None:
        """Add every row as a finding of this name. The columns are those of tables.FINDINGS, in any order;
        missing ones are null."""
        self._run(f"insert into found by name select '{name}' as name, * from (\n{select}\n)")

    def add(self, findings: pa.Table) -> None:
        """Add findings that were made outside of SQL, with their names."""
        self._db.register("added", findings)
        self._run("insert into found by name select * from added")
        self._db.unregister("added")

    def table(self, name: str, order: str = "") -> pa.Table:
        """All rows of a table, in this order; of one that was loaded (and not grown since) the loaded ones as
        they are, which takes no time."""
        loaded = self._loaded.get(name) if name not in self._grown else None
        return self.rows(f'from "{name}" {order}') if loaded is None else loaded

    def rows(self, select: str) -> pa.Table:
        """The result of this SELECT, as an Arrow table."""
        self.statements.append(select)
        return self._db.sql(select).to_arrow_table()

    def _run(self, statement: str) -> None:
        self.statements.append(statement)
        self._db.execute(statement)


@contextmanager
def opened(
    tables: Mapping[str, pa.Table],
    *,
    threads: int = 1,
    memory_mb: int | None = None,
    spill: Path | None = None,
) -> Iterator[Unit]:
    """A unit with its own database in memory, which is closed afterwards. Beyond memory_mb tables spill into
    `spill`."""
    config: dict[str, str | bool | int | float | list[str]] = {"threads": threads}
    if memory_mb is not None:
        config["memory_limit"] = f"{memory_mb}MB"
    if spill is not None:
        config["temp_directory"] = str(spill)
    with duckdb.connect(config=config) as db:
        db.execute("set timezone = 'UTC'; attach ':memory:' as compressed (compress); use compressed")
        yield Unit(db, tables)


# Below the log start nothing is claimed: where it is unknown, nobody knows whether these are findings; nor,
# of a partition that run.json does not name, whether a loss permits them.
_ABOVE_LOG_START = unknown_if(If.LOG_START, traced=True)
CLAIMED = f"""
    select f.* replace (case when u.named and f.name in {_ABOVE_LOG_START}
            or not u.named and f.name in {unknown_if(If.LOG_START | If.LOSSES, traced=True)}
            then {DOUBT} else f.permit end as permit)
    from found f join runs r using (run) left join log_start_unknown u using (run, partition)
    where not list_contains(r.silent, f.name)"""


def run_families(unit: Unit, families: Sequence[Family]) -> None:
    """Run all these families. Their findings are then rows of `claimed`, which has the columns of FINDINGS:
    without those about which a run is silent. They stay in the database, because there may be a million."""
    for family in families:
        family(unit)
    unit.view("claimed", CLAIMED)
