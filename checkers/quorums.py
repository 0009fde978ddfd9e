"""What acks and ISRs must be, by the trace: ack-rule and unsafe-isr.

Why a correct broker is never accused.

ack-rule. HW, offset and ISR stand in the ack's own line. That a member had appended the record shows in the
member's append, which was told before the fetch left that proved it to the leader; so its time is lower, or
too near to tell, and counts as lower. A record is known by its epoch, which is the acker's own for all that
it appended as leader; of older ones (a producer's repeated send) nothing is claimed, nor of a member that has
appended in a later epoch since, nor of one that found more at a start than it had told. Whether the member
has lost the record since is no matter.

unsafe-isr. Additions are looked at where the controller applies them, while its epoch is still the leader's:
nobody has heard of a later epoch, so the new member follows this leader, and has cut what it had to before
the fetch that proved it worthy; and the leader has counted it ever since (KIP-497), so its HW is not above
that member's LEO either. A member that has been started again counts only once it has registered
again, which voids the older incarnation's place (KIP-903). An acker
counts all that it has proposed, so it counts what the controller has accepted, until it hears of a later
word: its ISR covers the controller's in the same epoch (VL's ReplicationQuorumSuperset).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from checkers import names
from checkers.agreement import named
from checkers.commits import only_active
from checkers.facts import Facts
from checkers.findings import finding, spread

_ALL = "event = 'ack' and acks in ('all', '-1')"
_LINE = {"node": "node", "seq": "seq", "tick": "tick"}
# Members of the acker's ISR that had not appended the acked record in this epoch.
_LACKS = """array_sort(filter(members, m -> array_contains(isr, m.node) and m.node != node and not coalesce(
    m.grown.epoch > epoch or (m.grown.epoch = epoch and m.grown.end > offset), false)).node)"""
_ADDED = """filter(members, m -> m.known and array_contains(isr, m.node)
    and not array_contains(ruled.isr, m.node))"""


def by_quorum(standings: DataFrame, facts: Facts) -> list[DataFrame]:
    """Both checks."""
    acks = standings.where(_ALL).select(
        "*",
        *named(
            lacks=f"if(whole and offset >= start, {_LACKS}, array())",
            uncounted="if(ctl.epoch = epoch and not crowded, array_sort(array_except(ctl.isr, isr)), "
            "array())",
        ),
    )
    rulings = standings.where("ruling").select(
        "*",
        *named(
            added=f"if(event = 'isr' and ruled.epoch = epoch and not crowded, {_ADDED}, array())",
            floor="greatest(if(lead.epoch = epoch, lead.hw, null), "
            "if(opened.epoch = epoch, opened.start, null))",
        ),
    )
    return [ack_rule(acks), *unsafe_isr(acks, rulings, facts)]


def ack_rule(acks: DataFrame) -> DataFrame:
    """An acks=all ack with HW <= offset, with too small an ISR, or before every member had the record."""
    how = """case when hw <= offset then 'hw' when size(isr) < needed then 'isr'
        when size(lacks) > 0 then 'member' end"""
    return spread(
        acks.select("*", F.expr(how).alias("how")),
        finding(
            names.ACK_RULE,
            "how is not null",
            offset="offset",
            upto="offset + 1",
            how="how",
            seen="case how when 'hw' then hw when 'isr' then needed end",
            nodes="case how when 'isr' then isr when 'member' then lacks else array(node) end",
            **_LINE,
        ),
    )


def unsafe_isr(acks: DataFrame, rulings: DataFrame, facts: Facts) -> list[DataFrame]:
    """An ISR that took in a replica too far behind, left out its leader, went back in its own order, or is
    counted smaller by its leader than the controller has it."""
    line = "run", "partition", "node", "seq", "tick", "floor"
    short = rulings.select(*line, F.explode(F.expr("filter(added, m -> m.leo < floor)")).alias("member"))
    alive = only_active(short.withColumn("who", F.col("member.node")), facts)
    behind = alive.groupBy(*line).agg(*named(lacking="array_sort(collect_set(who))", least="min(member.leo)"))
    taken_in = finding(
        names.UNSAFE_ISR, "true", how="'behind'", offset="least", seen="floor", nodes="lacking", **_LINE
    )
    applied = spread(
        rulings,
        finding(
            names.UNSAFE_ISR, "leader is not null and not array_contains(isr, leader)", how="'leader'",
            nodes="array(leader)", offset="null", **_LINE,
        ),
        finding(
            names.UNSAFE_ISR, "partition_epoch <= ruled.partition_epoch", how="'order'",
            seen="partition_epoch", nodes="isr", offset="null", **_LINE,
        ),
    )  # fmt: skip
    smaller = (
        acks.where("size(uncounted) > 0")
        .groupBy("run", "partition", "node", "epoch", "uncounted")
        .agg(F.min(F.struct("seq", "tick", "offset")).alias("first"))
    )
    counted = finding(
        names.UNSAFE_ISR, "true", how="'smaller'", offset="first.offset", nodes="uncounted", node="node",
        seq="first.seq", tick="first.tick",
    )  # fmt: skip
    return [spread(behind, taken_in), applied, spread(smaller, counted)]
