"""The order of sends: offsets against real time, against their process, against their place in the op.

A finding is a send whose offset is lower than one that came before it; it is permitted only if no other earlier
send, none whose record was lost with leave, was higher too.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers import names
from checkers.durability import finding, ops
from checkers.facts import Facts
from checkers.values import RETRIES



def acked_sends(values: DataFrame, facts: Facts) -> DataFrame:
    """Ok sends with offsets, of processes whose ops do not overlap."""
    return values.where("type = 'ok' and ack is not null and not repeated").join(
        F.broadcast(facts.overlapping), ["run", "process"], "left_anti")


def highest(when: Column) -> tuple[Column, Column]:
    """(the highest offset that nothing excuses, the highest of all with its excuse, index and value)."""
    return (F.max(F.when(when & F.col("excuse").isNull(), F.col("ack"))),
            F.max(F.when(when, F.struct("ack", "excuse", "acked_at", "value"))))


def permitted(own_by: Column) -> Column:
    """What permits a send below `top`: its own loss, or that of all that were higher."""
    others = F.when(F.coalesce(F.col("bare") <= F.col("ack"), F.lit(True)), F.col("top.excuse"))
    return F.least(own_by, others)


def told(rows: DataFrame, name: str, by: Column) -> DataFrame:
    below = rows.where(F.col("top.ack") > F.col("ack"))
    return finding(below, name, offset="ack", value="value", seen="top.ack", process="process", by=by,
                   ops=ops("top.acked_at", "invoked", "acked_at"))


def realtime_order(values: DataFrame, facts: Facts) -> DataFrame:
    """Send a was ok before send b was invoked, yet b has the lower offset."""
    sends = acked_sends(values, facts).where("invoked is not null").select(
        "run", "partition", "value", "process", "ack", "excuse", "invoked", "acked_at")
    both = sends.select("*", F.explode(F.array(F.col("acked_at"), F.col("invoked"))).alias("moment"))
    so_far = Window.partitionBy("run", "partition").orderBy("moment").rowsBetween(Window.unboundedPreceding, -1)
    bare, top = highest(F.col("moment") == F.col("acked_at"))
    asked = both.select("*", bare.over(so_far).alias("bare"), top.over(so_far).alias("top")).where(
        F.col("moment") == F.col("invoked"))
    return told(asked, names.REALTIME_ORDER, permitted(F.col("excuse")))


def nonmonotonic_send(values: DataFrame, facts: Facts) -> DataFrame:
    """A process's later ok send at a lower offset than one of an op before."""
    sends = acked_sends(values, facts)
    earlier = Window.partitionBy("run", "process", "partition").orderBy("acked_at").rangeBetween(
        Window.unboundedPreceding, -1)
    bare, top = highest(F.lit(True))
    rows = sends.select("*", bare.over(earlier).alias("bare"), top.over(earlier).alias("top"))
    retried = F.when(F.col("retried"), RETRIES)
    return told(rows, names.NONMONOTONIC_SEND, F.coalesce(permitted(F.col("excuse")), retried))


def int_nonmonotonic_send(values: DataFrame) -> DataFrame:
    """The same inside one op; a transaction's sends keep no order among one another."""
    sends = values.where("type = 'ok' and ack is not null and not repeated and f = 'send'")
    earlier = Window.partitionBy("run", "partition", "acked_at").orderBy("pos").rowsBetween(
        Window.unboundedPreceding, -1)
    _, top = highest(F.lit(True))
    rows = sends.select("*", top.over(earlier).alias("top"))
    return told(rows, names.INT_NONMONOTONIC_SEND, F.when(F.col("retried"), RETRIES))
