"""What clients asked and how it ended, as tables of a DuckDB database: the history's `lines` and `sends`, and

    ops     a row an invocation: at, f, process, began (its time), next_began (of its process), answer: the
            next line of its process, if that completes it, as {type, time, at, records}; else null

`loads` tells in each whether a row is of the load.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add

import duckdb
import numpy as np
import pyarrow as pa

from floodmark.checkers.read.arrays import concatenated
from floodmark.checkers.read.facts import HistoryFacts
from floodmark.checkers.read.folder import NOBODY_SPECIAL, Special
from floodmark.checkers.read.history_parquet import with_parquet
from floodmark.checkers.read.json_lines import database
from floodmark.checkers.read.ranges import cut
from floodmark.checkers.read.tables import Parsed, read_range, schema_of
from floodmark.harness.run_location import Place

KEPT = {
    "lines": ["at", "time", "process", "type", "f"],
    "sends": ["at", "time", "process", "type", "partition", "offset", "value", "pos"],
}
NOTHING = {
    name: pa.schema([schema_of(name).field(column) for column in columns]).empty_table()
    for name, columns in KEPT.items()
}
NOTHING["lines"] = NOTHING["lines"].append_column("records", pa.array([], pa.int64()))
_OPS = """
create temp table ops as
with paired as (
    select *, lead({'type': type, 'time': time, 'at': "at", 'records': records}) over line as following
    from lines window line as (partition by process order by "at"))
select "at", f, process, loads, time as began,
    lead(time) over (partition by process order by "at") as next_began,
    case when following.type <> 'invoke' then following end as answer
from paired where type = 'invoke'"""


def read_history(place: Place, special: Special = NOBODY_SPECIAL, *, threads: int = 1) -> Iterator[Parsed]:
    """Its ranges, in order: the KEPT tables, and how many records each line has. OSError if unreadable."""
    ranges = list(with_parquet(cut(0, "history", None, place)))
    if min(threads, len(ranges)) < 2:
        yield from (_kept(read_range(one, special)) for one in ranges)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda one: _kept(read_range(one, special)), ranges)


def _kept(parsed: Parsed) -> Parsed:
    """The needed part of a range: the rest of a large history would not fit into memory."""
    tables = {name: parsed.tables[name].select(columns) for name, columns in KEPT.items()}
    at = tables["lines"]["at"].to_numpy()
    records = np.zeros(len(at), dtype=np.int64)
    for name in ("sends", "reads"):  # their rows are in the order of the lines
        items = parsed.tables[name]["at"].to_numpy()
        records += np.searchsorted(items, at, "right") - np.searchsorted(items, at, "left")
    tables["lines"] = tables["lines"].append_column("records", pa.array(records))
    return Parsed(tables=tables, facts=parsed.facts)


def facts_of(history: Sequence[Parsed]) -> HistoryFacts:
    """Those of all its ranges."""
    facts = (one.facts for one in history if isinstance(one.facts, HistoryFacts))
    return reduce(add, facts, HistoryFacts(run=0, number=0))


def database_of(history: Sequence[Parsed], special: Special) -> duckdb.DuckDBPyConnection:
    """The tables of a history that was read."""
    made = database().cursor()
    aside = ", ".join(map(str, (-1, *special.settling, *special.final)))
    for name, table in concatenated([NOTHING, *(one.tables for one in history)]).items():
        made.register(f"all_{name}", table)
        # A time may be any 64-bit integer: a sum of two may not.
        wide = f"* replace (time::hugeint as time), process not in ({aside}) as loads"
        made.execute(f"create temp view {name} as select {wide} from all_{name}")
    made.execute(_OPS)
    return made
