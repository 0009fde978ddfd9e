"""Findings to what a verdict tells of them: the few worst of each group, with the group's exact count."""

import pyarrow as pa
from pyspark.sql import Row

from checkers import names
from checkers.guilt import SUSPECTS
from checkers.laws.unit import Unit
from checkers.verdicts import EXAMPLES


def worst(unit: Unit, findings: pa.Table) -> list[Row]:
    """Of each (run, name, permit) the EXAMPLES lowest, and of each run the SUSPECTS earliest of those that
    may be to blame for a loss; `count` is that of the group, `rank` and `suspect` the place in either. The
    orders are total, so that however the findings were gathered the verdict is the same."""
    guilty = ", ".join(f"'{name}'" for name in names.GUILTY)
    unit.load("findings", findings)
    ranked = unit.rows(f"""
        select *, row_number() over (partition by run, name, permit order by partition nulls last,
                "offset" nulls last, value nulls first, nodes nulls first, process nulls first,
                how nulls first, node, seq, ops, seen, epoch, upto, tick) as rank,
            count(*) over (partition by run, name, permit) as count,
            case when name in ({guilty}) then row_number() over (
                partition by run, name in ({guilty}) order by tick nulls last, node, seq) end as suspect
        from findings qualify rank <= {EXAMPLES} or suspect <= {SUSPECTS}""")
    return [Row(**row, by=row["permit"]) for row in ranked.to_pylist()]
