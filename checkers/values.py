"""What became of every value: one row a (run, partition, value), from sends, reads and the final logs together.

Columns: run partition value; sent (invocations to this partition), repeated (sent more than once in the run);
invoked, invoked_time (of its send); type, acked_at (index of the completion), process, f, pos, ack (offset of an ok);
read_at (offsets read), read_by (index of the first), final (some final read returned it); held, live (offsets in the
leader's log; live: not aborted), others (nodes that hold it beside the leader), nodes (all that do);
lost (an ok or doubtful send whose record is not where it was); cause (what permits that loss and what follows from
it), excuse (the same, and acks where nobody read it); and the partition's facts.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.facts import Facts
from checkers.frames import Frames

# What permits a finding, in the order in which the first that applies is named; odd ones are no more than a maybe.
ACKS, UNCLEAN, UNCLEAN_MAYBE, BUDGET, BUDGET_MAYBE, RETRIES, SUBSCRIBE, ISOLATION = 1, 2, 3, 4, 5, 6, 7, 8
PERMITTED_BY = {
    ACKS: "acks", UNCLEAN: "unclean.leader.election.enable", UNCLEAN_MAYBE: "unclean.leader.election.enable",
    BUDGET: "fault budget", BUDGET_MAYBE: "fault budget", RETRIES: "retries", SUBSCRIBE: "subscribe",
    ISOLATION: "isolation",
}
MAYBES = (UNCLEAN_MAYBE, BUDGET_MAYBE)


def values_of(frames: Frames, facts: Facts) -> DataFrame:
    """The frame described above; kept, for most checks begin with it."""
    seen = gathered(frames, facts)
    invoked = F.count_if((F.col("tag") == "send") & (F.col("type") == "invoke"))
    is_send, entry = F.col("tag") == "send", F.col("tag") == "entry"
    read = F.col("tag") == "read"
    completed = F.min(F.when(is_send & (F.col("type") != "invoke"),
                             F.struct("index", "type", "offset", "process", "f", "pos")))
    begun = F.min(F.when(is_send & (F.col("type") == "invoke"), F.struct("index", "time")))
    rows = seen.groupBy("run", "partition", "value").agg(
        invoked.alias("sent"), begun.alias("begun"), completed.alias("done"),
        F.collect_set(F.when(read, F.col("offset"))).alias("read_at"),
        F.min(F.when(read, F.col("index"))).alias("read_by"),
        F.coalesce(F.max(F.col("final")), F.lit(False)).alias("final"),
        F.collect_set(F.when(entry & F.col("leads"), F.col("offset"))).alias("held"),
        F.collect_set(F.when(entry & F.col("leads") & ~F.col("aborted"), F.col("offset"))).alias("live"),
        F.collect_set(F.when(entry & ~F.col("leads"), F.col("node"))).alias("others"),
        F.sort_array(F.collect_set(F.when(entry, F.col("node")))).alias("nodes"),
    )
    everywhere = F.sum("sent").over(Window.partitionBy("run", "value"))
    told = rows.select(
        "run", "partition", "value", "sent", (everywhere > 1).alias("repeated"),
        F.col("begun.index").alias("invoked"), F.col("begun.time").alias("invoked_time"),
        F.col("done.type").alias("type"), F.col("done.index").alias("acked_at"),
        F.col("done.process").alias("process"), F.col("done.f").alias("f"), F.col("done.pos").alias("pos"),
        F.when(F.col("done.type") == "ok", F.col("done.offset")).alias("ack"),
        "read_at", "read_by", "final", "held", "live", "others", "nodes",
    )
    joined = told.join(F.broadcast(facts.partitions), ["run", "partition"], "left")
    return excused(joined.withColumn("lost", is_lost())).persist()


def gathered(frames: Frames, facts: Facts) -> DataFrame:
    """Sends, reads and entries under one another."""
    clients = frames.history.where("kind in ('send', 'read')").join(
        F.broadcast(facts.final.withColumn("is_final", F.lit(True))), ["run", "process"], "left")
    asked = clients.select(
        "run", "partition", "value", F.col("kind").alias("tag"), "type", "index", "time", "offset", "process", "f",
        "pos", ((F.col("kind") == "read") & F.coalesce("is_final", F.lit(False))).alias("final"),
        F.lit(None).cast("string").alias("node"), F.lit(False).alias("leads"), F.lit(False).alias("aborted"),
    )
    ours = frames.entries.where("not bad and value is not null").join(
        F.broadcast(facts.partitions.select("run", "partition", "leader")), ["run", "partition"], "left")
    logged = ours.select(
        "run", "partition", "value", F.lit("entry").alias("tag"), *(F.lit(None).cast(kind).alias(name) for name, kind in (
            ("type", "string"), ("index", "bigint"), ("time", "bigint"))), "offset",
        *(F.lit(None).cast(kind).alias(name) for name, kind in (("process", "bigint"), ("f", "string"), ("pos", "int"))),
        F.lit(False).alias("final"), "node", F.coalesce(F.col("node") == F.col("leader"), F.lit(False)).alias("leads"),
        F.coalesce("aborted", F.lit(False)).alias("aborted"),
    )
    together = asked.unionByName(logged)
    return together.coalesce(1) if frames.small else together


def is_lost() -> Column:
    """An acked record that is not at its place in the leader's log; a doubtful one that was read and is not there."""
    at_place = F.array_contains("held", F.col("ack"))
    nowhere = F.size("held") == 0
    ok = F.when(F.col("ack").isNotNull(), ~at_place & (F.col("ack") >= F.col("log_start"))) \
        .otherwise(nowhere & (F.col("log_start") == 0))
    gone = F.exists("read_at", lambda o: (o >= F.col("log_start")) & ~F.array_contains("held", o))
    doubtful = gone | nowhere
    lost = F.when(F.col("type") == "ok", ok).when(F.col("type") == "fail", False).when(F.col("sent") > 0, doubtful)
    return F.coalesce(F.col("lost_judged") & lost & ~F.col("repeated"), F.lit(False))


def excused(values: DataFrame) -> DataFrame:
    """With cause and excuse. Where the leader's log is not known, what may have been lost is taken as a maybe."""
    before = lambda index, time: (  # noqa: E731
        (F.coalesce("invoked", F.lit(-1)) < F.col(index))
        | (F.lit(False) if time is None else F.coalesce("invoked_time", F.lit(-1)) < F.col(time)))
    cause = (
        F.when(before("unclean_index", "unclean_time"), UNCLEAN).when(F.col("unclean_maybe"), UNCLEAN_MAYBE)
        .when(before("budget_index", "budget_time"), BUDGET).when(before("budget_maybe_index", None), BUDGET_MAYBE)
    )
    sent = (F.col("sent") > 0) & (F.coalesce("type", F.lit("info")) != "fail")
    unsure = F.when(cause.isin(UNCLEAN, UNCLEAN_MAYBE), UNCLEAN_MAYBE).when(cause.isNotNull(), BUDGET_MAYBE)
    blind = ~F.coalesce("lost_judged", F.lit(False)) & sent
    told = values.withColumn("cause", F.when(F.col("lost"), cause).when(blind, unsure))
    unread = F.col("weak_acks") & (F.size("read_at") == 0) & (F.col("lost") | blind)
    return told.withColumn("excuse", F.when(unread, ACKS).otherwise(F.col("cause")))
