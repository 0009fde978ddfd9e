"""What the cluster promised about records: none lost, none made up, none shown that failed, none twice.

Each check is a pure function from the values (values.py) to findings (COLUMNS). Empty means none.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers import names
from checkers.facts import Facts
from checkers.frames import Frames
from checkers.values import ISOLATION, RETRIES

# by: what permits it (values.PERMITTED_BY), null: a bug. seen: another number that the text needs.
COLUMNS = {
    "run": "int", "name": "string", "partition": "bigint", "offset": "bigint", "value": "bigint", "how": "string",
    "nodes": "array<string>", "ops": "array<bigint>", "seen": "bigint", "process": "bigint", "by": "int",
}


def finding(rows: DataFrame, name: str, **told: Column | str) -> DataFrame:
    """Rows as findings; what is not told is null."""
    columns = {"run": F.col("run"), "name": F.lit(name), "partition": F.col("partition")}
    columns |= {key: F.col(value) if isinstance(value, str) else value for key, value in told.items()}
    return rows.select(*(columns.get(key, F.lit(None)).cast(kind).alias(key) for key, kind in COLUMNS.items()))


def ops(*indexes: str) -> Column:
    return F.array_distinct(F.array_compact(F.array(*indexes)))


def lost_write(values: DataFrame, frames: Frames, facts: Facts) -> DataFrame:
    """An ok send whose record is not in the leader's final log at its offset, and where it is instead."""
    lost = values.where("lost and type = 'ok'")
    leaders = frames.entries.where("not bad").join(
        F.broadcast(facts.partitions.select("run", "partition", F.col("leader").alias("node"))),
        ["run", "partition", "node"]).groupBy("run", "partition", "offset").agg(F.max("value").alias("instead"),
                                                                                F.lit(True).alias("taken"))
    placed = lost.join(leaders.withColumnRenamed("offset", "ack"), ["run", "partition", "ack"], "left")
    how = (F.when(F.size("held") > 0, "moved").when(F.col("taken"), "overwritten")
           .when(F.size("others") > 0, "orphaned").otherwise("gone"))
    by = F.when(F.col("weak_acks"), 1).otherwise(F.col("cause"))
    return finding(placed, names.LOST_WRITE, offset="ack", value="value", how=how, nodes="nodes", by=by,
                   ops=ops("invoked", "acked_at"), seen=F.coalesce(F.element_at(F.sort_array("held"), 1), "instead"))


def unseen(values: DataFrame) -> DataFrame:
    """An ok send in the leader's log below what a reader may see, which no final read returned."""
    places = F.filter("live", lambda o: (o >= F.col("log_start")) & (o < F.col("readable"))
                      & (F.col("ack").isNull() | (o == F.col("ack"))))
    missed = values.where("type = 'ok' and unseen_judged and not final and not repeated").withColumn("at", places)
    return finding(missed.where(F.size("at") > 0), names.UNSEEN, offset=F.array_min("at"), value="value",
                   ops=ops("invoked", "acked_at"), nodes="nodes")


def duplicate(values: DataFrame) -> DataFrame:
    """One value at two offsets of the leader's final log, or read at two."""
    twice = values.where("not repeated and (size(live) > 1 or size(read_at) > 1)")
    places = F.sort_array(F.when(F.size("live") > 1, F.col("live")).otherwise(F.col("read_at")))
    by = F.coalesce("cause", F.when(F.col("retried"), RETRIES))
    return finding(twice, names.DUPLICATE, offset=places[0], seen=places[1], value="value", by=by, nodes="nodes",
                   ops=ops("invoked", "acked_at", "read_by"))


def phantom(values: DataFrame) -> DataFrame:
    """A value read or logged that nobody sent to that partition."""
    made_up = values.where("sent = 0 and (size(read_at) > 0 or size(nodes) > 0)")
    place = F.coalesce(F.array_min("read_at"), F.array_min("held"))
    return finding(made_up, names.PHANTOM, offset=place, value="value", nodes="nodes", ops=ops("read_by"))


def g1a(values: DataFrame) -> DataFrame:
    """A value whose send failed for certain was read, or stands committed in the leader's log."""
    standing = F.exists("live", lambda o: o < F.col("hw"))
    failed = values.where("type = 'fail' and not repeated").withColumn("standing", F.coalesce(standing, F.lit(False)))
    shown = failed.where((F.size("read_at") > 0) | F.col("standing"))
    by = F.when(~F.col("standing") & F.col("uncommitted"), ISOLATION)
    return finding(shown, names.G1A, offset=F.coalesce(F.array_min("read_at"), F.array_min("live")), value="value",
                   by=by, nodes="nodes", ops=ops("invoked", "acked_at", "read_by"))


def saw_then_lost(values: DataFrame) -> DataFrame:
    """An offset was read with a value that the leader's final log does not hold there."""
    away = F.filter("read_at", lambda o: (o >= F.col("log_start")) & ~F.array_contains("held", o))
    seen = values.where("lost_judged and size(read_at) > 0").withColumn("away", away)
    return finding(seen.select("*", F.explode("away").alias("was_at")), names.SAW_THEN_LOST, offset="was_at",
                   value="value", nodes="nodes", by="cause", ops=ops("read_by", "acked_at"))


def inconsistent_offsets(values: DataFrame) -> DataFrame:
    """One offset showed two values to clients: acks of ok sends and reads."""
    shown = F.array_distinct(F.array_union("read_at", F.array_compact(F.array("ack"))))
    places = values.where("size(read_at) > 0 or ack is not null").select(
        "run", "partition", "value", "excuse", F.least("acked_at", "read_by").alias("op"),
        F.explode(shown).alias("offset"))
    two = places.groupBy("run", "partition", "offset").agg(
        F.count_distinct("value").alias("values"), F.min("value").alias("value"), F.max("value").alias("seen"),
        F.min("excuse").alias("by"), F.sort_array(F.collect_set("op")).alias("ops"),
    ).where(F.col("values") > 1)
    return finding(two, names.INCONSISTENT_OFFSETS, offset="offset", value="value", seen="seen", ops="ops", by="by")
