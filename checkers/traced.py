"""Every check of the trace: what a node's own lines show, what the other nodes' lines show beside them.

Choices. A finding is: of hw-regressed and epoch-regressed a line; of two-leaders an epoch; of ack-rule an
ack; of leader-incomplete an election; of candidate-incomplete all that one replica lacks of one epoch's
records, told by the first of them; of unsafe-truncation a truncation; of unsafe-isr a line of the controller,
or what a leader's ISR lacks of the controller's in one epoch.

Why a correct broker is never accused, with clean elections and whatever else befalls it: see commits.py
(incompleteness, truncation) and quorums.py (acks, ISRs). What is told here stands on one node's own lines:

hw-regressed       a leader's HW is a maximum, and nobody leads an epoch twice
epoch-regressed    a role is taken only in an epoch above the last one, or that one again
two-leaders        the controller gives each epoch to one leader (any two lines prove it, in whatever order)
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from checkers import commits, names, quorums
from checkers.facts import Facts
from checkers.findings import finding, spread
from checkers.lineage import lineage_of
from checkers.standings import standings_of
from checkers.steps import steps_of


def by_line(trace: DataFrame, values: DataFrame, entries: DataFrame, facts: Facts) -> list[DataFrame]:
    """All findings of the trace. Only called where some run has one."""
    assert facts.traced is not None
    steps = steps_of(trace, facts.traced, facts.small)
    standings = standings_of(steps, facts.most_replicas)
    lineage = lineage_of(steps, facts.small)
    return [
        spread(steps, hw_regressed(), epoch_regressed()),
        two_leaders(steps),
        *commits.incomplete(steps, standings, lineage, values, entries=entries, facts=facts),
        *quorums.by_quorum(standings, facts),
    ]


def hw_regressed() -> Column:
    return finding(
        names.HW_REGRESSED,
        "leads and led.epoch = epoch and hw < led.hw",
        offset="hw", seen="led.hw", nodes="array(node)", node="node", seq="seq", tick="tick",
    )  # fmt: skip


def epoch_regressed() -> Column:
    return finding(
        names.EPOCH_REGRESSED,
        "event in ('become_leader', 'become_follower') and epoch < top",
        offset="null", seen="top", value="null", how="cast(epoch as string)", nodes="array(node)",
        node="node", seq="seq", tick="tick",
    )  # fmt: skip


def two_leaders(steps: DataFrame) -> DataFrame:
    """Two nodes that append, ack or move the HW as leader of one epoch; the second's first line is told."""
    acts = steps.where("leads and event in ('append', 'ack', 'hw')")
    firsts = acts.groupBy("run", "partition", "epoch", "node").agg(
        F.min(F.struct("tick", "seq", "node", "offset", "hw")).alias("first")
    )
    epochs = firsts.groupBy("run", "partition", "epoch").agg(
        F.sort_array(F.collect_list("first")).alias("firsts")
    )
    return spread(
        epochs,
        finding(
            names.TWO_LEADERS,
            "size(firsts) > 1",
            offset="coalesce(firsts[1].offset, firsts[1].hw)", seen="epoch", nodes="array_sort(firsts.node)",
            node="firsts[1].node", seq="firsts[1].seq", tick="firsts[1].tick",
        ),
    )  # fmt: skip
