"""The order of sends: offsets against real time, against their process, against their place in the op.

A finding is a send whose offset is lower than one that came before it; it is permitted only if its own
record was lost with leave, or the records of all those that were higher. Of one process, and inside one op,
the offset of an ok send without an ack's is the only offset at which its value was read; real time is held
against acks alone.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from checkers import names
from checkers.agreement import named
from checkers.facts import Facts
from checkers.findings import RETRIES, finding, spread


def by_send(values: DataFrame, facts: Facts) -> DataFrame:
    """realtime-order, nonmonotonic-send and int-nonmonotonic-send, each send against what came before it."""
    told = values.select("*", *named(told_at="coalesce(ack, if(size(read_at) = 1, read_at[0], null))"))
    sends = told.where("type = 'ok' and told_at is not null and not repeated").select(
        "run",
        "partition",
        "value",
        "process",
        "f",
        "pos",
        "ack",
        "told_at",
        "excuse",
        "invoked",
        "done",
        "line",
        "retried",
        *named(
            m="explode(array(struct(false as asks, done as moment), "
            "struct(true as asks, coalesce(invoked, done) as moment)))"
        ),
    )
    if facts.overlapping is not None:
        alone = facts.overlapping.select("run", "process", F.lit(True).alias("overlaps"))
        sends = sends.join(alone, ["run", "process"], "left")
    else:
        sends = sends.withColumn("overlaps", F.lit(None))
    past = Window.unboundedPreceding
    partition = Window.partitionBy("run", "partition").orderBy("m.moment", "m.asks").rowsBetween(past, -1)
    process = Window.partitionBy("run", "process", "partition").orderBy("done").rangeBetween(past, -1)
    # Not by its index, which may be that of another op too.
    op = Window.partitionBy("run", "partition", "line").orderBy("pos").rowsBetween(past, -1)
    acked = "not m.asks and ack is not null and overlaps is null"
    timed = sends.select("*", *so_far(acked, partition, "real"))
    asked = timed.where("m.asks").select(
        "*", *so_far("overlaps is null", process, "mine"), *so_far("true", op, "op")
    )
    return spread(asked, realtime_order(), nonmonotonic_send(), int_nonmonotonic_send())


def so_far(when: str, window: WindowSpec, name: str) -> list[Column]:
    """The highest offset so far that nothing excuses, and the highest of all with its excuse and index."""
    bare = F.expr(f"max(if({when} and excuse is null, told_at, null))")
    top = F.expr(f"max(if({when}, struct(told_at, excuse, done), null))")
    return [bare.over(window).alias(f"{name}_bare"), top.over(window).alias(f"{name}_top")]


def lower(name: str, which: str, law: str, by: str) -> Column:
    """The send at hand has a lower offset than the highest of those before it."""
    excused = f"least(excuse, if({which}_bare > told_at, null, {which}_top.excuse))"
    return finding(
        name,
        f"{which}_top.told_at > told_at and {law}",
        offset="told_at",
        value="value",
        seen=f"{which}_top.told_at",
        process="process",
        ops=f"array_distinct(array_compact(array({which}_top.done, invoked, done)))",
        by=by.format(excused=excused),
    )


def realtime_order() -> Column:
    """Send a was ok before send b was invoked, yet b has the lower offset."""
    law = "ack is not null and overlaps is null and invoked is not null"
    return lower(names.REALTIME_ORDER, "real", law, "{excused}")


def nonmonotonic_send() -> Column:
    """A process's later ok send at a lower offset than one of an op before."""
    return lower(
        names.NONMONOTONIC_SEND,
        "mine",
        "overlaps is null",
        f"coalesce({{excused}}, if(retried, {RETRIES}, null))",
    )


def int_nonmonotonic_send() -> Column:
    """The same inside one op: what it sends to a partition is sent in order, by a transaction too."""
    return lower(names.INT_NONMONOTONIC_SEND, "op", "true", f"if(retried, {RETRIES}, null)")
