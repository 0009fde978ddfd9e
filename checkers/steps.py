"""The trace, node by node: each line with what the same node had said before it.

Columns of `steps_of`, beside those of the trace and of its partition (facts.TRACED): tick; leads (only a
leader says this), ruling (the controller's word); last_hw, last_leo; start (of the epoch that the node
leads); known (since its last start the node has told of this log, or been given a role by the controller);
top (highest epoch of its earlier roles); led (epoch and HW of its last word as leader); ruled (the
controller's last word); fresh, inherited (of what an `hw` line of a leader commits: what its own epoch wrote,
what earlier ones wrote).

A process that ends between its trace and its disk has told of an append that never was, and of a HW and an
ack that rested on it and never left it. Such a step is the last of its process, it appends, and the next
start finds the log to end in or before that append: what it committed above that is void.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.agreement import named
from checkers.findings import kept, together
from checkers.traces import looked_at, ruled

_PAST = Window.unboundedPreceding
_ROLE = "event in ('become_leader', 'become_follower')"
_LEADS = """coalesce(role = 'leader' or event in ('become_leader', 'ack', 'fetch', 'isr_proposed')
    or (event = 'isr' and leo is not null), false)"""
# Two apart: the times differ by more than the clocks may.
_TICK = "if(clock_error = 0, 2 * time, time div (clock_error + 1))"


def steps_of(trace: DataFrame, partitions: DataFrame, small: bool) -> DataFrame:
    """The frame described above, one row a line that is looked at; `partitions`: the traced ones' facts."""
    lines, partitions = looked_at(trace), partitions.drop("excuses", "bottom")
    of_logs = lines.where("partition is not null").join(partitions, ["run", "partition"])
    # The controller is no broker of the run; any other line by a name that no broker has is nobody's.
    believed = of_logs.where(ruled() != F.expr("array_contains(nodes, node)")).drop("nodes")
    logs = believed.withColumn("alone", F.lit(False))
    told = together([logs, started(lines, partitions).select(*logs.columns)], small)
    if not small:  # what follows goes by partition, or finer, and needs no more shuffles
        told = told.repartition("run", "partition")
    replica = Window.partitionBy("run", "node", "partition").orderBy("seq")
    before, until_now = replica.rowsBetween(_PAST, -1), replica.rowsBetween(_PAST, 0)
    rows = told.select("*", ruled().alias("ruling"), *named(leads=_LEADS, tick=_TICK)).select(
        "*",
        last("if(alone, null, hw)", before, "last_hw"),
        last("if(alone, null, leo)", before, "last_leo"),
        last("if(event != 'start', struct(time, leo), null)", before, "said"),
        last("if(event = 'append' and leads, struct(time, offset), null)", before, "grew"),
        last(f"if({_ROLE} or event = 'start', not alone, null)", until_now, "known"),
        last("if(event = 'become_leader', struct(epoch, start), null)", until_now, "election"),
        last("if(leads, struct(epoch, hw), null)", before, "led"),
        last("if(ruling, struct(leader, epoch, isr, partition_epoch), null)", before, "ruled"),
        F.max(F.expr(f"if({_ROLE}, epoch, null)")).over(before).alias("top"),
        F.lead(F.expr("event = 'start'")).over(replica).alias("told_anew"),
    )
    return kept(with_commits(kept(rows.where("not (alone and coalesce(told_anew, false))")), small))


def last(expression: str, window: object, name: str) -> Column:
    return F.last(F.expr(expression), ignorenulls=True).over(window).alias(name)  # type: ignore[arg-type]


def started(lines: DataFrame, partitions: DataFrame) -> DataFrame:
    """A process that starts holds no log but those it tells of right after: a start of the node alone, as one
    of each of its partitions with an empty log. It goes where the partition's own follows."""
    bare = lines.where("event = 'start' and partition is null").drop("partition", "leo", "hw", "epochs")
    empty = {"leo": "0L", "hw": "0L", "epochs": "cast(array() as array<array<bigint>>)"}
    here = bare.join(partitions, "run").where("array_contains(replicas, node)")
    return here.select("*", *named(**empty, alone="true"))


def with_commits(rows: DataFrame, small: bool) -> DataFrame:
    """`fresh` and `inherited` of what each line of a leader's HW commits, and `goal`, where that ends."""
    shorter = rows.where(
        "event = 'start' and leo < said.leo and grew.time = said.time and leo >= grew.offset"
    )
    cut = shorter.groupBy("run", "node", "partition", F.col("said.time").alias("time")).agg(
        F.max("leo").alias("recovered")
    )
    # Who begins to lead shows what it has below its HW, whoever moved that so far.
    begins = "event = 'become_leader' and hw > 0"
    moves = f"({begins} or event = 'hw' and leads and hw > coalesce(last_hw, 0))"
    low = "if(event = 'become_leader', 0L, coalesce(last_hw, 0))"
    told = rows.join(
        cut.hint("shuffle_hash" if small else "broadcast"), ["run", "node", "partition", "time"], "left"
    )
    ranged = told.select(
        "*",
        *named(
            began_at="if(election.epoch = epoch, election.start, null)",
            lo=f"if({moves}, {low}, null)",
            goal=f"if({moves}, least(hw, coalesce(recovered, hw)), null)",
        ),
    ).drop("start", "said", "election", "grew", "told_anew")
    return ranged.withColumnRenamed("began_at", "start").select(
        "*",
        *named(
            fresh="if(goal > greatest(lo, start), struct(greatest(lo, start) as lo, goal as hi), null)",
            inherited="if(least(goal, coalesce(start, goal)) > lo, "
            "struct(lo as lo, least(goal, coalesce(start, goal)) as hi), null)",
        ),
    )
