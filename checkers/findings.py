"""The shape of a finding inside Spark, and how checks that look at one row each run in a single pass.

A row check is a pure function to a Column: the finding as a struct where its law is broken, else null.
`spread` runs any number of them over a frame at once and gives the findings as rows. What permits a finding
is a number (`by`), in the order in which the format names the first that applies; null is a bug.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

ACKS, UNCLEAN, UNCLEAN_MAYBE, BUDGET, BUDGET_MAYBE, RETRIES, SUBSCRIBE, ISOLATION = range(1, 9)
PERMITTED_BY = {
    ACKS: "acks",
    UNCLEAN: "unclean.leader.election.enable",
    UNCLEAN_MAYBE: "unclean.leader.election.enable",
    BUDGET: "fault budget",
    BUDGET_MAYBE: "fault budget",
    RETRIES: "retries",
    SUBSCRIBE: "subscribe",
    ISOLATION: "isolation",
}
MAYBES = (UNCLEAN_MAYBE, BUDGET_MAYBE)  # permitted, but nobody saw for certain: the name is unknown too
DOUBT = 99  # no finding: nobody can tell whether it is one, and its name is unknown

COLUMNS = {
    "run": "int",
    "name": "string",
    "partition": "bigint",
    "offset": "bigint",
    "value": "bigint",
    "how": "string",
    "nodes": "array<string>",
    "ops": "array<bigint>",
    "seen": "bigint",  # one more number for the words: the other offset, value or epoch
    "process": "bigint",
    "by": "int",
    "node": "string",  # whose line of the trace is to blame: its node, seq and tick (steps.py)
    "seq": "bigint",
    "tick": "bigint",
    "epoch": "bigint",  # the record's own
    "upto": "bigint",  # the records concerned are those from `offset` up to here; null: all from there on
}
_OWN = frozenset({"run", "partition"})  # always taken from the row


def finding(name: str, broken: str, **told: str) -> Column:
    """A row check: the finding where the law is broken. All is SQL; what is not told is null. It is one
    text: a column made of columns costs more than all that is then done with it."""
    told = {**{key: key if key in _OWN else "null" for key in COLUMNS}, "name": f"'{name}'", **told}
    fields = ", ".join(f"'{key}', cast({told[key]} as {kind})" for key, kind in COLUMNS.items())
    return F.expr(f"case when {broken} then named_struct({fields}) end")


def spread(rows: DataFrame, *checks: Column) -> DataFrame:
    """The findings of all row checks over these rows; a check that gives an array of findings gives all of
    them."""
    return rows.select(F.inline(F.array_compact(F.array(*checks))))


def kept(frame: DataFrame) -> DataFrame:
    """The frame computed once, when first asked for, and without its history: plans that begin with it stay
    short, and planning is most of what a small run costs."""
    return frame.localCheckpoint(eager=False)


def together(parts: list[DataFrame], small: bool) -> DataFrame:
    """Frames under one another, gathered."""
    return gathered(reduce(DataFrame.unionAll, parts), small)


def gathered(frame: DataFrame, small: bool) -> DataFrame:
    """Small work in the one task, so that nothing behind needs a shuffle: a union is no longer one."""
    return frame.coalesce(1) if small else frame
