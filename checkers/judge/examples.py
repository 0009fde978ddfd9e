"""Reduces findings to what a verdict shows: for each group its exact count and the few worst.

A group is the findings of one (run, name, permit). Rows go from units to the driver, where they are merged,
because a group may come from many units. Both steps use the same total order, so the verdict does not depend
on how the findings were gathered.

Columns of a row: those of tables.FINDINGS; `count`, of the group; `rank`, the place in the group, from 1;
`blame`, the sentence about what is to blame (blame.py), null where the finding says it, and whether that is
known (`blame_known`); `blamed_node`, `blamed_seq`, the line of the trace to blame where it is not (node,
seq); `at`, the place of that line.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from floodmark.checkers.judge.blame import with_blame
from floodmark.checkers.laws.tables import FINDINGS
from floodmark.checkers.laws.unit import Unit, opened

EXAMPLES = 5
Row = dict[str, Any]
_ROWS = pa.schema([
    *FINDINGS, ("count", pa.int64()), ("rank", pa.int64()), ("at", pa.int64()),
    ("blame", pa.string()), ("blame_known", pa.bool_()), ("blamed_node", pa.string()),
    ("blamed_seq", pa.int64()),
])  # fmt: skip
# In the rows of a unit the first row of each group has its count. A group may contain most records of a run:
# only the rows that are as low as its worst ones are compared in full.
_RANKED = f"""
    with groups as (
        select run, name, permit, sum(count) filter (rank = 1)::bigint as count,
            list_last(min({{'partition': partition, 'offset': "offset"}}, {EXAMPLES})) as last
        from ranked_rows group by run, name, permit),
    lowest as (
        select r.* exclude (count, rank), g.count
        from ranked_rows r join groups g
            on r.run = g.run and r.name = g.name and r.permit is not distinct from g.permit
        where {{'partition': partition, 'offset': "offset"}} <= last)
    select *, row_number() over (partition by run, name, permit order by partition nulls last,
            "offset" nulls last, value nulls first, nodes nulls first, process nulls first,
            how nulls first, node, seq, ops, seen, epoch, upto, time) as rank
    from lowest qualify rank <= {EXAMPLES}"""

_PLACED = """
    with worst as (
        select *, coalesce(blamed_node, node) as at_node, coalesce(blamed_seq, seq) as at_seq
        from worst_rows),
    lines as (
        select t.run, t.node, t.seq, min(t."at") as "at" from trace t
        semi join worst w on t.run = w.run and t.node = w.at_node and t.seq = w.at_seq group by all)
    select w.* exclude (at_node, at_seq), lines."at" from worst w
    left join lines on w.run = lines.run and w.at_node = lines.node and w.at_seq = lines.seq"""


def worst(unit: Unit) -> list[Row]:
    """The EXAMPLES lowest of each group of findings in `claimed`, each with the line to blame."""
    if unit.is_empty("found"):
        return []
    unit.view("ranked_rows", 'select *, 1 as "count", 1 as "rank" from claimed')
    blamed = with_blame(unit, unit.rows(_RANKED).to_pylist())
    unit.load("worst_rows", pa.Table.from_pylist(blamed, schema=_ROWS.remove(_ROWS.get_field_index("at"))))
    rows: list[Row] = unit.rows(_PLACED).to_pylist()
    return rows


def merged(units: Sequence[Sequence[Row]]) -> list[Row]:
    """Merge the rows of all units: the counts of all, and only the worst."""
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
