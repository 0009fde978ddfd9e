"""Whether the replicas' logs agree, and whether each is a log at all.

What is said of an offset across replicas (diverged, under-replicated, two records under one epoch) is one finding an
offset; what is said of one log (epochs that fall, a wrong cache, a malformed dump) is one finding a place of it.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers import names
from checkers.durability import finding
from checkers.facts import Facts
from checkers.frames import Frames


def placed_entries(frames: Frames, facts: Facts) -> DataFrame:
    """The good entries with what their replica's row says; `tuple` is what two replicas must agree on."""
    whose = F.broadcast(facts.replicas.select(
        "run", "node", "partition", "leads", "in_isr", "hw", "log_start", "settled", "struck", "compact", "cache"))
    entries = frames.entries.where("not bad").join(whose, ["run", "node", "partition"], "left")
    compact = F.coalesce("compact", F.lit(False))
    crc = F.when(~compact, F.col("crc"))
    return entries.withColumn("record", F.xxhash64("value", crc)).withColumn(
        "tuple", F.xxhash64("epoch", "value", crc))


def by_offset(entries: DataFrame, facts: Facts) -> DataFrame:
    """Findings about an offset across replicas: diverged and under-replicated."""
    below = F.col("offset") < F.col("hw")
    compared = F.col("settled") | (below & (F.col("in_isr") | ~F.col("struck")))
    # With a replica outside the ISR nothing is claimed where data was lost, so those are compared among the ISR.
    tuples = F.when(F.coalesce(compared, F.lit(False)), F.col("tuple"))
    together = entries.groupBy("run", "partition", "offset").agg(
        F.min(tuples).alias("least"), F.max(tuples).alias("most"), F.collect_set("node").alias("holders"),
        F.max(F.when(F.col("leads"), F.col("tuple"))).alias("leaders"),
        F.collect_set(F.when(tuples.isNotNull(), F.struct("node", "tuple"))).alias("held"),
        F.max(F.when(F.col("leads"), F.col("value"))).alias("value"),
        F.coalesce(F.max("leads"), F.lit(False)).alias("led"),
    )
    right = F.coalesce("leaders", F.array_min("held")["tuple"])
    differ = F.sort_array(F.transform(F.filter("held", lambda h: h.tuple != F.col("right")), lambda h: h.node))
    diverged = together.where(F.col("least") != F.col("most")).withColumn("right", right)
    told = finding(diverged.withColumn("nodes", differ), names.DIVERGED, offset="offset", value="value", nodes="nodes")
    expected = facts.partitions.where("full").select("run", "partition", "members", "hw", "log_start")
    lacking = F.filter("members", lambda m: (m.log_start <= F.col("offset"))
                       & ~F.array_contains("holders", m.node))
    short = together.where("led").join(F.broadcast(expected), ["run", "partition"]).where(
        "offset < hw and offset >= log_start").withColumn("lacking", lacking).where(F.size("lacking") > 0)
    nodes = F.sort_array(F.transform("lacking", lambda m: m.node))
    return told.unionByName(finding(short.withColumn("nodes", nodes), names.UNDER_REPLICATED, offset="offset",
                                    value="value", nodes="nodes"))


def two_records(entries: DataFrame) -> DataFrame:
    """One (epoch, offset) that names two records."""
    two = entries.where("epoch >= 0").groupBy("run", "partition", "epoch", "offset").agg(
        F.min("record").alias("least"), F.max("record").alias("most"), F.min("value").alias("value"),
        F.sort_array(F.collect_set("node")).alias("nodes"),
    ).where(F.col("least") != F.col("most"))
    return finding(two, names.EPOCH_LINEAGE, offset="offset", value="value", how=F.lit("two records"), nodes="nodes",
                   seen="epoch")


def in_file_order(entries: DataFrame) -> DataFrame:
    """Every entry with the one before it in its log, as the dump has them."""
    log = Window.partitionBy("run", "node", "partition").orderBy("block", "at")
    before = log.rowsBetween(Window.unboundedPreceding, -1)
    return entries.select(
        "*", F.lag("offset").over(log).alias("last_offset"),
        F.last(F.when(F.col("epoch") >= 0, F.col("epoch")), ignorenulls=True).over(before).alias("last_epoch"))


def epochs_fall(ordered: DataFrame) -> DataFrame:
    """Epochs that fall inside a log."""
    falls = ordered.where("epoch >= 0 and epoch < last_epoch").withColumn("nodes", F.array("node"))
    return finding(falls, names.EPOCH_LINEAGE, offset="offset", value="value", how=F.lit("falls"), nodes="nodes",
                   seen="last_epoch")


def cache_is_wrong(entries: DataFrame, facts: Facts) -> DataFrame:
    """Records whose epoch is not what the cache says of their offset, and cache entries above LEO."""
    before = F.filter("cache", lambda entry: entry.start <= F.col("offset"))
    said = F.coalesce(F.array_max(before)["epoch"], F.lit(-1))
    wrong = entries.where("epoch >= 0 and cache is not null").withColumn("said", said).where(
        F.col("said") != F.col("epoch")).withColumn("nodes", F.array("node"))
    above = facts.replicas.where("cache is not null").select("run", "node", "partition", "leo",
                                                             F.explode("cache").alias("entry"))
    high = above.where("entry.start > leo").withColumn("nodes", F.array("node"))
    return finding(wrong, names.EPOCH_LINEAGE, offset="offset", value="value", how=F.lit("cache"), nodes="nodes",
                   seen="said").unionByName(
        finding(high, names.EPOCH_LINEAGE, offset="entry.start", how=F.lit("cache"), nodes="nodes",
                seen="entry.epoch"))


def malformed(ordered: DataFrame, facts: Facts) -> DataFrame:
    """Steps of a dump that are none, bytes that fit no CRC, and bounds that contradict the entries."""
    whole = facts.replicas.where("whole").select("run", "node", "partition", F.lit(True).alias("is_whole"))
    offset, last = F.col("offset"), F.col("last_offset")
    gap = (offset > last + 1) & ~F.coalesce("compact", F.lit(False)) & F.coalesce("is_whole", F.lit(False))
    how = (F.when(offset == last, "doubled").when(offset < last, "disordered").when(gap, "gap"))
    steps = ordered.join(F.broadcast(whole), ["run", "node", "partition"], "left").withColumn("nodes", F.array("node"))
    out_of_step = steps.withColumn("how", how).where(F.col("how").isNotNull())
    damaged = steps.where("crc_ok = false")
    return finding(out_of_step, names.MALFORMED_LOG, offset="offset", value="value", how="how", nodes="nodes",
                   seen="last_offset").unionByName(
        finding(damaged, names.MALFORMED_LOG, offset="offset", value="value", how=F.lit("crc"), nodes="nodes")
    ).unionByName(bounds_contradict(ordered, facts))


def bounds_contradict(ordered: DataFrame, facts: Facts) -> DataFrame:
    """HW above the LEO of a running node; LEO or log_start that are not where the entries end or begin."""
    ends = ordered.groupBy("run", "node", "partition").agg(F.min("offset").alias("first"), F.max("offset").alias("end"))
    rows = facts.replicas.select("run", "node", "partition", "hw", "leo", "log_start", "running", "whole", "compact")
    both = rows.join(ends, ["run", "node", "partition"], "left").withColumn("nodes", F.array("node"))
    leo, start = F.col("leo"), F.col("log_start")
    empty, compact = F.col("end").isNull(), F.col("compact")
    short = F.when(empty, (leo != start) & ~compact).when(compact, leo <= F.col("end")).otherwise(
        leo != F.col("end") + 1)
    early = F.when(empty, False).when(compact, F.col("first") < start).otherwise(F.col("first") != start)
    found: list[tuple[str, Column, str, str]] = [
        ("hw", F.col("running") & (F.col("hw") > leo), "leo", "hw"),
        ("leo", F.col("whole") & short, "leo", "end"), ("log_start", F.col("whole") & early, "log_start", "first"),
    ]
    told = [finding(both.where(wrong), names.MALFORMED_LOG, offset=offset, how=F.lit(how), nodes="nodes", seen=seen)
            for how, wrong, offset, seen in found]
    return told[0].unionByName(told[1]).unionByName(told[2])
