"""The trace, partition by partition: each line with what the other nodes had said surely before it.

Columns of `standings_of`, beside those of steps: `members`, one a replica: node, leo, known (as in steps),
and grown, (epoch, end) of the highest epoch that it may have appended in, by lines so near as well; `goal`
(the highest HW of a leader by then, this line's own among it) and `goal_epoch` (the highest epoch of a leader
that moved one); lead (epoch, HW) and opened (epoch, start) of the leader of the highest epoch; ctl, the
controller's last word; crowded: another node has a line so near in time that it may as well have come first;
after: of the last of such lines, and of the last before a broker is unfenced, members, goal and ctl as all of
them have left it, until `ends`.

The state of the line's own node is that after the line. One sort a partition; the frames only grow, so the
work is linear. What may have come before or after is taken for neither: no check claims anything of a crowded
line, unless what it claims needs no other node's word, or stands whichever came first (grown).
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from checkers.agreement import named
from checkers.findings import kept

_LAST = (1 << 62) - 1
# What a replica has appended; a start that found more than was told may have appended in any epoch.
_GROWN = f"""case when event = 'append'
        then struct(coalesce(nullif(epochs[size(epochs) - 1][0], -1L), epoch) as epoch, offset + count as end)
    when event = 'start' and size(epochs) > 0
        then struct(coalesce(nullif(epochs[size(epochs) - 1][0], -1L), {_LAST}L) as epoch, leo as end)
    when event = 'start' and epochs is null and leo > coalesce(last_leo, 0)
        then struct({_LAST}L as epoch, leo as end) end"""
# Each time of unfencing belongs to those lines, none surely apart from the next, after which it may come.
_UNFENCED = "exists(unfenced, at -> at > begun - 2 and at <= {ends} - 2)"


def standings_of(steps: DataFrame, most_replicas: int) -> DataFrame:
    """The frame described above; kept. `most_replicas`: of any partition in the call."""
    order, replicas = Window.partitionBy("run", "partition").orderBy("tick"), range(most_replicas)
    surely = order.rangeBetween(Window.unboundedPreceding, -2)
    perhaps = order.rangeBetween(Window.unboundedPreceding, 1)
    apart = F.coalesce(F.col("tick") - F.lag("tick").over(order) >= 2, F.lit(True))
    rows = steps.where("event not in ('fetch', 'isr_proposed')").select(
        "*", F.expr(_GROWN).alias("grows"), F.xxhash64("node").alias("mark"), apart.alias("apart")
    )
    seen = rows.select(
        "*",
        *(of_replica(number, "struct(seq, leo, known)", surely, "replica") for number in replicas),
        *(of_replica(number, "grows", perhaps, "grown") for number in replicas),
        *(of_replica(number, "struct(seq, leo, known)", perhaps, "left") for number in replicas),
        newest("goal", surely, "goal_before"),
        newest("goal", perhaps, "goal_until"),
        newest("if(goal is not null, epoch, null)", surely, "goal_epoch"),
        newest("if(leads, struct(epoch, hw), null)", surely, "lead"),
        newest("if(start is not null, struct(epoch, start), null)", surely, "opened"),
        newest("if(ruling, struct(tick, seq, epoch, isr), null)", surely, "ctl"),
        newest("if(ruling, struct(tick, seq, epoch, isr), null)", perhaps, "ctl_until"),
        F.lead("tick").over(order).alias("next"),
        F.max(F.expr("if(apart, tick, null)")).over(order).alias("begun"),
        *(
            F.expr(f"{how}").over(window).alias(name + which)
            for window, which in ((surely, "_before"), (perhaps, "_until"))
            for name, how in (("lines", "count(*)"), ("marks", "sum(mark)"))
        ),
    )
    near = "marks_until - coalesce(marks_before, 0L) != (lines_until - lines_before) * mark"
    members = F.array(
        *(member(number, f"node = get(replicas, {number})", f"replica_{number}") for number in replicas)
    )
    ends = f"coalesce(next, {_LAST}L)"
    left = F.array(*(member(number, own="false", said=f"left_{number}") for number in replicas))
    after = F.struct(left.alias("members"), *named(goal="goal_until", ctl="ctl_until", ends=ends))
    closes = F.expr(f"({near} or {_UNFENCED.format(ends=ends)}) and {ends} >= tick + 2")
    told = seen.select(
        *(name for name in rows.columns if name not in ("goal", "unfenced", "apart")),
        members.alias("members"),
        "goal_epoch", "lead", "opened", "ctl",
        F.expr("greatest(goal_before, goal)").alias("goal"),
        F.col("goal").alias("commits"),
        F.expr(f"coalesce({near}, false)").alias("crowded"),
        F.when(closes, after).alias("after"),
    )  # fmt: skip
    return kept(told)


def newest(expression: str, window: object, name: str) -> Column:
    return F.max(F.expr(expression)).over(window).alias(name)  # type: ignore[arg-type]


def of_replica(number: int, expression: str, window: object, name: str) -> Column:
    return newest(f"if(node = get(replicas, {number}), {expression}, null)", window, f"{name}_{number}")


def member(number: int, own: str, said: str) -> Column:
    """One replica as it was when it `said` that; as it is where the line is its own."""
    return F.struct(
        *named(
            node=f"get(replicas, {number})",
            leo=f"if({own}, leo, {said}.leo)",
            known=f"coalesce(if({own}, known, {said}.known), false)",
            grown=f"grown_{number}",
        )
    )
