"""The order of sends: offsets against real time, against their process, against their place in the op.

A finding is a send whose offset is lower than one that came before it; it is permitted only if its own
record was lost with leave, or the records of all those that were higher.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from checkers import names
from checkers.agreement import named
from checkers.facts import Facts
from checkers.findings import RETRIES, finding, spread


def by_send(values: DataFrame, facts: Facts) -> DataFrame:
    """realtime-order, nonmonotonic-send and int-nonmonotonic-send, each send against what came before it."""
    sends = values.where("type = 'ok' and ack is not null and not repeated").select(
        "run",
        "partition",
        "value",
        "process",
        "f",
        "pos",
        "ack",
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
    acked = "not m.asks and overlaps is null"
    timed = sends.select("*", *so_far(acked, partition, "real"))
    asked = timed.where("m.asks").select(
        "*", *so_far("overlaps is null", process, "mine"), *so_far("true", op, "op")
    )
    return spread(asked, realtime_order(), nonmonotonic_send(), int_nonmonotonic_send())


def so_far(when: str, window: WindowSpec, name: str) -> list[Column]:
    """The highest offset so far that nothing excuses, and the highest of all with its excuse and index."""
    bare = F.expr(f"max(if({when} and excuse is null, ack, null))")
    top = F.expr(f"max(if({when}, struct(ack, excuse, done), null))")
    return [bare.over(window).alias(f"{name}_bare"), top.over(window).alias(f"{name}_top")]


def lower(name: str, which: str, law: str, by: str) -> Column:
    """The send at hand has a lower offset than the highest of those before it."""
    excused = f"least(excuse, if({which}_bare > ack, null, {which}_top.excuse))"
    return finding(
        name,
        f"{which}_top.ack > ack and {law}",
        offset="ack",
        value="value",
        seen=f"{which}_top.ack",
        process="process",
        ops=f"array_distinct(array_compact(array({which}_top.done, invoked, done)))",
        by=by.format(excused=excused),
    )


def realtime_order() -> Column:
    """Send a was ok before send b was invoked, yet b has the lower offset."""
    return lower(names.REALTIME_ORDER, "real", "overlaps is null and invoked is not null", "{excused}")


def nonmonotonic_send() -> Column:
    """A process's later ok send at a lower offset than one of an op before."""
    return lower(
        names.NONMONOTONIC_SEND,
        "mine",
        "overlaps is null",
        f"coalesce({{excused}}, if(retried, {RETRIES}, null))",
    )


def int_nonmonotonic_send() -> Column:
    """The same inside one op; a transaction's sends keep no order among one another."""
    return lower(names.INT_NONMONOTONIC_SEND, "op", "f = 'send'", f"if(retried, {RETRIES}, null)")
