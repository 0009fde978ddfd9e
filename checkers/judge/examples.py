"""Findings to what a verdict shows of them: of each group the few worst, with the group's exact count.

A group is the findings of one (run, name, permit). Rows go from units to the driver, and are merged there,
for a group may come from many units: both are one ranking, in orders that are total, so that however the
findings were gathered the verdict is the same.

Columns of a row: those of tables.FINDINGS; `count`, of the group; `rank`, the place in the group, from 1;
`suspect`, the place among the run's findings that may be to blame for a loss, by time, null for the others;
`at`, where the line of the trace stands that (node, seq) names.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from floodmark.checkers.judge.blame import SUSPECTS
from floodmark.checkers.laws import finding_names
from floodmark.checkers.laws.tables import FINDINGS
from floodmark.checkers.laws.unit import Unit, opened

EXAMPLES = 5
Row = dict[str, Any]
_ROWS = pa.schema([*FINDINGS, *((name, pa.int64()) for name in ("count", "rank", "at"))])
_GUILTY = ", ".join(f"'{name}'" for name in finding_names.GUILTY)
# Of ranked_rows, as units gave them, each counts its group in the first row. A group may be of most records
# of a run: only those that lie as low as its worst ones are compared in full.
_RANKED = f"""
    with groups as (
        select run, name, permit, sum(count) filter (rank = 1)::bigint as count,
            list_last(min({{'partition': partition, 'offset': "offset"}}, {EXAMPLES})) as last
        from ranked_rows group by run, name, permit),
    lowest as (
        select r.* exclude (count, rank), g.count
        from ranked_rows r join groups g
            on r.run = g.run and r.name = g.name and r.permit is not distinct from g.permit
        where {{'partition': partition, 'offset': "offset"}} <= last or r.name in ({_GUILTY}))
    select *, row_number() over (partition by run, name, permit order by partition nulls last,
            "offset" nulls last, value nulls first, nodes nulls first, process nulls first,
            how nulls first, node, seq, ops, seen, epoch, upto, tick) as rank,
        case when name in ({_GUILTY}) then row_number() over (
            partition by run, name in ({_GUILTY}) order by tick nulls last, node, seq) end as suspect
    from lowest qualify rank <= {EXAMPLES} or suspect <= {SUSPECTS}"""

_PLACED = """
    with lines as (
        select run, node, seq, min("at") as "at" from trace semi join worst_rows using (run, node, seq)
        group by run, node, seq)
    select worst_rows.*, lines."at" from worst_rows left join lines using (run, node, seq)"""


def worst(unit: Unit, findings: pa.Table) -> list[Row]:
    """Of each group the EXAMPLES lowest, and of each run the SUSPECTS earliest."""
    once = pa.repeat(pa.scalar(1, pa.int64()), findings.num_rows)
    unit.load("ranked_rows", findings.append_column("count", once).append_column("rank", once))
    unit.make("worst_rows", _RANKED)
    rows: list[Row] = unit.rows(_PLACED).to_pylist()
    return rows


def found_by_driver(findings: Iterable[Row]) -> list[Row]:
    """Findings that the driver itself has made (in the columns that apply), as a unit would give them."""
    once = {**dict.fromkeys(_ROWS.names), "count": 1, "rank": 1}
    return _ranked([{**once, **row} for row in findings])


def merged(units: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of all units, with the counts of all, and only the worst of all."""
    several = [unit for unit in units if unit]
    if len(several) <= 1:
        return list(several[0]) if several else []
    return _ranked([row for each in several for row in each])


def _ranked(rows: Sequence[Row]) -> list[Row]:
    if not rows:
        return []
    with opened({}) as unit:
        unit.load("ranked_rows", pa.Table.from_pylist(rows, schema=_ROWS))
        ranked: list[Row] = unit.rows(_RANKED).to_pylist()
    return ranked
